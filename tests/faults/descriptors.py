"""Scenarios of datagrams, pipes, subprocesses, the sock_*() methods and add_reader()."""

import asyncio
import contextlib
import os
import socket
from typing import Any

from .scenario import Corrupt, Lost, Scenario


class Datagrams(Scenario):
    """Three datagrams there and back."""

    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.transport.sendto(data, address)

    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.received: list[bytes] = []
            self.done = asyncio.get_running_loop().create_future()

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.received.append(data)
            if len(self.received) == 3 and not self.done.done():
                self.done.set_result(None)

        def error_received(self, error: Exception) -> None:
            if not self.done.done():
                self.done.set_exception(error)

        def connection_lost(self, error: Exception | None) -> None:
            if not self.done.done():
                self.done.set_exception(error or ConnectionResetError("the transport was lost"))
                self.done.exception()

    async def prepare(self) -> None:
        self.server, _ = await self.loop.create_datagram_endpoint(self.Server, local_addr=("127.0.0.1", 0))
        self.address = self.server.get_extra_info("sockname")

    async def act(self) -> None:
        transport, client = await self.loop.create_datagram_endpoint(self.Client, remote_addr=self.address)
        try:
            for number in range(3):
                transport.sendto(b"%d" % number)
            await client.done
        finally:
            transport.close()
        if client.received != [b"0", b"1", b"2"]:
            raise Corrupt(repr(client.received))

    async def serve(self) -> None:
        if not self.server.is_closing():  # asyncio closes it for an OSError of recvfrom()
            await self.act()

    async def close(self) -> None:
        self.server.close()
        await asyncio.sleep(0)


class Pipes(Scenario):
    SENT = b"abc" * 100 + b"x" * 150_000

    async def prepare(self) -> None:
        read_end, write_end = os.pipe()
        self.source, self.target = os.fdopen(read_end, "rb", 0), os.fdopen(write_end, "wb", 0)

    async def act(self) -> None:
        with self.source as source, self.target as target:
            reader = asyncio.StreamReader()
            incoming, _ = await self.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
            try:
                outgoing, _ = await self.loop.connect_write_pipe(asyncio.BaseProtocol, target)
                try:
                    try:
                        outgoing.write(self.SENT[:300])
                        outgoing.write(self.SENT[300:])
                    finally:
                        outgoing.close()
                    received = await reader.read(-1)
                finally:
                    # Before its file is closed, whose number another file gets then.
                    if outgoing.get_write_buffer_size():
                        outgoing.abort()
            finally:
                incoming.close()
                await asyncio.sleep(0)
        if received != self.SENT:
            raise Lost(f"{len(received)} bytes have come") if self.SENT.startswith(received) else Corrupt("the bytes")

    async def serve(self) -> None:
        await self.prepare()
        await self.act()

    async def close(self) -> None:
        self.source.close()
        self.target.close()


class Subprocess(Scenario):
    seconds = 3

    async def act(self) -> None:
        process = await asyncio.create_subprocess_exec("/bin/cat", stdin=-1, stdout=-1)
        self.processes.append(process)
        received, _ = await process.communicate(b"hello")
        if received != b"hello":
            raise Lost("the output") if b"hello".startswith(received) else Corrupt(repr(received))
        # If other code has taken the exit status, asyncio reports 255 and logs a warning.
        if process.returncode and process.returncode != 255:
            raise Corrupt(f"exit code {process.returncode}")

    serve = act

    async def prepare(self) -> None:
        self.processes: list[Any] = []

    async def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process._transport.close()
        self.processes.clear()
        await asyncio.sleep(0)


class SocketMethods(Scenario):
    """sock_accept(), sock_connect(), sock_sendall(), sock_recv(), sock_recv_into()."""

    async def prepare(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)

    async def act(self) -> None:
        tasks: list[Any] = []
        with contextlib.ExitStack() as sockets:
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            accepting = self.loop.create_task(self.loop.sock_accept(self.listener))
            tasks.append(accepting)
            try:
                await self.loop.sock_connect(client, self.listener.getsockname())
                server, _ = await accepting
                sockets.enter_context(server)
                await self.loop.sock_sendall(client, b"q" * 3000)
                received = b""
                while len(received) < 3000:
                    data = await self.loop.sock_recv(server, 2000)
                    if not data:
                        raise Lost("EOF")
                    received += data
                buffer = bytearray(1)
                receiving = self.loop.create_task(self.loop.sock_recv_into(client, buffer))
                tasks.append(receiving)
                await asyncio.sleep(0)
                await self.loop.sock_sendall(server, b"z")
                if received != b"q" * 3000 or await receiving != 1 or buffer != b"z":
                    raise Corrupt("the bytes")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def serve(self) -> None:
        self.listener.close()  # a connection of an earlier attempt may wait there
        await self.prepare()
        await self.act()

    async def close(self) -> None:
        self.listener.close()


class SocketDatagrams(Scenario):
    """sock_sendto(), sock_recvfrom()."""

    async def act(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as other:
            for end in (one, other):
                end.bind(("127.0.0.1", 0))
                end.setblocking(False)
            receiving = self.loop.create_task(self.loop.sock_recvfrom(one, 100))
            try:
                await asyncio.sleep(0)
                await self.loop.sock_sendto(other, b"hello", one.getsockname())
                data, _ = await receiving
                if data != b"hello":
                    raise Corrupt(repr(data))
            finally:
                receiving.cancel()
                await asyncio.wait([receiving])

    serve = act


class Readers(Scenario):
    """add_reader() and add_writer(), many and several times."""

    is_hot = True

    async def prepare(self) -> None:
        self.pairs = [socket.socketpair() for _ in range(40)]

    async def act(self) -> None:
        seen = bytearray(len(self.pairs))
        all_seen = self.loop.create_future()

        def read(number: int) -> None:
            self.pairs[number][0].recv(10)
            seen[number] = 1
            if all(seen) and not all_seen.done():
                all_seen.set_result(None)

        def write(number: int) -> None:
            self.pairs[number][1].send(b"x")
            self.loop.remove_writer(self.pairs[number][1])

        for number, (one, other) in enumerate(self.pairs):
            self.loop.add_reader(one, read, number)
            self.loop.add_writer(other, write, number)
        await all_seen
        for one, _ in self.pairs:
            self.loop.remove_reader(one)

    async def close(self) -> None:
        for one, other in self.pairs:
            for end, remove in ((one, self.loop.remove_reader), (other, self.loop.remove_writer)):
                remove(end)
                end.close()
