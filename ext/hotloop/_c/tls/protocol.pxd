from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.tls.sender cimport TlsSender


cdef class TlsProtocol(TlsSender):
    cdef object __weakref__
    cdef object sslcontext
    cdef bytearray landing          # what get_buffer() hands out to a transport that is not ours; None: nothing yet
    cdef bint app_connected         # connection_made() was called, or need not be
    cdef bint app_told_eof
    cdef bint handshaken            # the handshake is done
    cdef object peercert            # as it was then
    cdef bint peer_gone             # no more bytes will come
    cdef bint finished              # both ends have closed, or nothing more can be said: the transport closes
    cdef bint closed                # close() or abort() was called, or the connection is lost
    cdef object waiter              # a future that is told of the end of the handshake, or None
    cdef object handshake_timeout   # in seconds
    cdef object shutdown_timeout    # in seconds; 0: close() is abort()
    cdef object timer               # of whichever of the two is running, or None
    cdef object started_at          # in debug mode, loop.time() at the beginning of the handshake

    cdef int tell_of_loss(self, object app, object error) except -1
    cdef int continue_handshake(self) except -1
    cdef int handshake_done(self) except -1
    cdef int feed_handshake(self) except -1
    cdef int handshake_failed(self, object error) except -1
    cdef int wake_waiter(self, object error) except -1
    cdef int continue_io(self) except -1
    cdef bint read_to_the_end(self) except -1
    cdef int call_eof_received(self) except -1
    cdef int close(self) except -1
    cdef int abort(self, object error) except -1
    cdef int begin_shutdown(self) except -1
    cdef int continue_shutdown(self) except -1
    cdef int answered(self, const char *data, Py_ssize_t size) except -1
    cdef int close_engine(self) except -1
    cdef int finish(self) except -1
    cdef int shutdown_done(self) except -1
    cdef int start_timer(self, object timeout, object callback) except -1
    cdef int stop_timer(self) except -1
    cdef int force_close(self, object error) except -1
    cdef object extra_info(self, object name, object default)


cdef TlsProtocol new_tls(
    LoopCore loop, object app, object sslcontext, object waiter, bint server_side, object server_hostname,
    bint connected, object context, dict timeouts
)
