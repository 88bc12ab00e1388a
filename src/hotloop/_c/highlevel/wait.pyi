import asyncio

from typing_extensions import disjoint_base

from hotloop._c.highlevel.done_callback import DoneCallback

# Of one call of wait(), and of each of its futures; not for programs.
@disjoint_base
class Waiting: ...

@disjoint_base
class WaitCallback(DoneCallback): ...

wait = asyncio.wait

KNOWN: set[str]
__test__: dict[str, str]
