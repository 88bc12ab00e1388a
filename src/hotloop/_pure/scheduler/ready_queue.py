"""The ready queue, and Handle, the Runnable on it.

A Runnable is any object with `_run()` and `_cancelled`. A Handle holds a callback, its arguments and its context.
"""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import events

if TYPE_CHECKING:
    from hotloop._pure.loop.loop_core import LoopCore


class Runnable:
    """Something that a loop can run once."""

    __slots__ = ()

    _cancelled: bool

    def _run(self) -> None:
        raise NotImplementedError


class ReadyQueue(deque[Any]):
    """The Runnables that are due, oldest first. Like every deque, any thread may append to it."""

    __slots__ = ()


class Handle(events.Handle, Runnable):  # type: ignore[misc]
    """A callback with its arguments and its context, as call_soon() returns it. See asyncio.Handle.

    It overrides nothing, so that tools which patch `asyncio.Handle._run` reach these handles, too.
    """

    __slots__ = ()


_new = object.__new__


def new_handle(
    callback: Callable[..., object], args: tuple[Any, ...], loop: "LoopCore", context: Context | None
) -> Handle:
    """The Handle that call_soon() makes outside debug mode. Calling the class would cost more."""
    handle: Any = _new(Handle)
    handle._context = copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = None
    handle._source_traceback = None
    return handle  # type: ignore[no-any-return]
