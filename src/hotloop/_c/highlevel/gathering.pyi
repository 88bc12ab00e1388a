import asyncio

from hotloop._c.highlevel.done_callback import DoneCallback

# Of one call of gather(), and of each of its children; not for programs.
class _GatheringFuture(asyncio.Future[list[object]]):
    _children: list[asyncio.Future[object]]
    _cancel_requested: bool
    def __init__(self, children: list[asyncio.Future[object]], *, loop: asyncio.AbstractEventLoop) -> None: ...

class Gathering: ...
class ChildCallback(DoneCallback): ...

gather = asyncio.gather

__test__: dict[str, str]
