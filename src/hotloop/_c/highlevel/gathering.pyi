import asyncio

from typing_extensions import disjoint_base

from hotloop._c.highlevel.done_callback import DoneCallback

# Of one call of gather(), and of each of its children; not for programs.
@disjoint_base
class _GatheringFuture(asyncio.Future[list[object]]):
    _children: list[asyncio.Future[object]]
    _cancel_requested: bool
    def __init__(self, children: list[asyncio.Future[object]], *, loop: asyncio.AbstractEventLoop) -> None: ...

@disjoint_base
class Gathering: ...

@disjoint_base
class ChildCallback(DoneCallback): ...

gather = asyncio.gather

__test__: dict[str, str]
