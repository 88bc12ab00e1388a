"""asyncio with what differs on purpose in hotloop's sock_*() methods: see docs/differences.md."""

import asyncio
import contextlib
import os


class LateMethods:
    """asyncio's sock_*() methods, but a method that has waited makes its system call when its task goes on."""

    async def sock_recv(self, sock, n):
        return await self.late(sock, "reader", sock.recv, n)

    async def sock_recv_into(self, sock, buf):
        return await self.late(sock, "reader", sock.recv_into, buf)

    async def sock_recvfrom(self, sock, bufsize):
        return await self.late(sock, "reader", sock.recvfrom, bufsize)

    async def sock_recvfrom_into(self, sock, buf, nbytes=0):
        return await self.late(sock, "reader", sock.recvfrom_into, buf, nbytes or len(buf))

    async def sock_sendto(self, sock, data, address):
        return await self.late(sock, "writer", sock.sendto, data, address)

    async def sock_accept(self, sock):
        connection, address = await self.late(sock, "reader", sock.accept)
        connection.setblocking(False)
        return connection, address

    async def sock_sendall(self, sock, data):
        rest = memoryview(data)

        def send():
            nonlocal rest
            rest = rest[sock.send(rest) :]
            if len(rest):
                raise BlockingIOError

        await self.late(sock, "writer", send)

    async def _sock_sendfile_native(self, sock, file, offset, count):
        def send():
            try:
                return os.sendfile(sock.fileno(), file.fileno(), offset + sent, count - sent if count else 1 << 20)
            except BlockingIOError:
                return None

        sent = 0
        try:
            while not count or sent < count:
                done = send()
                if done == 0:
                    break
                sent += done or 0
                waited = []
                await self.late(sock, "writer", self.second_call, waited)
        except OSError as error:
            if sent == 0:
                raise asyncio.SendfileNotAvailableError from error
            raise
        return sent

    def second_call(self, calls):
        calls.append(None)
        if len(calls) == 1:
            raise BlockingIOError

    async def late(self, sock, kind, attempt, *arguments):
        handle = None
        while True:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return attempt(*arguments)
            ready = self.create_future()
            fd = sock.fileno()
            if handle is None:
                self._ensure_fd_no_transport(fd)
            if handle is None or receiver(self, fd, kind) is None:
                handle = getattr(self, f"_add_{kind}")(fd, self.wake, ready)
            try:
                await ready
            finally:
                if not handle.cancelled():
                    self.stop_waiting(kind, fd)

    def stop_waiting(self, kind, fd):
        try:
            getattr(self, f"_remove_{kind}")(fd)
        except OSError as error:
            # The number is another file's by now. asyncio's methods do this in a callback, whose errors are reported.
            self.call_exception_handler({"message": "Exception in callback", "exception": error})

    def wake(self, ready):
        if not ready.done():
            ready.set_result(None)


def receiver(loop, fd, kind):
    key = loop._selector.get_map().get(fd)
    return key and key.data[kind == "writer"]


class LateLoop(LateMethods, asyncio.SelectorEventLoop):
    pass


class LateAsyncio:
    new_event_loop = LateLoop


class MendedLoop(asyncio.SelectorEventLoop):
    """asyncio's, but a cancelled sock_sendfile() leaves another operation's writer."""

    def _sock_add_cancellation_callback(self, future, sock):
        def ended(_):
            if future.cancelled() and sock.fileno() != -1:
                writer = receiver(self, sock.fileno(), "writer")
                if writer is not None and writer._args[:1] == (future,):
                    self.remove_writer(sock)

        future.add_done_callback(ended)


class MendedAsyncio:
    new_event_loop = MendedLoop
