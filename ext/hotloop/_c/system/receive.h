/* Reads straight into the bytes object that the protocol gets. */
#ifndef HOTLOOP_SYSTEM_RECEIVE_H
#define HOTLOOP_SYSTEM_RECEIVE_H

#include <Python.h>
#include <sys/ioctl.h>

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

/* `data`, of `*count` bytes and with no other reference, was filled by a receive: add what else is waiting, up to
 * `most` bytes in all, and return it. Steals the reference. What the kernel says of an end or an error is left for the
 * next receive. */
static inline PyObject *receive_waiting(bytes_receiver receive, int fd, PyObject *data, Py_ssize_t most,
                                        Py_ssize_t *count)
{
#ifndef Py_TRACE_REFS /* see shortened() */
    int waiting = 0;
    Py_ssize_t more;
    PyObject *larger;

    if (ioctl(fd, FIONREAD, &waiting) < 0 || waiting <= 0)
        return data;
    more = Py_MIN((Py_ssize_t)waiting, most - *count);
    larger = PyObject_Realloc(data, sizeof(PyBytesObject) + (size_t)(*count + more));
    if (larger == NULL)
        return data;
    more = receive(fd, PyBytes_AS_STRING(larger) + *count, (size_t)more);
    if (more > 0)
        *count += more;
    data = shortened(larger, *count);
#else
    (void)receive, (void)fd, (void)most, (void)count;
#endif
    return data;
}

#endif
