"""The end of a process whose start failed, before Python 3.14.

If one of its pipes cannot be connected, for want of memory or descriptors, asyncio closes the transport and waits for
the process's end before it raises the error. Before 3.14 (CPython issue 119710) that wait lasts until all pipes are
disconnected. One that was never connected never is, so the task that started the process hung.

Source: asyncio/base_subprocess.py.
"""

import asyncio
from asyncio import base_subprocess
from typing import Any

from hotloop._asyncio.mixin import Behind

waits_for_pipes = "_exit_waiters" not in base_subprocess.BaseSubprocessTransport._process_exited.__code__.co_names
"""Whether waiting for a process waits for its pipes, too."""


class ProcessExits(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop if `waits_for_pipes`, in front of asyncio.SelectorEventLoop."""

    def _child_watcher_callback(self, pid: int, returncode: int, transport: Any) -> None:
        if has_unconnected_pipe(transport):
            # First, because the compiled loop calls this again if memory runs out in it. CPython 3.11 takes two turns,
            # too.
            self.call_soon_threadsafe(self.call_soon, end_waits, transport, returncode)
        super()._child_watcher_callback(pid, returncode, transport)


def has_unconnected_pipe(transport: asyncio.SubprocessTransport) -> bool:
    return None in transport._pipes.values()  # type: ignore[attr-defined]


def end_waits(transport: Any, returncode: int) -> None:
    """End the waits for a process that has exited, unless all its pipes were connected meanwhile."""
    if has_unconnected_pipe(transport):
        # The list is emptied: after a cancelled start the pipes may be connected yet, and then asyncio ends all in it.
        waiters, transport._exit_waiters = transport._exit_waiters or (), []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(returncode)
