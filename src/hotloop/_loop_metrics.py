"""What a loop tells of itself: loop.metrics() and loop.set_slow_callback_hook().

The core counts and times (metrics.h, _pure/loop/meter.py). What is here runs only when somebody asks, and
`hotloop.metrics` is imported by the first who does.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.callbacks import describe, kind_of_watcher

if TYPE_CHECKING:
    from hotloop.metrics import Metrics, SlowCallback

    # A mixin, whose methods call those of the cores behind it.
    _Behind = Any
else:
    _Behind = object


class LoopMetrics(_Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of the core."""

    def metrics(self) -> "Metrics":
        """A snapshot of what the loop has counted and timed since it was made; see hotloop.Metrics.

        In pure Python times and bytes are kept from the first snapshot on, so the first has none.
        From another thread than the loop's each number is right for some moment, but not all for the same one."""
        from hotloop.metrics import snapshot

        watched = self._watched()
        if watched is None:
            watched = _watched_by(self._selector)
        return snapshot(self._measure(), watched)

    def set_slow_callback_hook(self, hook: "Callable[[SlowCallback], object] | None", threshold: float = 0.1) -> None:
        """Have `hook(SlowCallback)` called after each callback or task step that took `threshold` seconds or longer.

        It replaces the one set before; None: none. Debug mode is not needed, and goes on logging such callbacks as
        asyncio does. The hook is called in the loop's thread, right after the callback; what it raises goes to the
        loop's exception handler. TypeError if it cannot be called, ValueError unless 0 <= threshold < infinity."""
        if hook is None:
            self._report_slow(None, inf)
            return
        if not callable(hook):
            raise TypeError(f"hook must be callable or None, not {type(hook).__name__!r}")
        if not 0 <= threshold < inf:
            raise ValueError(f"threshold must be a number of seconds, 0 or more; it is {threshold!r}")
        import hotloop.metrics  # noqa: F401  so that the first slow callback does not have to

        self._report_slow(_Reporter(hook), float(threshold))


class _Reporter:
    """Tells a hook what the core has to say of a slow callback."""

    def __init__(self, hook: "Callable[[SlowCallback], object]") -> None:
        self._hook = hook

    def __call__(self, loop: Any, seconds: float, item: Any) -> None:
        from hotloop.metrics import SlowCallback

        try:
            self._hook(SlowCallback(seconds, *describe(item), item))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": "Exception in the slow-callback hook", "exception": error})


def _watched_by(selector: Any) -> dict[str, int]:
    """The same as LoopCore._watched(), of a selector that is not hotloop's; nothing of a closed one."""
    found: dict[str, int] = {}
    registered = None if selector is None else selector.get_map()
    for key in list((registered or {}).values()):
        kind = kind_of_watcher(key.data)
        if kind is not None:
            found[kind] = found.get(kind, 0) + 1
    return found
