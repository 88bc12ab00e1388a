"""BorrowedBuffer: lends C memory, through the buffer interface, for the duration of one call.

The ssl module reads from and writes into any object with the buffer interface. A memoryview would do, at three times
the price. A BorrowedBuffer does not own its memory: pass it only to functions that do not keep it.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo


@cython.final
@cython.freelist(8)
cdef class BorrowedBuffer:
    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, self.readonly, flags)


cdef BorrowedBuffer writable_buffer(char *start, Py_ssize_t size):
    """A buffer that the callee may write into."""
    cdef BorrowedBuffer buffer = BorrowedBuffer.__new__(BorrowedBuffer)
    buffer.start = start
    buffer.size = size
    buffer.readonly = False
    return buffer


cdef BorrowedBuffer readable_buffer(const char *start, Py_ssize_t size):
    """A buffer that the callee may only read."""
    cdef BorrowedBuffer buffer = BorrowedBuffer.__new__(BorrowedBuffer)
    buffer.start = <char *>start
    buffer.size = size
    buffer.readonly = True
    return buffer
