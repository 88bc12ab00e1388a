"""locking.h: numbers that several threads read and change, locks, and the critical section of an object."""

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "runtime/locking.h":
    bint FREE_THREADED

    ctypedef struct object_section:
        pass
    void section_enter(object_section *, object)
    void section_leave(object_section *)

    ctypedef struct wake_lock:
        pass
    void wake_lock_acquire(wake_lock *)
    void wake_lock_release(wake_lock *)

    ctypedef struct shared_flag:
        pass
    void shared_set(shared_flag *, int)
    int shared_get(shared_flag *)
    int shared_exchange(shared_flag *, int)
    int shared_peek(shared_flag *)
    void shared_fence()

    ctypedef struct shared_count:
        pass
    unsigned long long shared_next(shared_count *)

    bint load_acquire_bint "load_acquire" (bint *)
    void store_release_bint "store_release" (bint *, bint)
    unsigned long load_acquire_id "load_acquire" (unsigned long *)
    void store_release_id "store_release" (unsigned long *, unsigned long)
    unsigned int load_acquire_version "load_acquire" (unsigned int *)
    void store_release_version "store_release" (unsigned int *, unsigned int)

    Py_ssize_t published_size "published" (Py_ssize_t *) noexcept
    void publish_size "publish" (Py_ssize_t *, Py_ssize_t) noexcept
