"""asyncio.Queue, PriorityQueue and LifoQueue: the compiled short cuts of their methods.

Source: asyncio/queues.py. Versions differ in shutdown() alone, which is there from 3.13 on.
"""

from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport (
    Coroutine,
    Operation,
    await_object,
    delegate,
    delegated,
    new_coroutine,
    new_operation,
    raise_again,
)
from hotloop._c.highlevel.deque cimport (
    deque_append,
    deque_check,  # no-cython-lint: the C code above uses it
    deque_install,
    deque_new,
    deque_popleft,
)
from hotloop._c.highlevel.event cimport EventFields, is_plain_event, new_event, set_plain_event
from hotloop._c.highlevel.plain_class cimport (
    OTHER_NAMES,
    names_replaced_by_class,
    plain_class,
    plain_class_record_names,
    replaced_names,
)
from hotloop._c.highlevel.waiters cimport create_waiter, wake_first
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install
from hotloop._c.runtime.references cimport Py_NewRef

cdef extern from *:
    """
    #include "runtime/fields.h"

    #define QUEUE struct __pyx_obj_7hotloop_2_c_9highlevel_6queues_QueueFields
    #define INSTANCE_DICT_OWNER QUEUE
    #define fill_queue_fields(queue) \
        (FIELDS_FILL(QUEUE, queue, _loop, _finished), FIELDS_FILL(QUEUE, queue, _is_shutdown, _is_shutdown))
    #define clear_items(queue) FIELDS_CLEAR(QUEUE, queue, _queue, _queue)
    #define set_items(queue, items) FIELD_SET(QUEUE, queue, _queue, items)

    /* Of an object of our class. A field that a program has deleted is NULL. */
    #define queue_field(queue, name) (((QUEUE *)(queue))->name)
    #define is_int(field) ((field) != NULL && PyLong_CheckExact(field))
    #define is_deque(queue) deque_check(queue_field(queue, _queue))
    #define is_list(queue) (queue_field(queue, _queue) != NULL && PyList_CheckExact(queue_field(queue, _queue)))
    #define has_usual_fields(queue) \
        (has_known_items(queue) && deque_check(queue_field(queue, _getters)) \
         && deque_check(queue_field(queue, _putters)) && is_int(queue_field(queue, _maxsize)) \
         && queue_field(queue, _loop) != NULL && queue_field(queue, _is_shutdown) != NULL)

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
        FIELD(QUEUE, _loop), FIELD(QUEUE, _maxsize), FIELD(QUEUE, _getters), FIELD(QUEUE, _putters), \\
            FIELD(QUEUE, _unfinished_tasks), FIELD(QUEUE, _finished), FIELD(QUEUE, _queue)
    #if PY_VERSION_HEX >= 0x030D0000
    #define add_queue_fields(type) FIELDS_INSTALL(type, QUEUE_FIELDS, FIELD(QUEUE, _is_shutdown))
    #else
    #define add_queue_fields(type) FIELDS_INSTALL(type, QUEUE_FIELDS)
    #endif
    """
    int add_queue_fields(PyTypeObject *) except -1
    void fill_queue_fields(object) noexcept     # all but `_queue`
    void clear_items(object queue) noexcept
    void set_items(object queue, object items) noexcept
    bint is_deque(object queue) noexcept
    bint is_list(object queue) noexcept
    bint has_usual_fields(object queue) noexcept
    Py_ssize_t size_of_items(object items) noexcept
    bint has_usual_counters(object queue) noexcept

cdef extern from "Python.h":
    PyTypeObject *Py_TYPE(PyObject *) noexcept
    bint PyType_IsSubtype(PyTypeObject *, PyTypeObject *) noexcept
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1

import heapq
from asyncio import queues
from collections import deque

from hotloop._asyncio.compiled_classes import compiled_class
deque_install(deque)

cdef object heappush = heapq.heappush
cdef object heappop = heapq.heappop
cdef object QueueEmpty = queues.QueueEmpty
cdef object QueueFull = queues.QueueFull
cdef object QueueShutDown = getattr(queues, "QueueShutDown", None)


cdef class QueueFields:
    """What a queue consists of. The classes that programs see derive from this one and from asyncio's."""
    cdef object attributes          # the instance's __dict__, see instance_dict.h
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
        clear_items(self)


instance_dict_install(<PyTypeObject *>QueueFields)
add_queue_fields(<PyTypeObject *>QueueFields)

cdef plain_class fifo_class, priority_class, lifo_class


# The bits of the methods that others call.
cdef enum:
    INIT = 1
    PUT = 2
    GET = 4
    PUT_NOWAIT = 8
    GET_NOWAIT = 16
    FULL = 32
    EMPTY = 64
    QSIZE = 128

# No short cut relies on those that have no bit above.
cdef tuple hooks = (
    "_init", "_put", "_get", "put_nowait", "get_nowait", "full", "empty", "qsize", "put", "get", "task_done", "join",
    "shutdown", "maxsize", "_format",
)   # fmt: skip


cdef inline bint is_fifo(PyObject *queue) noexcept:
    """Whether it is no object of PriorityQueue or LifoQueue; the other two tell of subclasses, too."""
    return Py_TYPE(queue) == fifo_class.type or not (is_priority(queue) or is_lifo(queue))


cdef inline bint is_priority(PyObject *queue) noexcept:
    return PyType_IsSubtype(Py_TYPE(queue), priority_class.type)


cdef inline bint is_lifo(PyObject *queue) noexcept:
    return PyType_IsSubtype(Py_TYPE(queue), lifo_class.type)


cdef inline const plain_class *class_of(PyObject *queue) noexcept:
    """Which of the three classes it is an object of, if it is one at all."""
    return &fifo_class if is_fifo(queue) else &priority_class if is_priority(queue) else &lifo_class


cdef inline unsigned int replaced(PyObject *queue) noexcept:
    """The bits of the methods that it does not have from its class, see class_of()."""
    return replaced_names(queue, class_of(queue))


cdef inline bint is_of_our_class(PyObject *queue, unsigned int methods) noexcept:
    """Whether it may be a plain queue, as far as its class says."""
    return not names_replaced_by_class(queue, class_of(queue)) & (OTHER_NAMES | methods)


cdef inline unsigned int replaced_in_plain(PyObject *queue, unsigned int methods) noexcept:
    """replaced(); OTHER_NAMES if it is no plain queue: the methods that the bits `methods` stand for are those of its
    class, and the attributes that get() uses are of the types that the constructors of our three classes gave them.
    `_queue` may also be another type of known size."""
    cdef unsigned int found = replaced(queue)
    return OTHER_NAMES if found & (OTHER_NAMES | methods) or not has_usual_fields(<object>queue) else found


cdef inline unsigned int replaced_in_counted(PyObject *queue, unsigned int methods) noexcept:
    """The same, with the attributes by which put(), task_done() and join() count."""
    cdef unsigned int found = replaced_in_plain(queue, methods)
    if found & OTHER_NAMES or not has_usual_counters(<object>queue):
        return OTHER_NAMES
    return found if is_plain_event(<PyObject *>(<QueueFields>queue)._finished) else OTHER_NAMES


cdef inline bint is_plain_queue(PyObject *queue, unsigned int methods) noexcept:
    return not replaced_in_plain(queue, methods) & OTHER_NAMES


cdef inline bint is_plain_counted_queue(PyObject *queue, unsigned int methods) noexcept:
    return not replaced_in_counted(queue, methods) & OTHER_NAMES


# -- what the methods have in common; all of it for plain queues -------------------------------------------------------

cdef inline Py_ssize_t size(QueueFields queue) noexcept:
    return size_of_items(queue._queue)


cdef inline bint is_full(QueueFields queue) except -1:
    cdef int overflow = 0
    cdef long long limit = PyLong_AsLongLongAndOverflow(queue._maxsize, &overflow)
    # A limit beyond what fits is never reached, or negative.
    return limit > 0 and size(queue) >= limit


cdef int put_item(QueueFields queue, object item, unsigned int replaced) except -1:
    """put_nowait(), where there is room. `replaced`: see replaced_in_plain()."""
    cdef PyObject *checked = <PyObject *>queue
    if replaced & PUT or not has_own_items(checked):
        (<object>queue)._put(item)
        if not is_plain_counted_queue(checked, 0):
            return count_put_item(queue)
    elif is_fifo(checked):
        deque_append(queue._queue, item)
    elif is_lifo(checked):
        (<list>queue._queue).append(item)
    else:
        heappush(queue._queue, item)
        # The items were compared, which may have run any code.
        if not is_plain_counted_queue(checked, 0):
            return count_put_item(queue)
    queue._unfinished_tasks = queue._unfinished_tasks + 1
    (<EventFields>queue._finished)._value = False
    return wake_first(queue._getters)


cdef inline bint has_own_items(PyObject *queue) noexcept:
    """Whether `_queue` is of the type that its class gave it."""
    return is_deque(<object>queue) if is_fifo(queue) else is_list(<object>queue)


cdef int count_put_item(object queue) except -1:
    """The end of put_nowait() for any queue."""
    queue._unfinished_tasks += 1
    queue._finished.clear()
    queue._wakeup_next(queue._getters)
    return 0


cdef object take_item(QueueFields queue, unsigned int replaced):
    """get_nowait(), where there is an item. `replaced`: see replaced_in_plain()."""
    cdef object item
    cdef PyObject *checked = <PyObject *>queue
    if replaced & GET or not has_own_items(checked):
        item = (<object>queue)._get()
        if not is_plain_queue(checked, 0):
            (<object>queue)._wakeup_next((<object>queue)._putters)
            return item
    elif is_fifo(checked):
        item = deque_popleft(queue._queue)
    elif is_lifo(checked):
        item = (<list>queue._queue)[size(queue) - 1]
        del (<list>queue._queue)[size(queue) - 1]
    else:
        item = heappop(queue._queue)
        if not is_plain_queue(checked, 0):
            (<object>queue)._wakeup_next((<object>queue)._putters)
            return item
    wake_first(queue._putters)
    return item


# -- for as_completed() ------------------------------------------------------------------------------------------------

cdef bint put_if_plain(object queue, object item) except -1:
    """put_nowait() for a plain Queue with room; else False."""
    if not is_fifo(<PyObject *>queue) or replaced_in_counted(<PyObject *>queue, 0) != 0:
        return False
    if (<QueueFields>queue)._is_shutdown or is_full(queue):
        return False
    put_item(queue, item, 0)
    return True


cdef bint is_plain(object queue) noexcept:
    return replaced_in_plain(<PyObject *>queue, 0) == 0


cdef bint is_empty(object queue) noexcept:
    """empty() of a plain queue."""
    return size(queue) == 0


cdef object take(object queue):
    """get_nowait() for a plain queue with an item."""
    return take_item(queue, 0)


# -- the short cuts ----------------------------------------------------------------------------------------------------

cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    cdef bint has_own_init
    if not 1 <= count <= 2 or keywords != NULL or not is_of_our_class(arguments[0], 0):
        return NULL
    has_own_init = replaced(arguments[0]) & INIT
    queue = <QueueFields>arguments[0]
    fill_queue_fields(queue)
    queue._maxsize = 0 if count == 1 else <object>arguments[1]
    queue._getters = deque_new()
    queue._putters = deque_new()
    queue._unfinished_tasks = 0
    queue._finished = new_event(True)
    if has_own_init:
        init_items(queue, queue._maxsize)
    else:
        set_items(queue, deque_new() if is_fifo(arguments[0]) else [])
        queue._is_shutdown = False
    return Py_NewRef(None)


cdef int init_items(object queue, object maxsize) except -1:
    """The end of __init__(), for any queue."""
    queue._init(maxsize)
    if QueueShutDown is not None:
        queue._is_shutdown = False
    return 0


cdef PyObject *qsize(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_queue(arguments[0], 0):
        return NULL
    return Py_NewRef(size(<QueueFields>arguments[0]))


cdef PyObject *empty(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_queue(arguments[0], 0):
        return NULL
    return Py_NewRef(size(<QueueFields>arguments[0]) == 0)


cdef PyObject *full(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_queue(arguments[0], QSIZE):
        return NULL
    return Py_NewRef(is_full(<QueueFields>arguments[0]))


cdef PyObject *put_nowait(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    cdef unsigned int found
    if count != 2 or keywords != NULL:
        return NULL
    found = replaced_in_counted(arguments[0], FULL | QSIZE)
    if found & OTHER_NAMES:
        return NULL
    queue = <QueueFields>arguments[0]
    if queue._is_shutdown:
        raise QueueShutDown
    if is_full(queue):
        raise QueueFull
    put_item(queue, <object>arguments[1], found)
    return Py_NewRef(None)


cdef PyObject *get_nowait(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    cdef unsigned int found
    if count != 1 or keywords != NULL:
        return NULL
    found = replaced_in_plain(arguments[0], EMPTY)
    if found & OTHER_NAMES:
        return NULL
    queue = <QueueFields>arguments[0]
    if not size(queue):
        raise QueueShutDown if queue._is_shutdown else QueueEmpty
    return Py_NewRef(take_item(queue, found))


cdef PyObject *task_done(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef QueueFields queue
    if count != 1 or keywords != NULL or not is_plain_counted_queue(arguments[0], 0):
        return NULL
    queue = <QueueFields>arguments[0]
    if queue._unfinished_tasks <= 0:
        raise ValueError("task_done() called too many times")
    queue._unfinished_tasks = queue._unfinished_tasks - 1
    if not queue._unfinished_tasks:
        set_plain_event(queue._finished)
    return Py_NewRef(None)


cdef PyObject *get(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_of_our_class(arguments[0], EMPTY):
        return NULL
    return Py_NewRef(new_coroutine(get_operation, <object>arguments[0], None))


cdef PyObject *put(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 2 or keywords != NULL or not is_of_our_class(arguments[0], FULL | QSIZE):
        return NULL
    return Py_NewRef(new_coroutine(put_operation, <object>arguments[0], <object>arguments[1]))


cdef PyObject *join(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_of_our_class(arguments[0], 0):
        return NULL
    return Py_NewRef(new_coroutine(join_operation, <object>arguments[0], None))


# -- the coroutines ----------------------------------------------------------------------------------------------------

cdef enum:
    WOKEN = 1


cdef object get_step(Coroutine coroutine, object outcome, object error):
    cdef object queue, getters, getter
    cdef unsigned int found
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if error is not None:
        getters = queue._getters
        if is_woken_in_vain(getters, coroutine.extra) and not queue.empty():
            queue._wakeup_next(getters)
        raise_again(error)
    found = replaced_in_plain(<PyObject *>queue, EMPTY)
    if found & OTHER_NAMES:
        return delegate(coroutine, own_get(queue))
    if size(queue):
        return queue.get_nowait() if found & GET_NOWAIT else take_item(queue, found)
    if (<QueueFields>queue)._is_shutdown:
        raise QueueShutDown
    getters = (<QueueFields>queue)._getters
    getter = create_waiter(queue, (<QueueFields>queue)._loop)
    deque_append(getters, getter)
    coroutine.extra = getter
    return await_object(coroutine, getter)


cdef object put_step(Coroutine coroutine, object outcome, object error):
    cdef object queue, putters, putter
    cdef unsigned int found
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if error is not None:
        putters = queue._putters
        if is_woken_in_vain(putters, coroutine.extra) and not queue.full():
            queue._wakeup_next(putters)
        raise_again(error)
    found = replaced_in_counted(<PyObject *>queue, FULL | QSIZE)
    if found & OTHER_NAMES:
        return delegate(coroutine, own_put(queue, coroutine.argument))
    if found & PUT_NOWAIT and not is_full(queue):
        return queue.put_nowait(coroutine.argument)
    if (<QueueFields>queue)._is_shutdown:
        raise QueueShutDown
    if not is_full(queue):
        put_item(queue, coroutine.argument, found)
        return None
    putters = (<QueueFields>queue)._putters
    putter = create_waiter(queue, (<QueueFields>queue)._loop)
    deque_append(putters, putter)
    coroutine.extra = putter
    return await_object(coroutine, putter)


cdef bint is_woken_in_vain(object waiters, object waiter) except -1:
    """The task was cancelled: forget its waiter. True if the waiter had been woken, and the next one should be."""
    waiter.cancel()
    try:
        waiters.remove(waiter)
    except ValueError:
        # It was removed when it was woken.
        pass
    return not waiter.cancelled()


cdef object join_step(Coroutine coroutine, object outcome, object error):
    cdef object queue
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    queue = coroutine.owner
    if is_plain_counted_queue(<PyObject *>queue, 0) and (<QueueFields>queue)._unfinished_tasks <= 0:
        return None
    return delegate(coroutine, own_join(queue))


cdef object own_get = queues.Queue.get
cdef object own_put = queues.Queue.put
cdef object own_join = queues.Queue.join
cdef Operation get_operation = new_operation(get_step, own_get)
cdef Operation put_operation = new_operation(put_step, own_put)
cdef Operation join_operation = new_operation(join_step, own_join)

Queue = compiled_class(
    QueueFields,
    queues.Queue,
    __init__=compiled_function(queues.Queue.__init__, init),
    qsize=compiled_function(queues.Queue.qsize, qsize),
    empty=compiled_function(queues.Queue.empty, empty),
    full=compiled_function(queues.Queue.full, full),
    put=compiled_function(own_put, put),
    put_nowait=compiled_function(queues.Queue.put_nowait, put_nowait),
    get=compiled_function(own_get, get),
    get_nowait=compiled_function(queues.Queue.get_nowait, get_nowait),
    task_done=compiled_function(queues.Queue.task_done, task_done),
    join=compiled_function(own_join, join),
)
PriorityQueue = compiled_class(Queue, queues.PriorityQueue)
LifoQueue = compiled_class(Queue, queues.LifoQueue)
plain_class_record_names(&fifo_class, Queue, hooks)
plain_class_record_names(&priority_class, PriorityQueue, hooks)
plain_class_record_names(&lifo_class, LifoQueue, hooks)
