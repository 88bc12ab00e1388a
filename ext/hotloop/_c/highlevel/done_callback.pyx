"""DoneCallback: a done callback that is compiled, but looks like asyncio's own to code that asks for it.

asyncio's groups of tasks add a Python function or a bound method to each child. A DoneCallback takes its place: the
child puts it on the ready queue itself, without a handle, an argument or a context of its own. What it does for a child
that succeeded is compiled; in all other cases it runs asyncio's own callback, as a Handle would.
"""

cimport cython
from cpython.object cimport PyObject

from hotloop._c.scheduler.handles cimport Handle, copy_context, new_handle, report_exception, run_reporting
from hotloop._c.scheduler.ready_queue cimport Runnable

cdef extern from "runtime/context_cache.h":
    int context_cache_install() except -1
    object context_copy_current()
    bint context_is_like_current(PyObject *context)

cdef extern from *:
    """
    /* The number that a cell holds; false if it is empty or holds anything else. */
    static inline int cell_number(PyObject *cell, long *number)
    {
        PyObject *held = PyCell_GET(cell);
        int overflow;

        if (held == NULL || !PyLong_CheckExact(held))
            return 0;
        *number = PyLong_AsLongAndOverflow(held, &overflow);
        return overflow == 0 && *number > LONG_MIN && *number < LONG_MAX;
    }
    """
    bint cell_number(object cell, long *number) noexcept

context_cache_install()

import asyncio


cdef object shared_context(object known):
    """A copy of the current context for any number of callbacks: `known`, an earlier one or None, if it is equal."""
    if known is not None and context_is_like_current(<PyObject *>known):
        return known
    return context_copy_current()


cdef bint get_count(object cell, Py_ssize_t *count) noexcept:
    """The count in a cell of asyncio's own callback. False: the program has emptied it, or stored anything else."""
    cdef long number
    if not cell_number(cell, &number):
        return False
    count[0] = number
    return True


@cython.no_gc_clear
cdef class DoneCallback(Runnable):
    """To be added by Future.wait_for().

    Neither it nor a subclass has a tp_clear: code that runs while the garbage collector clears a cycle may still find
    and call it. Each cycle that it is in has the future, too, which can be cleared."""

    cdef bint act(self) except -1:
        """Do what asyncio's callback does; False: it is to be called, nothing was done."""
        raise NotImplementedError

    cdef object function(self):
        """asyncio's callback, which is called with the future."""
        raise NotImplementedError

    cdef int run(self) except -1:
        cdef bint has_acted
        if self.was_cancelled:
            return 1
        try:
            has_acted = self.act()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # The loop would name this object, and not asyncio's callback.
            report_exception(self._loop, self.handle(), error)
            has_acted = True
        if not has_acted:
            run_reporting(self.handle(), self.future.loop)
        return 0

    cdef Handle handle(self):
        return new_handle(self.function(), (self.future,), self.future.loop, copy_context(self.context))

    cdef tuple done_callback(self):
        return (self.function(), copy_context(self.context))

    cdef int is_cancelled(self) except -1:
        return self.was_cancelled

    # -- for code that finds it in loop._ready -------------------------------------------------------------------------

    @property
    def __class__(self):
        return asyncio.Handle

    def __repr__(self):
        return repr(self.handle())

    def _run(self):
        run_reporting(self, self._loop)

    def cancel(self):
        """Make sure that the callback will not be called. Idempotent."""
        self.was_cancelled = True

    def cancelled(self):
        """True if cancel() was called."""
        return self.was_cancelled

    def get_context(self):
        """The context that the callback runs in."""
        return copy_context(self.context)

    @property
    def _callback(self):
        return None if self.was_cancelled else self.function()

    @property
    def _args(self):
        return None if self.was_cancelled else (self.future,)

    @property
    def _context(self):
        return copy_context(self.context)

    @property
    def _loop(self):
        # A program can make an object of this class, which then belongs to no future.
        return None if self.future is None else self.future.loop
