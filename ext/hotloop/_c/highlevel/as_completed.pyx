"""asyncio.as_completed(), from Python 3.13 on: the compiled short cut, for coroutines and futures on hotloop's loop.

Each future gets a CompletionCallback, which puts it into a Queue; the iterator's coroutines take it from there. What
follows a timeout is asyncio's own.

Source: asyncio/tasks.py, whose class _AsCompletedIterator exists since 3.13. Before, as_completed() is a generator, and
asyncio's own is used. Versions differ in a wait that fails, after which 3.14 lets the program wait for the same future
again, and in the call graph, since 3.14.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport is_generator_coroutine, raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, is_coroutine, new_coroutine, new_operation
from hotloop._c.highlevel.done_callback cimport DoneCallback, shared_context
from hotloop._c.highlevel.plain_class cimport (
    class_is_unchanged,
    is_unchanged,
    plain_class,
    plain_class_new,
    plain_class_record,
)
from hotloop._c.highlevel.queues cimport has_no_item, is_plain, put_if_plain, take
from hotloop._c.highlevel.running_loop cimport cancel_handle, running_loop, runs_on_hotloop
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport is_our_future
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, may_create_directly, may_queue_directly
from hotloop._c.scheduler.timers cimport TimerHandle
from hotloop._c.tasks.current_task cimport current_task
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport waiting_task
from hotloop._c.tasks.task cimport Task, new_task

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 512
    #include "runtime/recycling.h"
    #include "runtime/fields.h"

    #define ITERATOR struct __pyx_obj_7hotloop_2_c_9highlevel_12as_completed_IteratorFields
    #define INSTANCE_DICT_OWNER ITERATOR
    #define fill_iterator_fields(iterator) FIELDS_FILL(ITERATOR, iterator, _done, _cur_task)
    #define clear_iterator_fields(iterator) FIELDS_CLEAR(ITERATOR, iterator, _done, _cur_task)
    #define set_timeout_handle(iterator, handle) FIELD_SET(ITERATOR, iterator, _timeout_handle, handle)
    #define set_todo(iterator, todo) FIELD_SET(ITERATOR, iterator, _todo, todo)
    #define set_todo_left(iterator, count) FIELD_SET(ITERATOR, iterator, _todo_left, count)
    #define ITERATOR_FIELDS \\
        FIELD(ITERATOR, _done), FIELD(ITERATOR, _timeout_handle), FIELD(ITERATOR, _todo), FIELD(ITERATOR, _todo_left)
    #if PY_VERSION_HEX >= 0x030E0000
    #define add_iterator_fields(type) FIELDS_INSTALL(type, ITERATOR_FIELDS, FIELD(ITERATOR, _cur_task))
    #define iterator_fields_are_set(iterator) FIELDS_ARE_SET(ITERATOR, iterator, _done, _cur_task)
    #else
    #define add_iterator_fields(type) FIELDS_INSTALL(type, ITERATOR_FIELDS)
    #define iterator_fields_are_set(iterator) FIELDS_ARE_SET(ITERATOR, iterator, _done, _todo_left)
    #endif

    /* Whether it is an int that is not negative, and fits. */
    static inline int is_count(PyObject *object)
    {
        int overflow;

        return PyLong_CheckExact(object) && PyLong_AsLongAndOverflow(object, &overflow) >= 0 && !overflow;
    }
    """
    int add_iterator_fields(PyTypeObject *) except -1
    bint fill_iterator_fields(object) noexcept
    void clear_iterator_fields(object) noexcept
    void set_timeout_handle(object iterator, object handle) noexcept
    void set_todo(object iterator, object todo) noexcept
    void set_todo_left(object iterator, object count) noexcept
    bint iterator_fields_are_set(object) noexcept
    bint is_count(object) noexcept

cdef extern from "Python.h":
    bint PyAnySet_CheckExact(object)
    bint PyGen_CheckExact(object)
    bint PyList_CheckExact(object)
    bint PySet_CheckExact(object)
    bint PyTuple_CheckExact(object)
    int PySet_Discard(object, object) except -1
    Py_ssize_t PySet_GET_SIZE(object) noexcept
    object PyMethod_New(object, object)

from asyncio import events, exceptions, tasks

from hotloop._asyncio.compiled_classes import compiled_class
from hotloop._c.highlevel.queues import Queue

cdef object asyncio_as_completed = tasks.as_completed
cdef object AsyncioIterator = getattr(tasks, "_AsCompletedIterator", None)
cdef object TimeoutError_ = exceptions.TimeoutError


cdef class IteratorFields:
    """What as_completed() returns consists of. The class that programs see derives from this one and from asyncio's."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    # All of them may be missing: before __init__().
    cdef object _done               # a Queue of futures; None in it: the timeout has expired
    cdef object _timeout_handle     # None: there is no timeout
    cdef object _todo               # a set of the futures that are not done
    cdef object _todo_left          # how many coroutines the iterator has yet to give
    cdef object _cur_task           # that has called as_completed(), from Python 3.14 on

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_iterator_fields(self)


instance_dict_install(<PyTypeObject *>IteratorFields)
add_iterator_fields(<PyTypeObject *>IteratorFields)

cdef plain_class iterator_class


cdef inline bint is_plain_iterator(PyObject *iterator) noexcept:
    return (
        is_unchanged(iterator, &iterator_class)
        and instance_dict_is_absent(<object>iterator)
        and iterator_fields_are_set(<object>iterator)
        and PySet_CheckExact((<IteratorFields>iterator)._todo)
        and is_count((<IteratorFields>iterator)._todo_left)
        and (
            (<IteratorFields>iterator)._timeout_handle is None
            or type((<IteratorFields>iterator)._timeout_handle) is TimerHandle
        )
    )


# -- a future is done --------------------------------------------------------------------------------------------------

@cython.no_gc_clear
cdef class CompletionCallback(DoneCallback):
    """In place of the bound method `_handle_completion`."""
    cdef IteratorFields iterator

    cdef bint act(self) except -1:
        if self.future.queue is None or not may_queue_directly(self.future.queue, self.future.loop):
            return False
        return is_plain_iterator(<PyObject *>self.iterator) and future_is_done(self.iterator, self.future)

    cdef object function(self):
        return PyMethod_New(handle_completion_function, self.iterator)


free_memory_install(<PyTypeObject *>CompletionCallback)


cdef bint future_is_done(IteratorFields iterator, Future future) except -1:
    """_handle_completion() of a plain iterator; False if asyncio's own is to do it."""
    cdef object todo = iterator._todo, done, handle
    if not PySet_GET_SIZE(todo):
        return True     # the timeout has expired
    if not PySet_Discard(todo, future):
        return False
    # The set may have compared the future with an object of the program's, which may run any code.
    done = iterator._done if is_plain_iterator(<PyObject *>iterator) else (<object>iterator)._done
    if not put_if_plain(done, future):
        done.put_nowait(future)
    if not is_plain_iterator(<PyObject *>iterator):
        if not (<object>iterator)._todo and (<object>iterator)._timeout_handle is not None:
            (<object>iterator)._timeout_handle.cancel()
        return True
    handle = iterator._timeout_handle
    if handle is not None and not PySet_GET_SIZE(iterator._todo):
        cancel_handle(handle)
    return True


cdef PyObject *handle_completion(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object future
    if count != 2 or keywords != NULL or not is_plain_iterator(arguments[0]):
        return NULL
    future = <object>arguments[1]
    if not is_our_future(future):
        return NULL
    return Py_NewRef(None) if future_is_done(<IteratorFields>arguments[0], future) else NULL


# -- waiting for one ---------------------------------------------------------------------------------------------------

cdef enum:
    WAITING = 1


cdef PyObject *next_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_iterator(arguments[0]):
        return NULL
    if not count_one(<IteratorFields>arguments[0]):
        raise StopIteration
    return new_coroutine(wait_operation, <object>arguments[0], True)


cdef bint count_one(IteratorFields iterator) except -1:
    """Whether a plain iterator goes on."""
    cdef long left = iterator._todo_left
    if left == 0:
        return False
    iterator._todo_left = left - 1
    return True


cdef PyObject *anext_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_iterator(arguments[0]):
        return NULL
    return new_coroutine(anext_operation, <object>arguments[0], None)


cdef object anext_step(Coroutine coroutine, object outcome, object error):
    cdef object iterator = coroutine.owner
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == WAITING:
        if error is not None:
            raise_again(error)
        return outcome
    if not is_plain_iterator(<PyObject *>iterator):
        return delegate(coroutine, asyncio_anext(iterator))
    if not count_one(iterator):
        raise StopAsyncIteration
    coroutine.position = WAITING
    return await_object(coroutine, steal(new_coroutine(wait_operation, iterator, False)))


cdef object wait_step(Coroutine coroutine, object outcome, object error):
    """_wait_for_one()"""
    cdef object iterator = coroutine.owner, done
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position != WAITING:
        if not is_plain_iterator(<PyObject *>iterator) or not is_plain((<IteratorFields>iterator)._done):
            return delegate(coroutine, asyncio_wait(iterator, coroutine.argument))
        done = (<IteratorFields>iterator)._done
        if has_no_item(done):
            coroutine.position = WAITING
            return await_object(coroutine, done.get())
        outcome = take(done)
    elif error is not None:
        if counts_failed_waits:
            iterator._todo_left += 1
        raise_again(error)
    if outcome is None:
        raise TimeoutError_
    if coroutine.argument is False:
        return outcome
    if is_our_future(outcome):
        return (<Future>outcome).take_result()
    return outcome.result()


# -- as_completed() ----------------------------------------------------------------------------------------------------

cdef PyObject *as_completed_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object loop, task, given, timeout = None
    cdef ReadyQueue queue
    if count != 1 or not class_is_unchanged(&iterator_class):
        return NULL
    if keywords != NULL:
        if len(<tuple>keywords) != 1 or (<tuple>keywords)[0] != "timeout":
            return NULL
        timeout = <object>arguments[1]
    loop = running_loop()
    task = None if loop is None else current_task(loop)
    if loop is None or not runs_on_hotloop(loop, task):
        return NULL
    queue = (<Task>task).queue
    given = <object>arguments[0]
    if not is_usual_collection(given) or not may_create_directly(queue, loop):
        return NULL
    if PyGen_CheckExact(given):
        given = list(given)     # which may run any code
        if (
            not are_usual(given, loop)
            or not class_is_unchanged(&iterator_class)
            or not may_create_directly(queue, loop)
        ):
            return Py_NewRef(asyncio_as_completed(given, timeout=timeout))
    elif not are_usual(given, loop):
        return NULL
    return Py_NewRef(new_iterator(given, timeout, loop, queue, task))


cdef bint is_usual_collection(object given) except -1:
    return (
        PyList_CheckExact(given)
        or PyAnySet_CheckExact(given)
        or PyTuple_CheckExact(given)
        or (PyGen_CheckExact(given) and not is_generator_coroutine(given))
    )


cdef bint are_usual(object given, object loop) except -1:
    """Whether all are coroutines, or futures of this loop."""
    cdef object each
    for each in given:
        if isinstance(each, Future):
            if not (<Future>each).is_exact() or (<Future>each).loop is not loop:
                return False
        elif not is_coroutine(each):
            return False
    return True


cdef object new_iterator(object given, object timeout, object loop, ReadyQueue queue, object caller):
    cdef object done = Queue(), made = plain_class_new(&iterator_class), each, context, handle
    cdef IteratorFields iterator = made
    cdef CompletionCallback callback
    cdef Future future
    cdef set todo = set()
    fill_iterator_fields(iterator)
    iterator._cur_task = caller
    iterator._done = done
    for each in set(given):
        todo.add(each if isinstance(each, Future) else new_task(each, loop, queue, None, None, False))
    context = shared_context(None)
    for future in todo:
        callback = CompletionCallback.__new__(CompletionCallback)
        callback.iterator = iterator
        callback.future = future
        callback.context = context
        future.wait_for(callback, waiting_task(caller))
    if timeout is not None and todo:
        try:
            handle = loop.call_later(timeout, made._handle_timeout)
        except BaseException:
            # The callbacks find asyncio's half-made iterator without them.
            del made._todo, made._todo_left
            raise
        # The loop may be any: its call_later() may have run any code.
        set_timeout_handle(iterator, handle)
    set_todo(iterator, todo)
    set_todo_left(iterator, len(todo))
    return made


cdef object asyncio_anext = None, asyncio_wait = None, handle_completion_function = None
cdef Operation anext_operation, wait_operation
cdef bint counts_failed_waits = False


def asyncio_attributes():
    """Those of asyncio's own iterator, which asks for a running loop."""
    running = events._get_running_loop()
    events._set_running_loop(object())
    try:
        return set(vars(AsyncioIterator([], None)))
    finally:
        events._set_running_loop(running)


def make_iterator_class():
    """The compiled class; None if this Python has none like it."""
    global asyncio_anext, asyncio_wait, handle_completion_function, anext_operation, wait_operation, counts_failed_waits
    if AsyncioIterator is None or asyncio_attributes() != set(IteratorFields.__slots__):
        return None
    asyncio_anext = AsyncioIterator.__anext__
    asyncio_wait = AsyncioIterator._wait_for_one
    anext_operation = new_operation(anext_step, asyncio_anext)
    wait_operation = new_operation(wait_step, asyncio_wait)
    counts_failed_waits = "_todo_left" in asyncio_wait.__code__.co_names
    handle_completion_function = compiled_function(AsyncioIterator._handle_completion, handle_completion)
    return compiled_class(
        IteratorFields,
        AsyncioIterator,
        __next__=compiled_function(AsyncioIterator.__next__, next_),
        __anext__=compiled_function(asyncio_anext, anext_),
        _handle_completion=handle_completion_function,
    )


AsCompletedIterator = make_iterator_class()
if AsCompletedIterator is not None:
    plain_class_record(&iterator_class, AsCompletedIterator)

as_completed = (
    asyncio_as_completed
    if AsCompletedIterator is None
    else compiled_function(asyncio_as_completed, as_completed_)
)
remove_constructor(<PyTypeObject *>CompletionCallback)
