/* Calls socket.fileno(), .gettimeout() and .family without the cost of looking them up: each module takes the C
 * functions from the descriptors of _socket.socket once. The results are those that the socket's own recv() and send()
 * go by; a program cannot replace these functions.
 */
#ifndef HOTLOOP_SYSTEM_SOCKET_OBJECT_H
#define HOTLOOP_SYSTEM_SOCKET_OBJECT_H

#include <Python.h>

typedef struct {
    PyCFunction fileno;
    PyCFunction gettimeout;
    PyObject *family;
} socket_object_functions;

static socket_object_functions object_functions;

static inline PyCFunction socket_object_function(PyObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString(type, name);
    PyCFunction function = NULL;

    if (found == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (Py_IS_TYPE(found, &PyMethodDescr_Type) && ((PyMethodDescrObject *)found)->d_method->ml_flags == METH_NOARGS)
        function = ((PyMethodDescrObject *)found)->d_method->ml_meth;
    Py_DECREF(found);
    return function;
}

/* `type` is _socket.socket. False if one of them is no plain C method: then sockets have to be asked through Python. */
static inline int socket_object_find_functions(PyObject *type)
{
    object_functions.fileno = socket_object_function(type, "fileno");
    object_functions.gettimeout = socket_object_function(type, "gettimeout");
    object_functions.family = PyDict_GetItemString(((PyTypeObject *)type)->tp_dict, "family");
    Py_XINCREF(object_functions.family);
    return object_functions.fileno != NULL && object_functions.gettimeout != NULL && object_functions.family != NULL
           && Py_TYPE(object_functions.family)->tp_descr_get != NULL;
}

static inline long socket_object_integer(PyObject *number)
{
    long value = number == NULL ? -1 : PyLong_AsLong(number);

    Py_XDECREF(number);
    return value;
}

static inline int socket_object_fileno(PyObject *sock)
{
    return (int)socket_object_integer(object_functions.fileno(sock, NULL));
}

/* Whether the socket object still has this descriptor. False if there is no memory for the answer: it is better to end
 * a connection than to use a descriptor that may belong to another file by now. */
static inline int socket_object_has_descriptor(PyObject *sock, int fd)
{
    PyObject *number = object_functions.fileno != NULL ? object_functions.fileno(sock, NULL)
                                                       : PyObject_CallMethod(sock, "fileno", NULL);
    long found = socket_object_integer(number);

    if (found < 0)
        PyErr_Clear();
    return found == fd;
}

/* Whether anything but its `owners` refers to the socket object; weak references count, because they give strong ones.
 * Without the GIL it cannot be known. */
static inline int socket_object_is_shared(PyObject *sock, Py_ssize_t owners)
{
#ifdef Py_GIL_DISABLED
    (void)sock;
    (void)owners;
    return 1;
#else
    return Py_REFCNT(sock) > owners || *PyObject_GET_WEAKREFS_LISTPTR(sock) != NULL;
#endif
}

static inline int socket_object_family(PyObject *sock)
{
    return (int)socket_object_integer(
        Py_TYPE(object_functions.family)->tp_descr_get(object_functions.family, sock, (PyObject *)Py_TYPE(sock))
    );
}

static inline int socket_object_is_non_blocking(PyObject *sock)
{
    PyObject *timeout = object_functions.gettimeout(sock, NULL);
    int found;

    if (timeout == NULL)
        return -1;
    found = PyFloat_CheckExact(timeout) && PyFloat_AS_DOUBLE(timeout) == 0.0;
    Py_DECREF(timeout);
    return found;
}

#endif
