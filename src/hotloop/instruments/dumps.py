"""Writes all tasks of a loop when a signal arrives.

The handler belongs to the signal module and not to the loop, because a blocked loop runs no handlers. Python runs it in
the main thread, between two arbitrary instructions or inside a call that waits. So it must not use anything that may be
in use at that moment, such as the buffer of sys.stderr.
"""

import asyncio
import logging
import os
import re
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from hotloop._asyncio.mixin import Behind
from hotloop._asyncio.shared_items import copy_of
from hotloop._switches import OFF
from hotloop.instruments.format_tasks import format_tasks

logger = logging.getLogger("hotloop.tasks")

_MILLISECONDS_FOR_STDERR = 1000
"""How long a non-blocking standard error may stay full before the rest of the text is given up."""


class TaskDump:
    """The dumps at one signal: see dump_tasks_on(). A context manager that stops at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, signum: int, write: Callable[[str], object]) -> None:
        self._loop = weakref.ref(loop)
        self._signum = signum
        self._write = write
        self._handler = self._handle
        self._writing = False
        self._stopped = False
        try:
            self._previous = signal.signal(signum, self._handler)
        except OSError as error:
            raise ValueError(f"signal {signum} cannot be handled") from error

    def stop(self) -> None:
        """Restore the signal's previous handler, unless the program has set another one since. Idempotent.

        Raises RuntimeError outside the main thread."""
        _check_main_thread("stopped")
        if not self._stopped and signal.getsignal(self._signum) == self._handler:
            signal.signal(self._signum, self._previous)
        self._stopped = True

    def __enter__(self) -> "TaskDump":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _handle(self, _signum: int, _frame: FrameType | None) -> None:
        loop = self._loop()
        # The signal may also interrupt this method: if it comes faster than the text is written, handlers would pile up
        # on the stack until none can write anything.
        if loop is None or self._stopped or self._writing:
            return
        self._writing = True
        try:
            self._write(format_tasks(loop))
        except Exception:
            # It would interrupt the main thread at an arbitrary point.
            logger.exception("the tasks could not be written")
        finally:
            self._writing = False


def write_to_stderr(text: str) -> None:
    """Write to the standard error past its buffer, whose lock may be held."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        stream.write(text)  # the program has replaced it by an object without a descriptor
        return
    data = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            if not writable.poll(_MILLISECONDS_FOR_STDERR):
                return


def _is_taken_past_python(signum: int) -> bool:
    """Whether C code handles a signal that Python does not, as after faulthandler.register(). Known on Linux only."""
    if signal.getsignal(signum) not in (signal.SIG_DFL, signal.SIG_IGN):
        return False
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signum - 1) & 1)


def _check_main_thread(what: str) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(f"dumps at a signal can only be {what} in the main thread, where Python handles signals")


def dump_tasks_on(
    loop: asyncio.AbstractEventLoop,
    signum: int,
    write: Callable[[str], object] = write_to_stderr,
) -> TaskDump:
    """Write all tasks of `loop`, as format_tasks() shows them, whenever the signal `signum` arrives.

    `write` is called with the text, in a signal handler in the main thread; its exceptions are logged. The default
    writes to the standard error.

    The loop may be blocked, and may run in another thread, as long as the main thread runs Python code or waits in a
    call that signals interrupt. The returned context manager's stop() restores the previous handler. Raises ValueError
    for a signal that does not exist or cannot be handled, TypeError for what is no loop, no number or not callable, and
    RuntimeError outside the main thread, if the signal dumps tasks already, or if its present handler could not be
    restored.
    """
    _check_main_thread("started")
    if not isinstance(loop, asyncio.AbstractEventLoop):
        raise TypeError(f"an event loop was expected, not {loop!r}")
    if not callable(write):
        raise TypeError(f"what writes the tasks must be callable, not {write!r}")
    if not isinstance(signum, int):
        raise TypeError(f"a signal must be a number, not {signum!r}")
    if signum not in signal.valid_signals():
        raise ValueError(f"there is no signal {signum}")
    _check_handler(signum)
    return TaskDump(loop, signum, write)


def _check_handler(signum: int) -> None:
    """Raise RuntimeError if the present handler of a signal must not, or cannot be replaced."""
    present = signal.getsignal(signum)
    if isinstance(getattr(present, "__self__", None), TaskDump):
        raise RuntimeError(f"signal {signum} dumps tasks already")
    if present is None or _is_taken_past_python(signum):
        raise RuntimeError(f"the handler of signal {signum} was not installed by Python, and could not be restored")


# -- the signal of a whole program -------------------------------------------------------------------------------------

_tried_in_main_thread: set[bool] = set()
"""Whether HOTLOOP_DUMP_TASKS_ON was tried in the main thread, which decides it, or in another, which is warned once."""


class DumpedLoop(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop if HOTLOOP_DUMP_TASKS_ON is set: from the first run on, the signal dumps all tasks."""

    def run_forever(self) -> None:
        """Run until stop() is called."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not _tried_in_main_thread & {True, in_main_thread}:
            _tried_in_main_thread.add(in_main_thread)
            _dump_as_asked()
        super().run_forever()


def _dump_as_asked() -> None:
    """Obey HOTLOOP_DUMP_TASKS_ON until the process ends. Errors are logged, because the program can run without it.

    The handler stays when a loop is closed: the signal's default action would end the process."""
    asked = os.environ.get("HOTLOOP_DUMP_TASKS_ON", "")
    if asked.lower() in OFF:
        return
    try:
        _check_main_thread("started")
        signum = _signal_named(asked)
        _check_handler(signum)
        if signal.getsignal(signum) not in (signal.SIG_DFL, signal.SIG_IGN):
            raise RuntimeError("the program handles this signal itself")
        signal.signal(signum, _dump_all)
    except (OSError, RuntimeError, ValueError) as error:
        logger.warning("HOTLOOP_DUMP_TASKS_ON=%s: tasks are not dumped: %s", asked, error)


def _signal_named(text: str) -> int:
    """The number of a signal, from its name, with or without SIG, or its number."""
    if text.isdecimal() and int(text) in signal.valid_signals():
        return int(text)
    name = f"SIG{text.upper().removeprefix('SIG')}"
    if name not in signal.Signals.__members__:
        raise ValueError(f"there is no signal {text!r}")
    return signal.Signals[name]


_dumping_all = False
"""Whether _dump_all() is on the stack."""


def _dump_all(_signum: int, _frame: FrameType | None) -> None:
    """Write the tasks of all open loops of hotloop's: a handler like TaskDump's."""
    global _dumping_all
    if _dumping_all:
        return
    _dumping_all = True
    try:
        from hotloop.loop import alive

        texts = [format_tasks(loop) for loop in copy_of(alive) if not loop.is_closed()]
        write_to_stderr("\n".join(texts) or "no event loop is open\n")
    except Exception:
        logger.exception("the tasks could not be written")
    finally:
        _dumping_all = False
