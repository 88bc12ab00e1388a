from hotloop._c.tls.receiver cimport TlsReceiver
from hotloop._c.transports.stream cimport StreamTransport
from hotloop._c.transports.write_queue cimport write_queue


cdef enum TlsState:
    UNCONNECTED                     # connection_made() was not called yet
    HANDSHAKE
    OPEN
    FLUSHING                        # closing: earlier writes are being sent, or data that has arrived is being read
    SHUTDOWN                        # this side's close_notify is sent, the peer's has not arrived
    ENDED


cdef class TlsSender(TlsReceiver):
    cdef object app_transport       # the SSLTransport of `app`; None after connection_lost()
    cdef StreamTransport stream     # `transport`, if it is one of these; else None
    cdef TlsSender outer            # TLS over TLS: the connection that carries this one; else None
    cdef TlsState state
    cdef write_queue unencrypted    # plaintext that was written and is not yet encrypted
    cdef bint unflushed             # on the loop's list of what to flush at the end of the turn
    cdef bint flushing_inner        # by flush_inner(): a program may have made a connection its own protocol
    cdef bint sending_paused        # `transport` has called pause_writing(), and not yet resume_writing()
    cdef bint app_writing_paused    # pause_writing() of `app` was called, and resume_writing() not yet
    cdef Py_ssize_t lost_writes     # after close(), abort() or the end, which counts as one
    cdef Py_ssize_t write_low       # in bytes
    cdef Py_ssize_t write_high      # in bytes
    cdef tuple write_limits         # (low, high) as the caller gave them

    cdef bint accept_write(self) except -1
    cdef int write(self, object data) except -1
    cdef object ask_for_memory(self, object data)
    cdef bint write_uncopied(self, object data) except -1
    cdef int queue_copy(self, const char *data, Py_ssize_t size) except -1
    cdef int write_all(self, object chunks) except -1
    cdef int send_soon(self) except -1
    cdef int send_now(self, bint even_if_paused) except -1
    cdef int send_later(self) except -1
    cdef bint encrypt_oldest(self) except -1
    cdef Py_ssize_t make_record(self, const char *data, Py_ssize_t size) except -2
    cdef int send_full_part(self) except -1
    cdef int send_records_unless_paused(self) except -1
    cdef int send_records(self) except -1
    cdef int control_app_writing(self) except -1
    cdef int flush_inner(self) except -1
    cdef int leave_to_parent_if_forked(self) except -1
    cdef int flush_if_broken(self) except -1
    cdef bint is_used_by_program(self) noexcept
    cdef Py_ssize_t unsent_bytes(self) except -1
    cdef bint is_sending(self) except -1
    cdef int force_close(self, object error) except -1
    cdef int sending_failed(self, object error) except -1
    cdef int fatal_error(self, object error, str message) except -1
    cdef int set_write_limits(self, object high, object low) except -1
