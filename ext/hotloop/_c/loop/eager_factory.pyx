"""asyncio.eager_task_factory on this loop: its tasks are of the loop's own class, as those of no factory are."""

from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.task cimport Task, new_task

from asyncio import tasks

from hotloop._asyncio.eager_names import eager_names

cdef bint is_understood = False     # what asyncio's create_task() does with a factory
cdef bint gets_name = False         # it passes the name on to the factory; else it sets the name of the finished task
cdef bint sets_none = False         # to None, too

# Before Python 3.12 there is none.
cdef object eager_task_factory = getattr(tasks, "eager_task_factory", None)
if eager_task_factory is not None:
    names = eager_names()
    if names is not None:
        is_understood = True
        gets_name, sets_none = names
    del names


cdef bint is_eager_factory(object factory) noexcept:
    """Whether create_eager_task() does what this factory does."""
    return is_understood and factory is eager_task_factory


cdef Task create_eager_task(
    object coro, object loop, ReadyQueue queue, object name, object context, bint debug, bint running
):
    """loop.create_task(coro, name=name, context=context), where asyncio.eager_task_factory is the task factory."""
    cdef object early = name if gets_name else None
    cdef Task task
    if debug:
        task = Task(coro, loop=loop, name=early, context=context, eager_start=True)
    else:
        task = new_task(coro, loop, queue, early, context, running)
    if not gets_name and (name is not None or sets_none):
        task.set_name(name)
    return task
