"""The methods of collections.deque, called without a lookup. All of it is in a .pxd, so that every module compiles it
inline."""

cdef extern from *:
    """
    static PyTypeObject *deque_type = NULL; /* owned */
    static PyCFunction deque_append_function, deque_popleft_function;

    /* The C function of a method of deque; NULL and an exception if it takes other arguments than expected. */
    static PyCFunction deque_method(const char *name, int flags)
    {
        PyObject *method = PyObject_GetAttrString((PyObject *)deque_type, name);
        PyCFunction found = NULL;

        if (method == NULL)
            return NULL;
        if (Py_IS_TYPE(method, &PyMethodDescr_Type) && ((PyMethodDescrObject *)method)->d_method->ml_flags == flags)
            found = ((PyMethodDescrObject *)method)->d_method->ml_meth;
        else
            PyErr_Format(PyExc_ImportError, "collections.deque.%s() is not as expected", name);
        Py_DECREF(method);
        return found;
    }

    /* To be called before any other function here. Raises ImportError where deque is not the one that is expected. */
    static int deque_install(PyObject *type)
    {
        if (!PyType_Check(type)) {
            PyErr_SetString(PyExc_ImportError, "collections.deque is no type");
            return -1;
        }
        deque_type = (PyTypeObject *)Py_NewRef(type);
        deque_append_function = deque_method("append", METH_O);
        deque_popleft_function = deque_method("popleft", METH_NOARGS);
        return PyErr_Occurred() ? -1 : 0;
    }

    #define deque_check(object) ((object) != NULL && Py_IS_TYPE(object, deque_type))
    #define deque_size(deque) Py_SIZE(deque)
    #define deque_new() PyObject_CallNoArgs((PyObject *)deque_type)
    #define deque_item(deque, index) PySequence_GetItem(deque, index)
    #define deque_delete(deque, index) PySequence_DelItem(deque, index)

    static inline int deque_discard_result(PyObject *result)
    {
        Py_XDECREF(result);
        return result == NULL ? -1 : 0;
    }
    #define deque_append(deque, item) deque_discard_result(deque_append_function(deque, item))
    #define deque_popleft(deque) deque_popleft_function(deque, NULL)
    """
    int deque_install(object type) except -1
    bint deque_check(object) noexcept                       # its class is deque and no subclass; false for NULL
    # All that follow are for such an object only.
    Py_ssize_t deque_size(object deque) noexcept
    object deque_new()
    object deque_item(object deque, Py_ssize_t index)
    int deque_append(object deque, object item) except -1
    object deque_popleft(object deque)                      # IndexError if it is empty
    int deque_delete(object deque, Py_ssize_t index) except -1
