"""Scenarios of connections: protocols and streams, TCP and Unix, with and without TLS, one and many."""

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from typing import Any, ClassVar

from .peers import BufferedEcho, Client, Echo, close_clients, contexts
from .scenario import Corrupt, Lost, Plain, Scenario


class Serving(Scenario):
    """A server with an echo, connections to it during the fault, and another one afterwards."""

    server_protocol: ClassVar[Any] = Echo
    messages: ClassVar[int] = 3
    size: ClassVar[int] = 100
    is_tls: ClassVar[bool] = False

    async def prepare(self) -> None:
        tls = contexts()[0] if self.is_tls else None
        self.server = await self.loop.create_server(self.server_protocol, "127.0.0.1", 0, ssl=tls)
        self.address = self.server.sockets[0].getsockname()
        self.options = {"ssl": contexts()[1], "server_hostname": "localhost"} if self.is_tls else {}

    def write(self, transport: Any, message: bytes) -> None:
        transport.write(message)

    async def converse(self) -> None:
        transport, client = await self.loop.create_connection(Client, *self.address, **self.options)
        sent = bytearray()
        try:
            for number in range(self.messages):
                message = bytes([65 + number]) * self.size
                self.write(transport, message)
                sent += message
                await asyncio.sleep(0)
            await client.until(len(sent))
        finally:
            transport.close()
            if not sent.startswith(client.received):
                raise Corrupt("the bytes of the echo")
        await client.lost

    async def act(self) -> None:
        await self.converse()

    async def serve(self) -> None:
        await self.converse()

    async def close(self) -> None:
        self.server.close()
        close_clients(self.server)
        await asyncio.sleep(0)


class Tcp(Serving):
    is_hot = True


class TcpBuffered(Serving):
    server_protocol = BufferedEcho


class TcpMuch(Serving):
    size = 300_000
    seconds = 1


class TcpWritelines(Serving):
    def write(self, transport: Any, message: bytes) -> None:
        half = len(message) // 2
        transport.writelines([message[:10], bytearray(message[10:half]), memoryview(message)[half:]])


class Tls(Serving):
    is_tls = True
    seconds = 1


class TlsMuch(Serving):
    is_tls = True
    size = 100_000
    seconds = 1


class HalfClosed(Serving):
    """write_eof(): all data written before arrives before the end."""

    class server_protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.received = transport, b""

        def data_received(self, data: bytes) -> None:
            self.received += data

        def eof_received(self) -> None:
            self.transport.write(self.received)

    async def converse(self) -> None:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(b"hello")
            writer.write_eof()
            received = await reader.read(-1)
        finally:
            writer.close()
        await writer.wait_closed()
        if received != b"hello":
            raise Lost("the answer, or part of it") if b"hello".startswith(received) else Corrupt(repr(received))


class ManyConnections(Serving):
    """Eight clients in a row, outside of the loop: each gets its answer, or the end of its connection."""

    async def prepare(self) -> None:
        await super().prepare()
        self.clients = [socket.create_connection(self.address) for _ in range(8)]
        for number, client in enumerate(self.clients):
            client.sendall(bytes([65 + number]) * 10)
            client.setblocking(False)

    async def act(self) -> None:
        answers = await asyncio.gather(*map(self.answer, self.clients), return_exceptions=True)
        for number, answer in enumerate(answers):
            if isinstance(answer, BaseException):
                raise answer
            if answer != bytes([65 + number]) * 10:
                # The end of its connection is the only report that a client can get.
                raise ConnectionResetError(number) if not answer else Corrupt(repr(answer))

    async def answer(self, client: socket.socket) -> bytes:
        received = b""
        while len(received) < 10 and (data := await self.loop.sock_recv(client, 100)):
            received += data
        return received

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await super().close()


class ManyReady(Plain):
    """Many connections have data in the same turn: each gets its data or its end, and later data as well."""

    is_tcp: ClassVar[bool] = True
    count: ClassVar[int] = 40

    class Counting(asyncio.Protocol):
        def __init__(self) -> None:
            self.received, self.is_lost = 0, False

        def data_received(self, data: bytes) -> None:
            self.received += len(data)

        def connection_lost(self, error: Exception | None) -> None:
            self.is_lost = True

    async def prepare(self) -> None:
        self.pairs, self.transports, self.protocols = [], [], []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(self.count):
                if self.is_tcp:
                    other = socket.create_connection(listener.getsockname())
                    one, _ = listener.accept()
                else:
                    one, other = socket.socketpair()
                one.setblocking(False)
                connect = self.loop.create_connection if self.is_tcp else self.loop.create_unix_connection
                transport, protocol = await connect(self.Counting, sock=one)
                self.pairs.append((one, other))
                self.transports.append(transport)
                self.protocols.append(protocol)

    def have(self, count: int) -> bool:
        return all(protocol.received >= count or protocol.is_lost for protocol in self.protocols)

    def calls(self) -> None:
        for _, other in self.pairs:
            self.send_until_sent(other)
        self.turns_until(lambda: self.have(1))

    @staticmethod
    def send_until_sent(other: socket.socket) -> None:
        """Send until it succeeds: the peer's own failures are not the subject."""
        while True:
            try:
                other.send(b"x")
                return
            except (MemoryError, OSError):
                continue

    async def serve(self) -> None:
        for _, other in self.pairs:
            with contextlib.suppress(OSError):
                other.send(b"y")
        while not self.have(2):
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        for transport in self.transports:
            transport.abort()
        for _, other in self.pairs:
            other.close()
        self.transports.clear()
        await asyncio.sleep(0)


class ManyReadyUnix(ManyReady):
    is_tcp = False


class ManyWrites(ManyReady):
    """Many transports write in one turn: each write, and each later one, is sent or its failure is reported."""

    def calls(self) -> None:
        self.taken = [b""] * self.count
        done: list[bool] = []

        def write() -> None:
            for number, transport in enumerate(self.transports):
                for data in (b"one", b"TWO"):
                    try:
                        transport.write(data)
                        self.taken[number] += data
                    except MemoryError as error:
                        self.harness.report("write", error)
            done.append(True)

        while self.attempt(self.loop.call_soon, write) is None:
            pass
        self.turns_until(lambda: done or self.harness.is_reported)
        turns = iter(range(4))
        self.turns_until(lambda: next(turns, None) is None)

    async def serve(self) -> None:
        for transport in self.transports:
            transport.write(b".")
        await asyncio.sleep(0.001)
        for number, (_, other) in enumerate(self.pairs):
            other.setblocking(False)
            received = b""
            while not received.endswith(b".") and not self.protocols[number].is_lost:
                with contextlib.suppress(BlockingIOError):
                    data = other.recv(100)
                    received += data
                    if not data:
                        break
                await asyncio.sleep(0)
            whole = self.taken[number] + b"."
            if received != whole and not self.harness.is_reported:
                raise Lost(f"{received!r} of {whole!r}")


class Streams(Scenario):
    """Streams: lines there and back."""

    is_tls: ClassVar[bool] = False
    size: ClassVar[int] = 200

    async def prepare(self) -> None:
        tls = contexts() if self.is_tls else (None, None)
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0, ssl=tls[0])
        address = self.server.sockets[0].getsockname()
        options = {"ssl": tls[1], "server_hostname": "localhost"} if self.is_tls else {}
        self.open = lambda: asyncio.open_connection(*address, **options)

    @staticmethod
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def converse(self) -> None:
        reader, writer = await self.open()
        try:
            await self.exchange(reader, writer)
        finally:
            writer.close()
        await writer.wait_closed()

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(3):
            line = bytes([65 + number]) * self.size + b"\n"
            writer.write(line)
            await writer.drain()
            answer = await reader.readline()
            if answer != line:
                raise ConnectionResetError("EOF") if line.startswith(answer) else Corrupt(repr(answer))

    async def act(self) -> None:
        await self.converse()

    async def serve(self) -> None:
        await self.converse()

    async def close(self) -> None:
        self.server.close()
        close_clients(self.server)
        await asyncio.sleep(0)


class UnixStreams(Streams):
    async def prepare(self) -> None:
        folder = tempfile.mkdtemp()
        path = f"{folder}/s"
        self.exits.callback(os.rmdir, folder)
        self.exits.callback(lambda: os.path.exists(path) and os.unlink(path))
        self.server = await asyncio.start_unix_server(self.answer, path)
        self.open = lambda: asyncio.open_unix_connection(path)

    async def close(self) -> None:
        await super().close()
        await self.exits.aclose()


class TlsStreams(Streams):
    is_tls = True
    seconds = 1


class StartTls(Streams):
    seconds = 1

    @staticmethod
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readline()
            writer.write(b"go\n")
            await writer.drain()
            await writer.start_tls(contexts()[0])
            writer.write(await reader.readline())
            await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"start\n")
        if await reader.readline() != b"go\n":
            raise ConnectionResetError("EOF")
        await writer.start_tls(contexts()[1], server_hostname="localhost")
        writer.write(b"hello\n")
        answer = await reader.readline()
        if answer != b"hello\n":
            raise ConnectionResetError("EOF") if b"hello\n".startswith(answer) else Corrupt(repr(answer))


class Sendfile(Scenario):
    SIZE = 300_000

    async def prepare(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.file.write(b"f" * self.SIZE)
        scenario = self

        class Sending(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport
                self.task = scenario.loop.create_task(self.send())

            async def send(self) -> None:
                try:
                    await scenario.loop.sendfile(self.transport, scenario.file)
                except OSError:
                    self.transport.abort()
                finally:
                    self.transport.close()

        self.server = await self.loop.create_server(Sending, "127.0.0.1", 0)
        self.address = self.server.sockets[0].getsockname()

    async def act(self) -> None:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            received = await reader.read(-1)
        finally:
            writer.close()
        if received != b"f" * len(received):
            raise Corrupt("the bytes")
        if len(received) != self.SIZE:
            raise ConnectionResetError("EOF")

    serve = act

    async def close(self) -> None:
        self.server.close()
        close_clients(self.server)
        await asyncio.sleep(0)
        self.file.close()
