import asyncio

from typing_extensions import disjoint_base

from hotloop._c.highlevel.done_callback import DoneCallback

# What the iterator of as_completed() has in C, and the callback of each future; not for programs.
class IteratorFields: ...

@disjoint_base
class CompletionCallback(DoneCallback): ...

as_completed = asyncio.as_completed
AsCompletedIterator: type | None

def asyncio_attributes() -> set[str]: ...
def make_iterator_class() -> type | None: ...

__test__: dict[str, str]
