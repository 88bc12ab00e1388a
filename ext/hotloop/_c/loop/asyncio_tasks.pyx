"""A loop whose futures and tasks are asyncio's own: for tools that read asyncio's structures from outside the process.

asyncio's own methods are Python code. Most calls do not need it: those without a task factory, outside debug mode, and
without keywords that this version of asyncio may not know.
"""

from hotloop._c.loop.loop_core cimport LoopCore

from asyncio import base_events, futures, tasks


class AsyncioTasks:
    """Part of hotloop.EventLoop, in front of the core."""

    def create_future(self):
        """A Future bound to this loop."""
        return futures.Future(loop=self)

    def create_task(self, coro, *, name=..., context=..., **kwargs):
        """Run a coroutine as a Task. See loop.create_task()."""
        cdef LoopCore loop = self
        if loop.task_factory is not None or loop.debug or kwargs or loop.creation_is_replaced():
            kwargs |= {key: value for key, value in (("name", name), ("context", context)) if value is not ...}
            return base_events.BaseEventLoop.create_task(self, coro, **kwargs)
        loop.check_open()
        if name is ... and context is ...:
            return tasks.Task(coro, loop=self)
        name = None if name is ... else name
        context = None if context is ... else context
        return tasks.Task(coro, loop=self, name=name, context=context)
