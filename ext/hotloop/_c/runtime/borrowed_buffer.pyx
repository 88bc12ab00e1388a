"""BorrowedBuffer: memory of ours for the time of one call of somebody who takes Python buffers.

The ssl module reads from, and writes into, whatever has the buffer interface. A memoryview would do, at three times the
price. Only those get a window who do not keep it: the memory is not the window's.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo


@cython.final
@cython.freelist(8)
cdef class BorrowedBuffer:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, self.readonly, flags)


cdef BorrowedBuffer writable_buffer(char *start, Py_ssize_t size):
    """Memory to be written to."""
    cdef BorrowedBuffer window = BorrowedBuffer.__new__(BorrowedBuffer)
    window.start = start
    window.size = size
    window.readonly = False
    return window


cdef BorrowedBuffer readable_buffer(const char *start, Py_ssize_t size):
    """Memory to be read from."""
    cdef BorrowedBuffer window = BorrowedBuffer.__new__(BorrowedBuffer)
    window.start = <char *>start
    window.size = size
    window.readonly = True
    return window
