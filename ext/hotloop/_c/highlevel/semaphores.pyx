"""asyncio.Semaphore and BoundedSemaphore: the compiled short cuts of their methods.

Source: asyncio/locks.py. Two versions of acquire() are known, that of Python 3.11.1 to 3.12 and that of 3.13 and later.
Where asyncio's is another one, no method has a short cut.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.constructor cimport (
    PyVectorcall_NARGS,
    construct_in_general,
    constructor_install,
    is_unchanged_class,
)
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, is_merged, new_operation
from hotloop._c.highlevel.deque cimport deque_check, deque_install, deque_item, deque_size
from hotloop._c.highlevel.lock cimport acquired, await_acquire
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

    #define SEMAPHORE struct __pyx_obj_7hotloop_2_c_9highlevel_10semaphores_SemaphoreFields
    #define INSTANCE_DICT_OWNER SEMAPHORE
    #define clear_semaphore_fields(semaphore) FIELDS_CLEAR(SEMAPHORE, semaphore, _waiters, _bound_value)
    #define fill_semaphore_fields(semaphore) FIELDS_FILL(SEMAPHORE, semaphore, _loop, _value)
    #define semaphore_fields_are_set(semaphore) FIELDS_ARE_SET(SEMAPHORE, semaphore, _loop, _value)
    #define bound_of(semaphore) (((SEMAPHORE *)(semaphore))->_bound_value)
    #define bound_is_usual(semaphore) (bound_of(semaphore) != NULL && PyLong_CheckExact(bound_of(semaphore)))
    #define set_bound(semaphore, value) Py_XSETREF(bound_of(semaphore), Py_NewRef(value))
    #define add_semaphore_fields(type) \\
        FIELDS_INSTALL(type, FIELD_OR_NONE(SEMAPHORE, _loop), FIELD(SEMAPHORE, _waiters), FIELD(SEMAPHORE, _value), \\
                       FIELD(SEMAPHORE, _bound_value))

    /* As Semaphore(value) makes it, or BoundedSemaphore(value). */
    #define new_semaphore(type, value, is_bounded) ({ \\
        SEMAPHORE *semaphore = (SEMAPHORE *)PyType_GenericAlloc((PyTypeObject *)type, 0); \\
 \\
        if (semaphore != NULL) { \\
            semaphore->_loop = Py_NewRef(Py_None); \\
            semaphore->_waiters = Py_NewRef(Py_None); \\
            semaphore->_value = Py_NewRef(value); \\
            semaphore->_bound_value = is_bounded ? Py_NewRef(value) : NULL; \\
        } \\
        (PyObject *)semaphore; \\
    })

    /* Add to `_value`, which is an integer; false, and nothing is changed, if it is large or there is no memory. */
    #define add_to_value(semaphore, difference) add_to_integer(&((SEMAPHORE *)(semaphore))->_value, difference)

    static inline int add_to_integer(PyObject **integer, long difference)
    {
        int overflow;
        long value = PyLong_AsLongAndOverflow(*integer, &overflow);
        PyObject *sum;

        if (overflow != 0 || value == LONG_MAX || value == LONG_MIN)
            return 0;
        sum = PyLong_FromLong(value + difference);
        if (sum == NULL) {
            PyErr_Clear();
            return 0;
        }
        Py_SETREF(*integer, sum);
        return 1;
    }

    /* Less than, equal to or greater than 0 as the integer is. */
    static inline int sign_of(PyObject *integer)
    {
        int overflow;
        long value = PyLong_AsLongAndOverflow(integer, &overflow);

        return overflow != 0 ? overflow : (value > 0) - (value < 0);
    }
    """
    PyObject *new_semaphore(PyObject *type, object value, bint is_bounded) noexcept
    int add_semaphore_fields(PyTypeObject *) except -1
    void clear_semaphore_fields(object) noexcept
    bint fill_semaphore_fields(object) noexcept
    bint semaphore_fields_are_set(object) noexcept
    bint bound_is_usual(object) noexcept
    void set_bound(object, object) noexcept
    bint add_to_value(object semaphore, long difference) noexcept
    int sign_of(object integer) noexcept

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)

from asyncio import exceptions, locks
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class

deque_install(deque)

cdef object CancelledError = exceptions.CancelledError


cdef class SemaphoreFields:
    """What a semaphore consists of. The classes that programs see derive from this one and from asyncio's."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop               # None: not bound to one yet
    cdef object _waiters            # a deque of futures; None: nothing has waited yet
    cdef object _value
    cdef object _bound_value        # NULL unless it is a BoundedSemaphore

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_semaphore_fields(self)


instance_dict_install(<PyTypeObject *>SemaphoreFields)
add_semaphore_fields(<PyTypeObject *>SemaphoreFields)

cdef plain_class unbounded_class, bounded_class


# The bits of the methods that others call, in the order of `hooks`.
cdef enum:
    ACQUIRE = 1
    RELEASE = 2
    LOCKED = 4

cdef tuple hooks = ("acquire", "release", "locked")


cdef enum:
    BOUNDED = 256       # the mark of a BoundedSemaphore

unbounded_class.variant = &bounded_class
bounded_class.mark = BOUNDED


cdef inline bint is_bounded(PyObject *semaphore) noexcept:
    """For an object that is_of_our_class()."""
    return names_replaced_by_class(semaphore, &unbounded_class) & BOUNDED


cdef inline bint is_of_our_class(PyObject *semaphore) noexcept:
    """Whether it may be a usual semaphore, as far as its class says."""
    return not names_replaced_by_class(semaphore, &unbounded_class) & OTHER_NAMES


cdef inline bint is_usual_semaphore(PyObject *semaphore, unsigned int methods) noexcept:
    """The same as for a lock (lock.pyx): whether its methods are those of one of the two classes, except for methods
    other than these, and its attributes are there and of the types that the constructor gave them."""
    return (
        not replaced_names(semaphore, &unbounded_class) & (OTHER_NAMES | methods)
        and semaphore_fields_are_set(<object>semaphore)
        and PyLong_CheckExact((<SemaphoreFields>semaphore)._value)
        and ((<SemaphoreFields>semaphore)._waiters is None or deque_check((<SemaphoreFields>semaphore)._waiters))
    )


cdef inline bint applies(PyObject **arguments, Py_ssize_t count, Py_ssize_t wanted, PyObject *keywords) noexcept:
    """Whether a short cut may do a call: a usual semaphore, with `wanted` arguments in all."""
    return count == wanted and keywords == NULL and is_usual_semaphore(arguments[0], 0)


# -- what the methods have in common -----------------------------------------------------------------------------------

cdef bint is_locked(SemaphoreFields semaphore) except -1:
    """locked(), for a usual semaphore."""
    return sign_of(semaphore._value) == 0 or (
        semaphore._waiters is not None and not are_all_cancelled(semaphore._waiters)
    )


cdef bint is_surely_locked(SemaphoreFields semaphore) except -1:
    """Whether acquire() of a usual semaphore has to wait, as far as that is known without running any code."""
    return sign_of(semaphore._value) == 0 or (
        semaphore._waiters is not None and is_surely_waiting(semaphore._waiters)
    )


cdef bint take_at_once(PyObject *semaphore) noexcept:
    """Decrement a usual semaphore that is not 0 and for which nothing waits."""
    if sign_of((<SemaphoreFields>semaphore)._value) == 0:
        return False
    if has_waiters(<PyObject *>(<SemaphoreFields>semaphore)._waiters):
        return False
    return add_to_value(<object>semaphore, -1)


cdef bint release_at_once(PyObject *semaphore) noexcept:
    """Increment a usual semaphore for which nothing waits, and which has no bound."""
    if has_waiters(<PyObject *>(<SemaphoreFields>semaphore)._waiters) or is_bounded(semaphore):
        return False
    return add_to_value(<object>semaphore, 1)


cdef bint take_if_free(object semaphore) except -1:
    """Decrement a usual semaphore, unless acquire() would have to wait."""
    if is_locked(<SemaphoreFields>semaphore):
        return False
    if is_usual_semaphore(<PyObject *>semaphore, 0):
        (<SemaphoreFields>semaphore)._value = (<SemaphoreFields>semaphore)._value - 1
    else:
        semaphore._value -= 1
    return True


cdef int release_usual_semaphore(SemaphoreFields semaphore) except -1:
    semaphore._value = semaphore._value + 1
    wake_next(semaphore)
    return 0


cdef bint wake_next(object semaphore) except -1:
    """_wake_up_next(), for a usual semaphore: wake the first waiter that is not done; False if there is none."""
    cdef object waiters = (<SemaphoreFields>semaphore)._waiters
    cdef object waiter
    cdef Py_ssize_t index
    if waiters is None:
        return False
    for index in range(deque_size(waiters)):
        waiter = deque_item(waiters, index)
        if not is_our_future(waiter):
            return semaphore._wake_up_next() is True
        if state_of(<Future>waiter) == PENDING:
            (<SemaphoreFields>semaphore)._value = (<SemaphoreFields>semaphore)._value - 1
            (<Future>waiter).finish(True)
            return True
    return False


cdef int wake_as_many_as_may_run(object semaphore) except -1:
    """The end of acquire(), for any semaphore."""
    while is_usual_semaphore(<PyObject *>semaphore, 0):
        if sign_of((<SemaphoreFields>semaphore)._value) <= 0 or not wake_next(semaphore) or not wakes_all:
            return 0
    while semaphore._value > 0:
        if not semaphore._wake_up_next() or not wakes_all:
            break
    return 0


cdef PyObject *construct(PyObject *cls, PyObject *const *arguments, size_t count, PyObject *names) noexcept:
    cdef Py_ssize_t positional = PyVectorcall_NARGS(count)
    if positional <= 1 and names == NULL and cls_is_ours(cls):
        value = 1 if positional == 0 else <object>arguments[0]
        if PyLong_CheckExact(value) and sign_of(value) >= 0:
            return new_semaphore(cls, value, is_unchanged_class(cls, &bounded_class))
    return construct_in_general(cls, arguments, count, names)


cdef inline bint cls_is_ours(PyObject *cls) noexcept:
    return has_short_cuts and (is_unchanged_class(cls, &unbounded_class) or is_unchanged_class(cls, &bounded_class))


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef SemaphoreFields semaphore
    cdef object value
    if not 1 <= count <= 2 or keywords != NULL or not is_of_our_class(arguments[0]):
        return NULL
    value = 1 if count == 1 else <object>arguments[1]
    if not PyLong_CheckExact(value) or sign_of(value) < 0:
        return NULL
    semaphore = <SemaphoreFields>arguments[0]
    if not fill_semaphore_fields(semaphore):
        return NULL
    semaphore._waiters = None
    semaphore._value = value
    if is_bounded(arguments[0]):
        set_bound(semaphore, value)
    return Py_NewRef(None)


cdef PyObject *locked(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords):
        return NULL
    return Py_NewRef(is_locked(<SemaphoreFields>arguments[0]))


cdef PyObject *release(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords) or not may_release(<SemaphoreFields>arguments[0]):
        return NULL
    release_usual_semaphore(<SemaphoreFields>arguments[0])
    return Py_NewRef(None)


cdef bint may_release(SemaphoreFields semaphore) except -1:
    """Whether release() of a usual semaphore raises nothing, as far as is known."""
    if not is_bounded(<PyObject *>semaphore):
        return True
    return bound_is_usual(semaphore) and semaphore._value < semaphore._bound_value


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef enum:
    WOKEN = 1


cdef PyObject *acquire_at_once(PyObject *semaphore) noexcept:
    return Py_NewRef(True) if is_usual_semaphore(semaphore, LOCKED) and take_at_once(semaphore) else NULL


cdef object acquire_step(Coroutine coroutine, object outcome, object error):
    cdef object semaphore
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    semaphore = coroutine.owner
    if coroutine.position == WOKEN:
        end_wait(semaphore, coroutine.extra, error)
        return True
    if not is_usual_semaphore(<PyObject *>semaphore, LOCKED):
        return delegate(coroutine, asyncio_acquire(semaphore))
    if take_if_free(semaphore):
        return True
    if not is_usual_semaphore(<PyObject *>semaphore, LOCKED):
        return delegate(coroutine, asyncio_acquire(semaphore))
    coroutine.extra = begin_wait(<SemaphoreFields>semaphore)
    coroutine.position = WOKEN
    return await_object(coroutine, coroutine.extra)


cdef object begin_wait(SemaphoreFields semaphore):
    """A future among the waiters of a usual semaphore that is not free."""
    return add_waiter(semaphore, semaphore._waiters, semaphore._loop)


cdef int end_wait(object semaphore, object waiter, object error) except -1:
    """acquire() from where the waiter was awaited, for any semaphore."""
    if error is not None:
        fail(semaphore, waiter, error)
    try:
        forget_waiter(semaphore, waiter)
    except BaseException:
        # The program has removed it.
        if wakes_all:
            wake_as_many_as_may_run(semaphore)
        raise
    wake_as_many_as_may_run(semaphore)
    return 0


cdef int forget_waiter(object semaphore, object waiter) except -1:
    """semaphore._waiters.remove(waiter)"""
    if is_usual_semaphore(<PyObject *>semaphore, 0) and remove_waiter((<SemaphoreFields>semaphore)._waiters, waiter):
        return 0
    semaphore._waiters.remove(waiter)
    return 0


cdef int fail(object semaphore, object waiter, object error) except -1:
    """The end of acquire() after a wait that ended with an exception."""
    if wakes_all:
        fail_and_wake_all(semaphore, waiter, error)
    try:
        fail_waiting(semaphore, waiter, error)
    except CancelledError:
        if not waiter.cancelled():
            semaphore._value += 1
            semaphore._wake_up_next()
        raise


cdef int fail_and_wake_all(object semaphore, object waiter, object error) except -1:
    try:
        fail_waiting(semaphore, waiter, error)
    except CancelledError:
        if waiter.done() and not waiter.cancelled():
            semaphore._value += 1
        raise
    finally:
        wake_as_many_as_may_run(semaphore)


cdef PyObject *enter_at_once(PyObject *semaphore) noexcept:
    return Py_NewRef(None) if is_usual_semaphore(semaphore, ACQUIRE | LOCKED) and take_at_once(semaphore) else NULL


cdef object enter_step(Coroutine coroutine, object outcome, object error):
    cdef object semaphore = coroutine.owner
    cdef bint is_usual
    if is_merged(coroutine):
        end_wait(semaphore, coroutine.extra, error)
        return None
    if coroutine.position == WOKEN:
        return acquired(error)
    # As in lock.pyx.
    if may_merge() and is_usual_semaphore(<PyObject *>semaphore, ACQUIRE | LOCKED):
        if is_surely_locked(<SemaphoreFields>semaphore):
            is_usual = True
        elif take_if_free(semaphore):
            return None
        else:
            is_usual = is_usual_semaphore(<PyObject *>semaphore, ACQUIRE | LOCKED)
        if is_usual:
            return await_merged(coroutine, WOKEN, semaphore, begin_wait(<SemaphoreFields>semaphore))
    return await_acquire(coroutine, semaphore)


cdef PyObject *exit_at_once(PyObject *semaphore) noexcept:
    return Py_NewRef(None) if is_usual_semaphore(semaphore, RELEASE) and release_at_once(semaphore) else NULL


cdef object exit_step(Coroutine coroutine, object outcome, object error):
    cdef object semaphore = coroutine.owner
    if is_usual_semaphore(<PyObject *>semaphore, RELEASE) and may_release(<SemaphoreFields>semaphore):
        release_usual_semaphore(<SemaphoreFields>semaphore)
    else:
        semaphore.release()
    return None


# -- asyncio's own, and ours -------------------------------------------------------------------------------------------

cdef object asyncio_init = locks.Semaphore.__init__
cdef object asyncio_acquire = locks.Semaphore.acquire
cdef object asyncio_enter = locks.Semaphore.__aenter__
cdef object asyncio_exit = locks.Semaphore.__aexit__
cdef Operation acquire_operation = new_operation(acquire_step, asyncio_acquire, acquire_at_once)
cdef Operation enter_operation = new_operation(enter_step, asyncio_enter, enter_at_once, acquire_operation)
cdef Operation exit_operation = new_operation(exit_step, asyncio_exit, exit_at_once)

# The names that acquire() uses, and whether it ends by waking every waiter that may run (gh-111693), not just one.
cdef dict known_versions = {
    (
        "locked", "_value", "_waiters", "collections", "deque", "_get_loop", "create_future", "append", "remove",
        "exceptions", "CancelledError", "cancelled", "_wake_up_next",
    ): False,
    (
        "locked", "_value", "_waiters", "collections", "deque", "_get_loop", "create_future", "append", "remove",
        "exceptions", "CancelledError", "done", "cancelled", "_wake_up_next",
    ): True,
}   # fmt: skip
cdef tuple version = asyncio_acquire.__code__.co_names
cdef bint wakes_all = known_versions.get(version, False)
cdef bint has_short_cuts = version in known_versions


cdef dict short_cuts():
    if not has_short_cuts:
        return {}
    return {
        "__init__": compiled_function(asyncio_init, init),
        "locked": compiled_function(locks.Semaphore.locked, locked),
        "acquire": coroutine_method(asyncio_acquire, acquire_operation, 1, &unbounded_class),
        "release": compiled_function(locks.Semaphore.release, release),
        "__aenter__": coroutine_method(asyncio_enter, enter_operation, 1, &unbounded_class),
        "__aexit__": coroutine_method(asyncio_exit, exit_operation, 4, &unbounded_class),
    }


cdef dict bounded_short_cuts():
    bounded = locks.BoundedSemaphore
    if not has_short_cuts:
        return {}
    return {
        "__init__": compiled_function(bounded.__init__, init),
        "release": compiled_function(bounded.release, release),
    }


Semaphore = compiled_class(SemaphoreFields, locks.Semaphore, **short_cuts())
BoundedSemaphore = compiled_class(Semaphore, locks.BoundedSemaphore, **bounded_short_cuts())
plain_class_record_names(&unbounded_class, Semaphore, hooks)
plain_class_record_names(&bounded_class, BoundedSemaphore, hooks)
constructor_install(Semaphore, construct)
constructor_install(BoundedSemaphore, construct)
