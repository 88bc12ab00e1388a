"""The selectors API on the kernel's own readiness interface.

The standard library's selectors are plain Python around the system calls already. Here are the same classes, with a
leaner select(), which in Python 3.11 costs more than the system call.
"""

import select
import selectors
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
            # epoll_wait() wants room for one event at least.
            for fd, event in self._selector.poll(timeout, len(keys) or 1):
                key = keys.get(fd)
                if key is not None:
                    # Errors and hang-ups count as both, so that whoever waits finds out by trying.
                    mask = (event & _NOT_READ and EVENT_WRITE) | (event & _NOT_WRITE and EVENT_READ)
                    ready.append((key, mask & key.events))
            return ready

    DefaultSelector: type[selectors.BaseSelector] = EpollSelector
else:
    DefaultSelector = selectors.DefaultSelector

if hasattr(selectors, "KqueueSelector"):
    KqueueSelector = selectors.KqueueSelector
