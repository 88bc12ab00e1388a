"""asyncio.Condition: the compiled short cuts of its methods.

Source: asyncio/locks.py. Versions differ in wait(), in what follows an exception, which is left to asyncio's own
wait(): see _asyncio/resumed_wait.py.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport (
    Coroutine,
    Operation,
    coroutine_method,
    is_merged,
    new_coroutine,
    new_operation,
)
from hotloop._c.highlevel.deque cimport (
    deque_append,
    deque_check,
    deque_install,
    deque_item,
    deque_new,
    deque_size,
)
from hotloop._c.highlevel.lock cimport (
    LockFields,
    acquire_operation,
    acquired,
    await_acquire,
    begin_wait,
    end_wait,
    is_plain_lock,
    is_surely_taken,
    release_at_once,
    release_usual_lock,
    take_at_once,
    take_if_free,
)
from hotloop._c.highlevel.plain_class cimport is_unchanged, plain_class, plain_class_record
from hotloop._c.highlevel.running_loop cimport running_loop
from hotloop._c.highlevel.step_ends cimport await_merged, await_object, delegate, delegated, may_merge
from hotloop._c.highlevel.waiters cimport create_waiter, has_waiters, is_our_future, remove_waiter
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport PENDING, state_of

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define CONDITION struct __pyx_obj_7hotloop_2_c_9highlevel_9condition_ConditionFields
    #define INSTANCE_DICT_OWNER CONDITION
    #define clear_condition_fields(condition) FIELDS_CLEAR(CONDITION, condition, _lock, release)
    #define fill_condition_fields(condition) FIELDS_FILL(CONDITION, condition, _loop, release)
    #define condition_fields_are_set(condition) FIELDS_ARE_SET(CONDITION, condition, _loop, release)
    #define add_condition_fields(type) \\
        FIELDS_INSTALL(type, FIELD_OR_NONE(CONDITION, _loop), FIELD(CONDITION, _lock), FIELD(CONDITION, _waiters), \\
                       FIELD(CONDITION, locked), FIELD(CONDITION, acquire), FIELD(CONDITION, release))

    /* Whether `method` is `function`, bound to `owner`. */
    static inline int is_method(PyObject *method, PyObject *function, PyObject *owner)
    {
        return PyMethod_Check(method) && PyMethod_GET_SELF(method) == owner
               && PyMethod_GET_FUNCTION(method) == function;
    }
    """
    int add_condition_fields(PyTypeObject *) except -1
    void clear_condition_fields(object) noexcept
    bint fill_condition_fields(object) noexcept
    bint condition_fields_are_set(object) noexcept
    bint is_method(object method, object function, object owner) noexcept
    object PyMethod_New(object function, object owner)

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    Py_ssize_t PyLong_AsSsize_t(object) except? -1

from asyncio import locks
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._asyncio.resumed_wait import refused_wait, resumed_wait
from hotloop._c.highlevel.lock import Lock

deque_install(deque)

cdef object lock_locked = vars(Lock)["locked"]
cdef object lock_acquire = vars(Lock)["acquire"]
cdef object lock_release = vars(Lock)["release"]
cdef object AsyncioLock = locks.Lock


cdef class ConditionFields:
    """What a Condition consists of. The class that programs see derives from this one and from asyncio.Condition."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop               # None: not bound to one yet
    cdef object _lock
    cdef object _waiters            # a deque of futures
    cdef object locked              # methods of `_lock`
    cdef object acquire
    cdef object release

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_condition_fields(self)


instance_dict_install(<PyTypeObject *>ConditionFields)
add_condition_fields(<PyTypeObject *>ConditionFields)

cdef plain_class condition_class


cdef inline bint has_usual_methods(PyObject *condition) noexcept:
    return is_unchanged(condition, &condition_class) and instance_dict_is_absent(<object>condition)


cdef bint is_plain_condition(PyObject *condition) noexcept:
    """Whether its class is Condition itself, its lock is a plain one, and its other attributes are there and of the
    types that the constructor gave them."""
    return (
        has_usual_methods(condition)
        and condition_fields_are_set(<object>condition)
        and deque_check((<ConditionFields>condition)._waiters)
        and has_plain_lock(<ConditionFields>condition)
    )


cdef inline bint has_plain_lock(ConditionFields condition) noexcept:
    return (
        is_plain_lock(<PyObject *>condition._lock)
        and is_method(condition.locked, lock_locked, condition._lock)
        and is_method(condition.acquire, lock_acquire, condition._lock)
        and is_method(condition.release, lock_release, condition._lock)
    )


cdef inline bint applies(PyObject **arguments, Py_ssize_t count, Py_ssize_t wanted, PyObject *keywords) noexcept:
    """Whether a short cut may do a call: a plain condition, with `wanted` arguments in all."""
    return count == wanted and keywords == NULL and is_plain_condition(arguments[0])


cdef inline bint is_held(ConditionFields condition) noexcept:
    """Whether the lock of a plain condition is locked."""
    return (<LockFields>condition._lock)._locked is True


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef ConditionFields condition
    cdef object lock = None, locked, acquire, release, waiters
    if count == 2 and keywords == NULL:
        lock = <object>arguments[1]
    elif count == 1 and keywords != NULL and <object>keywords == ("lock",):
        lock = <object>arguments[1]
    elif count != 1 or keywords != NULL:
        return NULL
    if not isinstance(<object>arguments[0], ConditionFields):
        return NULL
    if lock is None:
        if locks.Lock is not AsyncioLock and locks.Lock is not Lock:
            return NULL
        lock = Lock()
    if not is_unchanged(arguments[0], &condition_class) or not is_plain_lock(<PyObject *>lock):
        return Py_NewRef(asyncio_init(<object>arguments[0], lock))
    condition = <ConditionFields>arguments[0]
    locked = PyMethod_New(lock_locked, lock)
    acquire = PyMethod_New(lock_acquire, lock)
    release = PyMethod_New(lock_release, lock)
    waiters = deque_new()
    if not fill_condition_fields(condition):
        return Py_NewRef(asyncio_init(condition, lock))
    condition._lock = lock
    condition.locked = locked
    condition.acquire = acquire
    condition.release = release
    condition._waiters = waiters
    return Py_NewRef(None)


cdef PyObject *notify(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef Py_ssize_t limit = 1
    if not 1 <= count <= 2 or keywords != NULL or not is_plain_condition(arguments[0]):
        return NULL
    if count == 2:
        if not PyLong_CheckExact(<object>arguments[1]) or not -LIMIT < <object>arguments[1] < LIMIT:
            return NULL
        limit = PyLong_AsSsize_t(<object>arguments[1])
    return notify_plain_condition(<ConditionFields>arguments[0], limit)


cdef PyObject *notify_all(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not applies(arguments, count, 1, keywords):
        return NULL
    return notify_plain_condition(<ConditionFields>arguments[0], LIMIT)


cdef enum:
    LIMIT = 1 << 30                 # more waiters than a condition has


cdef PyObject *notify_plain_condition(ConditionFields condition, Py_ssize_t limit) except? NULL:
    """Wake up to `limit` waiters. NULL without an exception: asyncio's own function is to do what remains."""
    cdef object waiters = condition._waiters
    cdef object waiter
    cdef Py_ssize_t index
    cdef Py_ssize_t woken = 0
    if not is_held(condition):
        return NULL
    for index in range(deque_size(waiters)):
        if woken >= limit:
            break
        waiter = deque_item(waiters, index)
        if not is_our_future(waiter):
            if woken == 0:
                return NULL
            return Py_NewRef(asyncio_notify(condition, min(limit, len(waiters)) - woken))
        if state_of(<Future>waiter) == PENDING:
            woken += 1
            (<Future>waiter).finish(False)
    return Py_NewRef(None)


# -- the coroutines ----------------------------------------------------------------------------------------------------

# Where wait() is: at the await of its future, and at that of acquire().
cdef enum:
    NOTIFIED = 1
    ACQUIRING = 2


cdef object wait_step(Coroutine coroutine, object outcome, object error):
    cdef object condition, waiter, waiters, failure = None
    cdef Py_ssize_t before
    cdef int taken
    condition = coroutine.owner
    waiter = coroutine.extra
    if is_merged(coroutine):
        return wait_merged(coroutine, condition, waiter, error)
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == NOTIFIED:
        if error is not None and may_raise_at_once(condition) and forget_waiter(condition, waiter):
            raise_holding_the_lock(condition, error)
        if error is not None or not forget_waiter(condition, waiter):
            return delegate(coroutine, resumed_wait(condition, waiter, error))
        taken = begin_to_lock(condition)
        if taken == TAKEN:
            return True
        if taken == MERGEABLE:
            return await_lock(coroutine, ACQUIRING, (<ConditionFields>condition)._lock)
        coroutine.position = ACQUIRING
        return await_object(coroutine, condition.acquire())
    if coroutine.position == ACQUIRING:
        if error is not None:
            return delegate(coroutine, resumed_wait(condition, None, error))
        return True
    if not is_plain_condition(<PyObject *>condition) or not is_held(<ConditionFields>condition):
        return delegate(coroutine, asyncio_wait(condition))
    if not may_wait_here(<ConditionFields>condition):
        # asyncio unlocks the condition first, and its error names the condition as it is then.
        return delegate(coroutine, asyncio_wait(condition))
    try:
        waiter = create_waiter(condition, (<ConditionFields>condition)._loop)
    except BaseException as raised:
        failure = raised
    if failure is not None:
        return delegate(coroutine, refused_wait(condition, failure))
    if not is_plain_condition(<PyObject *>condition):
        return delegate(coroutine, asyncio_wait(condition))
    waiters = (<ConditionFields>condition)._waiters
    # Nothing sees it there before the lock is released, and there may be no memory for it: then the lock stays held.
    before = deque_size(waiters)
    deque_append(waiters, waiter)
    try:
        # A deque with a `maxlen` that is full drops its oldest item, whose finalizer may run any code.
        if deque_size(waiters) > before or is_plain_condition(<PyObject *>condition):
            release_usual_lock((<ConditionFields>condition)._lock)
        else:
            condition.release()
    except BaseException:
        remove_waiter(waiters, waiter)
        raise
    coroutine.extra = waiter
    coroutine.position = NOTIFIED
    return await_object(coroutine, waiter)


cdef bint may_wait_here(ConditionFields condition) except -1:
    """Whether it has not been used with another loop than the running one."""
    return condition._loop is None or condition._loop is running_loop()


cdef enum:
    TAKEN
    MERGEABLE
    UNKNOWN


cdef int begin_to_lock(object condition) except -1:
    """acquire() of a plain condition, as far as it need not wait: TAKEN; or MERGEABLE, await_lock() may be called; or
    UNKNOWN: acquire() is to do it all."""
    cdef object lock = (<ConditionFields>condition)._lock
    if not may_merge():
        return UNKNOWN
    if not is_surely_taken(<LockFields>lock):
        if take_if_free(lock):
            return TAKEN
        # Asking the waiters may have run any code.
        if not is_plain_condition(<PyObject *>condition):
            return UNKNOWN
    return MERGEABLE


cdef object await_lock(Coroutine coroutine, int position, object lock):
    """Await the acquire() of a plain lock that begin_to_lock() has found taken: for a step function to return."""
    return await_merged(coroutine, position, lock, begin_wait(<LockFields>lock))


cdef object wait_merged(Coroutine coroutine, object condition, object waiter, object error):
    """wait_step() after await_lock()."""
    cdef object failure = None
    try:
        end_wait(coroutine.argument, waiter, error)
    except BaseException as raised:
        failure = raised
    return True if failure is None else delegate(coroutine, resumed_wait(condition, None, failure))


cdef bint may_raise_at_once(object condition) noexcept:
    """Whether it is a plain condition, and a wait() that was cancelled need not wait for the lock."""
    return is_plain_condition(<PyObject *>condition) and is_free((<ConditionFields>condition)._lock)


cdef inline bint is_free(LockFields lock) noexcept:
    return lock._locked is False and not has_waiters(<PyObject *>lock._waiters)


cdef int raise_holding_the_lock(object condition, object error) except -1:
    """The end of a wait() that was cancelled. From 3.13 on it passes on the notification it may have had."""
    (<LockFields>(<ConditionFields>condition)._lock)._locked = True
    if passes_on and deque_size((<ConditionFields>condition)._waiters):
        condition._notify(1)
    raise_again(error)


cdef bint forget_waiter(object condition, object waiter) except -1:
    """Remove it from a plain condition's waiters; False if it is not there, or the condition is another one."""
    return is_plain_condition(<PyObject *>condition) and remove_waiter(
        (<ConditionFields>condition)._waiters, waiter
    )


cdef object wait_for_step(Coroutine coroutine, object outcome, object error):
    cdef object result
    if error is not None:
        raise_again(error)
    result = coroutine.argument()
    if result:
        return result
    if has_usual_methods(<PyObject *>coroutine.owner):
        return await_object(coroutine, steal(new_coroutine(wait_operation, coroutine.owner, None)))
    return await_object(coroutine, coroutine.owner.wait())


cdef PyObject *enter_at_once(PyObject *condition) noexcept:
    if is_plain_condition(condition) and take_at_once(<LockFields>(<ConditionFields>condition)._lock):
        return Py_NewRef(None)
    return NULL


cdef object enter_step(Coroutine coroutine, object outcome, object error):
    cdef object condition = coroutine.owner
    cdef int taken
    if is_merged(coroutine):
        end_wait(coroutine.argument, coroutine.extra, error)
        return None
    if coroutine.position:
        return acquired(error)
    if is_plain_condition(<PyObject *>condition):
        taken = begin_to_lock(condition)
        if taken == TAKEN:
            return None
        if taken == MERGEABLE:
            return await_lock(coroutine, 1, (<ConditionFields>condition)._lock)
    return await_acquire(coroutine, condition)


cdef PyObject *exit_at_once(PyObject *condition) noexcept:
    if is_plain_condition(condition) and release_at_once(<LockFields>(<ConditionFields>condition)._lock):
        return Py_NewRef(None)
    return NULL


cdef object exit_step(Coroutine coroutine, object outcome, object error):
    cdef object condition = coroutine.owner
    if is_plain_condition(<PyObject *>condition) and is_held(<ConditionFields>condition):
        release_usual_lock((<ConditionFields>condition)._lock)
    else:
        condition.release()
    return None


cdef object asyncio_init = locks.Condition.__init__
cdef object asyncio_wait = locks.Condition.wait
cdef object asyncio_wait_for = locks.Condition.wait_for
cdef bint passes_on = hasattr(locks.Condition, "_notify")
cdef object asyncio_notify = locks.Condition.notify
cdef object asyncio_enter = locks.Condition.__aenter__
cdef object asyncio_exit = locks.Condition.__aexit__
cdef Operation wait_operation = new_operation(wait_step, asyncio_wait, NULL, acquire_operation)
cdef Operation wait_for_operation = new_operation(wait_for_step, asyncio_wait_for)
cdef Operation enter_operation = new_operation(enter_step, asyncio_enter, enter_at_once, acquire_operation)
cdef Operation exit_operation = new_operation(exit_step, asyncio_exit, exit_at_once)


Condition = compiled_class(
    ConditionFields,
    locks.Condition,
    __init__=compiled_function(asyncio_init, init),
    wait=coroutine_method(asyncio_wait, wait_operation, 1, &condition_class),
    wait_for=coroutine_method(asyncio_wait_for, wait_for_operation, 2, &condition_class),
    notify=compiled_function(asyncio_notify, notify),
    notify_all=compiled_function(locks.Condition.notify_all, notify_all),
    __aenter__=coroutine_method(asyncio_enter, enter_operation, 1, &condition_class),
    __aexit__=coroutine_method(asyncio_exit, exit_operation, 4, &condition_class),
)
plain_class_record(&condition_class, Condition)
