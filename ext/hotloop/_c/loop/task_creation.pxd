from hotloop._c.loop.replaceable_methods cimport ReplaceableMethods


cdef class TaskCreation(ReplaceableMethods):
    cdef bint starts_eagerly        # the factory is asyncio.eager_task_factory
