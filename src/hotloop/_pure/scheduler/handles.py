"""Handle, the Runnable that holds a callback, its arguments and its context."""

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.internals import events
from hotloop._pure.scheduler.ready_queue import Runnable

if TYPE_CHECKING:
    from hotloop._pure.loop.loop_core import LoopCore


class Handle(events.Handle, Runnable):  # type: ignore[misc]
    """A callback with its arguments and its context, as call_soon() returns it. See asyncio.Handle.

    It overrides nothing, so that tools which patch `asyncio.Handle._run` reach these handles, too.
    """

    __slots__ = ()


_new = object.__new__


def new_handle(
    callback: Callable[..., object],
    args: tuple[Any, ...],
    loop: "LoopCore",
    context: Context | None,
    kind: type[Handle] = Handle,
) -> Any:
    """The Handle that call_soon() makes outside debug mode. Calling the class would cost more."""
    handle: Any = _new(kind)
    handle._context = copy_context() if context is None else context
    handle._loop = loop
    handle._callback = callback
    handle._args = args
    handle._cancelled = False
    handle._repr = None
    handle._source_traceback = None
    return handle
