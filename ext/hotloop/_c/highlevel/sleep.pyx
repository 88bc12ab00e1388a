"""asyncio.sleep(): a compiled short cut.

Source: asyncio/tasks.py. Versions differ in a delay that is not a number, which is left to asyncio's own function.
"""

from cpython.object cimport PyObject

from hotloop._c.highlevel.awaiting cimport raise_again
from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, new_coroutine, new_operation
from hotloop._c.highlevel.running_loop cimport cancel_handle, running_loop, runs_on_hotloop
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated, yield_bare
from hotloop._c.tasks.current_task cimport current_task

cdef extern from *:
    """
    /* The sign of a number of seconds; 2: it is none of the usual ones, or none at all. */
    static inline int sign_of_delay(PyObject *delay)
    {
        double seconds;
        int overflow;
        long whole;

        if (PyLong_CheckExact(delay)) {
            whole = PyLong_AsLongAndOverflow(delay, &overflow);
            return overflow ? 2 : (whole > 0) - (whole < 0);
        }
        if (!PyFloat_CheckExact(delay))
            return 2;
        seconds = PyFloat_AS_DOUBLE(delay);
        return seconds > 0 ? 1 : seconds < 0 ? -1 : seconds == 0 ? 0 : 2;
    }
    """
    int sign_of_delay(PyObject *) noexcept

from asyncio import futures, tasks

cdef object set_result_unless_cancelled = futures._set_result_unless_cancelled


cdef PyObject *sleep_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef int sign
    cdef object loop
    if keywords != NULL or not 1 <= count <= 2:
        return NULL
    sign = sign_of_delay(arguments[0])
    if sign > 1:
        return NULL
    if sign > 0:
        loop = running_loop()
        if loop is None or not runs_on_hotloop(loop, current_task(loop)):
            # Nothing is gained on other loops, whose futures and timers are not compiled with this module.
            return NULL
    return new_coroutine(
        sleep_operation if sign > 0 else yield_operation,
        <object>arguments[0],
        None if count == 1 else <object>arguments[1],
    )


# Where asyncio's function awaits.
cdef enum:
    YIELDING = 1
    SLEEPING = 2


cdef object yield_step(Coroutine coroutine, object outcome, object error):
    """Without a delay: let one iteration pass."""
    if coroutine.position == YIELDING:
        if error is not None:
            raise_again(error)
        return coroutine.argument
    coroutine.position = YIELDING
    return yield_bare(coroutine)


cdef object sleep_step(Coroutine coroutine, object outcome, object error):
    cdef object loop, future
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == SLEEPING:
        cancel_handle(coroutine.extra)
        if error is not None:
            raise_again(error)
        return outcome
    loop = running_loop()
    if loop is None or not runs_on_hotloop(loop, current_task(loop)):
        return delegate(coroutine, asyncio_sleep(coroutine.owner, coroutine.argument))
    future = loop.create_future()
    coroutine.extra = loop.call_later(coroutine.owner, set_result_unless_cancelled, future, coroutine.argument)
    coroutine.position = SLEEPING
    return await_object(coroutine, future)


cdef object asyncio_sleep = tasks.sleep
cdef Operation yield_operation = new_operation(yield_step, asyncio_sleep)
cdef Operation sleep_operation = new_operation(sleep_step, asyncio_sleep)

sleep = compiled_function(asyncio_sleep, sleep_)
