"""Answers about an event loop over a Unix socket, for `python -m hotloop top`.

Whoever connects is sent the state of the loop as one JSON document, and is not listened to. A thread of its own does
it, so that a loop can be looked at while it is blocked. The socket belongs to the user alone: its mode is 0600 before
anybody can connect, and unless a program names another place it lies in a folder that nobody else may enter.
"""

import asyncio
import atexit
import contextlib
import dataclasses
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
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop import __version__
from hotloop.instruments.chains import function_name, own_place
from hotloop.instruments.pictures import describe_loop, stack_of

logger = logging.getLogger("hotloop.inspection")

_SECONDS_FOR_A_CLIENT = 1.0
"""How long one may take to read its answer, while others wait."""

_SECONDS_BEFORE_THE_NEXT = 0.1
"""How long to wait where the process has no descriptors left."""


def default_path(pid: int) -> Path:
    """Where the socket of a process lies unless the program says where."""
    return Path(tempfile.gettempdir(), f"hotloop-{os.getuid()}", f"{pid}.sock")


class Inspection:
    """The socket of one loop: see allow_inspection(). A context manager that closes it at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self.path = path
        self._loop = weakref.ref(loop)
        self._listener = _listen(path)
        self._inode = path.stat().st_ino
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="hotloop-inspection", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._close()
            raise
        _inspections.add(self)

    def shows(self, loop: object) -> bool:
        """Whether it is this loop's."""
        return self._loop() is loop

    def stop(self) -> None:
        """Close the socket and remove it. Idempotent; from any thread."""
        if self in _inspections:
            _inspections.discard(self)
            self._waker.close()
            # The thread itself drops a loop, and so closes it, that was let go by all others while it looked.
            if self._thread is not threading.current_thread():
                self._thread.join()

    def __enter__(self) -> "Inspection":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def forget(self) -> None:
        """In a forked child: the socket is the parent's, who goes on answering."""
        for each in (self._listener, self._waker, self._woken):
            each.close()

    def _close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        self.forget()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while all(key.fileobj is self._listener for key, _ in selector.select()):
                try:
                    self._answer()
                except OSError as error:
                    # Somebody has gone again, or reads too slowly. Without descriptors there is nobody to talk to.
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        time.sleep(_SECONDS_BEFORE_THE_NEXT)
                except Exception:
                    logger.exception("an event loop could not be inspected")
        self._close()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_SECONDS_FOR_A_CLIENT)
            connection.sendall(json.dumps(describe(self._loop())).encode())


_inspections: "weakref.WeakSet[Inspection]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for inspection in list(_inspections):
        inspection.stop()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _by_themselves.clear()
    for inspection in list(_inspections):
        inspection.forget()
    _inspections.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def describe(loop: Any) -> dict[str, Any]:
    """The state of a loop, as numbers and text; of None, that there is none any more."""
    state: dict[str, Any] = {
        "hotloop": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "pid": os.getpid(),
        "time": time.monotonic(),
    }
    if loop is None or loop.is_closed():
        return state
    running = asyncio.current_task(loop)
    progress = loop._progress()
    return state | {
        "loop": describe_loop(loop),
        # Which callback runs, or -1: who sees the same number again has seen the same callback.
        "progress": progress,
        "task": None if running is None else running.get_name(),
        "stack": stack_of(loop) if progress >= 0 else [],
        "tasks": [_describe_task(task, task is running) for task in asyncio.all_tasks(loop)],
        "metrics": dataclasses.asdict(loop.metrics()),
    }


def _describe_task(task: Any, runs: bool) -> dict[str, Any]:
    coroutine = task.get_coro()
    state = "runs" if runs else "ready" if getattr(task, "_fut_waiter", None) is None else "waits"
    return {
        "name": task.get_name(),
        "coroutine": function_name(coroutine),
        "state": state,
        "place": own_place(coroutine),
    }


def _listen(path: Path) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        # Nobody can connect until it listens.
        path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that has ended without doing so."""
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
        else:
            raise OSError(errno.EADDRINUSE, "another program answers at this socket", os.fspath(path))


def _make_private_folder(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "not a folder of this user alone", os.fspath(folder))


def allow_inspection(loop: asyncio.AbstractEventLoop, path: "str | os.PathLike[str] | None" = None) -> Inspection:
    """Open a Unix socket at which `python -m hotloop top` can look at `loop`, also while it is blocked.

    `path` is where it is made; without one it is found by the number of the process. Only the same user can connect.
    It lasts until stop() of what is returned, a context manager, which removes the socket. Raises TypeError for a loop
    that is not hotloop's, OSError where there can be no socket or another program answers already, and RuntimeError
    for a loop that is closed or if no thread can be started.
    """
    if not hasattr(loop, "_progress"):
        raise TypeError(f"only hotloop's event loops can be inspected, not {loop!r}")
    if loop.is_closed():
        raise RuntimeError("Event loop is closed")
    if path is None:
        path = default_path(os.getpid())
        _make_private_folder(path.parent)
    return Inspection(loop, Path(path))


# -- loops that open one by themselves ---------------------------------------------------------------------------------

_lock = threading.Lock()
_by_themselves: "weakref.WeakKeyDictionary[Any, Inspection | None]" = weakref.WeakKeyDictionary()
"""The sockets of loops that were asked for by HOTLOOP_INSPECT; None if a loop has had its try, or needs none."""

if TYPE_CHECKING:
    # A mixin, whose methods call those of the class behind it.
    _Behind = Any
else:
    _Behind = object


class Inspected(_Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop where HOTLOOP_INSPECT is set: a socket from when it first runs until it is closed."""

    def run_forever(self) -> None:
        """Run until stop() is called."""
        _open_by_itself(self)
        super().run_forever()

    def close(self) -> None:
        """Close the loop, and then its socket. Idempotent."""
        super().close()
        inspection = _by_themselves.pop(self, None)
        if inspection is not None:
            inspection.stop()


def leave_alone(loop: asyncio.AbstractEventLoop) -> None:
    """HOTLOOP_INSPECT is not for this loop."""
    _by_themselves[loop] = None


def _open_by_itself(loop: Any) -> None:
    """Open the socket that HOTLOOP_INSPECT asks for, unless the loop has one.

    It is no reason for a program to fail: what is wrong goes to the log."""
    asked = os.environ.get("HOTLOOP_INSPECT")
    if not asked or loop in _by_themselves or loop.is_closed():
        return
    if any(each.shows(loop) for each in list(_inspections)):
        return
    with _lock:
        _by_themselves[loop] = None
        try:
            _by_themselves[loop] = inspection = _open_at_a_free_place(loop, asked)
        except (OSError, RuntimeError) as error:
            logger.warning("HOTLOOP_INSPECT: an event loop cannot be looked at: %s", error)
        else:
            logger.info("an event loop can be looked at: python -m hotloop top %s", inspection.path)


def _open_at_a_free_place(loop: Any, asked: str) -> Inspection:
    """At the path that was asked for; if another loop answers there, of this or another process, at the next number."""
    first = default_path(os.getpid()) if asked == "1" else Path(asked)
    if asked == "1":
        _make_private_folder(first.parent)
    path = first
    numbers = count(2)
    while True:
        # Those of this process need not be asked, which would be told all about their loops.
        if not any(each.path == path for each in list(_inspections)):
            try:
                return allow_inspection(loop, path)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        path = first.with_name(f"{first.stem}-{next(numbers)}{first.suffix}")
