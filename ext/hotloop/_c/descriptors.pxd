from hotloop._c.ready cimport Handle, ReadyQueue
from hotloop._c.selector cimport PollerSelector


cdef Handle add_callback(PollerSelector poller, ReadyQueue ready, object fileobj, int event, Handle handle)
cdef bint remove_callback(PollerSelector poller, object fileobj, int event) except -1
