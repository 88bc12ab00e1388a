"""What the compiler's profile is recorded from: a little of everything that programs do much of.

setup.py runs this with an instrumented build of the package (HOTLOOP_PROFILE). It needs nothing but that build and the
standard library. Which branches are taken counts, not for how long, so each scenario is short.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import socket
import ssl
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import hotloop
import hotloop.asyncio

ROUNDS = 200
# Small messages, those that fill a read, and those that a socket does not take at once.
SIZES = (1, 1000, 16_384, 300_000)

# Either asyncio, or hotloop.asyncio with the compiled objects.
Layer = Any


# -- callbacks, tasks and what they wait for ---------------------------------------------------------------------------


async def callbacks(layer: Layer) -> None:
    loop = asyncio.get_running_loop()
    for number in range(ROUNDS):
        done = loop.create_future()
        for _ in range(20):
            loop.call_soon(max, number, 1)
        loop.call_soon(print, "never").cancel()
        loop.call_soon(done.set_result, None)
        await done


async def timers(layer: Layer) -> None:
    loop = asyncio.get_running_loop()
    for number in range(ROUNDS):
        for _ in range(5):
            loop.call_later(0.0001 * (number % 5), max, number, 1)
            loop.call_later(1000, print, "never").cancel()
        loop.call_at(loop.time(), max, number, 1)
        await layer.sleep(0.0001)


async def tasks(layer: Layer) -> None:
    async def inner(number: int) -> int:
        await layer.sleep(0)
        return number

    async def outer(number: int) -> int:
        return await inner(number) + await loop.create_task(inner(number))

    async def failing() -> None:
        await layer.sleep(0)
        raise ValueError

    loop = asyncio.get_running_loop()
    for number in range(ROUNDS):
        await layer.gather(*(outer(number) for _ in range(5)))
        task = loop.create_task(outer(number))
        task.add_done_callback(asyncio.Task.result)
        await layer.wait([task, loop.create_task(inner(number))])
        async with layer.TaskGroup() as group:
            group.create_task(inner(number))
            group.create_task(outer(number))
        for task in layer.as_completed([inner(number), outer(number)]):
            await task
        await layer.gather(failing(), layer.shield(inner(number)), return_exceptions=True)


async def cancellation(layer: Layer) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(ROUNDS):
        task = loop.create_task(layer.sleep(1000))
        await layer.sleep(0)
        task.cancel()
        await layer.wait([task])
        with contextlib.suppress(TimeoutError):
            await layer.wait_for(loop.create_future(), 0.00001)
        async with layer.timeout(1000):
            await layer.wait_for(layer.sleep(0), 1000)


async def queues(layer: Layer) -> None:
    async def produce() -> None:
        for number in range(ROUNDS):
            await queue.put(number)

    async def consume() -> None:
        while True:
            await queue.get()
            queue.task_done()

    queue = layer.Queue(10)
    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    await layer.gather(produce(), produce())
    await queue.join()
    for task in consumers:
        task.cancel()


async def locks(layer: Layer) -> None:
    async def use() -> None:
        for _ in range(ROUNDS // 10):
            async with lock, semaphore:
                await layer.sleep(0)
            async with condition:
                condition.notify_all()
            async with condition:
                await condition.wait_for(event.is_set)

    lock, semaphore, condition, event = layer.Lock(), layer.Semaphore(2), layer.Condition(), layer.Event()
    event.set()
    await layer.gather(*(use() for _ in range(5)), event.wait())


async def threads(layer: Layer) -> None:
    def call() -> None:
        for number in range(ROUNDS):
            for _ in range(20):
                loop.call_soon_threadsafe(max, number, 1)
            asyncio.run_coroutine_threadsafe(layer.sleep(0), loop).result()

    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        await loop.run_in_executor(executor, call)
        for _ in range(ROUNDS):
            await loop.run_in_executor(executor, threading.get_ident)


# -- transports and protocols ------------------------------------------------------------------------------------------


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer = memoryview(bytearray(65_536))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


class Client(asyncio.Protocol):
    """Sends a message so many times, each when the answer to the one before is complete."""

    def __init__(self, message: bytes, rounds: int) -> None:
        self.message = message
        self.rounds = rounds
        self.done = asyncio.get_running_loop().create_future()
        self.missing = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.missing = len(self.message)
        if self.rounds % 2:
            self.transport.write(self.message)
        else:
            half = len(self.message) // 2
            self.transport.writelines([self.message[:half], self.message[half:]])

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if self.missing == 0:
            self.rounds -= 1
            if self.rounds:
                self.send()
            else:
                self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set_result(None)


def rounds_of(size: int) -> int:
    return ROUNDS if size < 100_000 else ROUNDS // 10


async def protocols(factory: Callable[[], Any], options: tuple[dict[str, Any], dict[str, Any]]) -> None:
    serving, connecting = options
    loop = asyncio.get_running_loop()
    async with await loop.create_server(factory, "127.0.0.1", 0, **serving) as server:
        address = server.sockets[0].getsockname()
        for size in SIZES:
            client = functools.partial(Client, bytes(size), rounds_of(size))
            _, protocol = await loop.create_connection(client, *address, **connecting)
            await protocol.done


async def streams(layer: Layer, options: tuple[dict[str, Any], dict[str, Any]], path: str | None = None) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            data = await reader.readexactly(int(line))
            writer.writelines([line, b"\r\n"])
            writer.write(data)
            await writer.drain()
        writer.close()

    serving, connecting = options
    if path is None:
        server = await layer.start_server(serve, "127.0.0.1", 0, **serving)
        open_connection = functools.partial(layer.open_connection, *server.sockets[0].getsockname())
    else:
        server = await layer.start_unix_server(serve, path, **serving)
        open_connection = functools.partial(layer.open_unix_connection, path)
    async with server:
        for size in SIZES:
            reader, writer = await open_connection(**connecting)
            for _ in range(rounds_of(size)):
                writer.write(b"%d\n" % size + bytes(size))
                await writer.drain()
                await reader.readuntil(b"\r\n")
                missing = size
                while missing:
                    missing -= len(await reader.read(min(missing, 65_536)))
            writer.close()
            await writer.wait_closed()
        for _ in range(ROUNDS // 4):
            _, writer = await open_connection(**connecting)
            writer.close()
            await writer.wait_closed()


class EchoDatagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.transport.sendto(data, address)


class CountDatagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.count = 0

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.count += 1


async def datagrams(layer: Layer) -> None:
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(EchoDatagrams, ("127.0.0.1", 0))
    address = server.get_extra_info("sockname")
    client, counted = await loop.create_datagram_endpoint(CountDatagrams, remote_addr=address)
    # A datagram may be lost.
    end = time.monotonic() + 5
    while counted.count < 3 * ROUNDS and time.monotonic() < end:
        for _ in range(3):
            client.sendto(b"x" * 100)
        await layer.sleep(0.0001)
    client.close()
    server.close()


async def pipes(layer: Layer) -> None:
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    reader = layer.StreamReader()
    protocol = functools.partial(layer.StreamReaderProtocol, reader)
    source, _ = await loop.connect_read_pipe(protocol, os.fdopen(reading, "rb", 0))
    sink, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb", 0))
    for _ in range(ROUNDS):
        sink.write(b"line\n")
        await reader.readline()
    sink.close()
    source.close()
    for _ in range(3):
        child = await layer.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        await child.communicate(b"x" * 100_000)


# -- sockets -----------------------------------------------------------------------------------------------------------


async def sockets(layer: Layer) -> None:
    async def serve() -> None:
        connection, _ = await loop.sock_accept(listener)
        with connection:
            while data := await loop.sock_recv(connection, 65_536):
                await loop.sock_sendall(connection, data)

    loop = asyncio.get_running_loop()
    buffer = bytearray(65_536)
    for size in SIZES[:3]:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            listener.setblocking(False)
            client.setblocking(False)
            serving = asyncio.create_task(serve())
            await loop.sock_connect(client, listener.getsockname())
            for _ in range(ROUNDS):
                await loop.sock_sendall(client, bytes(size))
                missing = size
                while missing:
                    missing -= await loop.sock_recv_into(client, buffer)
            client.shutdown(socket.SHUT_WR)
            await serving


async def watched_descriptors(layer: Layer) -> None:
    def read() -> None:
        ours.send(ours.recv(100))

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        loop.add_reader(ours, read)
        for _ in range(ROUNDS):
            writable = loop.create_future()
            loop.add_writer(theirs, writable.set_result, None)
            await writable
            loop.remove_writer(theirs)
            theirs.send(b"x")
            await loop.sock_recv(theirs, 100)
        loop.remove_reader(ours)


# -- all of it ---------------------------------------------------------------------------------------------------------


def tls_options() -> tuple[dict[str, Any], dict[str, Any]]:
    """TLS without certificates, which the standard library cannot make: cipher suites that need none, of TLS 1.2."""
    contexts = []
    for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(purpose)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES128-SHA:@SECLEVEL=0")
        contexts.append(context)
    return {"ssl": contexts[0]}, {"ssl": contexts[1]}


async def train() -> None:
    plain: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    tls = tls_options()
    scenarios: list[Callable[[Layer], Awaitable[None]]] = [
        *(callbacks, timers, tasks, cancellation, queues, locks, threads),
        *(datagrams, pipes, sockets, watched_descriptors),
        *(functools.partial(streams, options=options) for options in (plain, tls)),
        functools.partial(streams, options=plain, path="socket"),
    ]
    for layer in (asyncio, hotloop.asyncio):
        for scenario in scenarios:
            await scenario(layer)
    for factory in (Echo, BufferedEcho):
        for options in (plain, tls):
            await protocols(factory, options)


def main() -> None:
    # Of ssl, about TLS 1.2.
    warnings.simplefilter("ignore", DeprecationWarning)
    if hotloop.implementation != "c":
        sys.exit("training: the compiled implementation cannot be imported")
    # Inside the folder, because the path of a Unix socket has room for about 100 bytes, and TMPDIR may be longer.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        hotloop.run(train())


if __name__ == "__main__":
    main()
