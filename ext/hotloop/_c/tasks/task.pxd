from hotloop._c.scheduler.ready_queue cimport ReadyQueue
from hotloop._c.tasks.task_core cimport TaskCore, task_link, task_number


cdef class Task(TaskCore):
    cdef int prepare(self, object coro, object name, object context) except -1
    cdef int register(self) except -1
    cdef int report_pending(self) except -1
    cdef int start_eagerly(self) except -1
    cdef int set_coroutine(self, object coro) except -1


cdef Task new_task(object coro, object loop, ReadyQueue queue, object name, object context, bint eager)
