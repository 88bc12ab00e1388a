"""CoroutineIterator: what `coroutine.__await__()` returns, for code that drives a coroutine as an iterator, not for
`await`."""

cimport cython


@cython.final
cdef class CoroutineIterator:
    """A compiled coroutine's methods, as an iterator's."""
    cdef object coroutine

    def __iter__(self):
        return self

    def __next__(self):
        return self.coroutine.send(None)

    def send(self, value, /):
        """See generator.send()."""
        return self.coroutine.send(value)

    def throw(self, *arguments):
        """See generator.throw()."""
        return self.coroutine.throw(*arguments)

    def close(self):
        """See generator.close()."""
        return self.coroutine.close()


cdef object new_iterator(object coroutine, PyObject *unused):
    """coroutine.__await__(), where it is called by name."""
    cdef CoroutineIterator iterator = CoroutineIterator.__new__(CoroutineIterator)
    iterator.coroutine = coroutine
    return iterator
