from hotloop._c.poller.selector cimport PollerSelector
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.scheduler.handles cimport Handle
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, Runnable


cdef int wait_by_callbacks(PollerSelector poller, int fd) except -1
cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle)
cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1
cdef int set_receiver(PollerSelector poller, int fd, int event, Watcher receiver) except -1
cdef int remove_receiver(PollerSelector poller, int fd, int event, Watcher receiver) except -1
cdef Runnable receiver_of(PollerSelector poller, int fd, int event)
cdef int detach_if_unused(PollerSelector poller, int fd) except -1
