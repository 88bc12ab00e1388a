"""DatagramTransport: UDP, Unix and all other datagram sockets.

When the socket becomes readable, the transport receives what has arrived, up to a bound, one datagram at a time. So
whatever a callback does (close, pause, replace the protocol, raise) applies to the next datagram, which the kernel
still has. If it queues anything, such as a task that it wakes, that comes before the next datagram. The socket is
level-triggered, so the kernel reports again if there is more. Datagrams are sent at once, and errors are reported
before sendto() returns, as under asyncio.

This module does not use recvmmsg() and sendmmsg(), because they gain nothing. Linux 6.18, one core, 512 bytes, CPU
microseconds for each datagram, medians: receiving, with the last call, which finds nothing, 0.62 by recvfrom() and 0.66
by recvmmsg() with one datagram waiting, 0.30 and 0.31 with 64; sending 1.04 by sendto() and 1.12 by sendmmsg() for one,
0.86 and 0.81 for 32. An echo server in plain C takes 1.6 for each of 32 clients either way. A system call costs 0.1
there. A batch saves that, but loses it again by filling headers and reading cold memory instead of one warm buffer.
In Python a batch would also need 64 KiB for each datagram, and would have to keep what was sent until the end of the
turn and what was received until the protocol may have it.

Source: udp(7), unix(7); asyncio/selector_events.py.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN
from libc.string cimport memcpy

from hotloop._c.loop.loop_core cimport LoopCore, call_in_loop_thread, runs_in_other_thread
from hotloop._c.loop.polling cimport poll_requested, waiting_work
from hotloop._c.loop.state cimport METRICS_DATAGRAM, metrics_received, metrics_sent
from hotloop._c.loop.unflushed cimport send_all_early
from hotloop._c.poller.watcher cimport POLLER_MORE, POLLER_READ, POLLER_WRITE
from hotloop._c.runtime.python_api cimport PySys_Audit
from hotloop._c.system.address cimport (
    address_from_python,
    address_is_native,
    sockaddr,
    sockaddr_storage,
    socklen_t,
)
from hotloop._c.system.os_errors cimport os_error
from hotloop._c.transports.socket_transport cimport SocketTransport
from hotloop._c.transports.write_queue cimport as_plain_data

import sys
from _socket import socket as socket_base
from asyncio import selector_events, transports
from collections import deque

cdef extern from "system/datagram_calls.h":
    Py_ssize_t datagram_receive(int fd, void *buffer, size_t size, sockaddr_storage *sender, socklen_t *length)
    Py_ssize_t datagram_send(int fd, const void *data, size_t size, const sockaddr_storage *to, socklen_t length)

# How many datagrams one transport may receive, or send from its queue, in one turn of the loop, so that a busy socket
# does not starve the others.
cdef int DATAGRAMS_PER_TURN = 32
# The bytes that flow control counts for a datagram in addition to its data; asyncio does so since 3.13.
cdef Py_ssize_t HEADER_SIZE = 8 if sys.version_info >= (3, 13) else 0
# Before 3.13 asyncio ignored empty datagrams.
cdef bint sends_empty = sys.version_info >= (3, 13)
# The result of sending a datagram.
cdef enum:
    BLOCKED                         # the kernel takes none now
    SENT
    REFUSED                         # error_received() was called
# The socket methods that this transport bypasses, unless a subclass overrides one.
cdef tuple BYPASSED = ("recvfrom", "send", "sendto")


@cython.final
cdef class DatagramTransport(SocketTransport):
    """A datagram socket's transport, as create_datagram_endpoint() makes it: see asyncio.DatagramTransport."""

    # asyncio's datagram transports have these methods, too, and they raise NotImplementedError.
    can_write_eof = transports.WriteTransport.can_write_eof
    write = transports.WriteTransport.write
    write_eof = transports.WriteTransport.write_eof
    writelines = transports.WriteTransport.writelines

    @property
    def __class__(self):
        # An asyncio.Transport always, and an asyncio.DatagramTransport since 3.12.
        return selector_events._SelectorDatagramTransport

    # -- receiving -----------------------------------------------------------------------------------------------------

    cdef int ready_to_read(self) except -1:
        cdef int datagrams = DATAGRAMS_PER_TURN
        cdef Py_ssize_t waiting = waiting_work(self.loop)
        self.events &= ~(POLLER_READ | POLLER_MORE)
        while datagrams and not self.paused and not self.closing:
            datagrams -= 1
            if not (self.receive() if self.native else self.receive_by_socket_object()):
                break
            if self.loop is None or poll_requested(self.loop) or waiting_work(self.loop) != waiting:
                break
        return 0

    cdef bint receive(self) except -1:
        """Pass one datagram to the protocol; False if there was none, or an error."""
        cdef sockaddr_storage raw
        cdef socklen_t length = 0
        cdef Py_ssize_t count = 0
        cdef object data = None, sender = None
        cdef LoopCore loop = self.loop
        try:
            count = datagram_receive(self.usable_fd(), loop.receive_buffer(), self.largest_read, &raw, &length)
            if count >= 0:
                data = loop.take_received(count)
                sender = self.addresses.lookup(<sockaddr *>&raw, length)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal read error on datagram transport")
            count = -EAGAIN
        if count == -EAGAIN:
            return False
        if count < 0:
            try:
                raise os_error(count)
            except OSError as error:
                # Inside the handler, as under asyncio: it may log the exception, or raise it again.
                self.protocol.error_received(error)
            return False
        metrics_received(&loop.metrics, count)
        self.sender = sender
        self.sender_length = min(length, <socklen_t>sizeof(raw))
        memcpy(&self.sender_raw, &raw, self.sender_length)
        self.protocol.datagram_received(data, sender)
        return True

    cdef bint receive_by_socket_object(self) except -1:
        """receive() by the socket object, because its address family is unknown here or a subclass overrides it."""
        # Kept, because recvfrom() may end this transport.
        cdef LoopCore loop = self.loop
        try:
            data, sender = self.sock.recvfrom(self.largest_read)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.protocol.error_received(error)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal read error on datagram transport")
        else:
            metrics_received(&loop.metrics, len(data))
            self.protocol.datagram_received(data, sender)
            return True
        return False

    # -- sending -------------------------------------------------------------------------------------------------------

    def sendto(self, data, addr=None):
        """Send bytes, a bytearray or a memoryview, which may be changed afterwards, as one datagram. Never blocks.

        TypeError for other data, ValueError for an address that is not the one the endpoint was connected to. Errors
        of the system go to protocol.error_received(). See asyncio.DatagramTransport."""
        if type(data) is not bytes and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if runs_in_other_thread(self.loop):
            return call_in_loop_thread(self.loop, self.sendto, (bytes(data), addr))
        if not sends_empty and not data:
            return
        if self.address is not None:
            if addr is not None and addr is not self.address and addr != self.address:
                raise ValueError(f"Invalid address: must be None or {self.address}")
            addr = self.address
        if self.lost and (self.fd < 0 or self.address is not None and not self.ending_well):
            self.send_after_loss()
            return
        data = self.ask_for_memory(data)
        if data is None:
            return
        send_all_early()
        if self.fd < 0:
            # A method of the data's has ended the transport.
            self.send_after_loss()
        elif self.queued_bytes or self.send_or_report(data, addr) == BLOCKED:
            self.enqueue(data, addr)

    cdef object ask_for_memory(self, object data):
        """as_plain_data(). An exception counts as one of the sendto() of the socket's that asyncio would have called:
        None. None, too, if asking has dropped what waited, and this with it."""
        cdef bint waits = self.queued_bytes > 0
        try:
            data = as_plain_data(data)
        except (SystemExit, KeyboardInterrupt, MemoryError, BlockingIOError, InterruptedError):
            raise
        except BaseException as error:
            # A datagram that has to wait is copied by sendto(), outside of that call.
            if waits:
                raise
            if isinstance(error, OSError):
                self.protocol.error_received(error)
            else:
                self.fatal_error(error, "Fatal write error on datagram transport")
            data = None
        return None if waits and self.lost else data

    cdef int send_after_loss(self) except -1:
        if self.address is None:
            # asyncio's transport raises this, because its socket is None by now.
            raise AttributeError("'NoneType' object has no attribute 'sendto'")
        return self.count_lost_write()

    cdef int send_or_report(self, object data, object address) except -1:
        """Send a datagram; an OSError goes to error_received(). BLOCKED, SENT or REFUSED."""
        cdef int result = SENT
        try:
            if not self.send(data, address):
                result = BLOCKED
        except OSError as error:
            result = REFUSED
            self.protocol.error_received(error)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.fatal_error(error, "Fatal write error on datagram transport")
        return result

    cdef bint send(self, object data, object address) except -1:
        cdef sockaddr_storage raw
        cdef socklen_t length = 0
        if not self.native:
            return self.send_by_socket_object(data, address)
        if self.connected:
            return self.send_native(data, None, NULL, 0)
        if address is self.sender and address is not None:
            # An answer to the last datagram: its raw address is known. Copied, because an audit hook may run the loop,
            # and the next datagram may come.
            memcpy(&raw, &self.sender_raw, self.sender_length)
            return self.send_native(data, address, &raw, self.sender_length)
        if address_from_python(address, self.family, &raw, &length):
            return self.send_native(data, address, &raw, length)
        return self.send_by_socket_object(data, address)

    cdef bint send_native(self, object data, object address, const sockaddr_storage *to, socklen_t length) except -1:
        # Kept, because an audit hook may end this transport.
        cdef LoopCore loop = self.loop
        cdef Py_buffer view
        cdef Py_ssize_t sent
        if length:
            PySys_Audit("socket.sendto", "OO", <PyObject *>self.sock, <PyObject *>address)
        if type(data) is bytes:
            sent = datagram_send(self.usable_fd(), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), to, length)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            sent = datagram_send(self.usable_fd(), view.buf, view.len, to, length)
            PyBuffer_Release(&view)
        if sent >= 0:
            metrics_sent(&loop.metrics, sent)
            return True
        if sent == -EAGAIN:
            return False
        raise os_error(sent)

    cdef bint send_by_socket_object(self, object data, object address) except -1:
        # Kept, because the method may end this transport.
        cdef LoopCore loop = self.loop
        try:
            sent = self.sock.send(data) if self.connected else self.sock.sendto(data, address)
        except (BlockingIOError, InterruptedError):
            return False
        # The send() of a program's socket class may return None.
        metrics_sent(&loop.metrics, sent if isinstance(sent, int) else len(data))
        return True

    cdef int enqueue(self, object data, object address) except -1:
        """Queue a datagram to be sent when the kernel has room again."""
        if self.lost:
            return 0
        data = bytes(data)
        if self.queue is None:
            self.queue = deque()
        self.queue.append((data, address))
        self.queued_bytes += len(data) + HEADER_SIZE
        if not self.blocked:
            self.wait_until_writable()
        elif self.queued_bytes == len(data) + HEADER_SIZE:
            # After an error the endpoint still waits, with an empty queue. asyncio now waits anew, so an event of this
            # turn does not count.
            self.events &= ~POLLER_WRITE
        return self.maybe_pause_protocol()

    cdef int ready_to_write(self) except -1:
        cdef int datagrams = DATAGRAMS_PER_TURN
        if self.lost or not self.blocked:
            return 0
        send_all_early()
        while self.queued_bytes and datagrams:
            datagrams -= 1
            data, address = self.queue.popleft()
            self.queued_bytes -= len(data) + HEADER_SIZE
            sent = self.send_or_report(data, address)
            if self.lost or sent == REFUSED:
                # asyncio, too, continues and resumes the protocol only in the next turn.
                return 0
            if sent == BLOCKED:
                self.queue.appendleft((data, address))
                self.queued_bytes += len(data) + HEADER_SIZE
                break
        # The protocol may send again, or close the transport.
        self.maybe_resume_protocol()
        return 0 if self.lost or self.queued_bytes else self.sent_all()

    cdef int sent_all(self) except -1:
        self.blocked = False
        if not self.closing:
            self.update_interest()
            return 0
        self.lost += 1
        self.ending_well = True
        return self.connection_lost(None)

    cdef Py_ssize_t unsent_bytes(self) noexcept:
        return self.queued_bytes

    cdef int discard_unsent(self) except -1:
        self.queue = None
        self.queued_bytes = 0
        self.blocked = False
        return 0

    @property
    def _address(self):
        return self.address

    @_address.setter
    def _address(self, address):
        # asyncio-dgram sets it, so that sendto() also compares addresses on a socket that was connected beforehand.
        if runs_in_other_thread(self.loop):
            call_in_loop_thread(self.loop, setattr, (self, "_address", address))
            return
        self.address = address or None


cdef DatagramTransport open_datagram(
    LoopCore loop, object sock, object protocol, object address, object waiter, object extra
):
    """A transport for a non-blocking socket, which it owns from here on."""
    cdef DatagramTransport transport = DatagramTransport.__new__(DatagramTransport)
    # A cache for each transport would cost more than it saves in a client that opens a socket for each query.
    transport.addresses = loop.addresses
    # Exposed: as datagrams are never gathered, this only adds a check whether the socket is still open. And it asks for
    # the socket's address now, as asyncio does, before the first send binds the socket.
    transport.adopt_socket(sock, extra, True)
    transport.address = address or None
    transport.connected = bool(transport.extra["peername"])
    transport.native = is_native(sock)
    if transport.native:
        transport.family = sock.family
    try:
        transport.reserve(loop)
        transport.open(loop, protocol, None, waiter)
        transport.count_as(METRICS_DATAGRAM)
    except BaseException:
        transport.release_resources()
        raise
    return transport


cdef bint is_native(object sock) except -1:
    """Whether this module can convert the socket's addresses, and no subclass overrides sending or receiving."""
    cdef object cls = type(sock)
    for name in BYPASSED:
        if getattr(cls, name, None) is not getattr(socket_base, name):
            return False
    return address_is_native(sock.family)
