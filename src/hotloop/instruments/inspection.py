"""Shows the state of an event loop over a Unix socket, to `python -m hotloop top`, `ps` and `pstree`.

Each client is sent the state of the loop as one JSON document; nothing is read from it. A thread does this, so that a
blocked loop can be inspected, too. Only the user has access: the socket's mode is 0600 before clients can connect, and
unless the program names another path it lies in a folder that no other user may enter.
"""

import asyncio
import atexit
import contextlib
import errno
import json
import logging
import os
import selectors
import socket
import stat
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from hotloop._asyncio.mixin import Behind
from hotloop._asyncio.shared_items import copy_of
from hotloop._switches import OFF, ON
from hotloop.instruments.loop_state import describe
from hotloop.instruments.threads import InstrumentThread

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("hotloop.inspection")

_SECONDS_FOR_A_CLIENT = 1.0
"""After how long a client is dropped that reads nothing of its answer."""

_CLIENTS_AT_MOST = 8
"""So many clients are answered at once. A further one replaces the oldest, so that no client can keep others out."""

_SECONDS_BEFORE_THE_NEXT = 0.1
"""How long to wait when the process has no descriptors left."""


def default_path(pid: int) -> Path:
    """The path of a process's socket, unless the program names another."""
    return Path(tempfile.gettempdir(), f"hotloop-{os.getuid()}", f"{pid}.sock")


class Inspection:
    """The socket of one loop: see allow_inspection(). A context manager that closes it at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        # The socket is bound to `path` as given, because a socket's address must be short. It is removed by its
        # absolute path, because the program may change its folder.
        self.path = path.absolute()
        self._loop = weakref.ref(loop)
        self._inode: int | None = None  # of the socket's file, once it is there
        self._connections: set[socket.socket] = set()  # of the clients
        self._sockets = contextlib.ExitStack()
        try:
            self._waker, self._woken = map(self._sockets.enter_context, socket.socketpair())
            self._listener = _listen(path)
            self._sockets.callback(self._listener.close)
            self._inode = path.stat().st_ino
            self._thread = InstrumentThread(self._run, "hotloop-inspection")
            self._thread.start()
        except BaseException:
            self._remove()
            self._sockets.close()
            raise
        _inspections.add(self)

    def shows(self, loop: object) -> bool:
        """Whether this socket shows `loop`."""
        return self._loop() is loop

    def stop(self, *, wait: bool = True) -> None:
        """Close the socket and remove it. Idempotent; from any thread.

        Without `wait` the file is gone as well, and the thread ends soon afterwards."""
        if self in _inspections:
            _inspections.discard(self)
            self._remove()
            self._waker.close()
            # If the thread holds the last reference to the loop, dropping it closes the loop, and so calls this method.
            if wait and self._thread is not threading.current_thread():
                self._thread.join()

    def __enter__(self) -> "Inspection":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def forget(self) -> None:
        """In a forked child: close the sockets, for which the parent goes on answering. The clients would otherwise
        wait until the child has ended, too."""
        self._sockets.close()
        for connection in self._connections:
            connection.close()

    def _remove(self) -> None:
        """Remove the socket's file, once, unless another has taken its place."""
        inode, self._inode = self._inode, None
        with contextlib.suppress(OSError):  # it is gone already, or the folder was locked
            if self.path.lstat().st_ino == inode:
                self.path.unlink()

    def _run(self) -> None:
        # Unlike epoll, poll() has no descriptor, which a forked child would inherit.
        with selectors.PollSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            clients = _Clients(selector, self._hang_up)
            while True:
                ready = [key.fileobj for key, _ in selector.select(clients.timeout())]
                if self._woken in ready:
                    break
                clients.send(ready)
                if self._listener in ready:
                    self._accept(clients)
            clients.close()
        self._sockets.close()

    def _accept(self, clients: "_Clients") -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # The client has disconnected, or there is no descriptor for it.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_SECONDS_BEFORE_THE_NEXT)
            return
        self._connections.add(connection)
        try:
            clients.add(connection, json.dumps(describe(self._loop())).encode())
        except Exception:
            self._hang_up(connection)
            logger.exception("an event loop could not be inspected")

    def _hang_up(self, connection: socket.socket) -> None:
        """Close a client's connection."""
        connection.close()
        self._connections.discard(connection)


class _Clients:
    """The clients that are being sent their answers, the oldest first."""

    def __init__(self, selector: selectors.BaseSelector, hang_up: Callable[[socket.socket], object]) -> None:
        self._selector = selector
        self._hang_up = hang_up
        # The rest of the answer, and the time.monotonic() by which the client has to read something of it.
        self._unsent: dict[Any, tuple[memoryview, float]] = {}

    def add(self, connection: socket.socket, answer: bytes) -> None:
        """Send what the socket accepts at once, and the rest as the client reads it."""
        if len(self._unsent) >= _CLIENTS_AT_MOST:
            self._drop(next(iter(self._unsent)))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_WRITE)
        self._unsent[connection] = (memoryview(answer), time.monotonic() + _SECONDS_FOR_A_CLIENT)
        self.send([connection])

    def send(self, ready: list[Any]) -> None:
        """Send to the clients that are `ready`; drop those that have read nothing for too long."""
        now = time.monotonic()
        for connection, (unsent, deadline) in list(self._unsent.items()):
            try:
                sent = connection.send(unsent) if connection in ready else 0
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(connection)
                continue
            if sent == len(unsent) or (not sent and now >= deadline):
                self._drop(connection)
            elif sent:
                self._unsent[connection] = (unsent[sent:], now + _SECONDS_FOR_A_CLIENT)

    def timeout(self) -> float | None:
        """The seconds until the next deadline of a client; None without clients."""
        if not self._unsent:
            return None
        return max(0.0, min(deadline for _, deadline in self._unsent.values()) - time.monotonic())

    def close(self) -> None:
        """Drop all clients."""
        for connection in list(self._unsent):
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        del self._unsent[connection]
        self._selector.unregister(connection)
        self._hang_up(connection)


_inspections: "weakref.WeakSet[Inspection]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for inspection in copy_of(_inspections):
        inspection.stop()


def _forget_in_child() -> None:
    _decided.clear()
    for inspection in copy_of(_inspections):
        inspection.forget()
    _inspections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class _ThreadState(threading.local):
    holds_a_path = False  # it is inside _locked()


_this_thread = _ThreadState()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other threads and processes from opening a socket at `path`.

    Between bind() and listen(), a socket refuses connections like one that was left behind: they would remove it."""
    lock = Path(f"{path}.lock").absolute()
    held = False
    # Before the lock is taken and until it is given up, because the collector may run a finalizer anywhere in between.
    _this_thread.holds_a_path = True
    try:
        while not held:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if os.fstat(descriptor).st_uid != os.getuid():
                    raise PermissionError(errno.EPERM, "belongs to another user", os.fspath(lock))
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                held = _is_file_at(lock, descriptor)  # its last owner may have removed it
                if held:
                    try:
                        yield
                    finally:
                        lock.unlink(missing_ok=True)
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough if a child has been forked meanwhile
                os.close(descriptor)
    finally:
        _this_thread.holds_a_path = False


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _listen(path: Path) -> socket.socket:
    with _locked(path):
        _remove_stale(path)
        return _listen_at_free_path(path)


def _listen_at_free_path(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        listener.bind(os.fspath(path))
        bound = True
        # Clients cannot connect before listen().
        path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        if bound:
            path.unlink(missing_ok=True)
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """Remove a socket that a process left behind when it ended. The caller has locked the path."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket", os.fspath(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_SECONDS_FOR_A_CLIENT)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return  # its owner has just removed it
        except BlockingIOError:
            pass  # it listens, and is too busy to accept: its backlog is full
    raise OSError(errno.EADDRINUSE, "another program answers at this socket", os.fspath(path))


def _make_private_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_private_folder(folder)


def check_private_folder(folder: Path) -> None:
    """Raise PermissionError unless it is a folder that no other user may enter."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "not a folder of this user alone", os.fspath(folder))


def _check(loop: Any) -> None:
    """Raise TypeError or NotImplementedError unless there can be a socket for this loop."""
    if not hasattr(loop, "_progress"):
        raise TypeError(f"only hotloop's event loops can be inspected, not {loop!r}")
    loop._progress()  # raises NotImplementedError on Windows
    if not hasattr(socket, "AF_UNIX"):
        raise NotImplementedError("this platform's Python has no Unix sockets")


def allow_inspection(loop: asyncio.AbstractEventLoop, path: "str | os.PathLike[str] | None" = None) -> Inspection:
    """Open a Unix socket for `python -m hotloop top`, `ps` and `pstree`, which show `loop` even while it is blocked.

    `path` is the path of the socket. The default contains the process id and, from the second socket of the process on,
    a number. Only the same user can connect. The returned context manager has the `path`, and its stop() removes the
    socket. Raises TypeError for a loop that is not hotloop's, OSError if the socket cannot be made or another loop
    answers at the `path` given, and RuntimeError if the loop is closed or no thread can be started; it is a
    NotImplementedError on Windows.
    """
    _check(loop)
    if loop.is_closed():
        raise RuntimeError("Event loop is closed")
    return _open_at_default_path(loop) if path is None else Inspection(loop, Path(path))


def _open_at_default_path(loop: asyncio.AbstractEventLoop) -> Inspection:
    path = default_path(os.getpid())
    _make_private_folder(path.parent)
    return _open_at_free_path(loop, path)


def _open_at_free_path(loop: asyncio.AbstractEventLoop, first: Path) -> Inspection:
    """Open it at this path, or, if another loop answers there, of any process, at the next numbered one."""
    path = first
    numbers = count(2)
    while True:
        # Skip paths of this process without connecting: each of its sockets would describe its whole loop.
        if not any(each.path == path.absolute() for each in copy_of(_inspections)):
            try:
                return Inspection(loop, path)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        path = first.with_name(f"{first.stem}-{next(numbers)}{first.suffix}")


# -- loops that open a socket on their own -----------------------------------------------------------------------------

_decided: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The loops that HOTLOOP_INSPECT is done with: it has opened a socket, or that has failed, or the loop is excluded."""


class InspectedLoop(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop if HOTLOOP_INSPECT is set: has a socket from the first run until the loop is closed."""

    # The loop's own, and not by loop in a weak mapping: the garbage collector empties that before it has __del__()
    # close a loop that the program has dropped.
    _inspection_by_itself: Inspection | None = None

    def run_forever(self) -> None:
        """Run until stop() is called."""
        _open_by_itself(self)
        super().run_forever()

    def close(self) -> None:
        """Close the loop, and then its socket. Idempotent."""
        super().close()
        self._stop_inspection(wait=True)

    def __del__(self) -> None:
        # It may be called wherever the garbage collector may run, also where a lock is held that the thread needs.
        self._stop_inspection(wait=False)
        super().__del__()

    def _stop_inspection(self, *, wait: bool) -> None:
        inspection, self._inspection_by_itself = self._inspection_by_itself, None
        if inspection is not None:
            inspection.stop(wait=wait)


def leave_alone(loop: asyncio.AbstractEventLoop) -> None:
    """Exclude this loop from HOTLOOP_INSPECT."""
    _decided.add(loop)


def _open_by_itself(loop: Any) -> None:
    """Open the socket that HOTLOOP_INSPECT asks for, unless the loop has one.

    Errors are logged, because the program can run without it."""
    asked = os.environ.get("HOTLOOP_INSPECT", "")
    if asked.lower() in OFF or loop in _decided or loop.is_closed():
        return
    if _this_thread.holds_a_path or sys.is_finalizing():
        # A finalizer runs this loop: while another one's socket is being opened, it would wait for itself.
        return
    if any(each.shows(loop) for each in copy_of(_inspections)):
        return
    _decided.add(loop)
    try:
        loop._inspection_by_itself = inspection = _open_where(loop, asked)
    except (OSError, RuntimeError, ValueError) as error:
        logger.warning("HOTLOOP_INSPECT: an event loop cannot be looked at: %s", error)
    else:
        logger.info("an event loop can be looked at: python -m hotloop top %s", inspection.path)


def _open_where(loop: Any, asked: str) -> Inspection:
    """Open it where HOTLOOP_INSPECT asks: on means the default path, and a value with a slash is a path."""
    _check(loop)
    if asked.lower() in ON:
        return _open_at_default_path(loop)
    if os.sep in asked:
        return _open_at_free_path(loop, Path(asked))
    raise ValueError(f"{asked!r} is neither 1 nor 0 nor a path: one in the current folder begins with ./")
