from cpython.object cimport PyObject

from hotloop._c.highlevel.coroutine cimport Coroutine, Operation


cdef class LockFields:
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop               # None: not bound to one yet
    cdef object _waiters            # a deque of futures; None: nothing has waited yet
    cdef object _locked             # True or False


cdef bint is_plain_lock(PyObject *lock) noexcept
cdef bint take_at_once(LockFields lock) noexcept
cdef bint release_at_once(LockFields lock) noexcept
# For plain locks, and for those whose acquire(), release() or locked() alone is another:
cdef bint is_surely_taken(LockFields lock) except -1
cdef bint take_if_free(object lock) except -1
cdef int release_usual_lock(LockFields lock) except -1
cdef Operation acquire_operation
cdef object begin_wait(LockFields lock)
# For any lock:
cdef int end_wait(object lock, object waiter, object error) except -1
# For a lock, a semaphore or a condition of any class:
cdef object await_acquire(Coroutine coroutine, object lock)
cdef object acquired(object error)
