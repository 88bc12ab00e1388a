"""asyncio.wait_for(): a compiled short cut, from Python 3.12 on.

Source: asyncio/tasks.py, where wait_for() is since 3.12 an `async with timeout()` block around one `await`. In 3.11 it
is another algorithm, which runs what it waits for in a task of its own: there the function is asyncio's.
"""

from cpython.object cimport PyObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, new_coroutine, new_operation
from hotloop._c.highlevel.running_loop cimport is_debugging, running_loop
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.timeouts cimport close_timeout, enter_timeout, is_timeout_unchanged, new_timeout
from hotloop._c.tasks.current_task cimport current_task

cdef extern from *:
    """
    static PyObject *timeout_name = NULL; /* interned; owned */

    static inline int install_timeout_name(void)
    {
        timeout_name = PyUnicode_InternFromString("timeout");
        return timeout_name == NULL ? -1 : 0;
    }

    /* Whether a call's arguments are (awaitable, timeout), by position or as wait_for(awaitable, timeout=...). */
    static inline int are_usual_arguments(Py_ssize_t count, PyObject *keywords)
    {
        if (keywords == NULL)
            return count == 2;
        return count == 1 && PyTuple_GET_SIZE(keywords) == 1 && PyTuple_GET_ITEM(keywords, 0) == timeout_name;
    }

    /* Whether it is None or a positive number of seconds, and adding it to a time runs no code of the program. */
    static inline int is_usual_timeout(PyObject *timeout)
    {
        long whole;
        int overflow;

        if (timeout == Py_None)
            return 1;
        if (PyFloat_CheckExact(timeout))
            return PyFloat_AS_DOUBLE(timeout) > 0;
        if (!PyLong_CheckExact(timeout))
            return 0;
        whole = PyLong_AsLongAndOverflow(timeout, &overflow);
        return !overflow && whole > 0;
    }

    static inline int can_be_awaited(PyObject *object)
    {
        PyAsyncMethods *methods = Py_TYPE(object)->tp_as_async;

        return methods != NULL && methods->am_await != NULL;
    }
    """
    int install_timeout_name() except -1
    bint are_usual_arguments(Py_ssize_t count, PyObject *keywords) noexcept
    bint is_usual_timeout(PyObject *) noexcept
    bint can_be_awaited(object) noexcept

import sys
from asyncio import tasks

install_timeout_name()


cdef PyObject *wait_for_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if not are_usual_arguments(count, keywords) or not is_usual_timeout(arguments[1]):
        return NULL
    return new_coroutine(wait_for_operation, <object>arguments[0], <object>arguments[1])


cdef enum:
    AWAITED = 3     # before it are those of _cancel_and_wait() and __aenter__()


cdef object wait_for_step(Coroutine coroutine, object outcome, object error):
    cdef object timeout
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == AWAITED:
        return close_timeout(coroutine.extra, outcome, error)
    timeout = entered_timeout(coroutine.owner, coroutine.argument)
    if timeout is None:
        return delegate(coroutine, asyncio_wait_for(coroutine.owner, coroutine.argument))
    coroutine.extra = timeout
    coroutine.position = AWAITED
    return await_object(coroutine, coroutine.owner)


cdef object entered_timeout(object awaitable, object seconds):
    """The timeout to wait in; None: asyncio's own function is to do it all."""
    cdef object loop = running_loop(), task, timeout
    if loop is None or not can_be_awaited(awaitable) or not is_timeout_unchanged():
        return None
    task = current_task(loop)
    if task is None or is_debugging(loop, task):
        return None
    timeout = new_timeout(None if seconds is None else loop.time() + seconds)
    return timeout if enter_timeout(timeout, loop, task) else None


cdef object asyncio_wait_for = tasks.wait_for
cdef Operation wait_for_operation = new_operation(wait_for_step, asyncio_wait_for)

wait_for = compiled_function(asyncio_wait_for, wait_for_) if sys.version_info >= (3, 12) else asyncio_wait_for
