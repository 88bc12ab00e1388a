/* A bytearray as a buffer: data is added at its end and taken from its front.
 *
 * All of this is for a bytearray that is not exported (byte_array_is_exported()): an exported one may not change its
 * size.
 */
#ifndef HOTLOOP_RUNTIME_BYTE_ARRAYS_H
#define HOTLOOP_RUNTIME_BYTE_ARRAYS_H

#include <Python.h>

#define BYTE_ARRAY(array) ((PyByteArrayObject *)(array))

enum {
    /* Bytes. An empty bytearray keeps its memory up to this size, and gives back more. */
    BYTE_ARRAY_KEEPS = 512,
    /* Bytes. Above this, bytearray.take_bytes() copies less than it costs to call. */
    BYTE_ARRAY_COPIES = 2048,
};

#define byte_array_is_exported(array) (BYTE_ARRAY(array)->ob_exports > 0)

/* Set a smaller size without a reallocation, which could fail. The next resize frees the surplus memory. */
static inline void byte_array_shorten(PyObject *array, Py_ssize_t size)
{
    Py_SET_SIZE((PyVarObject *)array, size);
    PyByteArray_AS_STRING(array)[size] = '\0';
}

/* array.extend(data). Returns 0, or -1 and MemoryError. */
static inline int byte_array_append(PyObject *array, const char *data, Py_ssize_t size)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(array);

    if (PyByteArray_Resize(array, before + size) < 0)
        return -1;
    memcpy(PyByteArray_AS_STRING(array) + before, data, size);
    return 0;
}

/* del array[:count], with count from 0 to the size. Returns 0, or -1 and MemoryError. */
static inline int byte_array_drop_front(PyObject *array, Py_ssize_t count)
{
    Py_ssize_t rest = PyByteArray_GET_SIZE(array) - count, allocated = BYTE_ARRAY(array)->ob_alloc;

    if (rest == 0) {
        if (allocated > BYTE_ARRAY_KEEPS)
            return PyByteArray_Resize(array, 0);
    #if PY_VERSION_HEX < 0x030F0000
        BYTE_ARRAY(array)->ob_start = BYTE_ARRAY(array)->ob_bytes;
    #endif
        byte_array_shorten(array, 0);
        return 0;
    }
#if PY_VERSION_HEX < 0x030F0000
    if (rest >= allocated / 2 || allocated <= BYTE_ARRAY_KEEPS) {
        BYTE_ARRAY(array)->ob_start += count;
        Py_SET_SIZE((PyVarObject *)array, rest);
        return 0;
    }
#endif
    return PySequence_DelSlice(array, 0, count);
}

/* The first `count` bytes, which are removed; a new reference. NULL and MemoryError: nothing was removed. */
static inline PyObject *byte_array_take_front(PyObject *array, Py_ssize_t count)
{
    PyObject *taken;

#if PY_VERSION_HEX >= 0x030F0000
    if (count > BYTE_ARRAY_COPIES)
        return PyObject_CallMethod(array, "take_bytes", "n", count);
#endif
    taken = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(array), count);
    if (taken != NULL && byte_array_drop_front(array, count) < 0)
        Py_CLEAR(taken);
    return taken;
}

/* Where the `size` bytes of `sought` begin, at `from` or later; -1 if they do not occur. */
static inline Py_ssize_t byte_array_find(PyObject *array, const char *sought, Py_ssize_t size, Py_ssize_t from)
{
    const char *data = PyByteArray_AS_STRING(array), *found;
    Py_ssize_t length = PyByteArray_GET_SIZE(array) - from;

    found = size == 1 ? memchr(data + from, *sought, length) : memmem(data + from, length, sought, size);
    return found == NULL ? -1 : found - data;
}

#endif
