from libc.stdint cimport int64_t


cdef extern from "poller.h":
    ctypedef struct poller:
        int fd

    ctypedef struct poller_batch:
        int capacity


cdef class PollerSelector:
    cdef object attributes          # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef poller poller
    cdef poller_batch *spare        # the batch of the last wait, kept for the next one; NULL while a wait uses it
    cdef list keys                  # SelectorKey by descriptor, None where none is registered
    cdef Py_ssize_t registered      # how many of them
    cdef object map                 # what get_map() returns; None once closed
    cdef unsigned int generation    # of the process that owns the kernel's set, see fork_generation()

    cdef poller_batch *wait(self, int64_t nanoseconds, bint release_gil, int *count) except NULL
    cdef object event(self, poller_batch *batch, int index, int *mask)
    cdef void release(self, poller_batch *batch) noexcept
    cdef int wake(self) except -1
    cdef int descriptor(self, object fileobj) except -1
    cdef object key(self, int fd)
    cdef int store(self, int fd, object key) except -1
    cdef int forget(self, int fd) except -1
    cdef int own(self) except -1
