/* Reads straight into the bytes object that the protocol gets. */
#ifndef HOTLOOP_SYSTEM_RECEIVE_H
#define HOTLOOP_SYSTEM_RECEIVE_H

#include <Python.h>

/* The system call for one kind of descriptor. It returns how many bytes it has read, 0 at the end, or -errno. */
typedef ssize_t (*bytes_receiver)(int fd, void *buffer, size_t size);

/* The first `size` bytes of `data`. Steals the reference to `data`, which must be the only one. _PyBytes_Resize() would
 * free the object if there were no memory for the smaller one. */
static inline PyObject *shortened(PyObject *data, Py_ssize_t size)
{
#ifndef Py_TRACE_REFS /* such a build knows each object by its address */
    PyObject *smaller = PyObject_Realloc(data, sizeof(PyBytesObject) + (size_t)size);

    if (smaller != NULL)
        data = smaller;
#endif
    Py_SET_SIZE((PyVarObject *)data, size);
    PyBytes_AS_STRING(data)[size] = '\0';
    return data;
}

/* A new reference to the first `count` bytes of `*buffer`, a bytes object with no other reference. They are a copy. If
 * there is no memory for a copy, the result is the buffer itself, shortened, and `*buffer` is set to NULL: the kernel
 * does not have these bytes any more, so they must not be lost. */
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

/* Call `receive` once, for at most `room` bytes, and return them as a new bytes object. NULL if `*count`, its result,
 * is 0 or negative. NULL with an exception and a positive `*count` if there is no memory to read into. */
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
