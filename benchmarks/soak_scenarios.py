"""The scenarios that soak.py repeats: everything that takes memory or resources of the system, and returns them.

A scenario gets a Ground and must leave nothing behind when it returns: that is the test. Its parts end in different
ways: normally, cancelled, refused, cut off.
"""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop_bench import identity

SIZES = (1, 1000, 70_000, 300_000)
"""Bytes of a message: less than a read of the loop's buffer, and more than the kernel takes at once."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER, so that close() sends a reset."""


@dataclass(frozen=True)
class Ground:
    """The parameters of a scenario."""

    new_event_loop: Callable[[], asyncio.AbstractEventLoop]
    folder: Path
    """For sockets and the certificate."""
    times: int
    """How often a scenario repeats its work in a round."""

    @property
    def certificate(self) -> str:
        return str(self.folder / "certificate")

    def run(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run `main` on a new loop, and close it."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            runner.run(main)


class Refused(Exception):
    """Raised by the scenarios themselves."""


async def cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def refused() -> None:
    await asyncio.sleep(0)
    raise Refused


# -- loops, callbacks, tasks -------------------------------------------------------------------------------------------


def lifecycles(ground: Ground) -> None:
    """Loops that run briefly, and loops that are closed with callbacks and timers pending."""
    for number in range(ground.times):
        loop = ground.new_event_loop()
        try:
            loop.call_later(3600, int)
            loop.call_later(0, int)
            loop.call_later(3600, int).cancel()
            if number % 3:
                loop.call_soon(loop.stop)
                loop.run_forever()
                loop.run_until_complete(asyncio.sleep(0))
            loop.call_soon(print)
            loop.cycle = loop.create_future()  # type: ignore[attr-defined]
        finally:
            loop.close()


def tasks(ground: Ground) -> None:
    """Tasks that end, fail, time out and are cancelled, and asynchronous generators that are left in the middle."""

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[int] = asyncio.Queue()
        for number in range(ground.times):
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(10)))
            await asyncio.gather(refused(), asyncio.sleep(0), return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(loop.create_future(), 0.0001)
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(asyncio.sleep(3600))
                    group.create_task(refused())
            waiting = [loop.create_task(queue.get()) for _ in range(3)]
            await asyncio.sleep(0)
            queue.put_nowait(number)
            for task in waiting[1:]:
                await cancelled(task)
            await waiting[0]
            await cancelled(loop.create_task(asyncio.sleep(3600)))  # before its first step
            await cancelled(asyncio.shield(asyncio.sleep(0.0001)))
            await asyncio.sleep(0.0002)
            async for _ in endless():
                break

    ground.run(main())


def threads(ground: Ground) -> None:
    """Loops in several threads, each called from the others."""
    loops: list[asyncio.AbstractEventLoop] = []
    barrier = threading.Barrier(4)

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        barrier.wait()
        done, received = asyncio.Event(), 0

        def receive() -> None:
            nonlocal received
            received += 1
            if received == len(loops) * ground.times:
                done.set()

        receivers[asyncio.get_running_loop()] = receive
        barrier.wait()
        for _ in range(ground.times):
            for loop in loops:
                loop.call_soon_threadsafe(receivers[loop])
            await asyncio.sleep(0)
        await done.wait()
        barrier.wait()  # no thread closes its loop while another one calls it

    receivers: dict[asyncio.AbstractEventLoop, Callable[[], None]] = {}
    running = [threading.Thread(target=lambda: ground.run(main())) for _ in range(barrier.parties)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def executors(ground: Ground) -> None:
    """Calls in threads that return, that fail, and that are cancelled while they run."""

    def fail() -> None:
        raise Refused

    async def main() -> None:
        loop = asyncio.get_running_loop()
        blocker = threading.Event()
        for _ in range(ground.times):
            await asyncio.gather(*(asyncio.to_thread(len, "text") for _ in range(5)))
            with contextlib.suppress(Refused):
                await loop.run_in_executor(None, fail)
            await loop.getaddrinfo("localhost", 80)
        waiting = [loop.run_in_executor(None, blocker.wait) for _ in range(100)]
        await asyncio.sleep(0)
        for future in waiting[1:]:
            await cancelled(future)
        blocker.set()
        await waiting[0]

    ground.run(main())


# -- connections -------------------------------------------------------------------------------------------------------


class Conversation:
    """A server that echoes, and clients that end their connections in every way."""

    def __init__(self, ground: Ground, kind: str, context: ssl.SSLContext | None, trusting: ssl.SSLContext | None):
        self.ground, self.kind = ground, kind
        self.context, self.trusting = context, trusting
        self.path = str(ground.folder / "socket")
        self.port = 0
        self.serving: set[asyncio.Task[Any]] = set()

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass  # a client that aborted
        finally:
            writer.close()
            self.serving.discard(task)

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.kind == "unix":
            return await asyncio.open_unix_connection(self.path, ssl=self.trusting, **self.named())
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusting, **self.named())

    def named(self) -> dict[str, Any]:
        return {} if self.trusting is None else {"server_hostname": "127.0.0.1"}

    async def talks(self) -> None:
        for size in SIZES:
            reader, writer = await self.client()
            writer.write(b"x" * size)
            await reader.readexactly(size)
            writer.close()
            await writer.wait_closed()

    async def goes_without_reading(self) -> None:
        _, writer = await self.client()
        writer.write(b"x" * SIZES[-1])
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def is_reset(self) -> None:
        reader, writer = await self.client()
        writer.write(b"x")
        await reader.readexactly(1)
        if self.kind == "tcp":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def is_cancelled(self) -> None:
        reader, writer = await self.client()
        reading = asyncio.ensure_future(reader.read(1))
        await asyncio.sleep(0)
        await cancelled(reading)
        writer.close()
        await writer.wait_closed()

    async def cancelled_while_connecting(self) -> None:
        for turns in range(6):
            connecting = asyncio.ensure_future(self.client())
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancelled(connecting)
            if not connecting.cancelled() and connecting.exception() is None:
                connecting.result()[1].close()
                await connecting.result()[1].wait_closed()

    async def uses_protocols(self) -> None:
        loop = asyncio.get_running_loop()
        closed = loop.create_future()

        class Once(asyncio.BufferedProtocol):
            buffer = bytearray(100)

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.transport = transport
                transport.writelines([b"some", b"thing"])

            def get_buffer(self, sizehint: int) -> bytearray:
                return self.buffer

            def buffer_updated(self, nbytes: int) -> None:
                self.transport.close()

            def connection_lost(self, exc: Exception | None) -> None:
                closed.set_result(None)

        if self.kind == "unix":
            await loop.create_unix_connection(Once, self.path, ssl=self.trusting, **self.named())
        else:
            await loop.create_connection(Once, "127.0.0.1", self.port, ssl=self.trusting, **self.named())
        await closed

    async def fails(self) -> None:
        """Nothing listens, or the client does not trust the certificate."""
        with contextlib.suppress(OSError):
            await asyncio.open_unix_connection(str(self.ground.folder / "no-server"))
        if self.trusting is not None:
            strangers = ssl.create_default_context()
            with contextlib.suppress(OSError):
                await asyncio.open_connection("127.0.0.1", self.port, ssl=strangers)

    async def main(self) -> None:
        if self.kind == "unix":
            server = await asyncio.start_unix_server(self.echo, self.path, ssl=self.context)
        else:
            server = await asyncio.start_server(self.echo, "127.0.0.1", 0, ssl=self.context)
            self.port = server.sockets[0].getsockname()[1]
        # Clients that leave during their handshake are part of the scenario.
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: None)
        async with server:
            for _ in range(self.ground.times):
                await self.talks()
                await asyncio.gather(self.goes_without_reading(), self.is_reset(), self.is_cancelled())
                await self.cancelled_while_connecting()
                await self.uses_protocols()
                await self.fails()
            while self.serving:
                await asyncio.wait(self.serving)


def tcp(ground: Ground) -> None:
    """TCP connections that are closed, aborted, reset and cancelled, by either side."""
    ground.run(Conversation(ground, "tcp", None, None).main())


def unix(ground: Ground) -> None:
    """The same over Unix sockets."""
    ground.run(Conversation(ground, "unix", None, None).main())
    (ground.folder / "socket").unlink(missing_ok=True)


def tls(ground: Ground) -> None:
    """The same over TLS, with handshakes that fail."""
    trusting = ssl.create_default_context(cafile=ground.certificate)
    ground.run(Conversation(ground, "tcp", identity.server_context(ground.certificate), trusting).main())


def start_tls(ground: Ground) -> None:
    """TLS that begins on a connection in use."""
    context = identity.server_context(ground.certificate)
    trusting = ssl.create_default_context(cafile=ground.certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"go on\n")
        await writer.start_tls(context)
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()
        served.put_nowait(None)

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            for _ in range(ground.times):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"begin\n")
                await reader.readline()
                await writer.start_tls(trusting, server_hostname="127.0.0.1")
                writer.write(b"hello\n")
                assert await reader.readline() == b"hello\n"
                writer.close()
                await writer.wait_closed()
                await served.get()

    served: asyncio.Queue[None] = asyncio.Queue()
    ground.run(main())


def udp(ground: Ground) -> None:
    """Datagrams to a server that answers, and to an address at which nothing listens."""

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.transport.sendto(data, addr)

    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.answers: asyncio.Queue[bytes | Exception] = asyncio.Queue()

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.answers.put_nowait(data)

        def error_received(self, exc: Exception) -> None:
            self.answers.put_nowait(exc)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        serving, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        for _ in range(ground.times):
            address = serving.get_extra_info("sockname")
            asking, client = await loop.create_datagram_endpoint(Client, remote_addr=address)
            for size in (1, 1000, 20_000):
                asking.sendto(b"x" * size)
                assert await client.answers.get() == b"x" * size
            asking.close()
        serving.close()
        await asyncio.sleep(0)
        asking, client = await loop.create_datagram_endpoint(Client, remote_addr=address)
        asking.sendto(b"no-server")
        assert isinstance(await client.answers.get(), ConnectionRefusedError)
        asking.abort()
        await asyncio.sleep(0)

    ground.run(main())


def sockets(ground: Ground) -> None:
    """The sock_*() methods and add_reader(), cancelled while they wait."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ground.times):
            one, other = socket.socketpair()
            with one, other:
                one.setblocking(False)
                other.setblocking(False)
                receiving = loop.create_task(loop.sock_recv(one, 100))
                await asyncio.sleep(0)
                await loop.sock_sendall(other, b"x")
                await receiving
                filling = loop.create_task(loop.sock_recv_into(one, bytearray(10)))
                await asyncio.sleep(0)
                await cancelled(filling)
                sending = loop.create_task(loop.sock_sendall(one, b"x" * 2_000_000))
                await asyncio.sleep(0)
                await cancelled(sending)
                readable = loop.create_future()
                loop.add_reader(other, readable.set_result, None)
                await readable
                loop.remove_reader(other)
                loop.add_writer(other, print)
                loop.remove_writer(other)

    ground.run(main())


# -- processes, pipes, signals -----------------------------------------------------------------------------------------


def subprocesses(ground: Ground) -> None:
    """Children that end, that are killed, whose transport is closed early, and one that cannot be started."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)

    async def ends() -> None:
        process = await asyncio.create_subprocess_exec("cat", **pipes)
        out, _ = await process.communicate(b"x" * 100_000)
        assert len(out) == 100_000

    async def is_killed() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "3600", **pipes)
        waiting = asyncio.ensure_future(process.wait())
        await asyncio.sleep(0)
        await cancelled(waiting)
        process.kill()
        assert await process.wait() == -signal.SIGKILL

    async def is_left() -> None:
        process = await asyncio.create_subprocess_shell("exit 3", **pipes)
        process._transport.close()  # type: ignore[attr-defined]
        await process.wait()

    async def fails() -> None:
        with contextlib.suppress(OSError):
            await asyncio.create_subprocess_exec("/no/such/program", **pipes)

    async def main() -> None:
        for _ in range(max(1, ground.times // 4)):
            await asyncio.gather(ends(), is_killed(), is_left(), fails())

    ground.run(main())


def pipes(ground: Ground) -> None:
    """Transports on pipes, closed by either end."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for reader_first in (True, False) * ground.times:
            read_end, write_end = os.pipe()
            with open(read_end, "rb", 0) as source, open(write_end, "wb", 0) as sink:
                reader = asyncio.StreamReader()
                make_protocol = functools.partial(asyncio.StreamReaderProtocol, reader)
                receiving, _ = await loop.connect_read_pipe(make_protocol, source)
                sending, _ = await loop.connect_write_pipe(asyncio.Protocol, sink)
                sending.write(b"x" * 200_000)
                if reader_first:
                    sending.abort()
                else:
                    sending.close()
                    assert len(await reader.read()) == 200_000
                receiving.close()
                await asyncio.sleep(0)

    ground.run(main())


def signals(ground: Ground) -> None:
    """A signal handler of the loop, and the previous one restored."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ground.times):
            received = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, received.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await received.wait()
            loop.remove_signal_handler(signal.SIGUSR1)

    ground.run(main())


Scenario = Callable[[Ground], None]
ALL: tuple[Scenario, ...] = (
    lifecycles,
    tasks,
    threads,
    executors,
    tcp,
    unix,
    tls,
    start_tls,
    udp,
    sockets,
    subprocesses,
    pipes,
    signals,
)
NEED_A_CERTIFICATE: tuple[Scenario, ...] = (tls, start_tls)
