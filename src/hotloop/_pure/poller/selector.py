"""The selectors API on the kernel's own readiness interface.

The standard library's selectors are plain Python around the system calls already. EpollSelector differs in two ways.
Its select() is leaner: that of Python 3.11 costs more than the system call. And a forked child may use it: the kernel's
set is shared with the parent, so a child makes its own before it changes anything. (Asking for the process id each time
is cheap beside the system call that follows; a fork hook would run in programs that never use this.) KqueueSelector is
the standard library's.
"""

import os
import select
import selectors
from contextlib import suppress
from math import ceil
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from typing import Any

if hasattr(select, "epoll"):
    _NOT_READ = ~select.EPOLLIN
    _NOT_WRITE = ~select.EPOLLOUT

    class EpollSelector(selectors.EpollSelector):
        """`selectors.EpollSelector` on epoll_wait(2), Linux."""

        _fd_to_key: dict[int, SelectorKey]
        _selector: Any

        def __init__(self) -> None:
            super().__init__()
            self._pid = os.getpid()  # the process that owns the kernel's set

        def register(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
            """Watch a file object, or a descriptor, for EVENT_READ and/or EVENT_WRITE; return its SelectorKey."""
            self._own()
            return super().register(fileobj, events, data)

        def unregister(self, fileobj: Any) -> SelectorKey:
            """Stop watching; return the SelectorKey."""
            self._own()
            return super().unregister(fileobj)

        def modify(self, fileobj: Any, events: int, data: Any = None) -> SelectorKey:
            """Change the events or the data of a registered file object; return the new SelectorKey."""
            self._own()
            return super().modify(fileobj, events, data)

        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            """Wait until a registered file object is ready, at most `timeout` seconds (None: no limit; <= 0: do not).

            Returns a list of (key, events). A signal whose handler does not raise does not end the wait (PEP 475)."""
            if timeout is None:
                timeout = -1
            elif timeout <= 0:
                timeout = 0
            else:
                # epoll_wait() counts milliseconds; rounded up, a wait never ends before its time.
                timeout = ceil(timeout * 1e3) * 1e-3
            keys = self._fd_to_key
            ready = []
            # epoll_wait() needs room for at least one event.
            for fd, event in self._selector.poll(timeout, len(keys) or 1):
                key = keys.get(fd)
                if key is not None:
                    # Errors and hang-ups count as both, so that readers and writers find out by trying.
                    mask = (event & _NOT_READ and EVENT_WRITE) | (event & _NOT_WRITE and EVENT_READ)
                    ready.append((key, mask & key.events))
            return ready

        def _own(self) -> None:
            """In a forked child, leave the parent's set alone and make a new one with the same registrations."""
            if self._pid == os.getpid() or self._selector.closed:
                return
            self._pid = os.getpid()
            self._selector.close()
            self._selector = select.epoll()
            for key in self._fd_to_key.values():
                read = key.events & EVENT_READ and select.EPOLLIN
                write = key.events & EVENT_WRITE and select.EPOLLOUT
                # A descriptor that the child has closed never becomes ready; its key waits for unregister().
                with suppress(OSError):
                    self._selector.register(key.fd, read | write)

    DefaultSelector: type[selectors.BaseSelector] = EpollSelector
else:
    DefaultSelector = selectors.DefaultSelector

if hasattr(selectors, "KqueueSelector"):
    KqueueSelector = selectors.KqueueSelector
