"""The sock_*() methods: one attempt of each. socket_operation.pyx has the coroutine around it.

For exactly Python's socket class, in the non-blocking mode that asyncio asks for, the system call is made here. Other
sockets (subclasses, look-alikes, blocking ones) are used through their methods, as in asyncio. So are wrong arguments,
because the methods raise the right exceptions for them.

Source: the documentation of `socket` and its C code, socketmodule.c; recv(2), send(2), accept(2), connect(2).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN

from hotloop._c.loop.loop_core cimport LoopCore
from hotloop._c.loop.state cimport metrics_received, metrics_sent
from hotloop._c.loop.unflushed cimport send_all_early
from hotloop._c.network.socket_operation cimport SocketOperation, new_operation
from hotloop._c.poller.watcher cimport POLLER_READ, POLLER_WRITE
from hotloop._c.runtime.python_api cimport PyLong_CheckExact, PySys_Audit
from hotloop._c.runtime.references cimport Py_NewRef, steal
from hotloop._c.system.address cimport (
    address_from_python,
    address_is_native,
    address_to_python,
    sockaddr,
    sockaddr_storage,
    socklen_t,
)
from hotloop._c.system.os_errors cimport os_error
from hotloop._c.system.receive cimport READ_SIZE
from hotloop._c.system.socket_class cimport socket_class_is_patched

import _socket
import errno
import io
import os
import socket
from asyncio import exceptions, unix_events

from hotloop._asyncio.sent_file import move_position, next_part

cdef extern from "Python.h":
    Py_ssize_t PyLong_AsSsize_t(object) noexcept

cdef extern from "system/socket_object.h":
    bint socket_object_find_functions(object type)
    int socket_object_fileno(object) except? -1
    int socket_object_family(object) except? -1
    bint socket_object_is_non_blocking(object) except -1

cdef extern from "system/socket_calls.h":
    int socket_accept(int fd, sockaddr_storage *, socklen_t *)
    Py_ssize_t socket_try_receive(int fd, void *, size_t, sockaddr_storage *, socklen_t *)
    Py_ssize_t socket_try_send(int fd, const void *, size_t, const sockaddr_storage *, socklen_t)

# For shortened(), below.
cdef extern from "system/receive.h":
    pass

cdef extern from *:
    """
    /* A new bytes object with the data of one receive of at most `room` bytes. NULL if there is none: `*count` is a
     * negative errno and no exception is set, or it is 0 and one is. */
    static PyObject *receive_new_bytes(int fd, Py_ssize_t room, Py_ssize_t *count)
    {
        PyObject *data = PyBytes_FromStringAndSize(NULL, room);

        *count = 0;
        if (data == NULL)
            return NULL;
        *count = socket_try_receive(fd, PyBytes_AS_STRING(data), (size_t)room, NULL, NULL);
        if (*count < 0)
            Py_CLEAR(data);
        else if (*count == 0)
            Py_SETREF(data, PyBytes_FromStringAndSize(NULL, 0));
        else if (*count < room)
            data = shortened(data, *count);
        return data;
    }
    """
    PyObject *receive_new_bytes(int fd, Py_ssize_t room, Py_ssize_t *count) except? NULL

# Up to this size a receive makes its bytes object first: to shrink that costs less than to copy the data.
cdef Py_ssize_t SMALL_RECEIVE = 4 * 1024
# After a receive of at least this size the next one makes its object first, too: to copy as much costs more.
cdef Py_ssize_t LARGE_RECEIVE = 16 * 1024
# How many times one sock_sendall() sends before it yields to other callbacks.
cdef int SENDS_PER_TURN = 4
# What send_rest() returns, unless it is a negative errno.
cdef enum:
    ALL_SENT = 1
    SENT_FOR_NOW = 0

cdef int SOCK_NONBLOCK = getattr(socket, "SOCK_NONBLOCK", 0)

cdef object socket_class = socket.socket
socket_object_find_functions(_socket.socket)


cdef bint can_call_kernel(SocketOperation self) except -1:
    """Before each attempt: whether the system call may be made here; then `fd` is the socket's descriptor, -1 if it is
    closed."""
    send_all_early()
    self.may_register = type(self.sock) is socket_class and not socket_class_is_patched()
    if self.may_register:
        self.fd = socket_object_fileno(self.sock)
    return self.may_register


cdef PyObject *call_method(SocketOperation self, str name, tuple arguments) except? NULL:
    """Make the attempt by a method of the socket object."""
    cdef object result
    self.may_register = False
    try:
        result = getattr(self.sock, name)(*arguments)
        count_bytes(self.loop, name, result)
        return Py_NewRef(result)
    except (BlockingIOError, InterruptedError):
        return NULL
    except StopIteration as error:
        raise RuntimeError("coroutine raised StopIteration") from error


cdef int count_bytes(LoopCore loop, str name, object result) except -1:
    """Count the bytes that a socket's method sent or received, if its result tells."""
    cdef bint sends = name.startswith("send")
    cdef bint is_datagram = not sends and type(result) is tuple and result
    if is_datagram:
        result = result[0]
    if not sends and type(result) is bytes:
        result = len(result)
    if type(result) is not int:
        return 0
    if sends:
        if result >= 0:
            metrics_sent(&loop.metrics, result)
    elif result >= (0 if is_datagram else 1):  # the end of a stream does not count, an empty datagram does
        metrics_received(&loop.metrics, result)
    return 0


cdef bint would_block(SocketOperation self, Py_ssize_t count) except -1:
    """Check the result of a system call, a count or a negative errno: True if the socket was not ready. Other errors
    are raised as OSError.

    On True `may_register` says whether the operation waits by itself: a socket that is blocking or has a timeout waits
    in its own method."""
    if count >= 0:
        return False
    if count != -EAGAIN:
        raise os_error(count)
    self.may_register = socket_object_is_non_blocking(self.sock)
    return True


cdef inline bint is_size(object number, Py_ssize_t *size) noexcept:
    """Whether `number` is an int that recv() takes; then it is in `size`."""
    if not PyLong_CheckExact(number):
        return False
    size[0] = PyLong_AsSsize_t(number)
    if size[0] < 0:
        # It may be too large.
        PyErr_Clear()
        return False
    return True


# -- receiving ---------------------------------------------------------------------------------------------------------

cdef SocketOperation receive(LoopCore loop, object sock, object size):
    return new_operation(loop, "sock_recv", try_receive, POLLER_READ, sock, size, None)


cdef PyObject *try_receive(SocketOperation self) except? NULL:
    cdef LoopCore loop = self.loop
    cdef Py_ssize_t size, count = 0
    cdef PyObject *data
    if not can_call_kernel(self) or not is_size(self.argument, &size):
        return call_method(self, "recv", (self.argument,))
    if size == 0:
        # As in socketmodule.c, which makes no system call then.
        return Py_NewRef(b"")
    if size <= SMALL_RECEIVE or size > READ_SIZE or loop.last_received >= LARGE_RECEIVE:
        data = receive_new_bytes(self.fd, size, &count)
    else:
        count = socket_try_receive(self.fd, loop.receive_buffer(), size, NULL, NULL)
        data = NULL if count < 0 else Py_NewRef(loop.take_received(count))
    if would_block(self, count):
        return NULL if self.may_register else call_method(self, "recv", (self.argument,))
    if count > 0:
        metrics_received(&loop.metrics, count)
    loop.last_received = count
    return data


cdef SocketOperation receive_into(LoopCore loop, object sock, object buffer):
    return new_operation(loop, "sock_recv_into", try_receive_into, POLLER_READ, sock, buffer, None)


cdef PyObject *try_receive_into(SocketOperation self) except? NULL:
    cdef Py_buffer view
    cdef Py_ssize_t count = 0
    if not can_call_kernel(self) or not get_buffer(self, &view, PyBUF_WRITABLE):
        return call_method(self, "recv_into", (self.argument,))
    if view.len:
        count = socket_try_receive(self.fd, view.buf, view.len, NULL, NULL)
    PyBuffer_Release(&view)
    if would_block(self, count):
        return NULL if self.may_register else call_method(self, "recv_into", (self.argument,))
    if count > 0:
        metrics_received(&self.loop.metrics, count)
    return Py_NewRef(count)


cdef SocketOperation receive_from(LoopCore loop, object sock, object size):
    return new_operation(loop, "sock_recvfrom", try_receive_from, POLLER_READ, sock, size, None)


cdef PyObject *try_receive_from(SocketOperation self) except? NULL:
    cdef sockaddr_storage peer
    cdef socklen_t length = 0
    cdef Py_ssize_t size, count
    if (
        not can_call_kernel(self)
        or not address_is_native(socket_object_family(self.sock))
        or not is_size(self.argument, &size)
    ):
        return call_method(self, "recvfrom", (self.argument,))
    if size > READ_SIZE:
        return call_method(self, "recvfrom", (self.argument,))
    count = socket_try_receive(self.fd, self.loop.receive_buffer(), size, &peer, &length)
    if would_block(self, count):
        return NULL if self.may_register else call_method(self, "recvfrom", (self.argument,))
    metrics_received(&self.loop.metrics, count)
    data = self.loop.take_received(count)
    return Py_NewRef((data, self.loop.addresses.lookup(<sockaddr *>&peer, length)))


cdef SocketOperation receive_from_into(LoopCore loop, object sock, object buffer, object size):
    return new_operation(loop, "sock_recvfrom_into", try_receive_from_into, POLLER_READ, sock, buffer, size)


cdef PyObject *try_receive_from_into(SocketOperation self) except? NULL:
    cdef sockaddr_storage peer
    cdef socklen_t length = 0
    cdef Py_buffer view
    cdef Py_ssize_t size, count
    if not self.second_argument:
        self.second_argument = len(self.argument)
    if (
        not can_call_kernel(self)
        or not address_is_native(socket_object_family(self.sock))
        or not is_size(self.second_argument, &size)
        or not get_buffer(self, &view, PyBUF_WRITABLE)
    ):
        return call_method(self, "recvfrom_into", (self.argument, self.second_argument))
    if size == 0 or size > view.len:
        PyBuffer_Release(&view)
        return call_method(self, "recvfrom_into", (self.argument, self.second_argument))
    count = socket_try_receive(self.fd, view.buf, size, &peer, &length)
    PyBuffer_Release(&view)
    if would_block(self, count):
        return NULL if self.may_register else call_method(self, "recvfrom_into", (self.argument, self.second_argument))
    metrics_received(&self.loop.metrics, count)
    return Py_NewRef((count, self.loop.addresses.lookup(<sockaddr *>&peer, length)))


cdef bint get_buffer(SocketOperation self, Py_buffer *view, int flags) except -1:
    """Get the buffer of `argument`, or of the view of it that the operation keeps. False if it has no such buffer: the
    socket's method raises the right exception."""
    cdef object owner = self.argument if self.view is None else self.view
    try:
        PyObject_GetBuffer(owner, view, PyBUF_SIMPLE | flags)
    except (TypeError, BufferError):
        return False
    if type(owner) is not bytearray and type(owner) is not memoryview:
        # Since 3.12 it may be a Python object, whose methods may have closed the socket.
        self.fd = socket_object_fileno(self.sock)
    return True


# -- sending -----------------------------------------------------------------------------------------------------------

cdef SocketOperation send_all(LoopCore loop, object sock, object data):
    return new_operation(loop, "sock_sendall", try_send_all, POLLER_WRITE, sock, data, None)


cdef PyObject *try_send_all(SocketOperation self) except? NULL:
    cdef Py_buffer view
    cdef Py_ssize_t size
    cdef int status
    if not can_call_kernel(self):
        return try_send_all_by_method(self)
    if type(self.argument) is bytes:
        size = PyBytes_GET_SIZE(self.argument)
        status = send_rest(self, PyBytes_AS_STRING(self.argument), size)
    elif get_buffer(self, &view, 0):
        size = view.len
        status = send_rest(self, <const char *>view.buf, size)
        PyBuffer_Release(&view)
    else:
        return try_send_all_by_method(self)
    if status == ALL_SENT:
        self.view = None
        return Py_NewRef(None)
    if status == SENT_FOR_NOW:
        self.yields_once = True
    elif would_block(self, status):
        if not self.may_register:
            return try_send_all_by_method(self)
        if size == 0:
            # As in asyncio, nothing is left to send, though an empty datagram was not sent.
            return Py_NewRef(None)
    if self.view is None:
        self.view = view_of_bytes(self.argument)
    return NULL


cdef int send_rest(SocketOperation self, const char *data, Py_ssize_t size) noexcept:
    """Send the rest: returns ALL_SENT, SENT_FOR_NOW for one attempt, or a negative errno. Adds to `progress`."""
    cdef Py_ssize_t sent
    for _ in range(SENDS_PER_TURN):
        sent = socket_try_send(self.fd, data + self.progress, max(size - self.progress, 0), NULL, 0)
        if sent < 0:
            return <int>sent
        self.progress += sent
        metrics_sent(&self.loop.metrics, sent)
        if self.progress >= size:
            return ALL_SENT
    return SENT_FOR_NOW


cdef PyObject *try_send_all_by_method(SocketOperation self) except? NULL:
    cdef PyObject *sent
    if self.view is None and self.progress:
        self.view = view_of_bytes(self.argument)
    sent = call_method(self, "send", (self.argument if self.view is None else self.view[self.progress:],))
    if sent != NULL:
        self.progress += steal(sent)
    if self.view is None:
        self.view = view_of_bytes(self.argument)
    if self.progress == len(self.view):
        self.view = None
        return Py_NewRef(None)
    return NULL


cdef object view_of_bytes(object data):
    """A view of single bytes, which send() counts, whatever the data's items are. The data itself if there is none: a
    program's send() may take anything."""
    cdef object view = data
    try:
        view = memoryview(data)
        if view.ndim and view.nbytes and view.c_contiguous:
            view = view.cast("B")
    except TypeError:
        pass
    return view


cdef SocketOperation send_to(LoopCore loop, object sock, object data, object address):
    return new_operation(loop, "sock_sendto", try_send_to, POLLER_WRITE, sock, data, address)


cdef PyObject *try_send_to(SocketOperation self) except? NULL:
    cdef sockaddr_storage target
    cdef socklen_t length = 0
    cdef Py_buffer view
    cdef Py_ssize_t sent
    if (
        not can_call_kernel(self)
        or not address_from_python(self.second_argument, socket_object_family(self.sock), &target, &length)
        or not get_buffer(self, &view, 0)
    ):
        return call_method(self, "sendto", (self.argument, self.second_argument))
    try:
        PySys_Audit("socket.sendto", "OO", <PyObject *>self.sock, <PyObject *>self.second_argument)
        # A hook may have closed the socket.
        self.fd = socket_object_fileno(self.sock)
        sent = socket_try_send(self.fd, view.buf, view.len, &target, length)
    finally:
        PyBuffer_Release(&view)
    if would_block(self, sent):
        return NULL if self.may_register else call_method(self, "sendto", (self.argument, self.second_argument))
    metrics_sent(&self.loop.metrics, sent)
    return Py_NewRef(sent)


# -- accepting ---------------------------------------------------------------------------------------------------------

cdef SocketOperation accept(LoopCore loop, object sock):
    return new_operation(loop, "sock_accept", try_accept, POLLER_READ, sock, None, None)


cdef PyObject *try_accept(SocketOperation self) except? NULL:
    cdef sockaddr_storage peer
    cdef socklen_t length = 0
    cdef int fd
    if not can_call_kernel(self) or not address_is_native(socket_object_family(self.sock)):
        return accept_by_method(self)
    fd = socket_accept(self.fd, &peer, &length) if socket_object_is_non_blocking(self.sock) else -EAGAIN
    if would_block(self, fd):
        return NULL if self.may_register else accept_by_method(self)
    try:
        address = address_to_python(<sockaddr *>&peer, length)
        # As socket.accept(), with the listener's type; SOCK_NONBLOCK in it says that the descriptor is non-blocking.
        kind = _socket.socket.type.__get__(self.sock)
        connection = socket_class(self.sock.family, kind | SOCK_NONBLOCK, self.sock.proto, fileno=fd)
    except BaseException:
        os.close(fd)
        raise
    if connection.gettimeout() != 0:
        connection.setblocking(False)
    return Py_NewRef((connection, address))


cdef PyObject *accept_by_method(SocketOperation self) except? NULL:
    cdef PyObject *accepted = call_method(self, "accept", ())
    if accepted == NULL:
        return NULL
    connection, address = steal(accepted)
    try:
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return Py_NewRef((connection, address))


# -- files -------------------------------------------------------------------------------------------------------------

async def send_file(loop, sock, file, offset, count):
    """loop._sock_sendfile_native(): returns the number of bytes sent, and moves the file's position behind them.

    asyncio.SendfileNotAvailableError if os.sendfile() cannot send this file."""
    # Where asyncio looks: tests remove it there.
    if not hasattr(unix_events.os, "sendfile"):
        raise exceptions.SendfileNotAvailableError("os.sendfile() is not available")
    try:
        source = file.fileno()
        size = os.fstat(source).st_size
    except (AttributeError, io.UnsupportedOperation, OSError):
        raise exceptions.SendfileNotAvailableError("not a regular file")
    block = count or size
    if not block:
        return 0
    sent = 0
    try:
        while not count or sent < count:
            block = next_part(size, count, sent)
            send_all_early()
            try:
                done = os.sendfile(sock.fileno(), source, offset + sent, block)
            except (BlockingIOError, InterruptedError):
                pass
            else:
                if done == 0:
                    break
                metrics_sent(&(<LoopCore>loop).metrics, done)
                sent += done
            # Also after the last part, as asyncio does.
            await new_operation(loop, "sock_sendfile", try_when_ready, POLLER_WRITE, sock, None, None)
    except OSError as error:
        if sent == 0:
            raise exceptions.SendfileNotAvailableError("os.sendfile call failed") from error
        if error.errno == errno.ENOTCONN and type(error) is not ConnectionError:
            # The connection was closed meanwhile: the same exception on all systems.
            raise ConnectionError("socket is not connected", errno.ENOTCONN) from error
        raise
    finally:
        move_position(file, offset, sent)
    return sent


cdef PyObject *try_when_ready(SocketOperation self) except? NULL:
    """Only wait for the socket. `progress`: whether it has waited."""
    if self.progress:
        return Py_NewRef(None)
    self.progress = 1
    can_call_kernel(self)
    return NULL
