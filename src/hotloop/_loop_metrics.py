"""loop.metrics() and loop.set_slow_callback_hook().

The core counts and times (metrics.h, _pure/loop/metrics.py). The code here runs only when a program asks for metrics,
and only then imports `hotloop.metrics`.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.describe_callbacks import describe, kind_of_watcher
from hotloop._asyncio.mixin import Behind
from hotloop._asyncio.shared_items import copy_of

if TYPE_CHECKING:
    from hotloop.metrics import Metrics, SlowCallback


class LoopMetrics(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, behind the core, which has the numbers."""

    def metrics(self) -> "Metrics":
        """Return a snapshot of what the loop has counted and timed since it was made; see hotloop.Metrics.

        The pure implementation measures times and bytes only from the first snapshot on, so the first one has none.
        If another thread calls it, each number is correct for some moment, but not all of them for the same one."""
        from hotloop.metrics import snapshot

        watched = self._count_watched()
        if watched is None:
            watched = _watched_by(self._selector)
        return snapshot(self._collect_metrics() | self._name_threads.metrics(), watched)

    def set_slow_callback_hook(self, hook: "Callable[[SlowCallback], object] | None", threshold: float = 0.1) -> None:
        """Have `hook(SlowCallback)` called after each callback or task step that took `threshold` seconds or longer.

        The hook replaces the previous one; None removes it. It does not need debug mode, which goes on logging slow
        callbacks as asyncio does. The loop's thread calls the hook right after the callback; its exceptions go to the
        loop's exception handler. Raises TypeError if it is not callable, ValueError unless 0 <= threshold < infinity.
        """
        if hook is None:
            self._set_slow_hook(None, inf)
            return
        if not callable(hook):
            raise TypeError(f"hook must be callable or None, not {type(hook).__name__!r}")
        if not 0 <= threshold < inf:
            raise ValueError(f"threshold must be a number of seconds, 0 or more; it is {threshold!r}")
        import hotloop.metrics  # noqa: F401  so that the first slow callback need not

        self._set_slow_hook(_Reporter(hook), float(threshold))


class _Reporter:
    """Calls a program's hook with the slow callback that the core reports."""

    def __init__(self, hook: "Callable[[SlowCallback], object]") -> None:
        self._hook = hook

    def __call__(self, loop: Any, seconds: float, cpu_seconds: float | None, item: Any) -> None:
        try:
            from hotloop.metrics import SlowCallback

            self._hook(SlowCallback(seconds, *describe(item), item, cpu_seconds))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": "Exception in the slow-callback hook", "exception": error})


def _watched_by(selector: Any) -> dict[str, int]:
    """Like LoopCore._count_watched(), for any selector. A closed selector watches nothing."""
    found: dict[str, int] = {}
    registered = None if selector is None else selector.get_map()
    for key in copy_of((registered or {}).values()):
        kind = kind_of_watcher(key.data)
        if kind is not None:
            found[kind] = found.get(kind, 0) + 1
    return found
