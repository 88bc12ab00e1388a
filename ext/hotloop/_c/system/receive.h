/* Reading straight into the object that the protocol gets. */
#ifndef HOTLOOP_SYSTEM_RECEIVE_H
#define HOTLOOP_SYSTEM_RECEIVE_H

#include <Python.h>

/* The system call for one kind of descriptor: how many bytes it has read, 0 at the end, or a negative errno. */
typedef ssize_t (*bytes_receiver)(int fd, void *buffer, size_t size);

/* The first `size` bytes of a bytes object, to which the caller has the only reference, which is used up. _PyBytes_Resize() would
 * free it where there is no memory for the smaller one. */
static inline PyObject *shortened(PyObject *data, Py_ssize_t size)
{
#ifndef Py_TRACE_REFS /* which knows each object by its address */
    PyObject *smaller = PyObject_Realloc(data, sizeof(PyBytesObject) + (size_t)size);

    if (smaller != NULL)
        data = smaller;
#endif
    Py_SET_SIZE((PyVarObject *)data, size);
    PyBytes_AS_STRING(data)[size] = '\0';
    return data;
}

/* The first `count` bytes of `*buffer`, a bytes object with no other reference. Where there is no memory for a
 * copy that is the buffer itself, and `*buffer` is NULL: the kernel does not have these bytes any more. */
static inline PyObject *copy_or_take(PyObject **buffer, Py_ssize_t count)
{
    PyObject *data = PyBytes_FromStringAndSize(PyBytes_AS_STRING(*buffer), count);

    if (data == NULL) {
        PyErr_Clear();
        data = shortened(*buffer, count);
        *buffer = NULL;
    }
    return data;
}

/* A new bytes object with what one call of `receive` with at most `room` bytes has brought; NULL if that is nothing, or,
 * with an exception and a positive `count`, if there is no memory to read into. */
static inline PyObject *receive_bytes(bytes_receiver receive, int fd, Py_ssize_t room, Py_ssize_t *count)
{
    PyObject *data = PyBytes_FromStringAndSize(NULL, room);

    *count = 1;
    if (data == NULL)
        return NULL;
    *count = receive(fd, PyBytes_AS_STRING(data), (size_t)room);
    if (*count <= 0)
        Py_CLEAR(data);
    else if (*count < room)
        data = shortened(data, *count);
    return data;
}

#endif
