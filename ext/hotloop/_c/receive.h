/* Reading straight into the object that the protocol gets. */
#ifndef HOTLOOP_RECEIVE_H
#define HOTLOOP_RECEIVE_H

#include <Python.h>

/* The system call for one kind of descriptor: how many bytes it has read, 0 at the end, or a negative errno. */
typedef ssize_t (*bytes_receiver)(int fd, void *buffer, size_t size);

/* A new bytes object with what one call of `receive` with at most `room` bytes has brought; NULL, without an exception
 * unless `count` is positive, if that is nothing. */
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
        (void)_PyBytes_Resize(&data, *count);
    return data;
}

#endif
