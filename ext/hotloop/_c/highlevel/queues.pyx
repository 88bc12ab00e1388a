"""asyncio.Queue, PriorityQueue and LifoQueue: the compiled short cuts of their methods.

Source: asyncio/queues.py. Versions differ in shutdown() alone, which is there from 3.13 on.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, coroutine_method, new_operation
from hotloop._c.highlevel.deque cimport (
    deque_append,
    deque_check,  # no-cython-lint: the C code above uses it
    deque_install,
    deque_new,
    deque_popleft,
    deque_size,
)
from hotloop._c.highlevel.event cimport EventFields, is_plain_event, new_set_event, set_plain_event
from hotloop._c.highlevel.plain_class cimport (
    OTHER_NAMES,
    call_replaced,
    names_replaced_by_class,
    plain_class,
    plain_class_record_names,
    replaced_names,
)
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport append_waiter, create_waiter, wake_first
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install
from hotloop._c.runtime.references cimport Py_NewRef

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define QUEUE struct __pyx_obj_7hotloop_2_c_9highlevel_6queues_QueueFields
    #define INSTANCE_DICT_OWNER QUEUE
    #define fill_queue_fields(queue) FIELDS_FILL(QUEUE, queue, _loop, _finished)
    #if PY_VERSION_HEX >= 0x030D0000
    #define LAST_CLEARED _is_shutdown
    #else
    #define LAST_CLEARED _queue /* there is no other attribute */
    #endif
    #define clear_queue_fields(queue) FIELDS_CLEAR(QUEUE, queue, _maxsize, LAST_CLEARED)
    #define set_items(queue, items) FIELD_SET(QUEUE, queue, _queue, items)
    #define set_shutdown(queue, value) FIELD_SET(QUEUE, queue, _is_shutdown, value)

    /* Of an object of our class. A field that a program has deleted is NULL. */
    #define queue_field(queue, name) (((QUEUE *)(queue))->name)
    #define is_int(field) ((field) != NULL && PyLong_CheckExact(field))
    #define is_flag(field) ((field) == Py_False || (field) == Py_True || (field) == Py_None)
    #define is_deque(queue) deque_check(queue_field(queue, _queue))
    #define is_list(queue) (queue_field(queue, _queue) != NULL && PyList_CheckExact(queue_field(queue, _queue)))
    #define has_usual_fields(queue) \
        (has_known_items(queue) && deque_check(queue_field(queue, _getters)) \
         && deque_check(queue_field(queue, _putters)) && is_int(queue_field(queue, _maxsize)) \
         && queue_field(queue, _loop) != NULL && is_flag(queue_field(queue, _is_shutdown)))

    /* The types of `_queue` whose size is known without a call. */
    #define has_known_items(queue) \
        (is_deque(queue) || is_list(queue) || is_dict(queue_field(queue, _queue)) || is_set(queue_field(queue, _queue)))
    #define is_dict(field) ((field) != NULL && (PyDict_CheckExact(field) || PyODict_CheckExact(field)))
    #define is_set(field) ((field) != NULL && PySet_CheckExact(field))

    static inline Py_ssize_t size_of_items(PyObject *items)
    {
        if (is_dict(items))
            return PyDict_GET_SIZE(items);
        if (is_set(items))
            return PySet_GET_SIZE(items);
        return Py_SIZE(items);
    }

    #define has_usual_counters(queue) \
        (is_int(queue_field(queue, _unfinished_tasks)) && queue_field(queue, _finished) != NULL)
    #define QUEUE_FIELDS \\
        FIELD_OR_NONE(QUEUE, _loop), FIELD(QUEUE, _maxsize), FIELD(QUEUE, _getters), FIELD(QUEUE, _putters), \\
            FIELD(QUEUE, _unfinished_tasks), FIELD(QUEUE, _finished), FIELD(QUEUE, _queue)
    #if PY_VERSION_HEX >= 0x030D0000
    #define add_queue_fields(type) FIELDS_INSTALL(type, QUEUE_FIELDS, FIELD(QUEUE, _is_shutdown))
    #else
    #define add_queue_fields(type) FIELDS_INSTALL(type, QUEUE_FIELDS)
    #endif
    """
    int add_queue_fields(PyTypeObject *) except -1
    bint fill_queue_fields(object) noexcept     # all that asyncio sets before _init()
    void clear_queue_fields(object) noexcept    # all but `_loop`, which the class has, too
    void set_items(object queue, object items) noexcept
    void set_shutdown(object queue, object value) noexcept
    bint is_deque(object queue) noexcept
    bint is_list(object queue) noexcept
    bint has_usual_fields(object queue) noexcept
    Py_ssize_t size_of_items(object items) noexcept
    bint has_usual_counters(object queue) noexcept

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1

import heapq
from asyncio import locks, queues
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._c.highlevel.event import Event

deque_install(deque)

cdef object heappush = heapq.heappush
cdef object heappop = heapq.heappop
cdef object AsyncioEvent = locks.Event
cdef object QueueEmpty = queues.QueueEmpty
cdef object QueueFull = queues.QueueFull
cdef object QueueShutDown = getattr(queues, "QueueShutDown", None)


cdef class QueueFields:
    """What a queue consists of. The classes that programs see derive from this one and from asyncio's."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object _loop               # None: not bound to one yet
    cdef object _maxsize
    cdef object _getters            # deques of futures
    cdef object _putters
    cdef object _unfinished_tasks
    cdef object _finished           # an Event
    cdef object _queue              # a deque or, of a PriorityQueue or LifoQueue, a list; what a subclass makes it
    cdef object _is_shutdown        # None before Python 3.13

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_queue_fields(self)


instance_dict_install(<PyTypeObject *>QueueFields)
add_queue_fields(<PyTypeObject *>QueueFields)

cdef plain_class queue_class, priority_class, lifo_class


# The bits of the methods that others call, in the order of `hooks`.
cdef enum:
    INIT = 1
    PUT = 2
    GET = 4
    PUT_NOWAIT = 8
    GET_NOWAIT = 16
    FULL = 32
    EMPTY = 64
    QSIZE = 128
    ASKED_BY_PUT = FULL | QSIZE

# No short cut relies on those that have no bit above.
cdef tuple hooks = (
    "_init", "_put", "_get", "put_nowait", "get_nowait", "full", "empty", "qsize", "put", "get", "task_done", "join",
    "shutdown", "maxsize", "_format",
)   # fmt: skip


cdef object PUT_NAME = "_put"
cdef object GET_NAME = "_get"
cdef object FULL_NAME = "full"
cdef object EMPTY_NAME = "empty"
cdef object QSIZE_NAME = "qsize"

# The marks of PriorityQueue and LifoQueue, among the bits.
cdef enum:
    PRIORITY = 1 << 16
    LIFO = 1 << 17

queue_class.variant = &priority_class
priority_class.variant = &lifo_class
priority_class.mark = PRIORITY
lifo_class.mark = LIFO


cdef inline unsigned int replaced_by_class(PyObject *queue) noexcept:
    """The bits of the methods that its class replaces in one of our three classes, and the mark of that one."""
    return names_replaced_by_class(queue, &queue_class)


cdef inline unsigned int replaced_in_plain(PyObject *queue) noexcept:
    """The bits of the methods that it does not have from one of our three classes, and the mark of that one;
    OTHER_NAMES if it is no plain queue: the attributes that get() uses are of the types that the constructors of our
    three classes gave them. `_queue` may also be another type of known size."""
    cdef unsigned int found = replaced_names(queue, &queue_class)
    return OTHER_NAMES if found & OTHER_NAMES or not has_usual_fields(<object>queue) else found


cdef inline unsigned int replaced_in_counted(PyObject *queue) noexcept:
    """The same, with the attributes by which put(), task_done() and join() count."""
    cdef unsigned int found = replaced_in_plain(queue)
    if found & OTHER_NAMES or not has_usual_counters(<object>queue):
        return OTHER_NAMES
    return found if is_plain_event(<PyObject *>(<QueueFields>queue)._finished) else OTHER_NAMES


# -- what the methods have in common -----------------------------------------------------------------------------------
#
# `found` is what replaced_in_plain() or replaced_in_counted() has returned; a method that is replaced is called.

cdef inline Py_ssize_t size(QueueFields queue) noexcept:
    return size_of_items(queue._queue)


cdef inline bint is_full(QueueFields queue, unsigned int found) except -1:
    """full(), of a plain queue. It may run any code if `found` has one of ASKED_BY_PUT."""
    cdef int overflow = 0
    cdef long long limit
    if found & FULL:
        return call_replaced(<PyObject *>queue, &queue_class, FULL_NAME, NULL)
    limit = PyLong_AsLongLongAndOverflow(queue._maxsize, &overflow)
    if found & QSIZE and (limit > 0 or overflow > 0):
        return call_replaced(<PyObject *>queue, &queue_class, QSIZE_NAME, NULL) >= (<object>queue)._maxsize
    # A limit beyond what fits is never reached, or negative.
    return limit > 0 and size(queue) >= limit


cdef inline bint is_empty(QueueFields queue, unsigned int found) except -1:
    """empty(), of a plain queue. It may run any code if `found` has EMPTY."""
    if found & EMPTY:
        return call_replaced(<PyObject *>queue, &queue_class, EMPTY_NAME, NULL)
    return not size(queue)


cdef int put_now(QueueFields queue, object item, unsigned int found) except -1:
    """put_nowait(), of a plain counted queue."""
    if queue._is_shutdown:
        raise QueueShutDown
    if is_full(queue, found):
        raise QueueFull
    if found & ASKED_BY_PUT:
        found = replaced_in_counted(<PyObject *>queue)
    return put_item(queue, item, found)


cdef int put_item(QueueFields queue, object item, unsigned int found) except -1:
    """The end of put_nowait(), for any queue."""
    cdef object items               # the comparisons may run any code, which may replace `_queue`
    cdef Py_ssize_t before
    if found & (OTHER_NAMES | PUT) or not has_own_items(queue, found):
        call_replaced(<PyObject *>queue, &queue_class, PUT_NAME, <PyObject *>item)
        if replaced_in_counted(<PyObject *>queue) & OTHER_NAMES:
            return count_put_item(queue)
    elif found & LIFO:
        (<list>queue._queue).append(item)
    elif found & PRIORITY:
        items = queue._queue
        heappush(items, item)
        if replaced_in_counted(<PyObject *>queue) & OTHER_NAMES:
            return count_put_item(queue)
    else:
        items = queue._queue
        before = deque_size(items)
        deque_append(items, item)
        # One with a `maxlen` that is full drops its oldest item, whose finalizer may run any code.
        if deque_size(items) <= before and replaced_in_counted(<PyObject *>queue) & OTHER_NAMES:
            return count_put_item(queue)
    queue._unfinished_tasks = queue._unfinished_tasks + 1
    (<EventFields>queue._finished)._value = False
    return wake_first(queue._getters)


cdef inline bint has_own_items(QueueFields queue, unsigned int found) noexcept:
    """Whether `_queue` is of the type that its class gave it."""
    return is_list(queue) if found & (PRIORITY | LIFO) else is_deque(queue)


cdef int count_put_item(object queue) except -1:
    """The end of put_item()."""
    queue._unfinished_tasks += 1
    queue._finished.clear()
    queue._wakeup_next(queue._getters)
    return 0


cdef object get_now(QueueFields queue, unsigned int found):
    """get_nowait(), of a plain queue."""
    if is_empty(queue, found):
        if QueueShutDown is not None and (<object>queue)._is_shutdown:
            raise QueueShutDown
        raise QueueEmpty
    if found & EMPTY:
        found = replaced_in_plain(<PyObject *>queue)
    return take_item(queue, found)


cdef object take_item(QueueFields queue, unsigned int found):
    """The end of get_nowait(), for any queue."""
    cdef object item
    cdef object items               # as in put_item()
    if found & (OTHER_NAMES | GET) or not has_own_items(queue, found) or not size(queue):
        item = call_replaced(<PyObject *>queue, &queue_class, GET_NAME, NULL)
        if replaced_in_plain(<PyObject *>queue) & OTHER_NAMES:
            (<object>queue)._wakeup_next((<object>queue)._putters)
            return item
    elif found & LIFO:
        item = (<list>queue._queue)[size(queue) - 1]
        del (<list>queue._queue)[size(queue) - 1]
    elif found & PRIORITY:
        items = queue._queue
        item = heappop(items)
        if replaced_in_plain(<PyObject *>queue) & OTHER_NAMES:
            (<object>queue)._wakeup_next((<object>queue)._putters)
            return item
    else:
        item = deque_popleft(queue._queue)
    wake_first(queue._putters)
    return item


# -- for as_completed() ------------------------------------------------------------------------------------------------

cdef bint put_if_plain(object queue, object item) except -1:
    """put_nowait() for a plain Queue with room; else False."""
    if replaced_in_counted(<PyObject *>queue) != 0 or (<QueueFields>queue)._is_shutdown:
        return False
    if is_full(<QueueFields>queue, 0):
        return False
    put_item(<QueueFields>queue, item, 0)
    return True


cdef bint is_plain(object queue) noexcept:
    return replaced_in_plain(<PyObject *>queue) == 0


cdef bint has_no_item(object queue) noexcept:
    """empty() of a plain queue."""
    return size(<QueueFields>queue) == 0


cdef object take(object queue):
    """get_nowait() for a plain queue with an item."""
    return take_item(<QueueFields>queue, 0)


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    cdef unsigned int found
    cdef object getters, putters, finished
    cdef bint has_maxsize = count == 2 and keywords == NULL
    if count == 1 and keywords != NULL and <object>keywords == ("maxsize",):
        has_maxsize = True
    elif not has_maxsize and (count != 1 or keywords != NULL):
        return NULL
    if replaced_by_class(arguments[0]) & OTHER_NAMES:
        return NULL
    if locks.Event is not AsyncioEvent and locks.Event is not Event:
        return NULL
    found = replaced_names(arguments[0], &queue_class)
    queue = <QueueFields>arguments[0]
    getters, putters, finished = deque_new(), deque_new(), new_set_event()
    if finished is None or not fill_queue_fields(queue):
        return NULL
    queue._maxsize = <object>arguments[1] if has_maxsize else 0
    queue._getters = getters
    queue._putters = putters
    queue._unfinished_tasks = 0
    queue._finished = finished
    if found & INIT:
        init_items(queue, queue._maxsize)
    else:
        set_items(queue, [] if found & (PRIORITY | LIFO) else deque_new())
        set_shutdown(queue, False)
    return Py_NewRef(None)


cdef int init_items(object queue, object maxsize) except -1:
    """The end of __init__(), for any queue."""
    queue._init(maxsize)
    if QueueShutDown is not None:
        queue._is_shutdown = False
    return 0


cdef PyObject *qsize(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or replaced_in_plain(arguments[0]) & OTHER_NAMES:
        return NULL
    return Py_NewRef(size(<QueueFields>arguments[0]))


cdef PyObject *empty(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or replaced_in_plain(arguments[0]) & OTHER_NAMES:
        return NULL
    return Py_NewRef(size(<QueueFields>arguments[0]) == 0)


cdef PyObject *full(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or replaced_in_plain(arguments[0]) & (OTHER_NAMES | QSIZE):
        return NULL
    return Py_NewRef(is_full(<QueueFields>arguments[0], 0))


cdef PyObject *put_nowait(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef unsigned int found
    if count != 2 or keywords != NULL:
        return NULL
    found = replaced_in_counted(arguments[0])
    if found & OTHER_NAMES:
        return NULL
    put_now(<QueueFields>arguments[0], <object>arguments[1], found)
    return Py_NewRef(None)


cdef PyObject *get_nowait(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef unsigned int found
    if count != 1 or keywords != NULL:
        return NULL
    found = replaced_in_plain(arguments[0])
    if found & OTHER_NAMES:
        return NULL
    return Py_NewRef(get_now(<QueueFields>arguments[0], found))


cdef PyObject *task_done(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    if count != 1 or keywords != NULL or replaced_in_counted(arguments[0]) & OTHER_NAMES:
        return NULL
    queue = <QueueFields>arguments[0]
    if queue._unfinished_tasks <= 0:
        raise ValueError("task_done() called too many times")
    queue._unfinished_tasks = queue._unfinished_tasks - 1
    if not queue._unfinished_tasks:
        set_plain_event(queue._finished)
    return Py_NewRef(None)


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef object get_step(Coroutine coroutine, object outcome, object error):
    cdef object queue
    cdef unsigned int found
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if error is not None:
        stop_getting(queue, coroutine.extra, error)
    found = replaced_in_plain(<PyObject *>queue)
    if found & OTHER_NAMES:
        return delegate(coroutine, asyncio_get(queue))
    if not is_empty(<QueueFields>queue, found):
        if found & EMPTY:
            found = replaced_in_plain(<PyObject *>queue)
        return queue.get_nowait() if found & (OTHER_NAMES | GET_NOWAIT) else get_now(<QueueFields>queue, found)
    if found & EMPTY:
        if QueueShutDown is not None and queue._is_shutdown and queue.empty():
            raise QueueShutDown
        return wait_in_general(coroutine, queue, True)
    if (<QueueFields>queue)._is_shutdown:
        raise QueueShutDown
    coroutine.extra = create_waiter(queue, (<QueueFields>queue)._loop)
    append_waiter(queue._getters, coroutine.extra)
    return await_object(coroutine, coroutine.extra)


cdef object put_step(Coroutine coroutine, object outcome, object error):
    cdef object queue
    cdef unsigned int found
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if error is not None:
        stop_putting(queue, coroutine.extra, error)
    found = replaced_in_counted(<PyObject *>queue)
    if found & OTHER_NAMES:
        return delegate(coroutine, asyncio_put(queue, coroutine.argument))
    if not is_full(<QueueFields>queue, found):
        if found & ASKED_BY_PUT:
            found = replaced_in_counted(<PyObject *>queue)
        if found & (OTHER_NAMES | PUT_NOWAIT):
            return queue.put_nowait(coroutine.argument)
        put_now(<QueueFields>queue, coroutine.argument, found)
        return None
    if found & ASKED_BY_PUT:
        if QueueShutDown is not None and queue._is_shutdown:
            raise QueueShutDown
        return wait_in_general(coroutine, queue, False)
    if (<QueueFields>queue)._is_shutdown:
        raise QueueShutDown
    coroutine.extra = create_waiter(queue, (<QueueFields>queue)._loop)
    append_waiter(queue._putters, coroutine.extra)
    return await_object(coroutine, coroutine.extra)


cdef object wait_in_general(Coroutine coroutine, object queue, bint is_getter):
    """The wait of get() or put() after the program's code has run: for a step function to return."""
    cdef object waiter = queue._get_loop().create_future()
    (queue._getters if is_getter else queue._putters).append(waiter)
    coroutine.extra = waiter
    return await_object(coroutine, waiter)


cdef int stop_getting(object queue, object getter, object error) except -1:
    """The end of get() after a wait that ended with an exception. The getter may have been woken in vain."""
    try:
        raise_again(error)
    except BaseException:
        getter.cancel()
        remove_if_there(queue._getters, getter)
        if not queue.empty() and not getter.cancelled():
            queue._wakeup_next(queue._getters)
        raise


cdef int stop_putting(object queue, object putter, object error) except -1:
    """The same for put()."""
    try:
        raise_again(error)
    except BaseException:
        putter.cancel()
        remove_if_there(queue._putters, putter)
        if not queue.full() and not putter.cancelled():
            queue._wakeup_next(queue._putters)
        raise


cdef int remove_if_there(object waiters, object waiter) except -1:
    try:
        waiters.remove(waiter)
    except ValueError:
        # It was removed when it was woken.
        pass
    return 0


cdef object join_step(Coroutine coroutine, object outcome, object error):
    cdef object queue
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if not replaced_in_counted(<PyObject *>queue) & OTHER_NAMES and (<QueueFields>queue)._unfinished_tasks <= 0:
        return None
    return delegate(coroutine, asyncio_join(queue))


cdef object asyncio_get = queues.Queue.get
cdef object asyncio_put = queues.Queue.put
cdef object asyncio_join = queues.Queue.join
cdef Operation get_operation = new_operation(get_step, asyncio_get)
cdef Operation put_operation = new_operation(put_step, asyncio_put)
cdef Operation join_operation = new_operation(join_step, asyncio_join)

Queue = compiled_class(
    QueueFields,
    queues.Queue,
    __init__=compiled_function(queues.Queue.__init__, init),
    qsize=compiled_function(queues.Queue.qsize, qsize),
    empty=compiled_function(queues.Queue.empty, empty),
    full=compiled_function(queues.Queue.full, full),
    put=coroutine_method(asyncio_put, put_operation, 2, &queue_class),
    put_nowait=compiled_function(queues.Queue.put_nowait, put_nowait),
    get=coroutine_method(asyncio_get, get_operation, 1, &queue_class),
    get_nowait=compiled_function(queues.Queue.get_nowait, get_nowait),
    task_done=compiled_function(queues.Queue.task_done, task_done),
    join=coroutine_method(asyncio_join, join_operation, 1, &queue_class),
)
PriorityQueue = compiled_class(Queue, queues.PriorityQueue)
LifoQueue = compiled_class(Queue, queues.LifoQueue)
plain_class_record_names(&queue_class, Queue, hooks)
plain_class_record_names(&priority_class, PriorityQueue, hooks)
plain_class_record_names(&lifo_class, LifoQueue, hooks)
