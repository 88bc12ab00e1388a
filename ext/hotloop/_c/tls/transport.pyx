"""SSLTransport: the application's side of a TLS connection. TlsProtocol does the work.

Source: the asyncio documentation, "Transports and Protocols".
"""

cimport cython
from cpython.object cimport PyTypeObject

from hotloop._c.loop.loop_core cimport call_in_loop_thread, refuse_other_threads, runs_in_other_thread
from hotloop._c.runtime.instance_dict cimport (
    instance_dict_clear,
    instance_dict_get,
    instance_dict_install,
    instance_dict_set,
)
from hotloop._c.runtime.no_constructor cimport remove_constructor
from hotloop._c.tls.protocol cimport TlsProtocol
from hotloop._c.tls.sender cimport ENDED
from hotloop._c.transports.write_queue cimport write_queue_append_data

from asyncio import constants, sslproto

from hotloop._asyncio.unclosed import unclosed_warning

cdef object warn_unclosed = unclosed_warning(sslproto._SSLProtocolTransport)

cdef extern from *:
    """
    #define INSTANCE_DICT_OWNER struct __pyx_obj_7hotloop_2_c_3tls_9transport_SSLTransport
    """


@cython.final
@cython.no_gc_clear
cdef class SSLTransport:
    """The transport of a TLS connection: see asyncio.Transport."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.FALLBACK

    def __cinit__(self):
        instance_dict_clear(self)

    @property
    def __class__(self):
        return sslproto._SSLProtocolTransport

    @property
    def __dict__(self):
        return instance_dict_get(self)

    @__dict__.setter
    def __dict__(self, attributes):
        instance_dict_set(self, attributes)

    def __del__(self):
        if self.tls is None or self.tls.closed:
            return
        try:
            warn_unclosed(self)
        finally:
            self.tls.closed = True

    def __repr__(self):
        info = [type(self).__name__]
        if self.tls.state == ENDED:
            info.append("closed")
        elif has_ended(self.tls):
            info.append("closing")
        transport = transport_below(self.tls)
        if transport is not None:
            info.append(f"over {transport!r}")
        return f"<{' '.join(info)}>"

    def get_extra_info(self, name, default=None):
        """The information about the connection that has this name, or `default`.

        "sslcontext"; after the handshake "peercert", "cipher", "compression" and "ssl_object"; and the names of the
        transport below. See asyncio.BaseTransport."""
        return self.tls.extra_info(name, default)

    def set_protocol(self, protocol):
        """Use another protocol from now on."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.set_protocol, (protocol,))
        self.tls.set_app(protocol)

    def get_protocol(self):
        """The protocol that is called."""
        with cython.critical_section(self.tls):
            return self.tls.app

    # -- closing -------------------------------------------------------------------------------------------------------

    def is_closing(self):
        """True after close() or abort(), or when the connection is broken."""
        self.tls.flush_if_broken()
        return has_ended(self.tls)

    def close(self):
        """Send what is buffered, then close_notify; close when the peer has answered. The protocol gets no more data.

        When ssl_shutdown_timeout has passed, the connection is closed whatever the peer does. Idempotent."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.close, ())
        self.tls.close()

    def abort(self):
        """Close at once; what is buffered is lost."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.abort, ())
        self.tls.abort(None)

    def _force_close(self, exc):
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self._force_close, (exc,))
        self.tls.abort(exc)

    # -- reading -------------------------------------------------------------------------------------------------------

    def is_reading(self):
        """True unless paused."""
        return not self.tls.app_reading_paused

    def pause_reading(self):
        """Pass no data to the protocol until resume_reading()."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.pause_reading, ())
        self.tls.app_reading_paused = True

    def resume_reading(self):
        """End a pause_reading(). Does nothing if not paused."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.resume_reading, ())
        if not self.tls.app_reading_paused:
            return
        self.tls.resume_soon()
        self.tls.app_reading_paused = False

    def set_read_buffer_limits(self, high=None, low=None):
        """Set how much, in bytes, is received while reading is paused: at `high` the transport below is paused, too, at
        `low` it is resumed.

        ValueError unless high >= low >= 0."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.set_read_buffer_limits, (high, low))
        self.tls.set_read_limits(high, low)
        self.tls.control_receiving()

    def get_read_buffer_limits(self):
        """The limits (low, high), in bytes."""
        with cython.critical_section(self.tls):
            return self.tls.read_limits

    def get_read_buffer_size(self):
        """How many bytes have been received and not yet decrypted."""
        refuse_other_threads(self.tls.loop)
        return self.tls.unread_bytes()

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, data):
        """Send bytes, a bytearray or a memoryview, which may be changed afterwards. Never blocks.

        TypeError for anything else. See asyncio.WriteTransport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.write, (bytes(data),))
        if data:
            self.tls.write(data)

    def writelines(self, list_of_data):
        """Like write() for each item."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.write, (b"".join(list_of_data),))
        self.tls.write_all(list_of_data)

    def write_eof(self):
        """NotImplementedError: asyncio does not support half-closed TLS connections."""
        raise NotImplementedError

    def can_write_eof(self):
        """False."""
        return False

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the watermarks, in bytes: at `high` the protocol is paused, at `low` it is resumed.

        ValueError unless high >= low >= 0. See asyncio.WriteTransport."""
        if runs_in_other_thread(self.tls.loop):
            return call_in_loop_thread(self.tls.loop, self.set_write_buffer_limits, (high, low))
        self.tls.flush_early()
        self.tls.set_write_limits(high, low)
        self.tls.control_app_writing()

    def get_write_buffer_limits(self):
        """The watermarks (low, high), in bytes."""
        with cython.critical_section(self.tls):
            return self.tls.write_limits

    def get_write_buffer_size(self):
        """How many bytes are waiting to be passed to the transport below."""
        self.tls.flush_early()
        return self.tls.unsent_bytes()

    # -- the private names by which asyncio's own code and libraries read the state ------------------------------------

    @property
    def _protocol_paused(self):
        return self.tls.app_writing_paused

    @property
    def _loop(self):
        return self.tls.loop

    @property
    def _ssl_protocol(self):
        return self.tls

    @property
    def _closed(self):
        return self.tls.closed

    def _test__append_write_backlog(self, data):
        # CPython's tests call this to write data that is sent later.
        write_queue_append_data(&self.tls.unencrypted, data)


cdef bint has_ended(TlsProtocol tls) except -1:
    """Whether the connection is closing or broken."""
    cdef object transport = transport_below(tls)
    return tls.closed or (transport is not None and transport.is_closing())


cdef object transport_below(TlsProtocol tls):
    """The transport below; None once the connection has ended. Other threads may call this while it ends."""
    with cython.critical_section(tls):
        return tls.transport


cdef SSLTransport new_tls_transport(TlsProtocol tls):
    """A transport for a new TlsProtocol, which keeps a reference to it until the connection ends."""
    cdef SSLTransport transport = SSLTransport.__new__(SSLTransport)
    transport.tls = tls
    tls.app_transport = transport
    return transport


instance_dict_install(<PyTypeObject *>SSLTransport)
remove_constructor(<PyTypeObject *>SSLTransport)
