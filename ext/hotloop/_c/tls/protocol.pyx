"""TlsProtocol: one TLS connection, between the transport that carries its records and the application's protocol.

Towards the transport below, it is a protocol. If that is a StreamTransport, bytes come in place from the loop's buffer
and records go directly into its write queue; any other transport, another SSLTransport too, is used as asyncio does.

A connection has three objects:

    SSLTransport (transport.pyx)    the application's transport: asyncio's methods, and calls from other threads
    TlsProtocol                     the connection, in four classes, each in a module and on top of the one before:
        TlsReceiver (receiver.pyx)      from the peer: held ciphertext, delivery to the application, read limits
        TlsSender (sender.pyx)          to the peer: unencrypted writes, records, write limits, closing after an error
        TlsHandshake (handshake.pyx)    the handshake, the end after a TLS error, the timer
        TlsProtocol (this module)       the callbacks of the transport below, reading, shutdown
    TlsEngine (engine.pyx)          OpenSSL, working in memory; knows neither loop nor transport nor protocol

None of these four classes calls a method of one that derives from it, except that TlsReceiver and TlsSender queue a
call of _resume(), which is TlsProtocol's. The two directions are base classes, not objects of their own, because they
share the engine, the loop, the transport below and the application's protocol, and each arrival and each write uses
these: as objects they would need a reference to each other and one more indirection for each field.

Closing. After close() the application's protocol gets no more data: what has arrived is dropped. Data that arrives
after this side's close_notify ends the connection. When ssl_shutdown_timeout has passed, the socket is closed whatever
the peer does.

Source: asyncio/sslproto.py is the reference for the order of callbacks and for errors; RFC 8446, section 6.1.
"""

cimport cython
from cpython.contextvars cimport PyContext_Exit
from cpython.object cimport PyTypeObject, inquiry

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.locking cimport object_section, section_enter, section_leave
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.scheduler.handles cimport copy_context, copy_current_context
from hotloop._c.tls.direct_engine cimport new_engine
from hotloop._c.tls.engine cimport TlsEngine, ciphertext
from hotloop._c.tls.handshake cimport TlsHandshake, checked_timeouts
from hotloop._c.tls.sender cimport ENDED, FLUSHING, HANDSHAKE, OPEN, SHUTDOWN, UNCONNECTED, TlsSender
from hotloop._c.transports.protocol_runner cimport enter_or_copy
from hotloop._c.transports.stream cimport StreamTransport
from hotloop._c.transports.write_queue cimport write_queue_clear

from asyncio import exceptions, sslproto
from asyncio.log import logger

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_3tls_8protocol_TlsProtocol
    """


@cython.final
@cython.no_gc_clear
cdef class TlsProtocol(TlsHandshake):
    # Its tp_clear is clear_tls().

    def __cinit__(self):
        # Programs that wait for the end of aiohttp's connections set connection_lost() and eof_received() on it.
        instance_dict_clear(self)

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    @property
    def __class__(self):
        return sslproto.SSLProtocol

    # -- the protocol of the transport below ---------------------------------------------------------------------------

    def connection_made(self, transport):
        """Begin the handshake on the transport below."""
        if self.state == ENDED:
            # start_tls(): the connection was lost before the upgrade.
            return
        self.transport = transport
        if type(transport) is StreamTransport:
            self.stream = transport
            self.context = self.stream.context
        else:
            carrier = getattr(transport, "_ssl_protocol", None)
            if isinstance(carrier, TlsSender) and carrier is not self:
                self.outer = carrier
        if getattr(transport, "_protocol_paused", False):
            # start_tls(): the transport has paused the application's protocol, not this one. The handshake goes on.
            self.app_writing_paused = True
        if self.closed:
            # Before there was anything to close, by a task that cannot wait for the handshake (accepting.pyx).
            self.abort(None)
            return
        try:
            self.begin_handshake()
            self.continue_handshake()
        except Exception as error:
            if self.stream is not None and self.stream.sends_file() and not self.stream.lost:
                # As in asyncio the file is sent to its end, and the handshake's timeout ends the connection.
                raise
            # If it went to the loop, that would only report it, and the connection would wait for ever.
            self.fatal_error(error, "Fatal error on SSL protocol")

    def connection_lost(self, exc):
        """The transport below is closed: tell the application's protocol, and release everything."""
        cdef object_section section
        if self.unflushed and (self.stream is None or not self.stream.lost):
            # A program has called this itself.
            self.flush_early()
        if self.wants_data() and not self.discarding and self.has_unread():
            # resume_reading(), or a piece that filled the buffer, has queued a call that would come too late.
            self.at_end = True
            try:
                self.continue_reading(NULL, 0)
            except (SystemExit, KeyboardInterrupt):
                # The loop ends. When it runs again it goes on here, because the transport below calls this only once.
                self.loop.schedule_call(self._resume_connection_lost, (exc,), copy_context(self.context))
                raise
            except BaseException as error:
                # A CancelledError of the application's: as in asyncio it is reported, and the connection ends.
                # fatal_error() reports none, and closes the transport below, which has ended.
                self.loop.call_exception_handler(
                    {
                        "message": "Fatal error on SSL protocol",
                        "exception": error,
                        "transport": self.transport,
                        "protocol": self,
                    }
                )
        if self.failure is not None:
            exc = self.failure
            self.failure = None
        app = self.app if self.state != HANDSHAKE and self.app_connected else None
        write_queue_clear(&self.unencrypted)
        self.held = None
        self.lost_writes += 1
        self.closed = True
        self.state = ENDED
        self.receiving = False
        section_enter(&section, self)
        self.transport = self.stream = self.outer = self.app_transport = self.app = None
        section_leave(&section)
        if self.closed_again:
            self.release()
        try:
            if app is not None:
                self.call_connection_lost(app, exc)
        finally:
            try:
                self.wake_waiter(exc)
            finally:
                self.stop_timer()

    cdef int call_connection_lost(self, object app, object error) except -1:
        try:
            self.loop.schedule_call(app.connection_lost, (error,), copy_context(self.context))
        except MemoryError:
            # One turn too early is better than never.
            app.connection_lost(error)
        return 0

    cdef int bytes_received(self, const char *data, Py_ssize_t size) except -1:
        if self.state == SHUTDOWN:
            return 0 if self.finished else self.exchange_close_notify(data, size)
        if self.state != HANDSHAKE and self.state != UNCONNECTED:
            return self.continue_reading(data, size)
        # The handshake may end before the last byte; the rest is application data.
        self.hold(data, size)
        return self.continue_handshake()

    cdef int continue_handshake(self) except -1:
        cdef bint done
        try:
            done = self.shake_hands()
        except (SystemExit, KeyboardInterrupt):
            if self.state == HANDSHAKE or self.state == OPEN:
                # The loop ends. When it runs again it goes on here: the peer may be waiting for this end's messages.
                self.resume_soon()
            raise
        if done:
            self.continue_reading(NULL, 0)
            if self.app_writing_paused and getattr(self.transport, "_protocol_paused", False):
                # From connection_made() on, and the transport is full still.
                self.sending_paused = True
        return 0

    def receive_early_data(self, data):
        """Take data that arrived before start_tls() and belongs to the handshake."""
        self.hold(data, len(data))

    def eof_received(self):
        """No more records will arrive. True if the transport has to stay open until the application has read all."""
        self.peer_gone = True
        if self.loop.debug:
            logger.debug("%r received EOF", self)
        try:
            if self.state == HANDSHAKE:
                self.handshake_failed(ConnectionResetError())
            elif self.state == OPEN and self.app_reading_paused:
                self.state = FLUSHING
                return True
            elif self.state == OPEN or self.state == FLUSHING:
                self.state = FLUSHING
                return self.read_to_the_end()
            elif self.state == SHUTDOWN:
                self.finish_closing()
        except Exception:
            if self.transport is not None:
                self.transport.close()
            raise

    def pause_writing(self):
        """The transport below has reached its high-water mark."""
        self.sending_paused = True

    def resume_writing(self):
        """The transport below can take more."""
        if self.state == UNCONNECTED:
            # start_tls(): the transport had paused the application's protocol, not this one.
            self.app_writing_paused = True
        self.sending_paused = False
        self.continue_io()

    cdef int continue_io(self) except -1:
        """Encrypt what had to wait; if the connection is closing and all is encrypted, go on with that."""
        self.send_now(self.state == FLUSHING)
        if self.state == FLUSHING and self.unencrypted.bytes == 0 and not self.peer_gone:
            self.continue_shutdown()
        return 0

    # -- reading -------------------------------------------------------------------------------------------------------

    cdef int continue_reading(self, const char *data, Py_ssize_t size) except -1:
        """Decrypt and deliver first the held ciphertext, then this."""
        cdef ciphertext source
        cdef bytes owner
        cdef object failure, interruption
        self.rest_queued = False
        if not self.receiving:
            return 0
        try:
            while True:
                if size and (self.held is not None or not self.engine.native or not self.wants_data()):
                    # Also for the methods of a program's SSLObject: they may run the loop, which uses its buffer.
                    self.hold(data, size)
                    size = 0
                if not self.wants_data():
                    if self.engine.peer_closed:
                        # An interrupt came before this was done.
                        self.on_peer_closed()
                    break
                owner = self.held
                if owner is None:
                    source.data = data
                    source.size = size
                else:
                    self.find_held(&source, owner)
                size = 0
                if self.deliver(&source, owner):
                    continue
                if self.engine.failure is not None:
                    failure = self.engine.failure
                    self.engine.failure = None
                    # OpenSSL encrypts nothing any more, so closing must not flush.
                    self.unflushed = False
                    self.on_read_failed(failure)
                elif self.engine.peer_closed:
                    self.on_peer_closed()
                break
            self.on_decrypted()
            self.control_receiving()
        except (SystemExit, KeyboardInterrupt):
            # The application may have raised another one.
            self.engine.interruption = None
            if not (self.rest_queued or self.at_end):
                # The loop ends. When it runs again it goes on here: the engine may have found an invalid record or
                # close_notify behind the data, for which nothing else would come.
                self.resume_soon()
                self.rest_queued = True
            raise
        except Exception as error:
            # An interrupt before the application's protocol has raised its exception. Sending what it has written must
            # not raise it, because the connection would not end then.
            interruption = self.engine.interruption
            self.engine.interruption = None
            self.on_read_failed(error)
            if interruption is not None and not isinstance(interruption, Exception):
                raise interruption
        return 0

    cdef int on_decrypted(self) except -1:
        if self.unflushed:
            return 0
        # Send OpenSSL's own messages, and encrypt what had to wait for the peer's.
        self.send_records_unless_paused()
        return self.continue_io() if self.unencrypted.bytes else 0

    cdef int on_peer_closed(self) except -1:
        """The peer's close_notify has arrived."""
        if self.discarding:
            # After close(): it is the answer to this side's close_notify, or will be once that is sent.
            return 0
        self.call_eof_received()
        return self.begin_shutdown()

    cdef int on_read_failed(self, object error) except -1:
        """A record was invalid, or the application's protocol has raised an exception."""
        self.receiving = False
        return self.end_with_alert(error, "Fatal error on SSL protocol")

    # -- closing -------------------------------------------------------------------------------------------------------

    cdef int close(self) except -1:
        if self.closed:
            # A program that keeps the transport does not keep the SSLContext then, as under asyncio.
            self.closed_again = True
            if self.state == ENDED and self.transport is None:
                # After connection_lost().
                self.release()
            return 0
        self.flush_inner()
        self.closed = self.discarding = True
        try:
            if self.state == FLUSHING and self.peer_gone:
                # read_to_the_end() waits for resume_reading(), or for a call that is queued already.
                if self.app_reading_paused:
                    self.resume_soon()
                return 0
            self.begin_shutdown()
            return self.control_receiving()
        except Exception as error:
            # Nothing else would close it.
            if self.loop.closed:
                # The error says only that. The task of a handshake that is dropped after its loop comes here.
                self.force_close(error)
            else:
                self.fatal_error(error, "Fatal error on SSL protocol")
        return 0

    cdef int release(self) except -1:
        self.sslcontext = None
        return self.engine.release()

    cdef int abort(self, object error) except -1:
        self.closed = True
        self.flush_early()
        self.state = ENDED
        self.receiving = False
        return self.force_close(error)

    cdef int begin_shutdown(self) except -1:
        if self.state != HANDSHAKE and self.state != OPEN:
            return 0
        self.closed = True
        if self.state == HANDSHAKE or self.shutdown_timeout == 0 or self.loop.is_inherited_by_fork():
            # is_inherited_by_fork(): a forked child that sent close_notify would end its parent's connection.
            return self.abort(None)
        self.state = FLUSHING
        self.start_timer(self.shutdown_timeout, self._check_shutdown_timeout)
        return self.continue_io()

    cdef int continue_shutdown(self) except -1:
        """All is written: send close_notify."""
        if self.discarding:
            # Drop what has arrived first: OpenSSL would take it for a wrong answer to close_notify.
            self.continue_reading(NULL, 0)
            if self.state != FLUSHING:
                return 0
        self.state = SHUTDOWN
        return self.exchange_close_notify(NULL, 0)

    cdef int exchange_close_notify(self, const char *data, Py_ssize_t size) except -1:
        """Send close_notify, the first time, and take the peer's, if that is what has arrived. As in asyncio, data ends
        the connection at once, but not before the peer's kernel has all that was written before close(): it would be
        lost. The data is dropped then, until the peer closes, too."""
        cdef bint done
        cdef ciphertext source
        self.lingering = self.lingering or (size > 0 and self.discarding and self.is_sending())
        if self.lingering:
            self.continue_reading(data, size)
            if self.state != SHUTDOWN:
                return 0
            size = 0
        source.data = data
        source.size = size
        try:
            done = self.engine.unwrap(&source)
            self.send_records_unless_paused()
        except Exception as error:
            self.state = ENDED
            self.stop_timer()
            self.fatal_error(error, "Fatal error on transport")
        except BaseException:
            # An interrupt, which may end the loop. When it runs on it asks again.
            self.state = FLUSHING
            self.send_later()
            raise
        else:
            if done:
                self.finish_closing()
        return 0

    cdef int finish_closing(self) except -1:
        """The peer has closed too, or is gone: pass the rest to the transport, which sends it before it closes."""
        if self.finished:
            return 0
        self.finished = True
        try:
            self.send_now(True)
            self.call_eof_received()
            self.send_records()
            self.schedule_transport_close()
        except Exception as error:
            self.fatal_error(error, "Fatal error on SSL protocol")
        except BaseException:
            # An interrupt: this is not done again.
            self.schedule_transport_close()
            raise
        return 0

    cdef bint read_to_the_end(self) except -1:
        """The peer is gone: deliver what it has sent, then finish. True if the rest has to wait: the application has
        paused reading, or its buffer is full."""
        self.continue_reading(NULL, 0)
        if self.state != FLUSHING:
            return False
        if (self.app_reading_paused or self.rest_queued) and not self.discarding and self.has_unread():
            return True
        self.finish_closing()
        return False

    cdef int call_eof_received(self) except -1:
        if not self.app_connected or self.app_eof_received or self.app is None:
            return 0
        self.app_eof_received = True
        try:
            if self.app.eof_received():
                logger.warning("returning true from eof_received() has no effect when using ssl")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Error calling eof_received()")
        return 0

    cdef int schedule_transport_close(self) except -1:
        if self.transport is None:
            return 0
        self.state = SHUTDOWN
        # Before it closes, the transport sends what it has. A peer that does not read could delay that for ever.
        if self.timer is None and self.shutdown_timeout != 0:
            self.start_timer(self.shutdown_timeout, self._check_shutdown_timeout)
        self.loop.schedule_call(self.transport.close, (), copy_context(self.context))
        return 0

    def _check_shutdown_timeout(self):
        if self.transport is not None and (self.state == FLUSHING or self.state == SHUTDOWN):
            self.force_close(exceptions.TimeoutError("SSL shutdown timed out"))

    # -- for SSLTransport ----------------------------------------------------------------------------------------------

    cdef object extra_info(self, object name, object default):
        cdef object transport
        cdef object_section section
        if name == "sslcontext":
            return default if self.sslcontext is None else self.sslcontext
        if self.handshaken:
            if name == "peercert":
                return self.peercert
            if self.engine.sslobject is not None:
                if name == "ssl_object":
                    return self.engine.sslobject
                if name == "cipher":
                    return self.engine.sslobject.cipher()
                if name == "compression":
                    return self.engine.sslobject.compression()
        section_enter(&section, self)
        transport = self.transport
        section_leave(&section)
        return default if transport is None else transport.get_extra_info(name, default)

    def _resume(self):
        # resume_soon() has queued it with a copy of the context.
        cdef object context = enter_or_copy(self.context)
        try:
            if self.state == FLUSHING and self.peer_gone:
                self.read_to_the_end()
            elif self.state == HANDSHAKE:
                self.continue_handshake()
            else:
                self.continue_reading(NULL, 0)
                if self.state == FLUSHING:
                    # After an interrupt in close().
                    self.continue_io()
        finally:
            PyContext_Exit(context)

    def _resume_connection_lost(self, exc):
        # As _resume(): what the application's protocol sets in the context is there in its next callback, too.
        cdef object context = enter_or_copy(self.context)
        try:
            self.connection_lost(exc)
        finally:
            PyContext_Exit(context)

    # -- the private names of asyncio's SSLProtocol, which libraries read ----------------------------------------------

    @property
    def _loop(self):
        return self.loop

    @property
    def _app_protocol(self):
        with cython.critical_section(self):
            return self.app

    @property
    def _app_transport(self):
        with cython.critical_section(self):
            return self.app_transport

    @property
    def _transport(self):
        with cython.critical_section(self):
            return self.transport

    @property
    def _app_reading_paused(self):
        return self.app_reading_paused

    @property
    def _sslcontext(self):
        return self.sslcontext

    @property
    def _sslobj(self):
        return self.engine.sslobject


cdef TlsProtocol new_tls(
    LoopCore loop, object app, object sslcontext, object waiter, bint server_side, object server_hostname,
    bint connected, object context, dict timeouts
):
    """`connected`: connection_made() of the application's protocol was called before. `timeouts`: the keywords of
    create_connection(). ValueError, or an error of the SSLContext."""
    cdef TlsProtocol tls
    cdef TlsEngine engine
    handshake_timeout, shutdown_timeout = checked_timeouts(timeouts)
    if not sslcontext:
        sslcontext = sslproto._create_transport_context(server_side, server_hostname)
    engine = new_engine(sslcontext, server_side, None if server_side or not server_hostname else server_hostname)
    # Not before, because the garbage collector shows it to the program, whose code may have run until here.
    tls = TlsProtocol.__new__(TlsProtocol)
    tls.loop = loop
    tls.engine = engine
    tls.sslcontext = sslcontext
    tls.handshake_timeout = handshake_timeout
    tls.shutdown_timeout = shutdown_timeout
    tls.context = copy_current_context() if context is None else context
    tls.waiter = waiter
    tls.app_connected = connected
    tls.set_read_limits(None, None)
    tls.set_write_limits(None, None)
    tls.set_app(app)
    return tls


cdef int clear_tls(object protocol) except -1:
    """The tp_clear. A connection that the garbage collector clears has ended, and keeps its loop and its engine: code
    that runs while a cycle is cleared may still find the connection and use it."""
    cdef TlsProtocol tls = protocol
    tls.state = ENDED
    tls.closed = True
    tls.receiving = False
    tls.transport = tls.stream = tls.outer = tls.app_transport = tls.app = tls.context = tls.sslcontext = None
    tls.waiter = tls.timer = tls.failure = tls.peercert = tls.started_at = None
    tls.handshake_timeout = tls.shutdown_timeout = None
    return 0


(<PyTypeObject *>TlsProtocol).tp_clear = <inquiry>clear_tls
instance_dict_install(<PyTypeObject *>TlsProtocol)
remove_constructor(<PyTypeObject *>TlsProtocol)
