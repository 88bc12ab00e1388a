"""asyncio.gather(): the compiled short cut, for coroutines and futures on hotloop's loop.

Each child gets a ChildCallback, which counts; the last one collects the results. Where a child fails or is cancelled,
asyncio's own callback takes over (gather_callback.py), with the count in one of its cells.

Source: asyncio/tasks.py. Versions differ in children that are done already (called for at once since 3.12), and in the
call graph (since 3.14).
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport is_coroutine
from hotloop._c.highlevel.done_callback cimport DoneCallback, get_count, shared_context
from hotloop._c.highlevel.waiters cimport is_our_future
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport Py_NewRef
from hotloop._c.scheduler.ready_queue cimport ReadyQueue, may_create_directly, may_queue_directly
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport FINISHED, PENDING, queue_of, state_of, waiting_task
from hotloop._c.tasks.task cimport Task, new_task

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 256
    #include "runtime/recycling.h"

    #define SMALL_TABLE 256

    /* Whether an object is there twice; 1 also if there is no memory to find out. */
    static int has_duplicates(PyObject **items, Py_ssize_t count)
    {
        PyObject *small[SMALL_TABLE], **table = small;
        size_t size = SMALL_TABLE, slot;
        Py_ssize_t index, other;
        int found = 0;

        if (count <= 8) {
            for (index = 1; index < count; index++)
                for (other = 0; other < index; other++)
                    if (items[index] == items[other])
                        return 1;
            return 0;
        }
        while (size < 2 * (size_t)count)
            size *= 2;
        if (size > SMALL_TABLE)
            table = PyMem_Malloc(size * sizeof(PyObject *));
        if (table == NULL)
            return 1;
        memset(table, 0, size * sizeof(PyObject *));
        for (index = 0; index < count && !found; index++) {
            slot = ((uintptr_t)items[index] >> 4) * 0x9E3779B1u;
            for (slot = (slot ^ slot >> 15) & (size - 1); table[slot] != NULL; slot = (slot + 1) & (size - 1)) {
                if (table[slot] == items[index]) {
                    found = 1;
                    break;
                }
            }
            table[slot] = items[index];
        }
        if (table != small)
            PyMem_Free(table);
        return found;
    }
    """
    bint has_duplicates(PyObject **items, Py_ssize_t count) noexcept

cdef extern from "Python.h":
    int PyCell_Set(object, object) except -1

from asyncio import events, tasks

from hotloop._asyncio.classes import assign_class, likeness
from hotloop._asyncio.gather_callback import gather_callback

cdef object get_running_loop = events._get_running_loop
cdef object current_task = tasks.current_task
cdef object asyncio_gather = tasks.gather
cdef object asyncio_cancel = tasks._GatheringFuture.cancel
cdef object AsyncioGatheringFuture = tasks._GatheringFuture
cdef object asyncio_callback = gather_callback(asyncio_gather)
cdef bint takes_caller = asyncio_callback is not None and asyncio_callback.takes_caller
cdef bint is_called_for_done_children = asyncio_callback is not None and asyncio_callback.is_called_for_done_children


cdef class _GatheringFuture(Future):
    """What gather() returns. isinstance() says that it is asyncio's."""
    cdef public object _children
    cdef public object _cancel_requested

    def __init__(self, children, *, loop):
        self.initialize(loop)
        self._children = children
        self._cancel_requested = False

    def __del__(self):
        self.report_unretrieved()

    @property
    def __class__(self):
        if type(self) is _GatheringFuture:
            return AsyncioGatheringFuture
        return likeness(type(self), AsyncioGatheringFuture)

    @__class__.setter
    def __class__(self, value):
        assign_class(self, value)

    cdef bint is_exact(self) noexcept:
        return type(self) is _GatheringFuture

    def cancel(self, msg=None):
        """Cancel all children that are not done; False if there are none."""
        return asyncio_cancel(self, msg)


@cython.no_gc_clear
cdef class Gathering:
    """The variables of one call of gather() that its callbacks share. As these, it has no tp_clear."""
    cdef _GatheringFuture outer
    cdef list children
    cdef Py_ssize_t count           # of the children, and of those that are done
    cdef Py_ssize_t done            # unless `cell` has it
    cdef object callback            # asyncio's; None until it is needed
    cdef object cell                # of `callback`, with the number of children that are done; None: there is none
    cdef object caller              # the task that has called gather(), from Python 3.14 on
    cdef object context             # of that call
    cdef bint return_exceptions

    cdef object function(self):
        cdef dict variables
        if self.callback is None:
            variables = {
                "children": self.children,
                "nfinished": self.done,
                "nfuts": self.count,
                "outer": self.outer,
                "return_exceptions": self.return_exceptions,
            }
            callback, cell = asyncio_callback.make(variables, self.caller)
            if self.callback is None:
                self.callback = callback
                self.cell = cell
        return self.callback

    cdef bint child_is_done(self, Future child) except -1:
        """Do what the callback does for a child that is done; False if that takes asyncio's own."""
        cdef Py_ssize_t done = self.done
        if state_of(child) != FINISHED or (child.error is not None and not self.return_exceptions):
            return False
        if self.cell is not None and not get_count(self.cell, &done):
            return False
        done += 1
        if state_of(self.outer) == PENDING:
            if done == self.count and not self.collect_results():
                return False
        elif child.error is not None:
            child.log_traceback = False
        if self.cell is None:
            self.done = done
        else:
            PyCell_Set(self.cell, done)
        return True

    cdef bint collect_results(self) except -1:
        """All children are done: set the result. False if one of them was cancelled or is of another class, if gather()
        was cancelled, or if the callbacks of `outer` may be any code's."""
        cdef _GatheringFuture outer = self.outer
        cdef Py_ssize_t index, count = len(self.children)
        cdef list results = [None] * count
        cdef object child
        if len(self.children) != count:
            return False
        if outer._cancel_requested is not False:
            return False
        if outer.queue is None or not may_queue_directly(outer.queue, outer.loop):
            return False
        for child in self.children:
            if (
                not is_our_future(child)
                or state_of(<Future>child) != FINISHED
                or ((<Future>child).error is not None and not self.return_exceptions)
            ):
                return False
        for index in range(count):
            child = self.children[index]
            if (<Future>child).error is None:
                results[index] = (<Future>child).value
            else:
                (<Future>child).log_traceback = False
                results[index] = (<Future>child).error
        outer.finish(results)
        return True


@cython.no_gc_clear
cdef class ChildCallback(DoneCallback):
    cdef Gathering gathering

    cdef bint act(self) except -1:
        return self.gathering.child_is_done(self.future)

    cdef object function(self):
        return self.gathering.function()


free_memory_install(<PyTypeObject *>ChildCallback)


cdef int add_callback(Gathering gathering, Future child) except -1:
    cdef ChildCallback callback = ChildCallback.__new__(ChildCallback)
    callback.gathering = gathering
    callback.future = child
    callback.context = gathering.context
    return child.wait_for(callback, waiting_task(gathering.caller))


cdef inline bint is_future_of(PyObject *argument, object loop) noexcept:
    return is_our_future(<object>argument) and (<Future>argument).loop is loop


cdef bint can_gather(PyObject **arguments, Py_ssize_t count, object loop) noexcept:
    """Whether all arguments are coroutines, or futures of this loop, and different ones."""
    cdef Py_ssize_t index
    for index in range(count):
        if not is_coroutine(<object>arguments[index]) and not is_future_of(arguments[index], loop):
            return False
    return not has_duplicates(arguments, count)


cdef object gather_all(PyObject **arguments, Py_ssize_t count, object loop, ReadyQueue queue, bint return_exceptions):
    cdef Gathering gathering = Gathering.__new__(Gathering)
    cdef _GatheringFuture outer = _GatheringFuture.__new__(_GatheringFuture)
    cdef list children = [None] * count, done = None
    cdef Py_ssize_t index
    cdef object argument
    cdef Future child
    outer.loop = loop
    outer.queue = queue
    outer._children = children
    outer._cancel_requested = False
    gathering.outer = outer
    gathering.children = children
    gathering.count = count
    gathering.return_exceptions = return_exceptions
    gathering.context = shared_context(None)
    if takes_caller:
        gathering.caller = current_task(loop)
    for index in range(count):
        argument = <object>arguments[index]
        if isinstance(argument, Future):
            child = argument
        else:
            child = new_task(argument, loop, queue, None, None, False)
            (<Task>child).log_destroy_pending = False
        children[index] = child
        if state_of(child) == PENDING or not is_called_for_done_children:
            add_callback(gathering, child)
        elif done is None:
            done = [child]
        else:
            done.append(child)
    if done is not None:
        for child in done:
            if not gathering.child_is_done(child):
                gathering.function()(child)
    return outer


cdef PyObject *gather_short_cut(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object loop
    cdef ReadyQueue queue
    cdef bint return_exceptions = False
    if keywords != NULL:
        if len(<tuple>keywords) != 1 or (<tuple>keywords)[0] != "return_exceptions":
            return NULL
        if <object>arguments[count] is True:
            return_exceptions = True
        elif <object>arguments[count] is not False:
            return NULL
    loop = get_running_loop()
    if count == 0 or loop is None:
        return NULL
    queue = queue_of(loop)
    if queue is None or not may_create_directly(queue, loop) or not can_gather(arguments, count, loop):
        return NULL
    return Py_NewRef(gather_all(arguments, count, loop, queue, return_exceptions))


gather = asyncio_gather if asyncio_callback is None else compiled_function(asyncio_gather, gather_short_cut)
remove_constructor(<PyTypeObject *>ChildCallback)
