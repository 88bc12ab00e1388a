"""What a loop runs: Runnables, in the order of the ready queue.

A Runnable is anything with `_run()` and `_cancelled`: here a Handle, which holds a callback, its arguments and its
context. The queue knows nothing of what is in it beyond that.
"""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from hotloop._pure.runtime.stdlib import events

if TYPE_CHECKING:
    from hotloop._pure.loop.loop_core import LoopCore


class Runnable:
    """Something that a loop can run once."""

    __slots__ = ()

    _cancelled: bool

    def _run(self) -> None:
        raise NotImplementedError


class ReadyQueue(deque[Any]):
    """The Runnables that are due, oldest first. Appending is safe from any thread, as it is for every deque."""

    __slots__ = ()


class Handle(events.Handle, Runnable):  # type: ignore[misc]
    """A callback with its arguments and its context, as call_soon() returns it. See asyncio.Handle.

    All it does is asyncio's own, so that tools which patch `asyncio.Handle._run` see these handles, too.
    """

    __slots__ = ()


_new = object.__new__


def new_handle(
    callback: Callable[..., object], args: tuple[Any, ...], loop: "LoopCore", context: Context | None
) -> Handle:
    """A Handle as call_soon() makes one outside debug mode: calling the class costs more than this does."""
    handle: Any = _new(Handle)
    handle._context = copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = None
    handle._source_traceback = None
    return handle  # type: ignore[no-any-return]
