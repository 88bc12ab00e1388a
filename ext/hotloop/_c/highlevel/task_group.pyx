"""asyncio.TaskGroup: the compiled short cuts of its methods, for a group in which no task fails.

Where a task fails, or the group is left with an exception, asyncio's own methods do the rest, on the same attributes.

Source: asyncio/taskgroups.py. Versions differ in what __aexit__() leaves behind, which is tried out below.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.compiled_function cimport compiled_function
from hotloop._c.highlevel.coroutine cimport Coroutine, Operation, is_coroutine, new_coroutine, new_operation
from hotloop._c.highlevel.done_callback cimport DoneCallback, shared_context
from hotloop._c.highlevel.plain_class cimport is_unchanged, plain_class, plain_class_record
from hotloop._c.highlevel.step_ends cimport await_object, delegate, delegated
from hotloop._c.highlevel.waiters cimport is_done, wake
from hotloop._c.runtime.instance_dict cimport instance_dict_clear, instance_dict_install, instance_dict_is_absent
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.runtime.recycling cimport free_memory_install
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.scheduler.ready_queue cimport may_create_directly, may_queue_directly
from hotloop._c.tasks.future cimport Future, new_future
from hotloop._c.tasks.future_core cimport CANCELLED, state_of, waiting_task
from hotloop._c.tasks.task cimport Task, new_task

cdef extern from *:
    """
    #define FREE_MEMORY_CAPACITY 1024
    #include "highlevel/asyncio_task.h"
    #include "runtime/fields.h"
    #include "runtime/recycling.h"

    #define GROUP struct __pyx_obj_7hotloop_2_c_9highlevel_10task_group_TaskGroupFields
    #define INSTANCE_DICT_OWNER GROUP
    #define fill_group_fields(group) FIELDS_FILL(GROUP, group, _entered, _cancel_on_enter)
    #define group_fields_are_set(group) FIELDS_ARE_SET(GROUP, group, _entered, _cancel_on_enter)
    #define GROUP_FIELDS \\
        FIELD(GROUP, _entered), FIELD(GROUP, _exiting), FIELD(GROUP, _aborting), FIELD(GROUP, _loop), \\
            FIELD(GROUP, _parent_task), FIELD(GROUP, _parent_cancel_requested), FIELD(GROUP, _tasks), \\
            FIELD(GROUP, _errors), FIELD(GROUP, _base_error), FIELD(GROUP, _on_completed_fut)
    #if PY_VERSION_HEX >= 0x030F0000
    #define add_group_fields(type) FIELDS_INSTALL(type, GROUP_FIELDS, FIELD(GROUP, _cancel_on_enter))
    #define clear_group_fields(group) FIELDS_CLEAR(GROUP, group, _entered, _cancel_on_enter)
    #else
    #define add_group_fields(type) FIELDS_INSTALL(type, GROUP_FIELDS)
    #define clear_group_fields(group) FIELDS_CLEAR(GROUP, group, _entered, _on_completed_fut)
    #endif
    """
    ctypedef PyObject *(*PyCFunction)(PyObject *, PyObject *)
    PyCFunction immutable_method(object type, const char *name) noexcept
    bint has_no_own_attributes(object) noexcept
    int add_group_fields(PyTypeObject *) except -1
    void clear_group_fields(object) noexcept
    bint fill_group_fields(object) noexcept
    bint group_fields_are_set(object) noexcept

cdef extern from "Python.h":
    bint PyContext_CheckExact(object)
    bint PyUnicode_CheckExact(object)
    bint PyList_CheckExact(object)
    bint PySet_CheckExact(object)
    Py_ssize_t PySet_GET_SIZE(object) noexcept
    int PySet_Add(object, object) except -1
    int PySet_Discard(object, object) except -1
    object PyMethod_New(object, object)

import sys
from asyncio import events, exceptions, futures, taskgroups, tasks

from hotloop._asyncio.compiled_classes import compiled_class

cdef object CancelledError = exceptions.CancelledError
cdef object AsyncioTaskGroup = taskgroups.TaskGroup
cdef object AsyncioTask = tasks.Task
cdef PyCFunction asyncio_task_done = immutable_method(AsyncioTask, "done")
cdef PyCFunction asyncio_task_cancelled = immutable_method(AsyncioTask, "cancelled")
cdef object future_discard_from_awaited_by = getattr(futures, "future_discard_from_awaited_by", None)
cdef object get_running_loop = events._get_running_loop
cdef object current_task = tasks.current_task
cdef object NAME = "name"
cdef object CONTEXT = "context"


cdef class TaskGroupFields:
    """What a TaskGroup consists of. The class that programs see derives from this one and from asyncio.TaskGroup."""
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h
    cdef object __weakref__
    cdef object context             # of the latest create_task(); None: none. Not an attribute
    cdef object _entered
    cdef object _exiting
    cdef object _aborting
    cdef object _loop               # None: not entered yet
    cdef object _parent_task
    cdef object _parent_cancel_requested
    cdef object _tasks              # a set of those that are not done
    cdef object _errors
    cdef object _base_error
    cdef object _on_completed_fut   # while __aexit__() waits for the tasks; else None
    cdef object _cancel_on_enter    # None before Python 3.15

    def __cinit__(self, *args, **kwargs):
        instance_dict_clear(self)
        clear_group_fields(self)


instance_dict_install(<PyTypeObject *>TaskGroupFields)
add_group_fields(<PyTypeObject *>TaskGroupFields)

cdef plain_class group_class


cdef bint is_plain_group(PyObject *group) noexcept:
    """Whether its class is TaskGroup itself, and its attributes are there and of the types that the constructor gave
    them."""
    return (
        is_unchanged(group, &group_class)
        and instance_dict_is_absent(<object>group)
        and group_fields_are_set(<object>group)
        and PySet_CheckExact((<TaskGroupFields>group)._tasks)
    )


cdef bint is_unharmed(TaskGroupFields group) noexcept:
    """Whether no task of a plain group has failed and the group was not cancelled."""
    return (
        group._aborting is False
        and group._parent_cancel_requested is False
        and group._base_error is None
        and PyList_CheckExact(group._errors)
        and not (<list>group._errors)
    )


cdef PyObject *init(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef TaskGroupFields group
    cdef object made_tasks, errors
    if count != 1 or keywords != NULL or not is_unchanged(arguments[0], &group_class):
        return NULL
    group = <TaskGroupFields>arguments[0]
    made_tasks, errors = set(), []
    if not fill_group_fields(group):
        return NULL
    group._entered = group._exiting = group._aborting = group._parent_cancel_requested = False
    group._loop = group._parent_task = group._base_error = group._on_completed_fut = None
    group._tasks = made_tasks
    group._errors = errors
    group._cancel_on_enter = False
    return Py_NewRef(None)


# -- entering ----------------------------------------------------------------------------------------------------------

cdef PyObject *enter(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if count != 1 or keywords != NULL or not is_plain_group(arguments[0]):
        return NULL
    return new_coroutine(enter_operation, <object>arguments[0], None)


cdef object enter_step(Coroutine coroutine, object outcome, object error):
    cdef object owner = coroutine.owner, loop, task
    cdef TaskGroupFields group
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if is_plain_group(<PyObject *>owner):
        group = owner
        if may_be_entered(group):
            loop = get_running_loop()
            task = None if loop is None else current_task(loop)
            # A running loop of another class may have been compared by any code.
            if task is not None and is_plain_group(<PyObject *>owner) and may_be_entered(group):
                group._loop = loop
                group._parent_task = task
                group._entered = True
                return group
    return delegate(coroutine, asyncio_enter(owner))


cdef inline bint may_be_entered(TaskGroupFields group) noexcept:
    """Whether a plain group is as the constructor left it, as far as entering it asks: dropping what it has runs no
    code then."""
    return (
        group._entered is False
        and group._loop is None
        and group._parent_task is None
        and (group._cancel_on_enter is False or group._cancel_on_enter is None)
    )


# -- creating tasks ----------------------------------------------------------------------------------------------------

cdef PyObject *create_task(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef PyObject *name = NULL
    cdef PyObject *context = NULL
    if (
        count != 2
        or not is_plain_group(arguments[0])
        or (keywords != NULL and not take_keywords(arguments + count, <tuple>keywords, &name, &context))
        or not accepts_tasks(<TaskGroupFields>arguments[0])
        or not is_coroutine(<object>arguments[1])
    ):
        return NULL
    return Py_NewRef(
        create(
            <TaskGroupFields>arguments[0],
            <object>arguments[1],
            None if name == NULL else <object>name,
            None if context == NULL else <object>context,
        )
    )


cdef bint take_keywords(PyObject **values, tuple names, PyObject **name, PyObject **context) noexcept:
    """False for any that are not of the usual kind."""
    cdef Py_ssize_t index
    for index in range(len(names)):
        if names[index] is NAME and (<object>values[index] is None or PyUnicode_CheckExact(<object>values[index])):
            name[0] = values[index]
        elif names[index] is CONTEXT and (<object>values[index] is None or PyContext_CheckExact(<object>values[index])):
            context[0] = values[index]
        else:
            return False
    return True


cdef bint accepts_tasks(TaskGroupFields group) noexcept:
    """Whether a plain group takes a task now, and its loop makes hotloop's."""
    cdef object parent = group._parent_task
    return (
        group._entered is True
        and group._aborting is False
        and (group._exiting is False or (group._exiting is True and PySet_GET_SIZE(group._tasks)))
        and type(parent) is Task
        and (<Task>parent).loop is group._loop
        and (<Task>parent).queue is not None
        and may_create_directly((<Task>parent).queue, group._loop)
    )


cdef Task create(TaskGroupFields group, object coro, object name, object context):
    cdef Task task = new_task(coro, group._loop, (<Task>group._parent_task).queue, name, context, False)
    cdef GroupCallback callback = GroupCallback.__new__(GroupCallback)
    cdef object unfinished
    callback.group = group
    callback.future = task
    callback.context = group.context = shared_context(group.context)
    if is_plain_group(<PyObject *>group):
        # Kept, because wait_for() allocates as well if the task has got a callback by now.
        unfinished = group._tasks
        task.wait_for(callback, waiting_task(group._parent_task))
        PySet_Add(unfinished, task)
    else:
        # An allocation has run the garbage collector, and with it any code.
        task.add_done_callback((<object>group)._on_task_done)
        (<object>group)._tasks.add(task)
    return task


# -- the end of a task -------------------------------------------------------------------------------------------------

@cython.no_gc_clear
cdef class GroupCallback(DoneCallback):
    """In place of the bound method `_on_task_done`."""
    cdef TaskGroupFields group

    cdef bint act(self) except -1:
        cdef object waited
        if self.group.context is self.context:
            # A group that lives on must not keep what is in it.
            self.group.context = None
        if not is_plain_group(<PyObject *>self.group):
            return False
        waited = self.group._on_completed_fut
        if waited is not None and not (
            type(waited) is Future
            and (<Future>waited).queue is not None
            and may_queue_directly((<Future>waited).queue, (<Future>waited).loop)
        ):
            return False
        return task_is_done(self.group, self.future)

    cdef object function(self):
        return PyMethod_New(on_task_done_function, self.group)


free_memory_install(<PyTypeObject *>GroupCallback)


cdef bint task_is_done(TaskGroupFields group, Future task) except -1:
    """_on_task_done(), for a plain group and a task that has not failed; else False."""
    if task.error is not None and state_of(task) != CANCELLED:
        return False
    PySet_Discard(group._tasks, task)
    if future_discard_from_awaited_by is not None and not is_plain_group(<PyObject *>group):
        future_discard_from_awaited_by(task, (<object>group)._parent_task)
    end_wait_if_last(group)
    return True


cdef int end_wait_if_last(object group) except -1:
    """The end of _on_task_done(), for any group: the set may have compared the task with an object of the program's,
    which may run any code."""
    cdef object waited
    if is_plain_group(<PyObject *>group):
        waited = (<TaskGroupFields>group)._on_completed_fut
        if waited is not None and not PySet_GET_SIZE((<TaskGroupFields>group)._tasks) and not is_done(waited):
            wake(waited, True)
    elif group._on_completed_fut is not None and not group._tasks:
        if not group._on_completed_fut.done():
            group._on_completed_fut.set_result(True)
    return 0


cdef PyObject *on_task_done(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    cdef object task
    if count != 2 or keywords != NULL or not is_plain_group(arguments[0]):
        return NULL
    task = <object>arguments[1]
    if type(task) is Task:
        return Py_NewRef(None) if task_is_done(<TaskGroupFields>arguments[0], <Task>task) else NULL
    if type(task) is AsyncioTask:
        return Py_NewRef(None) if asyncio_task_is_done(<TaskGroupFields>arguments[0], task) else NULL
    return NULL


cdef inline bint is_true(PyCFunction method, object task) except -1:
    return steal(method(<PyObject *>task, NULL)) is True


cdef bint asyncio_task_is_done(TaskGroupFields group, object task) except -1:
    """task_is_done(), for a task of asyncio's own class: on another loop, or made by a task factory."""
    cdef bint has_ended
    if asyncio_task_done != NULL and asyncio_task_cancelled != NULL and has_no_own_attributes(task):
        has_ended = is_true(asyncio_task_done, task) and (
            is_true(asyncio_task_cancelled, task) or task.exception() is None
        )
    else:
        has_ended = task.done() and (task.cancelled() or task.exception() is None)
        if not is_plain_group(<PyObject *>group):
            return False
    if not has_ended:
        return False
    PySet_Discard(group._tasks, task)
    if future_discard_from_awaited_by is not None:
        future_discard_from_awaited_by(task, (<object>group)._parent_task)
    end_wait_if_last(group)
    return True


# -- leaving -----------------------------------------------------------------------------------------------------------
#
# Since 3.13.2, and 3.14, __aexit__() awaits _aexit(), and clears attributes at its end.

cdef enum:
    WAITING = 1

# Where advance() has got to.
cdef enum Place:
    AWAITS      # at an `await`, which the step function returns
    ENDED       # all tasks have ended, and none has failed
    FAILED      # all tasks have ended, and some have failed
    UNUSUAL     # where it was: asyncio's own code is to go on from there


cdef class Handover:
    """What the compiled _aexit() returns where asyncio's code is to go on."""
    cdef Place place
    cdef object error           # which was raised at its `await`, or None


cdef PyObject *leave(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL:
    if (
        count != 4
        or keywords != NULL
        or <object>arguments[1] is not None
        or <object>arguments[2] is not None
        or <object>arguments[3] is not None
        or not is_plain_group(arguments[0])
        # Beside tasks of asyncio's nothing is gained, and to hand over to asyncio's code costs more than it.
        or type((<TaskGroupFields>arguments[0])._parent_task) is not Task
    ):
        return NULL
    return new_coroutine(leave_operation, <object>arguments[0], None)


cdef object leave_step(Coroutine coroutine, object outcome, object error):
    """__aexit__() that awaits the tasks itself."""
    cdef Place place
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    place = advance(coroutine, coroutine.owner, error)
    if place == AWAITS:
        return None
    if place == ENDED:
        return result_of_leaving
    return delegate(coroutine, asyncio_leave_at(coroutine.position, coroutine.owner, place, error))


cdef object outer_step(Coroutine coroutine, object outcome, object error):
    """__aexit__() that awaits _aexit()."""
    cdef object group = coroutine.owner
    cdef Handover handover
    if coroutine.position < 0:
        return delegated(coroutine, outcome, error)
    if coroutine.position == WAITING:
        if isinstance(error, GeneratorExit):
            # A coroutine closes what it awaits, and then raises it.
            return asyncio_leave_at(WAITING, group, UNUSUAL, None).throw(error)
        if error is not None:
            return delegate(coroutine, asyncio_leave_at(WAITING, group, UNUSUAL, error))
        if type(outcome) is Handover:
            handover = outcome
            return delegate(coroutine, asyncio_leave_at(WAITING, group, handover.place, handover.error))
        group._parent_task = group._errors = group._base_error = None
        return outcome
    if not is_plain_group(<PyObject *>group) or not is_unharmed(group):
        return delegate(coroutine, asyncio_leave(group, None, None, None))
    coroutine.position = WAITING
    return await_object(coroutine, steal(new_coroutine(inner_operation, group, None)))


cdef object inner_step(Coroutine coroutine, object outcome, object error):
    """_aexit()."""
    cdef Handover handover
    cdef Place place = advance(coroutine, coroutine.owner, error)
    if place == AWAITS:
        return None
    if place == ENDED:
        return result_of_leaving
    handover = Handover.__new__(Handover)
    handover.place = place
    handover.error = error
    return handover


cdef Place advance(Coroutine coroutine, object owner, object error) except *:
    """Go on to the next `await` or the end."""
    cdef TaskGroupFields group
    cdef Place place
    cdef object waited, _dropped    # kept to the end: the program may have set any object, with any finalizer
    if not is_plain_group(<PyObject *>owner):
        return UNUSUAL
    group = owner
    if error is None and is_unharmed(group):
        pass
    elif coroutine.position != WAITING or not may_go_on(group, error):
        return UNUSUAL
    if coroutine.position == WAITING:
        _dropped = group._on_completed_fut
        group._on_completed_fut = None
    else:
        _dropped = group._exiting
        group._exiting = True
    if not PySet_GET_SIZE(group._tasks):
        place = ENDED if is_unharmed(group) else FAILED
        group.context = None
        return place
    waited = group._on_completed_fut
    if waited is None:
        waited = group._loop.create_future()
        (<object>group)._on_completed_fut = waited
    coroutine.position = WAITING
    await_object(coroutine, waited)
    return AWAITS


cdef bint may_go_on(TaskGroupFields group, object error) except -1:
    """Whether asyncio's code would wait for the next task: one has failed, and the parent task was cancelled for it."""
    return (
        may_start_anew
        and group._aborting is True
        and PyList_CheckExact(group._errors)
        and <list>group._errors
        and (error is None or type(error) is CancelledError)
    )


cdef object asyncio_leave_at(int position, object group, Place place, object error):
    """asyncio's own __aexit__(), which goes on from the same place when it is resumed, with the error if there is one.

    Where it still has to await something, it gets to its `await` on stand-ins: what it does until then has been
    done."""
    cdef object coroutine = asyncio_leave(group, None, None, None)
    cdef Future stand_in
    if position != WAITING or place == FAILED:
        return coroutine
    stand_in = new_future(NO_LOOP, None)
    if is_plain_group(<PyObject *>group):
        start_plain(group, coroutine, stand_in)
    else:
        start(group, coroutine, stand_in)
    stand_in.blocking = False
    if error is None:
        stand_in.finish(True)
    else:
        stand_in.fail(error)
    return coroutine


cdef int start_plain(TaskGroupFields group, object coroutine, Future stand_in) except -1:
    cdef object unfinished = group._tasks, waited = group._on_completed_fut, requested = group._parent_cancel_requested
    group._tasks = STAND_INS
    group._on_completed_fut = stand_in
    group._parent_cancel_requested = False
    try:
        coroutine.send(None)
    finally:
        # A trace function may have run any code.
        (<object>group)._tasks = unfinished
        (<object>group)._on_completed_fut = waited
        (<object>group)._parent_cancel_requested = requested
    return 0


cdef int start(object group, object coroutine, Future stand_in) except -1:
    """The same for a group that is not plain: the program may have deleted attributes, and overridden _aexit() since
    __aexit__() called it."""
    cdef dict kept = {name: getattr(group, name) for name in STOOD_IN_FOR if hasattr(group, name)}
    cdef dict attributes = group.__dict__
    if asyncio_inner is not None:
        if INNER in attributes:
            kept[INNER] = attributes[INNER]
        attributes[INNER] = PyMethod_New(asyncio_inner, group)
    group._tasks = STAND_INS
    group._on_completed_fut = stand_in
    group._parent_cancel_requested = False
    try:
        coroutine.send(None)
    finally:
        for name in STOOD_IN_FOR:
            if name in kept:
                setattr(group, name, kept[name])
            else:
                delattr(group, name)
        if INNER in kept:
            attributes[INNER] = kept[INNER]
        else:
            attributes.pop(INNER, None)
    return 0


# Whether __aexit__() may begin again once all tasks have ended: up to 3.12 it uncancels the parent task at its start.
# After a failure, a CancelledError that it gets while it waits changes nothing.
cdef bint may_start_anew = sys.version_info >= (3, 13)


def find_result_of_leaving():
    """What asyncio's own __aexit__() returns for a group without tasks."""
    try:
        AsyncioTaskGroup().__aexit__(None, None, None).send(None)
    except StopIteration as stopped:
        result = stopped.value
    return result


cdef object NO_LOOP = object()     # nothing ever waits for the future that has it
cdef set STAND_INS = {None}
cdef object INNER = "_aexit"
cdef tuple STOOD_IN_FOR = ("_tasks", "_on_completed_fut", "_parent_cancel_requested")
cdef object result_of_leaving = find_result_of_leaving()
cdef object asyncio_enter = AsyncioTaskGroup.__aenter__
cdef object asyncio_leave = AsyncioTaskGroup.__aexit__
cdef object asyncio_inner = getattr(AsyncioTaskGroup, "_aexit", None)
cdef Operation enter_operation = new_operation(enter_step, asyncio_enter)
cdef Operation leave_operation = new_operation(leave_step if asyncio_inner is None else outer_step, asyncio_leave)
cdef Operation inner_operation = new_operation(inner_step, asyncio_inner)
cdef object on_task_done_function = compiled_function(AsyncioTaskGroup._on_task_done, on_task_done)


def make_task_group():
    """The compiled class; asyncio's own if that has other attributes than expected."""
    expected = set(TaskGroupFields.__slots__)
    if set(vars(AsyncioTaskGroup())) != expected:
        return AsyncioTaskGroup
    return compiled_class(
        TaskGroupFields,
        AsyncioTaskGroup,
        __init__=compiled_function(AsyncioTaskGroup.__init__, init),
        __aenter__=compiled_function(asyncio_enter, enter),
        __aexit__=compiled_function(asyncio_leave, leave),
        create_task=compiled_function(AsyncioTaskGroup.create_task, create_task),
        _on_task_done=on_task_done_function,
    )


TaskGroup = make_task_group()
plain_class_record(&group_class, TaskGroup)
remove_constructor(<PyTypeObject *>GroupCallback)
