"""asyncio.wait(): a compiled short cut, for futures of hotloop's running loop.

Each future gets a WaitCallback, which counts. wait() awaits _wait(), as asyncio's does.

Source: asyncio/tasks.py. Versions differ in the call graph alone, which knows the waiting task since 3.14.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, new_coroutine, new_operation
from hotloop._c.highlevel.done_callback cimport DoneCallback, get_count, shared_context
from hotloop._c.highlevel.running_loop cimport cancel_handle, running_loop, runs_on_hotloop
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport is_our_future
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport steal
from hotloop._c.scheduler.ready_queue cimport may_queue_directly
from hotloop._c.scheduler.timers cimport TimerHandle
from hotloop._c.tasks.current_task cimport current_task
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport FINISHED, PENDING, state_of, waiting_task

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 512
    #include "runtime/recycling.h"

    /* The index in `values` of an argument by keyword; -1: it was not given. */
    static Py_ssize_t keyword_index(PyObject *names, PyObject *name)
    {
        Py_ssize_t index;

        for (index = 0; index < PyTuple_GET_SIZE(names); index++)
            if (PyTuple_GET_ITEM(names, index) == name)
                return index;
        return -1;
    }
    """
    Py_ssize_t keyword_index(object names, object name) noexcept

cdef extern from "Python.h":
    bint PyAnySet_CheckExact(object)
    bint PyList_CheckExact(object)
    bint PyTuple_CheckExact(object)
    int PyCell_Set(object, object) except -1
    int PySet_Add(object, object) except -1

from asyncio import tasks

from hotloop._asyncio.nested_functions import NestedFunctions

cdef object asyncio_wait = tasks.wait
cdef object asyncio_inner = tasks._wait
cdef object release_waiter = tasks._release_waiter
cdef object nested = NestedFunctions(asyncio_inner)
cdef object FIRST_COMPLETED = tasks.FIRST_COMPLETED
cdef object FIRST_EXCEPTION = tasks.FIRST_EXCEPTION
cdef object ALL_COMPLETED = tasks.ALL_COMPLETED
cdef object TIMEOUT = "timeout"
cdef object RETURN_WHEN = "return_when"


cdef inline bint is_plain_handle(object handle) noexcept:
    return handle is None or type(handle) is TimerHandle


@cython.freelist(64)
@cython.no_gc_clear
cdef class Waiting:
    """The variables of one call of _wait() that its callbacks share. As these, it has no tp_clear."""
    cdef object waiter              # a Future, unless the loop makes other ones
    cdef object timeout_handle      # None: there is no timeout
    cdef object return_when         # one of asyncio's three constants
    cdef object caller              # the waiting task
    cdef Py_ssize_t counter         # of the futures that are not done, unless `cell` has it
    cdef object function            # asyncio's own callback; None until it is needed
    cdef object cell                # of `function`, with the counter
    cdef list callbacks             # of all futures; None: _wait() has not begun or has ended

    cdef object asyncio_function(self):
        cdef dict variables
        if self.function is None:
            variables = {
                "counter": self.counter,
                "cur_task": self.caller,
                "return_when": self.return_when,
                "timeout_handle": self.timeout_handle,
                "waiter": self.waiter,
            }
            made = nested.make({variable: variables[variable] for variable in nested.variables})
            if self.function is None:
                self.cell = made["counter"]
                self.function = made["_on_completion"].cell_contents
        return self.function

    cdef bint future_is_done(self, Future future) except -1:
        """_on_completion(); False if asyncio's own is to do it."""
        cdef Future waiter
        cdef Py_ssize_t counter
        if type(self.waiter) is not Future or not is_plain_handle(self.timeout_handle):
            return False
        waiter = self.waiter
        if waiter.queue is None or not may_queue_directly(waiter.queue, waiter.loop):
            return False
        if self.cell is None:
            counter = self.counter = self.counter - 1
        else:
            if not get_count(self.cell, &counter):
                return False
            counter -= 1
            PyCell_Set(self.cell, counter)
        if counter > 0 and self.return_when is not FIRST_COMPLETED:
            if self.return_when is not FIRST_EXCEPTION or state_of(future) != FINISHED:
                return True
            future.log_traceback = False
            if future.error is None:
                return True
        if self.timeout_handle is not None:
            cancel_handle(self.timeout_handle)
        if state_of(waiter) == PENDING:
            waiter.finish(None)
        return True


@cython.no_gc_clear
cdef class WaitCallback(DoneCallback):
    cdef Waiting waiting

    cdef bint act(self) except -1:
        return self.waiting.future_is_done(self.future)

    cdef object function(self):
        return self.waiting.asyncio_function()


free_memory_install(<PyTypeObject *>WaitCallback)


# -- wait() ------------------------------------------------------------------------------------------------------------

cdef PyObject *wait_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef Py_ssize_t timeout = -1, return_when = -1
    cdef object loop, options = None
    if count != 1:
        return NULL
    loop = running_loop()
    if loop is None or not runs_on_hotloop(loop, current_task(loop)):
        # Nothing is gained on other loops.
        return NULL
    if keywords != NULL:
        timeout = keyword_index(<object>keywords, TIMEOUT)
        return_when = keyword_index(<object>keywords, RETURN_WHEN)
        if (timeout >= 0) + (return_when >= 0) != len(<tuple>keywords):
            return NULL
        options = (
            None if timeout < 0 else <object>arguments[count + timeout],
            ALL_COMPLETED if return_when < 0 else <object>arguments[count + return_when],
        )
    return new_coroutine(wait_operation, <object>arguments[0], options)


cdef enum:
    WAITING = 1


cdef object wait_step(Coroutine coroutine, object outcome, object error):
    cdef object loop, task, futures, timeout = None, return_when = ALL_COMPLETED
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == WAITING:
        if error is not None:
            raise_again(error)
        return outcome
    if coroutine.argument is not None:
        timeout, return_when = <tuple>coroutine.argument
    loop = running_loop()
    task = None if loop is None else current_task(loop)
    futures = usual_futures(coroutine.owner, loop) if loop is not None and runs_on_hotloop(loop, task) else None
    if futures is None or (
        return_when is not ALL_COMPLETED and return_when is not FIRST_COMPLETED and return_when is not FIRST_EXCEPTION
    ):
        return delegate(coroutine, asyncio_wait(coroutine.owner, timeout=timeout, return_when=return_when))
    coroutine.position = WAITING
    futures = steal(new_coroutine(inner_operation, futures, timeout))
    (<Coroutine>futures).extra = new_waiting(task, return_when)
    return await_object(coroutine, futures)


cdef object usual_futures(object given, object loop):
    """The set of the futures to wait for; None if there are none or some are not of hotloop's classes and this loop."""
    cdef object future
    if not PyAnySet_CheckExact(given) and not PyList_CheckExact(given) and not PyTuple_CheckExact(given):
        return None
    if not given:
        return None
    for future in given:
        if not is_our_future(future) or (<Future>future).loop is not loop:
            return None
    return set(given)


cdef Waiting new_waiting(object task, object return_when):
    cdef Waiting waiting = Waiting.__new__(Waiting)
    waiting.caller = task
    waiting.return_when = return_when
    return waiting


# -- _wait() -----------------------------------------------------------------------------------------------------------

cdef object inner_step(Coroutine coroutine, object outcome, object error):
    cdef Waiting waiting = coroutine.extra
    if coroutine.position == WAITING:
        return end(waiting, error)
    begin(waiting, coroutine.owner, coroutine.argument)
    coroutine.position = WAITING
    return await_object(coroutine, waiting.waiter)


cdef int begin(Waiting waiting, set futures, object timeout) except -1:
    cdef object loop = running_loop(), context
    cdef Future future
    cdef WaitCallback callback
    waiting.waiter = loop.create_future()
    if timeout is not None:
        waiting.timeout_handle = loop.call_later(timeout, release_waiter, waiting.waiter)
    waiting.counter = len(futures)
    waiting.callbacks = []
    context = shared_context(None)
    for future in futures:
        callback = WaitCallback.__new__(WaitCallback)
        callback.waiting = waiting
        callback.future = future
        callback.context = context
        waiting.callbacks.append(callback)
        future.wait_for(callback, waiting_task(waiting.caller))
    return 0


cdef object end(Waiting waiting, object error):
    """Take the callbacks back; return the futures that are done, and those that are not."""
    cdef list callbacks = waiting.callbacks
    cdef WaitCallback callback
    cdef set done, pending
    waiting.callbacks = None
    if waiting.timeout_handle is not None:
        cancel_handle(waiting.timeout_handle)
    for callback in callbacks:
        if state_of(callback.future) == PENDING:
            if waiting.function is not None or not callback.future.stop_waiting(callback):
                callback.future.remove_done_callback(waiting.asyncio_function())
    if error is not None:
        raise_again(error)
    done, pending = set(), set()
    for callback in callbacks:
        PySet_Add(pending if state_of(callback.future) == PENDING else done, callback.future)
    return done, pending


cdef Operation wait_operation = new_operation(wait_step, asyncio_wait)
cdef Operation inner_operation = new_operation(inner_step, asyncio_inner)

KNOWN = {"counter", "cur_task", "return_when", "timeout_handle", "waiter"}

wait = (
    compiled_function(asyncio_wait, wait_)
    if nested.names == {"_on_completion"} and nested.variables <= KNOWN
    else asyncio_wait
)
remove_constructor(<PyTypeObject *>WaitCallback)
