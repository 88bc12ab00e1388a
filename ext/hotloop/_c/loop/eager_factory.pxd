from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.task cimport Task


cdef bint is_eager_factory(object factory) noexcept
cdef Task create_eager_task(
    object coro, object loop, ReadyQueue queue, object name, object context, bint debug, bint running
)
