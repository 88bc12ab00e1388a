"""asyncio.Event: the compiled short cuts of its methods.

Source: asyncio/locks.py, which is the same in every supported Python.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.constructor cimport (
    PyVectorcall_NARGS,
    construct_in_general,
    constructor_install,
    is_unchanged_class,
)
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_operation
from hotloop._c.highlevel.deque cimport deque_check, deque_install, deque_new
from hotloop._c.highlevel.plain_class cimport (
    OTHER_NAMES,
    class_is_unchanged,
    names_replaced_by_class,
    plain_class,
    plain_class_record_names,
    replaced_names,
)
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport add_waiter, fail_waiting, is_done, remove_waiter, wake
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install
from hotloop._c.runtime.references cimport Py_NewRef

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define EVENT struct __pyx_obj_7hotloop_2_c_9highlevel_5event_EventFields
    #define INSTANCE_DICT_OWNER EVENT
    #define clear_event_fields(event) FIELDS_CLEAR(EVENT, event, _waiters, _value)
    #define fill_event_fields(event) FIELDS_FILL(EVENT, event, _loop, _value)
    #define event_fields_are_set(event) FIELDS_ARE_SET(EVENT, event, _loop, _value)
    #define set_event_value(event, value) FIELD_SET(EVENT, event, _value, value)
    #define add_event_fields(type) \\
        FIELDS_INSTALL(type, FIELD_OR_NONE(EVENT, _loop), FIELD(EVENT, _waiters), FIELD(EVENT, _value))

    /* As Event() makes it. */
    #define new_event_object(type) ({ \\
        EVENT *event = (EVENT *)PyType_GenericAlloc((PyTypeObject *)type, 0); \\
        if (event != NULL) { \\
            event->_loop = Py_NewRef(Py_None); \\
            event->_value = Py_NewRef(Py_False); \\
            event->_waiters = deque_new(); \\
            if (event->_waiters == NULL) \\
                Py_CLEAR(event); \\
        } \\
        (PyObject *)event; \\
    })
    """
    PyObject *new_event_object(PyObject *type) noexcept
    int add_event_fields(PyTypeObject *) except -1
    void clear_event_fields(object) noexcept
    bint fill_event_fields(object) noexcept
    bint event_fields_are_set(object) noexcept
    void set_event_value(object event, object value) noexcept

import sys
from asyncio import locks
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class

deque_install(deque)


cdef class EventFields:
    """What an Event consists of. The class that programs see derives from this one and from asyncio.Event."""

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_event_fields(self)


instance_dict_install(<PyTypeObject *>EventFields)
add_event_fields(<PyTypeObject *>EventFields)

cdef plain_class event_class


cdef bint is_plain_event(PyObject *event) noexcept:
    """Whether its methods are Event's, and its attributes are there and of the types that the constructor gave them."""
    return replaced_names(event, &event_class) == 0 and has_usual_fields(event)


cdef inline bint has_usual_fields(PyObject *event) noexcept:
    return event_fields_are_set(<object>event) and has_usual_types(<EventFields>event)


cdef inline bint has_usual_types(EventFields event) noexcept:
    return (event._value is True or event._value is False) and deque_check(event._waiters)


cdef inline bint is_usual_event(PyObject *event) noexcept:
    """is_plain_event(), but for methods that no other one calls."""
    return not replaced_names(event, &event_class) & OTHER_NAMES and has_usual_fields(event)


cdef PyObject *construct(PyObject *cls, PyObject *const *arguments, size_t count, PyObject *names) noexcept:
    if PyVectorcall_NARGS(count) == 0 and names == NULL and is_unchanged_class(cls, &event_class):
        return new_event_object(cls)
    return construct_in_general(cls, arguments, count, names)


cdef object new_set_event():
    """An Event that is set; None: the class or a base was changed, and its constructor and set() may be any code."""
    cdef object event
    if not class_is_unchanged(&event_class):
        return None
    event = Event()
    set_event_value(event, True)
    return event


cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or names_replaced_by_class(arguments[0], &event_class) & OTHER_NAMES:
        return NULL
    cdef EventFields event = <EventFields>arguments[0]
    cdef object waiters = deque_new()
    if not fill_event_fields(event):
        return NULL
    event._waiters = waiters
    event._value = False
    return Py_NewRef(None)


cdef PyObject *set_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_usual_event(arguments[0]):
        return NULL
    set_plain_event(<EventFields>arguments[0])
    return Py_NewRef(None)


cdef int set_plain_event(EventFields event) except -1:
    cdef object waiters
    if not event._value:
        event._value = True
        # Kept, because its iterator's allocation may run the garbage collector, and thus any code.
        waiters = event._waiters
        for waiter in waiters:
            if not is_done(waiter):
                wake(waiter, True)
    return 0


cdef PyObject *clear(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_usual_event(arguments[0]):
        return NULL
    (<EventFields>arguments[0])._value = False
    return Py_NewRef(None)


cdef PyObject *is_set(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_usual_event(arguments[0]):
        return NULL
    return Py_NewRef((<EventFields>arguments[0])._value)


cdef enum:
    WOKEN = 1


cdef object wait_step(Coroutine coroutine, object outcome, object error):
    cdef object event
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    event = coroutine.owner
    if coroutine.position == WOKEN:
        if error is not None:
            fail_waiting(event, coroutine.extra, error)
        forget_waiter(event, coroutine.extra)
        return True
    if not is_usual_event(<PyObject *>event):
        return delegate(coroutine, asyncio_wait(event))
    if (<EventFields>event)._value:
        return True
    coroutine.extra = add_waiter(event, (<EventFields>event)._waiters, (<EventFields>event)._loop)
    coroutine.position = WOKEN
    return await_object(coroutine, coroutine.extra)


cdef int forget_waiter(object event, object waiter) except -1:
    """event._waiters.remove(waiter)"""
    if is_usual_event(<PyObject *>event) and remove_waiter((<EventFields>event)._waiters, waiter):
        return 0
    event._waiters.remove(waiter)
    return 0


cdef object asyncio_wait = locks.Event.wait
cdef Operation wait_operation = new_operation(wait_step, asyncio_wait)


cdef dict wait_method():
    """wait(), on Python 3.11 alone. Later ones run asyncio's own within its caller's evaluation, and take a compiled
    coroutine's result from a StopIteration: `await event.wait()` on a set event would take a quarter longer."""
    if sys.version_info >= (3, 12):
        return {}
    return {"wait": coroutine_method(asyncio_wait, wait_operation, 1, &event_class)}


Event = compiled_class(
    EventFields,
    locks.Event,
    __init__=compiled_function(locks.Event.__init__, init),
    set=compiled_function(locks.Event.set, set_),
    clear=compiled_function(locks.Event.clear, clear),
    is_set=compiled_function(locks.Event.is_set, is_set),
    **wait_method(),
)
# No short cut relies on these.
plain_class_record_names(&event_class, Event, ("is_set", "set", "clear", "wait"))
constructor_install(Event, construct)
