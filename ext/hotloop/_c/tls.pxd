from hotloop._c.core cimport LoopCore
from hotloop._c.output cimport output_queue
from hotloop._c.stream cimport StreamTransport
from hotloop._c.tls_receiver cimport TlsReceiver


cdef enum TlsState:
    UNCONNECTED                     # connection_made() is yet to come
    HANDSHAKE
    OPEN
    FLUSHING                        # nothing more may be written; what was written, or has arrived, is on its way
    SHUTDOWN                        # our close_notify is sent, the peer's has not arrived
    ENDED


cdef class TlsProtocol(TlsReceiver):
    cdef object __weakref__
    cdef object app_transport       # its transport, a TlsTransport; None after connection_lost()
    cdef StreamTransport stream     # the same, if it is one of these
    cdef TlsState state
    cdef object sslcontext
    cdef bytearray landing          # what get_buffer() hands out to a transport that is not ours; None: nothing yet
    cdef output_queue output        # plaintext that was written and is not yet encrypted
    cdef bint unflushed             # among those that the loop flushes at the end of the turn
    cdef bint sending_paused        # by the transport
    cdef bint app_writing_paused    # pause_writing() was called, and resume_writing() not yet
    cdef bint app_connected         # connection_made() was called, or need not be
    cdef bint app_told_eof
    cdef bint handshaken            # the handshake is done
    cdef object peercert            # as it was then
    cdef bint peer_gone             # no more bytes will come
    cdef bint finished              # both ends have closed, or nothing more can be said: the transport closes
    cdef bint closed                # close() or abort() was called, or the connection is lost
    cdef Py_ssize_t lost            # not 0: the connection is lost; counts the writes in vain since
    cdef object waiter              # a future that is told of the end of the handshake, or None
    cdef object handshake_timeout   # in seconds
    cdef object shutdown_timeout    # in seconds; 0: close() is abort()
    cdef object timer               # of whichever of the two is running, or None
    cdef object started_at          # in debug mode, loop.time() at the beginning of the handshake
    cdef Py_ssize_t write_low       # in bytes
    cdef Py_ssize_t write_high      # in bytes
    cdef tuple write_limits         # (low, high) as they were given

    cdef int go_on_with_handshake(self) except -1
    cdef int handshake_done(self) except -1
    cdef int feed_handshake(self) except -1
    cdef int handshake_failed(self, object error) except -1
    cdef int wake_waiter(self, object error) except -1
    cdef int go_on(self) except -1
    cdef bint may_write(self) except -1
    cdef int write(self, object data) except -1
    cdef int write_all(self, object chunks) except -1
    cdef int send_soon(self) except -1
    cdef int send_now(self, bint whatever) except -1
    cdef bint encrypt(self) except -1
    cdef int hand_down(self) except -1
    cdef int hand_down_all(self) except -1
    cdef int control_app_writing(self) except -1
    cdef Py_ssize_t to_send(self) except -1
    cdef int flush_early(self) except -1
    cdef int call_eof_received(self) except -1
    cdef int close(self) except -1
    cdef int abort(self, object error) except -1
    cdef int begin_shutdown(self) except -1
    cdef int go_on_with_shutdown(self) except -1
    cdef int answered(self, const char *data, Py_ssize_t size) except -1
    cdef int close_engine(self) except -1
    cdef int finish(self) except -1
    cdef int shutdown_done(self) except -1
    cdef int start_timer(self, object timeout, object callback) except -1
    cdef int stop_timer(self) except -1
    cdef int force_close(self, object error) except -1
    cdef int fatal_error(self, object error, str message) except -1
    cdef int set_write_limits(self, object high, object low) except -1
    cdef object extra_info(self, object name, object default)


cdef TlsProtocol new_tls(
    LoopCore loop, object app, object sslcontext, object waiter, bint server_side, object server_hostname,
    bint connected, object context, dict timeouts
)
