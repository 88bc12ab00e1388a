import asyncio

from typing_extensions import disjoint_base

from hotloop._c.highlevel.done_callback import DoneCallback

# What a TaskGroup has in C, and its task's callback; not for programs.
class TaskGroupFields: ...

@disjoint_base
class GroupCallback(DoneCallback): ...

@disjoint_base
class Handover: ...

TaskGroup = asyncio.TaskGroup

def find_result_of_leaving() -> bool | None: ...
def make_task_group() -> type[asyncio.TaskGroup]: ...

__test__: dict[str, str]
