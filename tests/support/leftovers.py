"""Checks for every test, beside its own assertions: it leaves nothing behind, and no error goes unnoticed."""

import asyncio
import contextlib
import gc
import logging
import os
import threading
from collections.abc import Iterator

SECONDS_FOR_A_THREAD_TO_END = 30  # generous: a loaded machine is no leak


class AsyncioLog(logging.Handler):
    """Collects the records of asyncio's logger at WARNING or above. The default exception handler logs there, so this
    finds unexpected exceptions of every loop."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self) -> list[str]:
        """Return and drop the messages so far, with tracebacks. A test takes the messages that it expects."""
        formatter = logging.Formatter()
        messages = [formatter.format(record) for record in self.records]
        self.records.clear()
        return messages

    @contextlib.contextmanager
    def attached(self) -> Iterator["AsyncioLog"]:
        logger = logging.getLogger("asyncio")
        propagate, logger.propagate = logger.propagate, False
        logger.addHandler(self)
        try:
            yield self
        finally:
            logger.removeHandler(self)
            logger.propagate = propagate


def open_descriptors() -> dict[int, str]:
    """Every open file descriptor with its file; empty if the system does not tell."""
    folder = "/proc/self/fd"
    found = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone by now
            found[int(name)] = os.readlink(f"{folder}/{name}")
    return found


class Leftovers:
    """The process's descriptors and threads when a test began, to compare with at its end."""

    def __init__(self) -> None:
        gc.collect()
        # Twice: another thread may have opened a file with the number of the listing's own descriptor.
        self.descriptors = dict(open_descriptors().items() & open_descriptors().items())
        self.threads = set(threading.enumerate())

    def check(self) -> None:
        gc.collect()
        for thread in set(threading.enumerate()) - self.threads:
            thread.join(SECONDS_FOR_A_THREAD_TO_END)
        threads = {thread for thread in threading.enumerate() if thread not in self.threads}
        assert not threads, f"the test left threads behind: {threads}"
        now = open_descriptors()
        leaked = {fd: target for fd, target in now.items() if self.descriptors.get(fd) != target}
        assert not leaked, f"the test left descriptors open: {leaked}"
        lost = {fd: target for fd, target in self.descriptors.items() if fd not in now}
        assert not lost, f"the test closed descriptors that were not its own: {lost}"


def check_quiet(loop: asyncio.SelectorEventLoop) -> None:
    """Fail if `loop` still has anything to do: tasks, timers, callbacks, readers or writers."""
    tasks = asyncio.all_tasks(loop)
    assert not tasks, f"tasks left pending: {tasks}"
    timers = [handle for handle in loop._scheduled if not handle.cancelled()]
    assert not timers, f"timers left: {timers}"
    callbacks = [handle for handle in loop._ready if not handle._cancelled]
    assert not callbacks, f"callbacks left: {callbacks}"
    own = loop._ssock.fileno() if loop._ssock is not None else None
    registered = [key for key in loop._selector.get_map().values() if key.fd != own]
    assert not registered, f"descriptors left in the selector: {registered}"


def close_checked(loop: asyncio.SelectorEventLoop) -> None:
    """Close `loop`, failing if it had anything left to do."""
    if loop.is_closed():
        return
    try:
        loop.run_until_complete(loop.shutdown_default_executor())
        check_quiet(loop)
    finally:
        loop.close()
