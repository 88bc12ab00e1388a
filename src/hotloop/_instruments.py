"""The instruments of a loop: loop.metrics().

The core counts and times (metrics.h, _pure/meter.py). What is here runs only when somebody asks, and `hotloop.metrics`
is imported by the first who does.
"""

from typing import TYPE_CHECKING, Any

from hotloop._callbacks import kind_of_watcher

if TYPE_CHECKING:
    from hotloop.metrics import Metrics

    # A mixin, whose methods call those of the cores behind it.
    _Behind = Any
else:
    _Behind = object


class Instruments(_Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of the core."""

    def metrics(self) -> "Metrics":
        """A snapshot of what the loop has counted and timed since it was made; see hotloop.Metrics.

        From another thread than the loop's each number is right for some moment, but not all for the same one."""
        from hotloop.metrics import snapshot

        watched = self._watched()
        if watched is None:
            watched = _watched_by(self._selector)
        return snapshot(self._measure(), watched)


def _watched_by(selector: Any) -> dict[str, int]:
    """The same as LoopCore._watched(), of a selector that is not hotloop's; nothing of a closed one."""
    found: dict[str, int] = {}
    registered = None if selector is None else selector.get_map()
    for key in list((registered or {}).values()):
        kind = kind_of_watcher(key.data)
        if kind is not None:
            found[kind] = found.get(kind, 0) + 1
    return found
