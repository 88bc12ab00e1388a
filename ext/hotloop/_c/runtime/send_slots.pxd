"""The am_send and tp_iternext slots, through which the interpreter resumes what is awaited. All of it is in a .pxd, so
that every module compiles it inline."""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) noexcept
    ctypedef PyObject *(*iternextfunc)(PyObject *) noexcept
    PySendResult PyIter_Send(PyObject *, PyObject *, PyObject **) noexcept

cdef extern from *:
    """
    /* To be called before the first instance exists.
     *
     * Cython has no special method for am_send, and its __next__ cannot return a value without raising. The interpreter
     * drives `await` through the one slot or the other, depending on its version. */
    static inline void install_send_slots(PyTypeObject *type, sendfunc send, iternextfunc next)
    {
        type->tp_as_async->am_send = send;
        type->tp_iternext = next;
        PyType_Modified(type);
    }

    /* The error indicator is set: have Cython raise it. */
    static inline int raise_set_error(void) { return -1; }
    """
    void install_send_slots(PyTypeObject *, sendfunc, iternextfunc)
    int raise_set_error() except -1
