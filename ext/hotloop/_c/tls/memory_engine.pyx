"""MemoryEngine: TLS by the ssl module's own objects, an SSLObject between two MemoryBIOs.

It calls the C object inside the SSLObject directly, which saves a Python call for each record in and out. OpenSSL's
buffers in memory grow and never shrink. So the engine gives them no more than about one record at a time and empties
them before the next one: each stays under 24 KiB however much passes through.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from hotloop._c.runtime.borrowed_buffer cimport readable_buffer
from hotloop._c.tls.engine cimport MAX_PLAINTEXT, TlsEngine, ciphertext
from hotloop._c.tls.records cimport tls_records_next

# Small records are given to OpenSSL together, up to the first that ends at this many bytes or more.
cdef Py_ssize_t FEED_AT_LEAST = 2048


@cython.final
cdef class MemoryEngine(TlsEngine):
    cdef bint attempt(self, object operation, ciphertext *source) except -1:
        cdef bint done
        while True:
            if source.size:
                self.feed_records(source, MAX_PLAINTEXT)
            try:
                done = self.succeeds(operation)
            finally:
                self.pending = self.incoming.pending
            if done or source.size == 0:
                return done

    cdef int feed_records(self, ciphertext *source, Py_ssize_t enough) except -1:
        """Give OpenSSL the next records, up to the first that ends at `enough` bytes or more."""
        cdef Py_ssize_t size = tls_records_next(&self.records, source.data, source.size, enough)
        self.incoming.write(readable_buffer(source.data, size))
        self.pending += size
        source.data += size
        source.size -= size
        return 0

    cdef bint has_data(self) noexcept:
        return self.record_partly_read or self.pending > <Py_ssize_t>self.records.unfinished

    cdef Py_ssize_t waiting(self) noexcept:
        return max(self.pending - <Py_ssize_t>self.records.unfinished, 0)

    cdef Py_ssize_t max_plaintext(self, ciphertext *source) except -1:
        while not self.has_data():
            if source.size == 0:
                return 0
            self.feed_records(source, FEED_AT_LEAST)
        return self.pending + source.size + (<Py_ssize_t>self.ssl.pending() if self.record_partly_read else 0)

    cdef Py_ssize_t decrypt_into(self, char *place, Py_ssize_t room, ciphertext *source) except -1:
        cdef Py_ssize_t total = 0, count
        try:
            while total < room:
                # The ssl module does it when OpenSSL has given the data, which an interrupt would lose.
                PyErr_CheckSignals()
                if self.has_data():
                    count = self.read_by_ssl_module(place + total, room - total)
                    self.pending = self.incoming.pending
                    if count > 0:
                        total += count
                        continue
                    if self.peer_closed or self.failure is not None:
                        break
                if source.size == 0:
                    break
                self.feed_records(source, FEED_AT_LEAST)
        except BaseException as error:
            if total == 0:
                raise
            self.interruption = error
        return total

    cdef Py_ssize_t encrypt_record(self, const char *data, Py_ssize_t size) except -2:
        cdef Py_ssize_t before
        # Before OpenSSL has the data; the ssl module looks for signals only afterwards.
        PyErr_CheckSignals()
        before = self.outgoing.pending
        try:
            return self.write_by_ssl_module(data, size)
        except BaseException as error:
            if self.outgoing.pending < before + size:
                raise
            # OpenSSL has taken the data, which must not come twice.
            self.interruption = error
        return size

    cdef Py_ssize_t unsent(self) except -1:
        return self.outgoing.pending

    cdef bytes take_unsent(self):
        return self.outgoing.read()
