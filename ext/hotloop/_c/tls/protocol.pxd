from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.tls.handshake cimport TlsHandshake


cdef class TlsProtocol(TlsHandshake):
    cdef bytes attributes           # the instance's __dict__, see instance_dict.h; absent until one is set
    cdef object __weakref__
    cdef object sslcontext
    cdef bint app_eof_received      # eof_received() of `app` was called
    cdef bint peer_gone             # end of file: no more bytes will arrive
    cdef bint finished              # both sides have closed, or the peer is gone: the transport is about to close
    cdef bint lingering             # the peer's data does not end the connection while it closes
    cdef bint closed                # close() or abort() was called, or the connection is lost
    cdef bint closed_again          # close() was called after that
    cdef object shutdown_timeout    # in seconds; 0: close() is abort()

    cdef int call_connection_lost(self, object app, object error) except -1
    cdef int continue_handshake(self) except -1
    cdef int continue_io(self) except -1
    cdef int continue_reading(self, const char *data, Py_ssize_t size) except -1
    cdef int on_decrypted(self) except -1
    cdef int on_peer_closed(self) except -1
    cdef int on_read_failed(self, object error) except -1
    cdef bint read_to_the_end(self) except -1
    cdef int call_eof_received(self) except -1
    cdef int close(self) except -1
    cdef int release(self) except -1
    cdef int abort(self, object error) except -1
    cdef int begin_shutdown(self) except -1
    cdef int continue_shutdown(self) except -1
    cdef int exchange_close_notify(self, const char *data, Py_ssize_t size) except -1
    cdef int finish_closing(self) except -1
    cdef int schedule_transport_close(self) except -1

    cdef object extra_info(self, object name, object default)


cdef TlsProtocol new_tls(
    LoopCore loop, object app, object sslcontext, object waiter, bint server_side, object server_hostname,
    bint connected, object context, dict timeouts
)
