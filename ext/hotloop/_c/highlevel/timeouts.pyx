"""asyncio.Timeout, timeout() and timeout_at(): compiled short cuts.

Source: asyncio/timeouts.py. Versions differ in what becomes of an exception when the timeout has expired, which is left
to asyncio's own __aexit__().
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_coroutine, new_operation
from hotloop._c.highlevel.plain_class cimport (
    class_is_unchanged,
    is_unchanged,
    plain_class,
    plain_class_new,
    plain_class_record,
)
from hotloop._c.highlevel.running_loop cimport cancel_handle, is_debugging, running_loop
from hotloop._c.highlevel.step_ends cimport delegate, delegated
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.runtime.send_slots cimport PYGEN_ERROR, PyIter_Send, raise_set_error
from hotloop._c.tasks.current_task cimport current_task
from hotloop._c.tasks.task cimport Task

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define TIMEOUT struct __pyx_obj_7hotloop_2_c_9highlevel_8timeouts_TimeoutFields
    #define INSTANCE_DICT_OWNER TIMEOUT
    #define clear_timeout_fields(timeout) FIELDS_CLEAR(TIMEOUT, timeout, _state, _cancelling)
    #define timeout_fields_are_set(timeout) FIELDS_ARE_SET(TIMEOUT, timeout, _state, _when)
    #define set_state(timeout, value) FIELD_SET(TIMEOUT, timeout, _state, value)
    #define set_timeout_handler(timeout, value) FIELD_SET(TIMEOUT, timeout, _timeout_handler, value)
    #define set_task(timeout, value) FIELD_SET(TIMEOUT, timeout, _task, value)
    #define set_when(timeout, value) FIELD_SET(TIMEOUT, timeout, _when, value)
    #define set_cancelling(timeout, value) FIELD_SET(TIMEOUT, timeout, _cancelling, value)
    #define add_timeout_fields(type) \\
        FIELDS_INSTALL(type, FIELD(TIMEOUT, _state), FIELD(TIMEOUT, _timeout_handler), FIELD(TIMEOUT, _task), \\
                       FIELD(TIMEOUT, _when), FIELD(TIMEOUT, _cancelling))

    #define is_keyword(names, name) \\
        (PyTuple_GET_SIZE(names) == 1 && PyTuple_GET_ITEM(names, 0) == (PyObject *)(name))
    """
    int add_timeout_fields(PyTypeObject *) except -1
    void clear_timeout_fields(object) noexcept
    bint timeout_fields_are_set(object) noexcept
    # Setting a field drops what it has held, which may run any code.
    void set_state(object, object) noexcept
    void set_timeout_handler(object, object) noexcept
    void set_task(object, object) noexcept
    void set_when(object, object) noexcept
    void set_cancelling(object, object) noexcept

cdef extern from "Python.h":
    PyObject *PyDict_GetItem(object, object) noexcept
    bint PyFloat_CheckExact(object)
    bint PyLong_CheckExact(object)
    double PyFloat_AS_DOUBLE(object) noexcept
    object PyMethod_New(object function, object self)

from asyncio import timeouts

from hotloop._asyncio.compiled_classes import compiled_class

cdef object names_of_timeouts = vars(timeouts)
cdef object AsyncioTimeout = timeouts.Timeout
cdef object asyncio_timeout = timeouts.timeout
cdef object CREATED = timeouts._State.CREATED
cdef object ENTERED = timeouts._State.ENTERED
cdef object EXPIRING = timeouts._State.EXPIRING
cdef object EXPIRED = timeouts._State.EXPIRED
cdef object EXITED = timeouts._State.EXITED


cdef class TimeoutFields:
    """What a Timeout consists of. The class that programs see derives from this one and from asyncio.Timeout."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    # All of them may be missing: before __init__(), and `_cancelling` before __aenter__().
    cdef object _state              # a timeouts._State
    cdef object _timeout_handler    # the Handle that is to call _on_timeout(); None: none is pending
    cdef object _task               # None before __aenter__()
    cdef object _when               # by the loop's clock, in seconds; None: never
    cdef object _cancelling         # the task's cancelling() when the timeout was entered

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_timeout_fields(self)


instance_dict_install(<PyTypeObject *>TimeoutFields)
add_timeout_fields(<PyTypeObject *>TimeoutFields)

cdef plain_class timeout_class


cdef inline bint is_plain_timeout(PyObject *timeout) noexcept:
    return (
        is_unchanged(timeout, &timeout_class)
        and instance_dict_is_absent(<object>timeout)
        and timeout_fields_are_set(<object>timeout)
    )


# -- what the methods have in common -----------------------------------------------------------------------------------
#
# wait_for.pyx uses all of it.

cdef bint is_timeout_unchanged() noexcept:
    """Whether asyncio.timeouts.timeout() makes a Timeout, and that class is as it was made. enter_timeout() works on a
    new one then."""
    return (
        class_is_unchanged(&timeout_class)
        and makes_ours()
        and is_named("timeout", asyncio_timeout, compiled_timeout_function)
    )


cdef inline bint makes_ours() noexcept:
    """Whether timeout() and timeout_at() make a Timeout."""
    return is_named("Timeout", AsyncioTimeout, compiled_timeout)


cdef inline bint is_named(object name, object own, object compiled) noexcept:
    """Whether asyncio.timeouts has its own object or the compiled one under a name. A program may have put another one
    there, which asyncio's functions find."""
    cdef PyObject *found = PyDict_GetItem(names_of_timeouts, name)
    return found == <PyObject *>own or found == <PyObject *>compiled


cdef object new_timeout(object when):
    """Timeout(when)"""
    cdef object timeout
    if not class_is_unchanged(&timeout_class):
        return Timeout(when)
    timeout = plain_class_new(&timeout_class)
    set_state(timeout, CREATED)
    set_timeout_handler(timeout, None)
    set_task(timeout, None)
    set_when(timeout, when)
    return timeout


cdef inline bint is_usual_deadline(object when) noexcept:
    """Whether comparing it with the time runs no code of the program."""
    return when is None or PyFloat_CheckExact(when) or PyLong_CheckExact(when)


cdef bint enter_timeout(object timeout, object loop, object task) except -1:
    """__aenter__() in `task`, the current one of the running `loop`, which is not in debug mode. False: nothing was
    done, because asyncio's own __aenter__() may do something else."""
    cdef object cancelling
    if not is_plain_timeout(<PyObject *>timeout) or (<TimeoutFields>timeout)._state is not CREATED:
        return False
    if (<TimeoutFields>timeout)._timeout_handler is not None or not is_usual_deadline((<TimeoutFields>timeout)._when):
        return False
    if isinstance(task, Task) and (<Task>task).is_exact():
        cancelling = (<Task>task).cancel_requests
        set_state(timeout, ENTERED)
        set_task(timeout, task)
    else:
        set_state(timeout, ENTERED)
        set_task(timeout, task)
        cancelling = task.cancelling()
    set_cancelling(timeout, cancelling)
    if is_plain_timeout(<PyObject *>timeout):
        set_deadline(timeout, (<TimeoutFields>timeout)._when, loop)
    else:
        timeout.reschedule(timeout._when)
    return True


cdef int set_deadline(object timeout, object when, object loop) except -1:
    """The end of reschedule(): have the loop call _on_timeout()."""
    cdef object now, callback
    cdef bint due
    if when is None:
        set_timeout_handler(timeout, None)
        return 0
    now = loop.time()
    if PyFloat_CheckExact(when) and PyFloat_CheckExact(now):
        due = PyFloat_AS_DOUBLE(when) <= PyFloat_AS_DOUBLE(now)
    else:
        due = when <= now
    if is_plain_timeout(<PyObject *>timeout):
        callback = PyMethod_New(on_timeout_function, timeout)
    else:
        callback = timeout._on_timeout
    set_timeout_handler(timeout, loop.call_soon(callback) if due else loop.call_at(when, callback))
    return 0


cdef bint leave_timeout(object timeout) except -1:
    """__aexit__() of a timeout that has not expired. False: asyncio's own __aexit__() is to do it."""
    cdef object handle
    if not is_plain_timeout(<PyObject *>timeout) or (<TimeoutFields>timeout)._state is not ENTERED:
        return False
    handle = (<TimeoutFields>timeout)._timeout_handler
    if handle is not None:
        cancel_handle(handle)
        set_timeout_handler(timeout, None)
        handle = None
        if not is_plain_timeout(<PyObject *>timeout) or (<TimeoutFields>timeout)._state is not ENTERED:
            return False
    set_state(timeout, EXITED)
    return True


cdef object close_timeout(object timeout, object outcome, object error):
    """Leave an `async with timeout` block that has returned `outcome` or, if it is not None, raised `error`."""
    cdef object suppressed = False
    if leave_timeout(timeout):
        if error is not None:
            raise_again(error)
        return outcome
    if error is None:
        run_to_end(asyncio_aexit(timeout, None, None, None))
        return outcome
    try:
        raise_again(error)
    except BaseException:
        # asyncio's function runs where `error` is being handled, so that it is the context of what that raises.
        suppressed = run_to_end(asyncio_aexit(timeout, type(error), error, error.__traceback__))
    if not suppressed:
        raise_again(error)
    return None


cdef object run_to_end(object coroutine):
    """What a coroutine returns that waits for nothing."""
    cdef PyObject *result = NULL
    if PyIter_Send(<PyObject *>coroutine, <PyObject *>None, &result) == PYGEN_ERROR:
        raise_set_error()
    return steal(result)


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 2 or keywords != NULL or not is_unchanged(arguments[0], &timeout_class):
        return NULL
    set_state(<object>arguments[0], CREATED)
    set_timeout_handler(<object>arguments[0], None)
    set_task(<object>arguments[0], None)
    set_when(<object>arguments[0], <object>arguments[1])
    return Py_NewRef(None)


cdef PyObject *when_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_timeout(arguments[0]):
        return NULL
    return Py_NewRef((<TimeoutFields>arguments[0])._when)


cdef PyObject *expired(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object state
    if count != 1 or keywords != NULL or not is_plain_timeout(arguments[0]):
        return NULL
    state = (<TimeoutFields>arguments[0])._state
    if state is EXPIRING or state is EXPIRED:
        return Py_NewRef(True)
    if state is CREATED or state is ENTERED or state is EXITED:
        return Py_NewRef(False)
    return NULL


cdef PyObject *reschedule(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object timeout, loop, handle
    if count != 2 or keywords != NULL or not is_plain_timeout(arguments[0]):
        return NULL
    timeout = <object>arguments[0]
    if (<TimeoutFields>timeout)._state is not ENTERED or not is_usual_deadline(<object>arguments[1]):
        return NULL
    loop = running_loop()
    if loop is None or is_debugging(loop, current_task(loop)) or not is_plain_timeout(arguments[0]):
        return NULL
    set_when(timeout, <object>arguments[1])
    # Dropping the earlier deadline may have run any code.
    handle = (<TimeoutFields>timeout)._timeout_handler if is_plain_timeout(arguments[0]) else timeout._timeout_handler
    if handle is not None:
        cancel_handle(handle)
    set_deadline(timeout, <object>arguments[1], loop)
    return Py_NewRef(None)


cdef PyObject *on_timeout(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object timeout
    if count != 1 or keywords != NULL or not is_plain_timeout(arguments[0]):
        return NULL
    timeout = <object>arguments[0]
    if (<TimeoutFields>timeout)._state is not ENTERED:
        return NULL
    (<TimeoutFields>timeout)._task.cancel()
    if is_unchanged(arguments[0], &timeout_class):
        set_state(timeout, EXPIRING)
        set_timeout_handler(timeout, None)
    else:
        timeout._state = EXPIRING
        timeout._timeout_handler = None
    return Py_NewRef(None)


cdef PyObject *aexit(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object raised = None       # (type, value, traceback); None: nothing was raised
    if count != 4 or keywords != NULL or not is_plain_timeout(arguments[0]):
        return NULL
    if (<TimeoutFields>arguments[0])._state is not ENTERED:
        return NULL
    if arguments[1] != <PyObject *>None or arguments[2] != <PyObject *>None or arguments[3] != <PyObject *>None:
        raised = (<object>arguments[1], <object>arguments[2], <object>arguments[3])
    return new_coroutine(aexit_operation, <object>arguments[0], raised)


cdef PyObject *timeout_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object loop, delay
    if not is_single(arguments, count, keywords, "delay") or not makes_ours():
        return NULL
    delay = <object>arguments[0]
    loop = running_loop()
    if loop is None:
        return NULL
    return Py_NewRef(new_timeout(None if delay is None else loop.time() + delay))


cdef PyObject *timeout_at_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not is_single(arguments, count, keywords, "when") or not makes_ours():
        return NULL
    return Py_NewRef(new_timeout(<object>arguments[0]))


cdef inline bint is_single(PyObject **arguments, Py_ssize_t count, PyObject *keywords, object name) except -1:
    """Whether there is one argument: by position, or by its name."""
    if keywords == NULL:
        return count == 1
    return count == 0 and <object>keywords == (name,)


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef object aenter_step(Coroutine coroutine, object outcome, object error):
    cdef object timeout, loop, task
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    timeout = coroutine.owner
    loop = running_loop()
    if loop is not None:
        task = current_task(loop)
        if task is not None and not is_debugging(loop, task) and enter_timeout(timeout, loop, task):
            return timeout
    return delegate(coroutine, asyncio_aenter(timeout))


cdef object aexit_step(Coroutine coroutine, object outcome, object error):
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if leave_timeout(coroutine.owner):
        return None
    return delegate(coroutine, asyncio_aexit(coroutine.owner, *(coroutine.argument or (None, None, None))))


cdef object asyncio_aenter = timeouts.Timeout.__aenter__
cdef object asyncio_aexit = timeouts.Timeout.__aexit__
cdef Operation aenter_operation = new_operation(aenter_step, asyncio_aenter)
cdef Operation aexit_operation = new_operation(aexit_step, asyncio_aexit)
cdef object on_timeout_function = compiled_function(timeouts.Timeout._on_timeout, on_timeout)

Timeout = compiled_class(
    TimeoutFields,
    timeouts.Timeout,
    __init__=compiled_function(timeouts.Timeout.__init__, init),
    when=compiled_function(timeouts.Timeout.when, when_),
    reschedule=compiled_function(timeouts.Timeout.reschedule, reschedule),
    expired=compiled_function(timeouts.Timeout.expired, expired),
    __aenter__=coroutine_method(asyncio_aenter, aenter_operation, 1, &timeout_class),
    __aexit__=compiled_function(asyncio_aexit, aexit),
    _on_timeout=on_timeout_function,
)
plain_class_record(&timeout_class, Timeout)
cdef object compiled_timeout = Timeout
cdef object compiled_timeout_function = compiled_function(asyncio_timeout, timeout_)
timeout = compiled_timeout_function
timeout_at = compiled_function(timeouts.timeout_at, timeout_at_)
