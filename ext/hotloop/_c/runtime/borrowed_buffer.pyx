"""Window: memory of ours for the time of one call of somebody who takes Python buffers.

The ssl module reads from, and writes into, whatever has the buffer interface. A memoryview would do, at three times the
price. Only those get a window who do not keep it: the memory is not the window's.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo


@cython.final
@cython.freelist(8)
cdef class Window:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, self.readonly, flags)


cdef Window window_on(char *start, Py_ssize_t size):
    """Memory to be written to."""
    cdef Window window = Window.__new__(Window)
    window.start = start
    window.size = size
    window.readonly = False
    return window


cdef Window view_of(const char *start, Py_ssize_t size):
    """Memory to be read from."""
    cdef Window window = Window.__new__(Window)
    window.start = <char *>start
    window.size = size
    window.readonly = True
    return window
