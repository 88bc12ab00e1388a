import asyncio

from typing_extensions import disjoint_base

from hotloop._c.highlevel.done_callback import DoneCallback

# Of one call of shield(), and of each of its two futures; not for programs.
@disjoint_base
class Shielding: ...

@disjoint_base
class ShieldCallback(DoneCallback): ...

shield = asyncio.shield

KNOWN: set[str]
__test__: dict[str, str]
