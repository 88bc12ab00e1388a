"""asyncio.Lock: the compiled short cuts of its methods.

Source: asyncio/locks.py, which is the same in every supported Python.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.constructor cimport (
    PyVectorcall_NARGS,
    construct_in_general,
    constructor_install,
    is_unchanged_class,
)
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, is_merged, new_operation
from hotloop._c.highlevel.deque cimport deque_check, deque_install, deque_item, deque_size
from hotloop._c.highlevel.plain_class cimport (
    OTHER_NAMES,
    names_replaced_by_class,
    plain_class,
    plain_class_record_names,
    replaced_names,
)
from hotloop._c.highlevel.step_ends cimport await_merged, await_object, delegate, delegated, may_merge
from hotloop._c.highlevel.waiters cimport (
    add_waiter,
    are_all_cancelled,
    fail_waiting,
    has_waiters,
    is_our_future,
    is_surely_waiting,
    remove_waiter,
)
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install
from hotloop._c.runtime.references cimport Py_NewRef
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport PENDING, state_of

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define LOCK struct __pyx_obj_7hotloop_2_c_9highlevel_4lock_LockFields
    #define INSTANCE_DICT_OWNER LOCK
    #define clear_lock_fields(lock) FIELDS_CLEAR(LOCK, lock, _waiters, _locked)
    #define fill_lock_fields(lock) FIELDS_FILL(LOCK, lock, _loop, _locked)
    #define lock_fields_are_set(lock) FIELDS_ARE_SET(LOCK, lock, _loop, _locked)
    #define add_lock_fields(type) \\
        FIELDS_INSTALL(type, FIELD_OR_NONE(LOCK, _loop), FIELD(LOCK, _waiters), FIELD(LOCK, _locked))

    /* As Lock() makes it. */
    #define new_lock(type) ({ \\
        LOCK *lock = (LOCK *)PyType_GenericAlloc((PyTypeObject *)type, 0); \\
 \\
        if (lock != NULL) { \\
            lock->_loop = Py_NewRef(Py_None); \\
            lock->_waiters = Py_NewRef(Py_None); \\
            lock->_locked = Py_NewRef(Py_False); \\
        } \\
        (PyObject *)lock; \\
    })
    """
    PyObject *new_lock(PyObject *type) noexcept
    int add_lock_fields(PyTypeObject *) except -1
    void clear_lock_fields(object) noexcept
    bint fill_lock_fields(object) noexcept
    bint lock_fields_are_set(object) noexcept

from asyncio import exceptions, locks
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class

deque_install(deque)

cdef object CancelledError = exceptions.CancelledError


cdef class LockFields:
    """What a Lock consists of. The class that programs see derives from this one and from asyncio.Lock."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_lock_fields(self)


instance_dict_install(<PyTypeObject *>LockFields)
add_lock_fields(<PyTypeObject *>LockFields)

cdef plain_class lock_class


# The bits of the methods that others call, in the order in which plain_class_record_names() gets their names.
cdef enum:
    ACQUIRE = 1
    RELEASE = 2


# A lock is plain if the program has replaced none of its methods, in a subclass or on the object, and usual if it has
# replaced none that the short cut at hand relies on. The fields of both are as the constructor left them.


cdef bint is_plain_lock(PyObject *lock) noexcept:
    """Whether its methods are Lock's, and its attributes are there and of the types that the constructor gave them."""
    return replaced_names(lock, &lock_class) == 0 and has_usual_fields(lock)


cdef inline bint is_usual_lock(PyObject *lock, unsigned int methods) noexcept:
    """is_plain_lock() for what relies on no other methods than these."""
    return not replaced_names(lock, &lock_class) & (OTHER_NAMES | methods) and has_usual_fields(lock)


cdef inline bint is_of_our_class(PyObject *lock) noexcept:
    """Whether it may be a usual lock, as far as its class says."""
    return not names_replaced_by_class(lock, &lock_class) & OTHER_NAMES


cdef inline bint has_usual_fields(PyObject *lock) noexcept:
    return lock_fields_are_set(<object>lock) and has_usual_types(<LockFields>lock)


cdef inline bint has_usual_types(LockFields lock) noexcept:
    return (lock._locked is True or lock._locked is False) and (lock._waiters is None or deque_check(lock._waiters))


cdef inline bint applies(PyObject **arguments, Py_ssize_t count, Py_ssize_t wanted, PyObject *keywords) noexcept:
    """Whether a short cut may do a call: a usual lock, with `wanted` arguments in all."""
    return count == wanted and keywords == NULL and is_usual_lock(arguments[0], 0)


# -- what the methods have in common -----------------------------------------------------------------------------------

cdef bint take_at_once(LockFields lock) noexcept:
    """Lock a usual lock that is not locked and for which nothing waits."""
    if lock._locked or has_waiters(<PyObject *>lock._waiters):
        return False
    lock._locked = True
    return True


cdef bint release_at_once(LockFields lock) noexcept:
    """Unlock a usual lock that is locked and for which nothing waits."""
    if not lock._locked or has_waiters(<PyObject *>lock._waiters):
        return False
    lock._locked = False
    return True


cdef bint is_surely_taken(LockFields lock) except -1:
    """Whether acquire() of a usual lock has to wait, as far as that is known without running any code."""
    return lock._locked is True or (lock._waiters is not None and is_surely_waiting(lock._waiters))


cdef bint take_if_free(object lock) except -1:
    """Lock a usual lock, unless acquire() would have to wait."""
    if (<LockFields>lock)._locked:
        return False
    if (<LockFields>lock)._waiters is not None and not are_all_cancelled((<LockFields>lock)._waiters):
        return False
    set_locked(lock)
    return True


cdef int set_locked(object lock) except -1:
    """For any lock."""
    if is_usual_lock(<PyObject *>lock, 0):
        (<LockFields>lock)._locked = True
    else:
        lock._locked = True
    return 0


cdef int release_usual_lock(LockFields lock) except -1:
    """release(), for a usual lock that is locked."""
    cdef object waiters, waiter
    lock._locked = False
    waiters = lock._waiters
    if waiters is None or not deque_size(waiters):
        return 0
    waiter = deque_item(waiters, 0)
    if not is_our_future(waiter):
        lock._wake_up_first()
    elif state_of(<Future>waiter) == PENDING:
        (<Future>waiter).finish(True)
    return 0


cdef object await_acquire(Coroutine coroutine, object lock):
    """`await lock.acquire()` in a coroutine that has no other `await`: for a step function to return."""
    coroutine.position = WOKEN
    return await_object(coroutine, lock.acquire())


cdef object acquired(object error):
    """The step after await_acquire(), for an __aenter__()."""
    if error is not None:
        raise_again(error)
    return None


cdef PyObject *construct(PyObject *cls, PyObject *const *arguments, size_t count, PyObject *names) noexcept:
    if PyVectorcall_NARGS(count) == 0 and names == NULL and is_unchanged_class(cls, &lock_class):
        return new_lock(cls)
    return construct_in_general(cls, arguments, count, names)


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_of_our_class(arguments[0]):
        return NULL
    cdef LockFields lock = <LockFields>arguments[0]
    if not fill_lock_fields(lock):
        return NULL
    lock._waiters = None
    lock._locked = False
    return Py_NewRef(None)


cdef PyObject *locked(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords):
        return NULL
    return Py_NewRef((<LockFields>arguments[0])._locked)


cdef PyObject *release(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords) or not (<LockFields>arguments[0])._locked:
        return NULL
    release_usual_lock(<LockFields>arguments[0])
    return Py_NewRef(None)


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef enum:
    WOKEN = 1


cdef PyObject *acquire_at_once(PyObject *lock) noexcept:
    return Py_NewRef(True) if is_usual_lock(lock, 0) and take_at_once(<LockFields>lock) else NULL


cdef object acquire_step(Coroutine coroutine, object outcome, object error):
    cdef object lock
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    lock = coroutine.owner
    if coroutine.position == WOKEN:
        end_wait(lock, coroutine.extra, error)
        return True
    if not is_usual_lock(<PyObject *>lock, 0):
        return delegate(coroutine, asyncio_acquire(lock))
    if take_if_free(lock):
        return True
    if not is_usual_lock(<PyObject *>lock, 0):
        return delegate(coroutine, asyncio_acquire(lock))
    coroutine.extra = begin_wait(<LockFields>lock)
    coroutine.position = WOKEN
    return await_object(coroutine, coroutine.extra)


cdef object begin_wait(LockFields lock):
    """A future among the waiters of a usual lock that is not free."""
    return add_waiter(lock, lock._waiters, lock._loop)


cdef int end_wait(object lock, object waiter, object error) except -1:
    """acquire() from where the waiter was awaited, for any lock."""
    if error is not None:
        fail(lock, waiter, error)
    if is_usual_lock(<PyObject *>lock, 0) and remove_waiter((<LockFields>lock)._waiters, waiter):
        (<LockFields>lock)._locked = True
    else:
        lock._waiters.remove(waiter)
        set_locked(lock)
    return 0


cdef int fail(object lock, object waiter, object error) except -1:
    """The end of acquire() after a wait that ended with an exception."""
    try:
        fail_waiting(lock, waiter, error)
    except CancelledError:
        if not lock._locked:
            lock._wake_up_first()
        raise


cdef PyObject *enter_at_once(PyObject *lock) noexcept:
    return Py_NewRef(None) if is_usual_lock(lock, ACQUIRE) and take_at_once(<LockFields>lock) else NULL


cdef object enter_step(Coroutine coroutine, object outcome, object error):
    cdef object lock = coroutine.owner
    cdef bint is_usual
    if is_merged(coroutine):
        end_wait(lock, coroutine.extra, error)
        return None
    if coroutine.position == WOKEN:
        return acquired(error)
    # Otherwise acquire() is to do it all: asking waiters of other classes twice might run any code twice.
    if may_merge() and is_usual_lock(<PyObject *>lock, ACQUIRE):
        if is_surely_taken(<LockFields>lock):
            is_usual = True
        elif take_if_free(lock):
            return None
        else:
            is_usual = is_usual_lock(<PyObject *>lock, ACQUIRE)
        if is_usual:
            return await_merged(coroutine, WOKEN, lock, begin_wait(<LockFields>lock))
    return await_acquire(coroutine, lock)


cdef PyObject *exit_at_once(PyObject *lock) noexcept:
    return Py_NewRef(None) if is_usual_lock(lock, RELEASE) and release_at_once(<LockFields>lock) else NULL


cdef object exit_step(Coroutine coroutine, object outcome, object error):
    cdef object lock = coroutine.owner
    if is_usual_lock(<PyObject *>lock, RELEASE) and (<LockFields>lock)._locked:
        release_usual_lock(<LockFields>lock)
    else:
        lock.release()
    return None


cdef object asyncio_acquire = locks.Lock.acquire
cdef object asyncio_enter = locks.Lock.__aenter__
cdef object asyncio_exit = locks.Lock.__aexit__
cdef Operation acquire_operation = new_operation(acquire_step, asyncio_acquire, acquire_at_once)
cdef Operation enter_operation = new_operation(enter_step, asyncio_enter, enter_at_once, acquire_operation)
cdef Operation exit_operation = new_operation(exit_step, asyncio_exit, exit_at_once)


Lock = compiled_class(
    LockFields,
    locks.Lock,
    __init__=compiled_function(locks.Lock.__init__, init),
    locked=compiled_function(locks.Lock.locked, locked),
    acquire=coroutine_method(asyncio_acquire, acquire_operation, 1, &lock_class),
    release=compiled_function(locks.Lock.release, release),
    # asyncio's own coroutine awaits an acquire() in Python more quickly.
    __aenter__=coroutine_method(asyncio_enter, enter_operation, 1, &lock_class, ACQUIRE),
    __aexit__=coroutine_method(asyncio_exit, exit_operation, 4, &lock_class),
)
plain_class_record_names(&lock_class, Lock, ("acquire", "release", "locked"))
constructor_install(Lock, construct)
