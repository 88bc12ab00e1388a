"""asyncio.shield(): the compiled short cut, for a coroutine, or a future on hotloop's running loop.

Three callbacks do the rest. Where one of them is to do something unusual, asyncio's own takes over
(nested_functions.py).

Source: asyncio/tasks.py. Versions differ in what happens to the exception of a future that is not awaited any more, and
in the call graph: since 3.14 a further callback clears it.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport is_coroutine
from hotloop._c.highlevel.done_callback cimport DoneCallback, shared_context
from hotloop._c.highlevel.running_loop cimport runs_on_hotloop
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport Py_NewRef
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, may_create_directly, may_queue_directly
from hotloop._c.tasks.current_task cimport current_task
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport FINISHED, PENDING, state_of, waiting_task
from hotloop._c.tasks.task cimport Task, new_task

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 256
    #include "runtime/recycling.h"
    """

from asyncio import events, tasks

from hotloop._asyncio.nested_functions import NestedFunctions

cdef object get_running_loop = events._get_running_loop
cdef object asyncio_shield = tasks.shield
cdef object nested = NestedFunctions(asyncio_shield)
cdef bint clears_call_graph = "_clear_awaited_by_callback" in nested.names


# Whether asyncio's callback on the outer future only removes those on the inner one. In some versions it adds one, too.
cdef bint outer_only_removes = nested.used_in("_outer_done_callback") <= {
    "done",
    "remove_done_callback",
    "_inner_done_callback",
    "_clear_awaited_by_callback",
    "inner",
    "cur_task",
    "futures",
    "future_discard_from_awaited_by",
}
cdef bint outer_removes_both = "_clear_awaited_by_callback" in nested.used_in("_outer_done_callback")


@cython.freelist(64)
cdef class Shielding:
    """The variables of one call of shield() that its callbacks share."""
    cdef Future inner               # None: the garbage collector has cleared it
    cdef object outer               # a Future, unless the loop makes other ones
    cdef object caller              # the task that has called shield(), from Python 3.14 on; else None
    cdef dict cells                 # asyncio's own callbacks, by name; None until one is needed
    cdef ShieldCallback clearing    # those on the inner future; None: it has run, or there is none
    cdef ShieldCallback on_inner

    cdef object function(self, object name):
        cdef dict variables
        if self.cells is None:
            variables = {"inner": self.inner, "outer": self.outer, "cur_task": self.caller}
            made = nested.make({variable: variables[variable] for variable in nested.variables})
            if self.cells is None:
                self.cells = made
        return self.cells[name].cell_contents

    cdef bint pass_on(self) except -1:
        """_inner_done_callback(); False if asyncio's own is to do it."""
        cdef Future inner = self.inner, outer
        self.on_inner = None
        if inner is None or type(self.outer) is not Future:
            return False
        outer = self.outer
        if state_of(outer) != PENDING or outer.queue is None or not may_queue_directly(outer.queue, outer.loop):
            return False
        if state_of(inner) != FINISHED:
            outer.set_cancelled(None)
        elif inner.error is None:
            outer.finish(inner.value)
        else:
            inner.log_traceback = False
            outer.fail(inner.error)
        return True

    cdef bint let_go(self) except -1:
        """_outer_done_callback(); False if asyncio's own is to do it."""
        if self.inner is None or state_of(self.inner) != PENDING:
            return True
        if self.cells is not None or not outer_only_removes:
            return False
        if self.on_inner is not None:
            if not self.inner.stop_waiting(self.on_inner):
                return False
            self.on_inner = None
        if self.clearing is not None and outer_removes_both:
            if not self.inner.stop_waiting(self.clearing):
                return False
            self.clearing = None
        return True


cdef enum Place:
    CLEARS_CALL_GRAPH
    ON_INNER
    ON_OUTER


@cython.no_gc_clear
cdef class ShieldCallback(DoneCallback):
    cdef Shielding shielding
    cdef Place place

    cdef bint act(self) except -1:
        if self.place == ON_INNER:
            return self.shielding.pass_on()
        if self.place == ON_OUTER:
            return self.shielding.let_go()
        # Nothing to clear: the call graph finds the waiters of hotloop's futures by their callbacks.
        self.shielding.clearing = None
        return True

    cdef object function(self):
        if self.place == ON_INNER:
            return self.shielding.function("_inner_done_callback")
        if self.place == ON_OUTER:
            return self.shielding.function("_outer_done_callback")
        return self.shielding.function("_clear_awaited_by_callback")


free_memory_install(<PyTypeObject *>ShieldCallback)


cdef ShieldCallback new_callback(Future future, Shielding shielding, Place place, object context):
    cdef ShieldCallback callback = ShieldCallback.__new__(ShieldCallback)
    callback.shielding = shielding
    callback.place = place
    callback.future = future
    callback.context = context
    future.wait_for(callback, waiting_task(shielding.caller))
    return callback


cdef object shielded(Future inner, object loop):
    """The future that shield() returns for a pending one of the running loop."""
    cdef Shielding shielding = Shielding.__new__(Shielding)
    cdef object outer = loop.create_future(), context = shared_context(None)
    shielding.inner = inner
    shielding.outer = outer
    if clears_call_graph:
        shielding.caller = current_task(loop)
        if shielding.caller is not None:
            shielding.clearing = new_callback(inner, shielding, CLEARS_CALL_GRAPH, context)
    shielding.on_inner = new_callback(inner, shielding, ON_INNER, context)
    if type(outer) is Future:
        new_callback(outer, shielding, ON_OUTER, context)
    else:
        outer.add_done_callback(shielding.function("_outer_done_callback"))
    return outer


cdef PyObject *shield_(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object loop, caller, argument
    cdef ReadyQueue queue
    cdef Future inner
    if count != 1 or keywords != NULL:
        return NULL
    argument = <object>arguments[0]
    if isinstance(argument, Future):
        inner = argument
        if not inner.is_exact() or inner.queue is None:
            return NULL
        if state_of(inner) != PENDING:
            return Py_NewRef(inner)
        loop = get_running_loop()
        queue = inner.queue
        if inner.loop is not loop or not may_queue_directly(queue, loop):
            return NULL
    elif is_coroutine(argument):
        loop = get_running_loop()
        caller = None if loop is None else current_task(loop)
        if not runs_on_hotloop(loop, caller):
            return NULL
        queue = (<Task>caller).queue
        if not may_create_directly(queue, loop):
            return NULL
        inner = new_task(argument, loop, queue, None, None, False)
    else:
        return NULL
    return Py_NewRef(shielded(inner, loop))


KNOWN = {"_inner_done_callback", "_outer_done_callback", "_clear_awaited_by_callback", "_log_on_exception"}

shield = (
    compiled_function(asyncio_shield, shield_)
    if nested.names <= KNOWN and nested.variables <= {"inner", "outer", "cur_task"}
    else asyncio_shield
)
remove_constructor(<PyTypeObject *>ShieldCallback)
