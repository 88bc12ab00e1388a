cimport cython

from hotloop._c.ready cimport Handle, ReadyQueue


cdef extern from "lock.h":
    ctypedef struct shared_flag:
        pass
    ctypedef struct inbox_lock:
        pass


@cython.final
cdef class Inbox:
    cdef list handles
    cdef inbox_lock lock            # of `handles`
    cdef shared_flag filled         # set after a handle was put in, cleared before they are taken out

    cdef int put(self, Handle handle) except -1
    cdef int empty_into(self, ReadyQueue ready) except -1
