from hotloop._c.ready cimport Handle, ReadyQueue, Runnable
from hotloop._c.selector cimport PollerSelector
from hotloop._c.watcher cimport Watcher


cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle)
cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1
cdef int add_watcher(PollerSelector poller, int fd, int event, Watcher receiver, bint known) except -1
cdef int remove_watcher(PollerSelector poller, int fd, int event, Watcher receiver) except -1
cdef Runnable watcher_for(PollerSelector poller, int fd, int event)
cdef int detach_if_unused(PollerSelector poller, int fd) except -1
