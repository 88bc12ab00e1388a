from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.tls.engine cimport TlsEngine, ciphertext
from hotloop._c.transports.protocol_kind cimport ByteProtocol, ProtocolKind


cdef class TlsReceiver(ByteProtocol):
    cdef LoopCore loop
    cdef object context             # all of the application's callbacks run in it
    cdef object app                 # the application's protocol; None after connection_lost()
    cdef ProtocolKind kind          # how `app` takes data
    cdef object transport           # carries the records; None before connection_made() and after connection_lost()
    cdef TlsEngine engine
    cdef bytes held                 # ciphertext that waits to be decrypted; None: there is none
    cdef Py_ssize_t held_at         # index of the first byte of `held` that waits
    cdef bytearray receive_buffer   # what get_buffer() returns; None: it was not called yet
    cdef bint receiving             # after the handshake and before the end: what arrives is application data
    cdef bint receiving_paused      # this protocol has paused `transport`
    cdef bint app_reading_paused    # by pause_reading()
    cdef bint discarding            # close() was called: what arrives is decrypted and dropped
    cdef bint rest_queued           # the application's buffer was filled, and _resume() is queued to fill it again
    cdef bint at_end                # there will be no other turn for what is left
    cdef Py_ssize_t read_low        # in bytes
    cdef Py_ssize_t read_high       # in bytes
    cdef tuple read_limits          # (low, high) as the caller gave them

    cdef bint wants_data(self) noexcept
    cdef bint has_unread(self) noexcept
    cdef int hold(self, const char *data, Py_ssize_t size) except -1
    cdef int find_held(self, ciphertext *source, bytes owner) noexcept
    cdef int hold_rest(self, ciphertext *source, bytes owner) except -1
    cdef bint deliver(self, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t decrypt(self, char *place, Py_ssize_t room, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t deliver_small(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t deliver_bytes(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t deliver_to_reader(self, object reader, Py_ssize_t room, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t deliver_to_buffer(self, Py_ssize_t room, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t deliver_compiled(self, ciphertext *source, bytes owner) except -1
    cdef Py_ssize_t decrypt_and_discard(self, ciphertext *source, bytes owner) except -1
    cdef int control_receiving(self) except -1
    cdef Py_ssize_t unread_bytes(self) noexcept
    cdef int set_app(self, object protocol) except -1
    cdef int resume_soon(self) except -1
    cdef int set_read_limits(self, object high, object low) except -1
