from cpython.object cimport PyObject

from hotloop._c.highlevel.plain_class cimport plain_class

# Does the call, or returns NULL without an exception where it does not apply: then asyncio's own function is called.
ctypedef PyObject *(*short_cut)(PyObject **arguments, Py_ssize_t count, PyObject *keywords) except? NULL

cdef extern from *:
    """
    typedef PyObject *(*short_cut_function)(PyObject **, Py_ssize_t, PyObject *);

    typedef struct {
        PyObject_HEAD
        vectorcallfunc call;
        short_cut_function applied; /* by compiled_function_call() alone */
        struct coroutine_arguments {
            const void *operation;
            const plain_class *known;
            unsigned int relied_on;
            Py_ssize_t count;
        } coroutine; /* see coroutine_method() */
        int is_bound_by_async_with; /* it is an __aenter__() or __aexit__() */
        PyObject *function; /* asyncio's own; owned */
        PyObject *attributes; /* the instance's __dict__: owned; NULL: none was set */
        PyObject *weak_references;
    } compiled_function_object;
    """
    ctypedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *) noexcept
    ctypedef struct coroutine_arguments "struct coroutine_arguments":
        const void *operation
        const plain_class *known
        unsigned int relied_on
        Py_ssize_t count
    ctypedef struct compiled_function_object:
        short_cut applied
        coroutine_arguments coroutine
        PyObject *function

cdef object compiled_function(object function, short_cut applied)
cdef object new_compiled_function(object function, vectorcallfunc call)
