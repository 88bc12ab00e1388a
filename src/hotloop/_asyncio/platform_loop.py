"""The event loop on Windows: asyncio's own ProactorEventLoop with hotloop's names.

hotloop has no extension there. Its pure implementation works on selectors, and on Windows a loop on a selector has no
subprocesses, no pipes and at most 512 sockets. So a program that asks for hotloop gets the loop that it would have
without hotloop, and loses nothing. asyncio's loop does not say what it does: whatever depends on that raises
NotImplementedError. HOTLOOP_IMPL=python has the pure implementation, with those limits.
"""

from collections.abc import Callable
from selectors import BaseSelector
from typing import Any, NoReturn

from hotloop._asyncio.mixin import Behind


class PlatformLoop(Behind):  # type: ignore[misc]
    """hotloop's methods, in front of asyncio's loop of this platform."""

    def __init__(self, proactor: Any = None) -> None:
        if isinstance(proactor, BaseSelector):
            self._closed = True  # for __del__()
            raise ValueError("asyncio's loop of this platform takes no selector; HOTLOOP_IMPL=python has one that does")
        super().__init__(proactor)

    def metrics(self) -> NoReturn:
        """Raise NotImplementedError: asyncio's loop counts nothing."""
        _refuse("metrics")

    def set_slow_callback_hook(self, hook: Callable[[Any], object] | None, threshold: float = 0.1) -> None:
        """Raise NotImplementedError, except for None: asyncio's loop times callbacks in debug mode only."""
        if hook is not None:
            _refuse("a hook for slow callbacks")

    def _progress(self) -> NoReturn:
        """What watch_stalls() and allow_inspection() read."""
        _refuse("stalls and inspection")


def _refuse(what: str) -> NoReturn:
    raise NotImplementedError(f"{what}: not on asyncio's own loop, which hotloop has on this platform")
