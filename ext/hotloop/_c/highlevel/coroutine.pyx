"""Coroutine: what a compiled `async def` returns. It does nothing until its first send(), and is then resumed through
am_send or tp_iternext, without a frame.

A Python coroutine keeps its place in a frame. A compiled one is a step function, which is called once for each stretch
between two `await`s, and the few fields that it needs in between; step_ends.pyx has what a step function can do at the
end of such a stretch. asyncio's own function of the same name is at hand for everything that is seldom needed: its
name, code and lines, a frame for stack traces, and the work itself, where a step function cannot know that a short cut
is right (delegate()).
"""

cimport cython
from cpython.mem cimport PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject

from hotloop._c.highlevel.awaiting cimport raise_again, throw_into, without_stop_iteration
from hotloop._c.highlevel.compiled_function cimport compiled_function_object, new_compiled_function, vectorcallfunc
from hotloop._c.highlevel.constructor cimport PyVectorcall_NARGS
from hotloop._c.highlevel.coroutine_iterator cimport new_iterator
from hotloop._c.highlevel.plain_class cimport class_keeps_names, plain_class
from hotloop._c.highlevel.waiters cimport is_our_future
from hotloop._c.runtime.python_api cimport Py_REFCNT
from hotloop._c.runtime.recycling cimport free_objects_acquire, free_objects_install
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.runtime.send_slots cimport (
    PYGEN_ERROR,
    PYGEN_NEXT,
    PYGEN_RETURN,
    PyIter_Send,
    PySendResult,
    install_send_slots,
    raise_set_error,
    sendfunc,
)
from hotloop._c.tasks.future cimport Future
from hotloop._c.tasks.future_core cimport FINISHED, PENDING, state_of
from hotloop._c.tasks.stop_iteration cimport end_iteration
from hotloop._c.tasks.thrown_exceptions cimport (
    exception_matches,
    exception_to_throw,
    is_exception,
    is_exception_class,
    refuses_before_it_looks,
    warn_of_signature,
)

cdef extern from *:
    """
    #include "highlevel/await_slots.h"
    #include "runtime/error_indicator.h"
    #include "runtime/recycling.h"

    #define COROUTINE struct __pyx_obj_7hotloop_2_c_9highlevel_9coroutine_Coroutine

    /* coroutine.owner = owner, where it is None. */
    #define fill_owner(coroutine, new_owner) ({ \\
        PyObject *none = ((COROUTINE *)(coroutine))->owner; \\
 \\
        ((COROUTINE *)(coroutine))->owner = Py_NewRef(new_owner); \\
        Py_DECREF(none); \\
    })
    """
    void fill_owner(PyObject *coroutine, PyObject *new_owner) noexcept
    ctypedef PyObject *(*unaryfunc)(PyObject *)
    int running_code_flags() noexcept
    ctypedef PyObject *(*PyCFunction)(PyObject *, PyObject *)
    int complete_coroutine_type(
        PyTypeObject *, unaryfunc await, unaryfunc iterate, PyCFunction method
    ) except -1
    int origin_tracking_depth() noexcept
    object take_set_error()     # the exception that the error indicator holds, which is cleared
    object with_context(object error)

cdef extern from "Python.h":
    PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *) except NULL

cdef extern from "highlevel/kept_stop_iteration.h":
    bint kept_stop_set(object value) noexcept
    void kept_stop_release() noexcept
    bint kept_stop_has_context

import inspect
import sys
import types
import warnings

from hotloop._asyncio import coroutine_results
from hotloop._asyncio.coroutine_frames import bare_yield, creation_origin, stand_in

kept_stop_has_context = coroutine_results.stop_iteration_has_context

# Functions whose errors are to stay in the error indicator are called by pointers of these types.
ctypedef PySendResult (*run_function)(Coroutine, object, object, PyObject **) noexcept
ctypedef PySendResult (*throw_function)(object, object, PyObject **) noexcept
ctypedef PyObject *(*refusal_function)(Coroutine) noexcept

# Whether a StopIteration that is thrown into a coroutine before its first step becomes a RuntimeError.
cdef bint checks_first_throw = sys.version_info < (3, 12)
cdef bint close_returns_value = sys.version_info >= (3, 13)
cdef object CoroutineType = types.CoroutineType
cdef object warn_unawaited = warnings._warn_unawaited_coroutine
# What `cr_state` says, in Progress's order.
cdef tuple STATES = (inspect.CORO_CREATED, inspect.CORO_SUSPENDED, inspect.CORO_RUNNING, inspect.CORO_CLOSED)
BARE_YIELD = object()
FAILED = object()


cdef Operation new_operation(
    step_function step, object function, at_once_function at_once=NULL, Operation inner=NULL
) except NULL:
    cdef Operation operation = <Operation>PyMem_Malloc(sizeof(OperationFields))
    if operation == NULL:
        raise MemoryError
    operation.step = step
    operation.at_once = at_once
    operation.inner = inner
    operation.function = Py_NewRef(function)
    return operation


cdef PyObject *new_coroutine(Operation operation, object owner, object argument) except NULL:
    return make_coroutine(operation, <PyObject *>owner, <PyObject *>argument)


cdef inline PyObject *make_coroutine(Operation operation, PyObject *owner, PyObject *argument) except NULL:
    cdef PyObject *made = free_objects_acquire()
    if made == NULL:
        made = Py_NewRef(Coroutine.__new__(Coroutine))
    (<Coroutine>made).operation = operation
    fill_owner(made, owner)
    if argument != <PyObject *>None:
        (<Coroutine>made).argument = <object>argument
    (<Coroutine>made).progress = CREATED
    return with_origin(<Coroutine>steal(made)) if origin_tracking_depth() else made


cdef object coroutine_method(
    object function, Operation operation, Py_ssize_t count, const plain_class *known, unsigned int relied_on=0
):
    """A method whose calls make a compiled coroutine where they can, and else go to asyncio's `function`.

    They can with `count` arguments, the object included, and no keywords, on an object of the class `known` or of a
    subclass that replaces none of the names `relied_on`. The one argument beside the object is the coroutine's; the
    three of __aexit__() are dropped."""
    cdef object method = new_compiled_function(function, <vectorcallfunc>call_coroutine_method)
    cdef compiled_function_object *made = <compiled_function_object *>method
    made.coroutine.operation = operation
    made.coroutine.known = known
    made.coroutine.relied_on = relied_on
    made.coroutine.count = count
    return method


cdef PyObject *call_coroutine_method(
    PyObject *method, PyObject *const *arguments, size_t count, PyObject *keywords
) except NULL:
    cdef compiled_function_object *called = <compiled_function_object *>method
    if (
        PyVectorcall_NARGS(count) != called.coroutine.count
        or keywords != NULL
        or not class_keeps_names(arguments[0], called.coroutine.known, called.coroutine.relied_on)
    ):
        return PyObject_Vectorcall(called.function, arguments, count, keywords)
    return make_coroutine(
        <Operation>called.coroutine.operation,
        arguments[0],
        arguments[1] if called.coroutine.count == 2 else <PyObject *>None,
    )


cdef PyObject *with_origin(Coroutine coroutine) except NULL:
    """A new reference to it; its `cr_origin` is set."""
    coroutine.origin = creation_origin(origin_tracking_depth())
    return Py_NewRef(coroutine)


cdef bint is_spent(PyObject *coroutine) noexcept:
    """True if __del__() has nothing to do."""
    return (<Coroutine>coroutine).progress == CLOSED


cdef void empty(PyObject *object_) noexcept:
    cdef Coroutine coroutine = <Coroutine>object_
    kept_stop_release()
    # finish() has emptied the rest, and the operation is replaced by the next one.
    if coroutine.name is not None:
        coroutine.name = None
    if coroutine.qualified_name is not None:
        coroutine.qualified_name = None
    if coroutine.origin is not None:
        coroutine.origin = None


@cython.final
@cython.no_gc_clear
cdef class Coroutine:
    """A coroutine object. isinstance() says that it is a types.CoroutineType.

    It has no tp_clear, just as Python's own have none: a step function relies on what the steps before it have left."""

    def __cinit__(self):
        self.progress = CLOSED

    def __dealloc__(self):
        kept_stop_release()

    def __del__(self):
        if self.progress == CREATED:
            # The warning may keep the coroutine as its source, and then it can still be awaited.
            warn_unawaited(self)
        elif self.progress == SUSPENDED:
            self.close()

    @property
    def __class__(self):
        # isinstance() asks for it if the type itself does not match.
        return CoroutineType

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t><PyObject *>self:#x}>"

    cdef int finish(self) except -1:
        """The coroutine has ended: give up what it holds, as a frame does."""
        self.progress = CLOSED
        self.position = 0
        self.owner = None
        if self.argument is not None:
            self.argument = None
        if self.extra is not None:
            self.extra = None
        if self.awaiting is not None:
            self.awaiting = None
        if self.shown is not None:
            self.shown = None
        return 0

    cdef int unmerge(self) except -1:
        """Make the coroutine that await_merged() has not made, and await that one."""
        cdef Coroutine inner = <Coroutine>steal(new_coroutine(self.operation.inner, self.argument, None))
        inner.origin = None
        inner.extra = self.extra
        inner.awaiting = self.awaiting
        inner.position = 1
        inner.progress = SUSPENDED
        self.argument = self.extra = None
        self.awaiting = inner
        self.position = DELEGATED - self.position
        return 0

    def send(self, value, /):
        """Resume the coroutine: return what it yields, or raise StopIteration with its result. See coroutine.send()."""
        cdef PyObject *result = NULL
        cdef PySendResult status = resume(self, value, None, &result)
        return yielded_or_stop(status, steal(result))

    def throw(self, *arguments):
        """Raise an exception where the coroutine waits. See coroutine.throw()."""
        cdef PyObject *result = NULL
        cdef PySendResult status = resume(self, None, thrown(self, arguments), &result)
        return yielded_or_stop(status, steal(result))

    def close(self):
        """Raise GeneratorExit where the coroutine waits. See coroutine.close()."""
        cdef PyObject *result = NULL
        cdef PySendResult status
        if self.progress == CLOSED:
            return None
        if self.progress == CREATED:
            self.finish()
            return None
        try:
            status = resume(self, None, GeneratorExit(), &result)
        except GeneratorExit:
            status = PYGEN_ERROR
        if status == PYGEN_ERROR:
            return None
        value = steal(result)
        if status == PYGEN_NEXT:
            raise RuntimeError("coroutine ignored GeneratorExit")
        return value if close_returns_value else None

    # -- what inspect, asyncio's debug mode, stack traces and call graphs ask for --------------------------------------

    @property
    def __name__(self):
        return (<object>self.operation.function).__name__ if self.name is None else self.name

    @__name__.setter
    def __name__(self, value):
        if not isinstance(value, str):
            raise TypeError("__name__ must be set to a string object")
        self.name = value

    @__name__.deleter
    def __name__(self):
        raise TypeError("__name__ must be set to a string object")

    @property
    def __qualname__(self):
        return (<object>self.operation.function).__qualname__ if self.qualified_name is None else self.qualified_name

    @__qualname__.setter
    def __qualname__(self, value):
        if not isinstance(value, str):
            raise TypeError("__qualname__ must be set to a string object")
        self.qualified_name = value

    @__qualname__.deleter
    def __qualname__(self):
        raise TypeError("__qualname__ must be set to a string object")

    @property
    def cr_await(self):
        """What it waits for, as an iterator; or None."""
        if self.position == DELEGATED:
            return getattr(self.awaiting, "cr_await", None)
        if self.awaiting is BARE_YIELD:
            return bare_yield()
        if is_merged(self) and self.progress == SUSPENDED:
            self.unmerge()
        return iter(self.awaiting) if is_our_future(self.awaiting) else self.awaiting

    @property
    def cr_code(self):
        """The code of asyncio's own function."""
        return (<object>self.operation.function).__code__

    @property
    def cr_frame(self):
        """A frame of asyncio's own function, at the line where the coroutine is; None if it has ended."""
        if self.progress == CLOSED:
            return None
        if self.position == DELEGATED:
            return getattr(self.awaiting, "cr_frame", None)
        if is_merged(self) and self.progress == SUSPENDED:
            self.unmerge()
        awaits = max(self.position, 1) if self.progress == SUSPENDED else 0
        if self.shown is None or self.shown_at != awaits:
            shown = stand_in((<object>self.operation.function), (self.owner, self.argument), awaits)
            if self.progress == CLOSED:
                # A trace function has ended it.
                return None
            self.shown = shown
            self.shown_at = awaits
        return self.shown.cr_frame

    @property
    def cr_origin(self):
        return self.origin

    @property
    def cr_running(self):
        return self.progress == RUNNING

    @property
    def cr_suspended(self):
        return self.progress == SUSPENDED

    @property
    def cr_state(self):
        """Since Python 3.15: see complete_coroutine_type()."""
        return STATES[<int>self.progress]


cdef object thrown(Coroutine coroutine, tuple arguments):
    """The exception for throw(*arguments)."""
    cdef object kind, value, traceback
    cdef object error
    if not arguments:
        raise TypeError("throw expected at least 1 argument, got 0")
    if len(arguments) > 3:
        raise TypeError(f"throw expected at most 3 arguments, got {len(arguments)}")
    kind = arguments[0]
    value = arguments[1] if len(arguments) > 1 else None
    traceback = arguments[2] if len(arguments) > 2 else None
    if refuses_before_it_looks and coroutine.progress in (RUNNING, CLOSED):
        if len(arguments) > 1:
            warn_of_signature()
        check_first_step(coroutine, None, None)
    if coroutine.progress != SUSPENDED:
        if not is_exception(kind) and not is_exception_class(kind):
            raise TypeError(
                f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}"
            )
        return exception_to_throw(kind, value, traceback)
    # What is awaited gets the arguments, and the coroutine the errors that they cause.
    try:
        error = exception_to_throw(kind, value, traceback)
    except BaseException as wrong:
        error = wrong
    return error


cdef object yielded_or_stop(PySendResult status, object value):
    """For send() and throw(): what was yielded; raises StopIteration with what was returned."""
    if status == PYGEN_NEXT:
        return value
    if value is None:
        raise StopIteration
    end_iteration(value)
    raise_set_error()


cdef PySendResult resume(Coroutine coroutine, object value, object error, PyObject **result) except PYGEN_ERROR:
    """Run the coroutine to where it yields or ends."""
    if coroutine.progress != SUSPENDED:
        if coroutine.progress != CREATED or value is not None or error is not None:
            check_first_step(coroutine, value, error)
        result[0] = result_at_once(coroutine)
        if result[0] != NULL:
            return PYGEN_RETURN
    return run_and_tell(coroutine, value, error, result)


cdef inline PyObject *result_at_once(Coroutine coroutine) noexcept:
    """Run a coroutine that was not begun, if it need not wait: a new reference to its result; else NULL."""
    cdef PyObject *result = NULL
    if coroutine.operation.at_once != NULL:
        result = coroutine.operation.at_once(<PyObject *>coroutine.owner)
    if result != NULL:
        # As finish() does, of what may be there before the first step.
        coroutine.progress = CLOSED
        coroutine.owner = None
        if coroutine.argument is not None:
            coroutine.argument = None
        if coroutine.shown is not None:
            coroutine.shown = None
    return result


cdef PySendResult run_and_tell(
    Coroutine coroutine, object value, object error, PyObject **result
) except PYGEN_ERROR:
    """run(), and what `progress` says meanwhile and afterwards."""
    cdef PySendResult status
    coroutine.progress = RUNNING
    status = (<run_function>run)(coroutine, value, error, result)
    if status == PYGEN_NEXT:
        coroutine.progress = SUSPENDED
    elif status == PYGEN_RETURN:
        coroutine.finish()
    else:
        end_with_error(coroutine)
    return status


cdef PySendResult run(Coroutine coroutine, object value, object error, PyObject **result) except PYGEN_ERROR:
    cdef object awaited, outcome
    cdef PyObject *yielded
    cdef PySendResult status
    while True:
        awaited = coroutine.awaiting
        outcome = None
        if awaited is None:
            pass
        elif awaited is BARE_YIELD:
            coroutine.awaiting = None
            if error is not None:
                error = without_stop_iteration(error, "generator raised StopIteration")
        elif is_our_future(awaited):
            if error is None:
                if state_of(<Future>awaited) == PENDING:
                    if not (<Future>awaited).blocking:
                        (<Future>awaited).blocking = True
                        result[0] = Py_NewRef(awaited)
                        return PYGEN_NEXT
                    error = with_context(RuntimeError("await wasn't used with future"))
                elif state_of(<Future>awaited) == FINISHED and (<Future>awaited).error is None:
                    outcome = (<Future>awaited).value
                else:
                    error = with_context((<Future>awaited).take_error())
            elif exception_matches(error, StopIteration):
                # Thrown into an iterator, it is the iterator's result.
                outcome = error.value
                error = None
            coroutine.awaiting = None
        elif awaited is FAILED:
            error = coroutine.failure
            coroutine.awaiting = coroutine.failure = None
        else:
            yielded = NULL
            if error is None:
                status = PyIter_Send(<PyObject *>awaited, <PyObject *>value, &yielded)
            else:
                status = (<throw_function>throw_into)(awaited, error, &yielded)
            if status == PYGEN_NEXT:
                result[0] = yielded
                return PYGEN_NEXT
            coroutine.awaiting = error = None
            if status == PYGEN_RETURN:
                outcome = steal(yielded)
            else:
                error = take_set_error()
        outcome = coroutine.operation.step(coroutine, outcome, error)
        awaited = coroutine.awaiting
        if awaited is None:
            result[0] = Py_NewRef(outcome)
            return PYGEN_RETURN
        if awaited is BARE_YIELD:
            result[0] = Py_NewRef(None)
            return PYGEN_NEXT
        value = error = None


cdef int check_first_step(Coroutine coroutine, object value, object error) except -1:
    """Raise what send() and throw() raise where the coroutine is not suspended, and may not begin."""
    if coroutine.progress == RUNNING:
        raise ValueError("coroutine already executing")
    if coroutine.progress == CLOSED:
        raise RuntimeError("cannot reuse already awaited coroutine")
    if error is not None:
        coroutine.finish()
        if checks_first_throw:
            error = without_stop_iteration(error, "coroutine raised StopIteration")
        raise_again(error)
    if value is not None:
        raise TypeError("can't send non-None value to a just-started coroutine")
    return 0


cdef int end_with_error(Coroutine coroutine) except -1:
    """The coroutine has ended with the exception that is set. Giving up what it holds may run any code."""
    cdef object error = take_set_error()
    coroutine.finish()
    raise_again(without_stop_iteration(error, "coroutine raised StopIteration"))


cdef PySendResult send(PyObject *coroutine, PyObject *value, PyObject **result) except PYGEN_ERROR:
    return resume(<Coroutine>coroutine, None if value == NULL else <object>value, None, result)


cdef PyObject *next_slot(PyObject *coroutine) noexcept:
    """The tp_iternext slot."""
    cdef PyObject *result = NULL
    if (<Coroutine>coroutine).progress == CREATED:
        result = result_at_once(<Coroutine>coroutine)
        if result != NULL:
            return stop_with(coroutine, steal(result))
    elif (<Coroutine>coroutine).progress != SUSPENDED:
        return (<refusal_function>refuse_to_go_on)(<Coroutine>coroutine)
    if (<run_function>run_and_tell)(<Coroutine>coroutine, None, None, &result) == PYGEN_RETURN:
        return stop_with(coroutine, steal(result))
    return result


cdef inline PyObject *stop_with(PyObject *coroutine, object value) noexcept:
    """Set the error indicator to StopIteration(value), and return NULL."""
    if value is None or Py_REFCNT(coroutine) > 1 or not kept_stop_set(value):
        end_iteration(value)
    return NULL


cdef PyObject *refuse_to_go_on(Coroutine coroutine) except? NULL:
    check_first_step(coroutine, None, None)
    return NULL


cdef object iterated(Coroutine coroutine):
    """The tp_iter slot: `yield from`, or iter()."""
    cdef int flags = running_code_flags()
    if flags & (inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE):
        return coroutine
    if flags & inspect.CO_GENERATOR:
        raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
    raise TypeError("'coroutine' object is not iterable")


complete_coroutine_type(<PyTypeObject *>Coroutine, <unaryfunc>awaited, <unaryfunc>iterated, <PyCFunction>new_iterator)
install_send_slots(<PyTypeObject *>Coroutine, <sendfunc>send, next_slot)
free_objects_install(<PyTypeObject *>Coroutine, is_spent, empty)
