"""TlsHandshake: begins and ends the handshake, and ends a connection whose handshake or records are wrong."""

cimport cython

from hotloop._c.scheduler.handles cimport copy_context
from hotloop._c.tls.engine cimport ciphertext
from hotloop._c.tls.sender cimport ENDED, HANDSHAKE, OPEN, TlsSender

from asyncio import constants, sslproto
from asyncio.log import logger


@cython.no_gc_clear
cdef class TlsHandshake(TlsSender):
    """The part of TlsProtocol that makes the handshake: see protocol.pyx."""

    cdef int begin_handshake(self) except -1:
        if self.loop.debug:
            logger.debug("%r starts SSL handshake", self)
            self.started_at = self.loop.time()
        self.state = HANDSHAKE
        return self.start_timer(self.handshake_timeout, self._check_handshake_timeout)

    def _check_handshake_timeout(self):
        if self.state == HANDSHAKE:
            self.fatal_error(
                ConnectionAbortedError(
                    f"SSL handshake is taking longer than {self.handshake_timeout} seconds: aborting the connection"
                ),
                "Fatal error on transport",
            )

    cdef bint shake_hands(self) except -1:
        """Continue with what has arrived. True when the handshake is done: then what is left is application data."""
        cdef bint done
        cdef bytes owner = self.held
        cdef ciphertext source
        self.find_held(&source, owner)
        try:
            try:
                done = self.engine.handshake(&source)
            finally:
                # After an interrupt, too: the loop may run again, and what OpenSSL has taken must not come twice.
                self.hold_rest(&source, owner)
            if done and self.state == HANDSHAKE:
                self.peercert = self.engine.sslobject.getpeercert()
        except Exception as error:
            self.handshake_failed(error)
        else:
            if done and self.state == HANDSHAKE:
                self.handshake_done()
                return True
            self.send_records_unless_paused()
        return False

    cdef int handshake_done(self) except -1:
        """The handshake's last records are sent only after connection_made() and after the waiter is woken, because
        sending may find that the peer has left already."""
        self.stop_timer()
        self.state = OPEN
        self.receiving = self.handshaken = True
        if self.started_at is not None:
            logger.debug("%r: SSL handshake took %.1f ms", self, (self.loop.time() - self.started_at) * 1e3)
        if not self.app_connected:
            self.app_connected = True
            try:
                # Kept: the protocol may end the connection.
                transport = self.app_transport
                self.app.connection_made(transport)
            except (SystemExit, KeyboardInterrupt):
                # The loop ends. When it runs again the connection is made, as without TLS.
                self.wake_waiter(None)
                raise
            except BaseException:
                # The transport below closes the connection. What has come with the handshake is not delivered.
                self.receiving = False
                raise
        self.wake_waiter(None)
        if self.unencrypted.bytes:
            self.send_soon()
        return 0

    cdef int handshake_failed(self, object error) except -1:
        cdef str message = "SSL handshake failed"
        if isinstance(error, sslproto.ssl.CertificateError):
            message = "SSL handshake failed on verifying the certificate"
        self.stop_timer()
        self.state = ENDED
        try:
            self.end_with_alert(error, message)
        finally:
            self.wake_waiter(error)
        return 0

    cdef int end_with_alert(self, object error, str message) except -1:
        """End the connection because of an error; OpenSSL's alert tells the peer the reason."""
        try:
            # The program's writes came first. If they find that the peer has left, that is what the connection ends of.
            self.flush_early()
        finally:
            # After an interrupt, too: nothing else would end the connection.
            if self.transport is not None and not known_to_be_closing(self.transport):
                # For connection_lost(): that sending may find that the peer has left is not why the connection ends.
                self.failure = error
            try:
                self.send_records_unless_paused()
            except Exception:
                # asyncio sends no alert, so a program's own transport that cannot is not what to report.
                pass
            finally:
                self.fatal_error(error, message)
        return 0

    cdef int wake_waiter(self, object error) except -1:
        cdef object waiter = self.waiter
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self.waiter = None
        return 0

    # -- the timeout of the handshake or of the shutdown ---------------------------------------------------------------

    cdef int start_timer(self, object timeout, object callback) except -1:
        self.timer = self.loop.call_later(timeout, callback, context=copy_context(self.context))
        return 0

    cdef int stop_timer(self) except -1:
        cdef object timer = self.timer
        self.timer = None
        if timer is not None:
            timer.cancel()
        return 0


cdef bint known_to_be_closing(object transport) except -1:
    """True also for a program's own transport that cannot tell: start_tls() takes any that says it is compatible."""
    try:
        return transport.is_closing()
    except (AttributeError, NotImplementedError):
        return True


cdef tuple checked_timeouts(dict timeouts):
    """ssl_handshake_timeout and ssl_shutdown_timeout of these keywords of create_connection(), or asyncio's. ValueError
    if the first is not above 0, or the second below it."""
    handshake_timeout = timeouts.get("ssl_handshake_timeout")
    shutdown_timeout = timeouts.get("ssl_shutdown_timeout")
    if handshake_timeout is None:
        handshake_timeout = constants.SSL_HANDSHAKE_TIMEOUT
    elif handshake_timeout <= 0:
        raise ValueError(f"ssl_handshake_timeout should be a positive number, got {handshake_timeout}")
    if shutdown_timeout is None:
        shutdown_timeout = constants.SSL_SHUTDOWN_TIMEOUT
    elif shutdown_timeout < 0:
        raise ValueError(f"ssl_shutdown_timeout should be a positive number, got {shutdown_timeout}")
    return handshake_timeout, shutdown_timeout
