from hotloop._c.tls.sender cimport TlsSender


cdef class TlsHandshake(TlsSender):
    cdef object started_at          # in debug mode, loop.time() at the beginning of the handshake
    cdef bint app_connected         # connection_made() of `app` was called, or need not be
    cdef bint handshaken            # the handshake is done
    cdef object peercert            # the peer's certificate at the end of the handshake
    cdef object failure             # the TLS error for which the transport is being closed, or None
    cdef object waiter              # the future to resolve at the end of the handshake, or None
    cdef object handshake_timeout   # in seconds
    cdef object timer               # the handle of the timeout that is running, or None

    cdef int begin_handshake(self) except -1
    cdef bint shake_hands(self) except -1
    cdef int handshake_done(self) except -1
    cdef int handshake_failed(self, object error) except -1
    cdef int end_with_alert(self, object error, str message) except -1
    cdef int wake_waiter(self, object error) except -1
    cdef int start_timer(self, object timeout, object callback) except -1
    cdef int stop_timer(self) except -1


cdef tuple checked_timeouts(dict timeouts)
