"""Exceptions for what system calls return: the functions in C of this package return a negative errno for an error."""

import os


cdef object os_error(Py_ssize_t result):
    """The OSError, or its subclass, to raise for a negative errno."""
    return OSError(-result, os.strerror(-result))


cdef object caught_os_error(Py_ssize_t result):
    """os_error() for a program that is given it: with a traceback, as one that was raised and caught has."""
    cdef object caught
    try:
        raise os_error(result)
    except OSError as error:
        caught = error
    return caught
