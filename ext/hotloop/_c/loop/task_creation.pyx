"""TaskCreation: create_future() and create_task() of a loop, and its task factory.

asyncio.eager_task_factory is known here: its tasks are of the loop's own class, as those of no factory are.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.scheduler.ready_queue cimport type_version_of
from hotloop._c.tasks.future cimport Future, new_future
from hotloop._c.tasks.task cimport Task, new_task

import sys
from asyncio import tasks

from hotloop._asyncio.eager_names import eager_names

cdef extern from "runtime/fast_method.h":
    void fast_method_install(
        PyTypeObject *type,
        const char *name,
        bint (*applies)(PyObject *) noexcept,
        object (*short_cut)(object, object),
    )

# Since 3.13.3 create_task() passes unknown keywords on to the task.
cdef bint passes_keywords_on = sys.version_info >= (3, 13, 3)
# Since 3.14 it passes all on to a task factory, and that is all it does with one.
cdef bint factory_gets_all = sys.version_info >= (3, 14)

# Before Python 3.12 there is none.
cdef object eager_task_factory = getattr(tasks, "eager_task_factory", None)
cdef bint is_understood = False     # what asyncio's create_task() does with that factory
cdef bint gets_name = False         # it passes the name on to the factory; else it sets the name of the finished task
cdef bint sets_none = False         # to None, too
if eager_task_factory is not None:
    names = eager_names()
    if names is not None:
        is_understood = True
        gets_name, sets_none = names
    del names


cdef class TaskCreation(ReplaceableMethods):
    """The part of LoopCore that makes futures and tasks."""

    @property
    def _task_factory(self):
        with cython.critical_section(self):
            return self.task_factory

    @_task_factory.setter
    def _task_factory(self, value):
        cdef bint starts_eagerly = is_understood and value is eager_task_factory
        # Other threads may be reading it.
        with cython.critical_section(self):
            self.task_factory, value = value, self.task_factory
            self.starts_eagerly = starts_eagerly
            self.update_short_cuts()

    def create_future(self):
        """A Future bound to this loop."""
        return Future(loop=self) if self.debug else new_future(self, self.ready)

    def create_task(self, coro, *, name=..., context=..., eager_start=..., **kwargs):
        """Run a coroutine as a Task. See loop.create_task()."""
        cdef object factory = None
        is_replaced = self.creation_is_replaced()
        if self.task_factory is not None:
            # Another thread may drop it.
            with cython.critical_section(self):
                factory = self.task_factory
        by_factory = factory is not None and (not self.starts_eagerly or eager_start is not ... or kwargs)
        if by_factory or is_replaced:
            # An explicit None too: since 3.14 a factory gets exactly the keywords that the caller gave.
            given = (("name", name), ("context", context), ("eager_start", eager_start))
            kwargs |= {key: value for key, value in given if value is not ...}
            if is_replaced or not factory_gets_all:
                return super().create_task(coro, **kwargs)
            self._check_closed()
            return factory(self, coro, **kwargs)
        if eager_start is not ... and (self.debug or not passes_keywords_on):
            kwargs["eager_start"] = eager_start
        self.check_open()
        name = None if name is ... else name
        context = None if context is ... else context
        if self.starts_eagerly:
            return create_eager_task(self, coro, name, context)
        if kwargs and not passes_keywords_on:
            raise TypeError(f"create_task() got an unexpected keyword argument {next(iter(kwargs))!r}")
        if kwargs or self.debug:
            return Task(coro, loop=self, name=name, context=context, **kwargs)
        eager = eager_start is not ... and self.thread_id != 0 and eager_start
        return new_task(coro, self, self.ready, name, context, eager)


cdef Task create_eager_task(TaskCreation loop, object coro, object name, object context):
    """What asyncio's create_task() does with asyncio.eager_task_factory."""
    cdef object early = name if gets_name else None
    cdef Task task
    if loop.debug:
        task = Task(coro, loop=loop, name=early, context=context, eager_start=True)
    else:
        task = new_task(coro, loop, loop.ready, early, context, loop.thread_id != 0)
    if not gets_name and (name is not None or sets_none):
        task.set_name(name)
    return task


# -- create_task(coro), the way in which nearly all tasks are made -----------------------------------------------------

cdef bint can_create_plain_task(PyObject *loop) noexcept:
    cdef TaskCreation creator = <TaskCreation>loop
    return (
        (creator.task_factory is None or creator.starts_eagerly)
        and creator.type_version == type_version_of(creator)
        and not (creator.creation_replaced or creator.closed or creator.debug)
    )


cdef object create_plain_task(object loop, object coro):
    cdef TaskCreation creator = <TaskCreation>loop
    if creator.starts_eagerly:
        return create_eager_task(creator, coro, None, None)
    return new_task(coro, creator, creator.ready, None, None, False)


fast_method_install(<PyTypeObject *>TaskCreation, "create_task", can_create_plain_task, create_plain_task)
