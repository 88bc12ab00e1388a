# cython: binding=True
"""NetworkCore: LoopCore with the I/O that asyncio asks a loop for.

asyncio's BaseEventLoop asks for transports through a handful of hooks, once for each connection. These hooks are here,
and make hotloop's transports. On another selector than hotloop's they call asyncio's own.

The directive above makes its methods objects that can be marked as coroutine functions, and costs a call little.
"""

from libc.errno cimport EBADF
from libc.limits cimport INT_MAX

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.loop.unflushed cimport send_all_early
from hotloop._c.network.accepting cimport accept_connections, can_accept
from hotloop._c.network.child_process cimport program_set_child_watcher, watch_process
from hotloop._c.network.connecting cimport connect, is_literal
from hotloop._c.network.loop_metrics cimport collect_metrics, count_watched
from hotloop._c.network.socket_methods cimport (
    accept,
    receive,
    receive_from,
    receive_from_into,
    receive_into,
    send_all,
    send_to,
)
from hotloop._c.poller.descriptor_callbacks cimport wait_by_callbacks
from hotloop._c.poller.watcher cimport Watcher
from hotloop._c.runtime.bound_methods cimport is_method
from hotloop._c.runtime.weak_references cimport referent_of
from hotloop._c.system.socket_class cimport socket_class_is_patched, socket_object_type
from hotloop._c.tls.protocol cimport TlsProtocol, new_tls
from hotloop._c.tls.transport cimport new_tls_transport
from hotloop._c.transports.base cimport Transport
from hotloop._c.transports.datagram cimport open_datagram
from hotloop._c.transports.pipe cimport open_read_pipe, open_write_pipe
from hotloop._c.transports.stream cimport StreamTransport, open_stream

cdef extern from *:
    """
    /* Whether its class says nothing of its truth. */
    static inline int cannot_be_false(PyObject *object)
    {
        PyTypeObject *type = Py_TYPE(object);

        return (type->tp_as_number == NULL || type->tp_as_number->nb_bool == NULL)
               && (type->tp_as_mapping == NULL || type->tp_as_mapping->mp_length == NULL)
               && (type->tp_as_sequence == NULL || type->tp_as_sequence->sq_length == NULL);
    }
    """
    bint cannot_be_false(object) noexcept

import inspect
import socket
import sys
import weakref
from asyncio import base_events, constants, exceptions, selector_events, tasks, unix_events

from hotloop._c.loop.asyncio_tasks import AsyncioTasks
from hotloop._c.network.socket_methods import send_file

# A socket of any other class may do anything in its recv() and send(): it gets asyncio's transport, which calls them.
cdef object Socket = socket.socket
cdef int SOCK_STREAM = socket.SOCK_STREAM
# In newer versions a second cancellation of a start does not disturb the wait for the process's end.
cdef bint shields_end = "shield" in unix_events._UnixSelectorEventLoop._make_subprocess_transport.__code__.co_names


cdef class NetworkCore(LoopCore):
    """The I/O of hotloop.EventLoop, which is a subclass of this and of asyncio.SelectorEventLoop."""

    async def _connect_sock(self, *args, **kwargs):
        sock = await super()._connect_sock(*args, **kwargs)
        self._note_connected(sock)
        return sock

    def _note_connected(self, sock):
        # A socket of create_connection()'s, which goes on with it at once: see is_held_by_program().
        self.connected_socket = weakref.ref(sock)

    def _literal_address(self, host, port):
        # For create_connection(): see _asyncio/literal_connection.py.
        if self.poller is None or self.debug or not is_literal(self, host, port) or connecting_is_overridden(self):
            return None
        return host, port

    cdef bint is_held_by_program(self, object sock, object server) except -1:
        """Whether the program may hold this socket object. False for sockets that create_connection() made for a host
        and a port, and for those that a server accepted, if no method of the program's has got them; nearly all others
        came from the program."""
        if server is None:
            # create_connection() goes on with the socket at once. If another has been connected in between, by happy
            # eyeballs, this one counts as the program's, which costs a look at each use.
            if self.connected_socket is None or referent_of(self.connected_socket) is not sock:
                return True
            self.connected_socket = None
        return gets_sockets(self)

    cdef bint has_native_transport_for(self, object sock) except -1:
        """Whether hotloop has a transport for this socket. RuntimeError if the socket has a transport already."""
        cdef object entry
        if self.poller is None or type(sock) is not Socket or socket_class_is_patched():
            return False
        self._ensure_fd_no_transport(sock)
        if self.poller is None:
            # The method is the program's, and has closed the loop.
            return False
        # What waits for it already goes on only beside asyncio's transport, which consists of callbacks itself.
        entry = self.poller.entry(sock.fileno())
        if not isinstance(entry, Watcher) or not (<Watcher>entry).waits_for(sock):
            return True
        # By callbacks, too, if they are sock_*() methods, so that no other method joins them: it has to be refused.
        wait_by_callbacks(self.poller, sock.fileno())
        return False

    def _make_socket_transport(self, sock, protocol, waiter=None, *, extra=None, server=None, context=None):
        # asyncio's methods refuse sockets of other types, but its transport works with them, so libraries call this one
        # for raw Bluetooth sockets. Their messages must not be joined, as writes of a turn are here.
        if not self.has_native_transport_for(sock) or socket_object_type(sock) != SOCK_STREAM:
            return super()._make_socket_transport(
                sock, protocol, waiter, extra=extra, server=server, **with_context(context)
            )
        exposed = self.is_held_by_program(sock, server)
        return open_stream(self, sock, exposed, protocol, context, waiter, extra, server)

    def _make_ssl_transport(
        self,
        rawsock,
        protocol,
        sslcontext,
        waiter=None,
        *,
        server_side=False,
        server_hostname=None,
        extra=None,
        server=None,
        context=None,
        **timeouts,
    ):
        cdef TlsProtocol tls
        if not self.has_native_transport_for(rawsock):
            return super()._make_ssl_transport(
                rawsock,
                protocol,
                sslcontext,
                waiter,
                server_side=server_side,
                server_hostname=server_hostname,
                extra=extra,
                server=server,
                **timeouts,
                **with_context(context),
            )
        tls = new_tls(
            self, protocol, sslcontext, waiter, server_side, server_hostname, False, context, timeouts
        )
        transport = new_tls_transport(tls)
        exposed = self.is_held_by_program(rawsock, server)
        open_stream(self, rawsock, exposed, tls, tls.context, None, extra, server)
        return transport

    def _make_tls_protocol(self, transport, protocol, sslcontext, waiter, server_side, server_hostname, timeouts):
        # For start_tls(): see _asyncio/start_tls.py.
        cdef TlsProtocol tls = new_tls(
            self, protocol, sslcontext, waiter, server_side, server_hostname, True, None, timeouts
        )
        new_tls_transport(tls)
        return tls

    def _collect_metrics(self):
        # For loop.metrics(): see _loop_metrics.py.
        return collect_metrics(self)

    def _count_watched(self):
        return count_watched(self)

    def _make_read_pipe_transport(self, pipe, protocol, waiter=None, extra=None):
        if self.poller is None:
            return super()._make_read_pipe_transport(pipe, protocol, waiter, extra)
        return open_read_pipe(self, pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(self, pipe, protocol, waiter=None, extra=None):
        if self.poller is None:
            return super()._make_write_pipe_transport(pipe, protocol, waiter, extra)
        return open_write_pipe(self, pipe, protocol, waiter, extra)

    async def _make_subprocess_transport(
        self, protocol, args, shell, stdin, stdout, stderr, bufsize, extra=None, **kwargs
    ):
        if self.poller is None or program_set_child_watcher():
            return await super()._make_subprocess_transport(
                protocol, args, shell, stdin, stdout, stderr, bufsize, extra, **kwargs
            )
        waiter = self.create_future()
        # subprocess.Popen starts most children by vfork(2), without the handlers that fork(2) calls.
        send_all_early()
        transport = unix_events._UnixSubprocessTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, waiter=waiter, extra=extra, **kwargs
        )
        try:
            watch_process(self, transport)
        except BaseException:
            transport.close()
            raise
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            # Nothing may be left of the process, so wait for its end.
            transport.close()
            await (tasks.shield(transport._wait()) if shields_end else transport._wait())
            raise
        return transport

    def _make_datagram_transport(self, sock, protocol, address=None, waiter=None, extra=None):
        if not self.has_native_transport_for(sock):
            return super()._make_datagram_transport(sock, protocol, address, waiter, extra)
        return open_datagram(self, sock, protocol, address, waiter, extra)

    def _accept_connection(
        self,
        protocol_factory,
        sock,
        sslcontext=None,
        server=None,
        backlog=100,
        ssl_handshake_timeout=constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout=constants.SSL_SHUTDOWN_TIMEOUT,
        context=None,
    ):
        arguments = (
            protocol_factory, sock, sslcontext, server, backlog, ssl_handshake_timeout, ssl_shutdown_timeout
        )
        if context is not None:
            arguments += (context,)
        if (
            self.poller is None
            or self.debug
            or type(sock) is not Socket
            or socket_class_is_patched()
            or not can_accept(sock)
            # asyncio takes any false value for no TLS. Its own code asks what may be false: an object that raises then
            # costs the connection, and the server goes on.
            or not (sslcontext is None or cannot_be_false(sslcontext))
            or accepting_is_overridden(self)
        ):
            super()._accept_connection(*arguments)
        else:
            accept_connections(self, sock, backlog, context, arguments)

    async def _sendfile_native(self, transp, file, offset, count):
        if not isinstance(transp, StreamTransport):
            return await super()._sendfile_native(transp, file, offset, count)
        if (<StreamTransport>transp).sends_file():
            # Another sendfile() sends on it. As in asyncio, which has another error for that, reading goes on.
            raise RuntimeError("Empty waiter is already set")
        reading = transp.is_reading()
        transp.pause_reading()
        waiter = transp._make_empty_waiter()
        try:
            # Within, unlike asyncio: else a sendfile() that is cancelled while written data waits for the socket would
            # leave a transport that neither writes nor reads any more.
            await waiter
            if (<StreamTransport>transp).fd < 0:
                raise ConnectionError("Connection is closed")  # asyncio fails to find the transport's socket
            transp._detach_for_sendfile()
            sock = (<StreamTransport>transp).socket_object()
            return await self.sock_sendfile(sock, file, offset, count, fallback=False)
        except (OSError, ValueError, exceptions.SendfileNotAvailableError) as error:
            if (<StreamTransport>transp).fd < 0 and getattr(error, "errno", EBADF) == EBADF:
                # The transport has closed its socket: for the program, or because reading beside sendfile() has found
                # first that the peer has left. SendfileNotAvailableError comes if nothing was sent before, and
                # ValueError if the program watches a new file that got the number.
                raise ConnectionError("Connection is closed by peer") from error
            raise
        finally:
            # First, because it cannot fail: to register the descriptor again may, and then the program can still write.
            transp._reset_empty_waiter()
            if (<StreamTransport>transp).lent:
                transp._detach_after_sendfile()
            # The garbage collector may end this coroutine after its loop was closed, and after the transport.
            if reading and self.poller is not None and (<StreamTransport>transp).fd >= 0:
                transp.resume_reading()

    def sock_recv(self, sock, n):
        """Receive at most `n` bytes. See loop.sock_recv()."""
        return super().sock_recv(sock, n) if self.poller is None else receive(self, sock, n)

    def sock_recv_into(self, sock, buf):
        """Receive into a buffer; returns the number of bytes. See loop.sock_recv_into()."""
        return super().sock_recv_into(sock, buf) if self.poller is None else receive_into(self, sock, buf)

    def sock_recvfrom(self, sock, bufsize):
        """Receive a datagram; returns (bytes, address). See loop.sock_recvfrom()."""
        return super().sock_recvfrom(sock, bufsize) if self.poller is None else receive_from(self, sock, bufsize)

    def sock_recvfrom_into(self, sock, buf, nbytes=0):
        """Receive a datagram into a buffer; returns (number of bytes, address). See loop.sock_recvfrom_into()."""
        if self.poller is None:
            return super().sock_recvfrom_into(sock, buf, nbytes)
        return receive_from_into(self, sock, buf, nbytes)

    def sock_sendall(self, sock, data):
        """Send all of `data`. See loop.sock_sendall()."""
        return super().sock_sendall(sock, data) if self.poller is None else send_all(self, sock, data)

    def sock_sendto(self, sock, data, address):
        """Send a datagram; returns the number of bytes. See loop.sock_sendto()."""
        return super().sock_sendto(sock, data, address) if self.poller is None else send_to(self, sock, data, address)

    def sock_connect(self, sock, address):
        """Connect to an address, whose host may be a name. See loop.sock_connect()."""
        return super().sock_connect(sock, address) if self.poller is None else connect(self, sock, address)

    def sock_accept(self, sock):
        """Accept a connection; returns (a non-blocking socket, the peer's address). See loop.sock_accept()."""
        return super().sock_accept(sock) if self.poller is None else accept(self, sock)

    def _sock_sendfile_native(self, sock, file, offset, count):
        if self.poller is None:
            return super()._sock_sendfile_native(sock, file, offset, count)
        return send_file(self, sock, file, offset, count)

    def _ensure_fd_no_transport(self, fd):
        """RuntimeError if a transport uses this descriptor; ValueError if `fd` has no descriptor."""
        cdef object user, number
        if self.poller is None:
            return super()._ensure_fd_no_transport(fd)
        if isinstance(fd, int):
            number = fd
        else:
            try:
                number = int(fd.fileno())
            except (AttributeError, TypeError, ValueError):
                raise ValueError(f"Invalid file object: {fd!r}") from None
        if not 0 <= number <= INT_MAX or self.poller is None:
            # Or fileno() has closed the loop.
            return
        user = self.poller.entry(number)
        if isinstance(user, Transport) and not user.is_closing():
            raise RuntimeError(f"File descriptor {fd!r} is used by transport {user!r}")
        if user is None and self.poller.is_registered(number):
            raise RuntimeError(f"File descriptor {fd!r} is used by a transport that is paused")
        if self._transports:
            # asyncio's own, for sockets of which there is no transport here.
            super()._ensure_fd_no_transport(fd)


cdef int mark_coroutine_functions() except -1:
    """Mark what is `async def` in asyncio, since Python 3.12: unittest.mock asks before it replaces a method."""
    for name, method in vars(NetworkCore).items():
        if inspect.iscoroutinefunction(getattr(unix_events._UnixSelectorEventLoop, name, None)):
            inspect.markcoroutinefunction(method)
    return 0


if sys.version_info >= (3, 12):
    mark_coroutine_functions()

cdef object accept_connection2 = selector_events.BaseSelectorEventLoop._accept_connection2
cdef object connect_sock = NetworkCore._connect_sock
cdef object asyncio_connect_sock = unix_events._UnixSelectorEventLoop._connect_sock
cdef object sock_connect = NetworkCore.sock_connect
cdef object create_connection_transport = base_events.BaseEventLoop._create_connection_transport
cdef object make_socket_transport = NetworkCore._make_socket_transport
cdef object make_ssl_transport = NetworkCore._make_ssl_transport
cdef tuple CREATE_TASK = (NetworkCore.create_task, AsyncioTasks.create_task)


cdef bint accepting_is_overridden(NetworkCore loop) except -1:
    """Whether a method that asyncio would call for an accepted connection is overridden, or replaced on the loop, or if
    the program makes the tasks."""
    if loop.task_factory is not None or "create_task" in loop.replaced_methods or loop.creation_is_replaced():
        return True
    return not (
        type(loop).create_task in CREATE_TASK
        and is_method(loop._accept_connection2, loop, accept_connection2)
        and is_method(loop._make_socket_transport, loop, make_socket_transport)
        and is_method(loop._make_ssl_transport, loop, make_ssl_transport)
    )


cdef bint connecting_is_overridden(NetworkCore loop) except -1:
    """Whether the method that makes and connects create_connection()'s socket is overridden, or replaced on the loop or
    in asyncio."""
    return (
        not is_method(loop._connect_sock, loop, connect_sock)
        or unix_events._UnixSelectorEventLoop._connect_sock is not asyncio_connect_sock
    )


cdef bint gets_sockets(NetworkCore loop) except -1:
    """Whether one of the methods that get a connection's socket on its way to the transport is the program's, which may
    keep it."""
    return not (
        is_method(loop.sock_connect, loop, sock_connect)
        and is_method(loop._create_connection_transport, loop, create_connection_transport)
        and is_method(loop._accept_connection2, loop, accept_connection2)
        and is_method(loop._make_socket_transport, loop, make_socket_transport)
        and is_method(loop._make_ssl_transport, loop, make_ssl_transport)
    ) or connecting_is_overridden(loop)


cdef dict with_context(object context):
    # asyncio's own hooks take a context since 3.15.
    return {} if context is None else {"context": context}
