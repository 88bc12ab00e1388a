cimport cython
from cpython.object cimport PyObject

from hotloop._c.highlevel.plain_class cimport plain_class

# One step of a compiled coroutine: from where it was resumed to its next `await` or its end. `outcome` and `error` are
# what the awaited object returned or raised; at the first step both are None. At its end the function returns what one
# of the functions in step_ends.pyx returns, or the coroutine's result, or it raises.
ctypedef object (*step_function)(Coroutine coroutine, object outcome, object error)

# A whole coroutine that need not wait: returns a new reference to its result. NULL, never with an exception: nothing
# was done, and the step function is to begin. It neither runs code of the program's nor handles exceptions by `try`.
ctypedef PyObject *(*at_once_function)(PyObject *owner) noexcept

cdef extern from "Python.h":
    bint PyCoro_CheckExact(object)

# What `awaiting` has where asyncio's code has a `yield` without a value, and after an await_object() that has failed.
cdef object BARE_YIELD, FAILED

# The `position` after delegate().
cdef enum:
    DELEGATED = -1

cdef enum Progress:
    CREATED
    SUSPENDED
    RUNNING
    CLOSED


# What all coroutines of one function have in common. Operations are never freed, so coroutines borrow them.
cdef struct OperationFields:
    step_function step
    at_once_function at_once        # tried before the first step; NULL: there is none
    OperationFields *inner          # of the coroutine that an await_merged() one awaits; NULL: no coroutine is merged
    PyObject *function              # asyncio's own coroutine function, which does the same; owned

ctypedef OperationFields *Operation


@cython.final
cdef class Coroutine:
    cdef object __weakref__
    cdef Operation operation
    cdef object owner               # the arguments, the first one mostly `self`; None: there is none, or it has ended
    cdef object argument            # while it is merged: the owner of the coroutine that it awaits
    cdef object extra               # what the step function keeps between steps
    # A Future, the iterator of another awaitable, BARE_YIELD or FAILED; None: nothing.
    cdef object awaiting
    cdef object failure             # the exception that kept await_object() from an iterator, for the next step
    cdef object name                # None: the function's
    cdef object qualified_name
    cdef object origin              # where it was created, if sys.set_coroutine_origin_tracking_depth() asks for it
    cdef object shown               # whose frame it shows, see stand_in(); None: none was asked for
    cdef int shown_at               # at which `await` that is
    cdef int position               # at which `await` of `function` it is, from 1 on; 0: before it, or at the first;
    #                                 negative: DELEGATED, or less while it is merged, see await_merged()
    cdef Progress progress

    cdef int finish(self) except -1
    cdef int unmerge(self) except -1


cdef Operation new_operation(
    step_function step, object function, at_once_function at_once=?, Operation inner=?
) except NULL
cdef PyObject *new_coroutine(Operation operation, object owner, object argument) except NULL   # a new reference
cdef object coroutine_method(
    object function, Operation operation, Py_ssize_t count, const plain_class *known, unsigned int relied_on=?
)


cdef inline bint is_merged(Coroutine coroutine) noexcept:
    """Whether await_merged() was the last step, and unmerge() was not called since."""
    return coroutine.position < DELEGATED


cdef inline object awaited(Coroutine coroutine):
    """The am_await slot."""
    if coroutine.awaiting is not None:
        raise RuntimeError("coroutine is being awaited already")
    return coroutine


cdef inline bint is_coroutine(object candidate) noexcept:
    """Whether it is a coroutine object, Python's own or a compiled one."""
    return PyCoro_CheckExact(candidate) or type(candidate) is Coroutine
