"""Ways to wait for protocols and transports, and pairs of sockets and pipes to open them on."""

import asyncio
import contextlib
import gc
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from support.recording import DatagramRecorder


async def until(happened: Callable[[], object]) -> None:
    """Let the loop run until `happened()` is true. The test's hang guard is the only time limit."""
    while not happened():
        await asyncio.sleep(0.001)


async def turns(count: int) -> None:
    """Let the loop run that many iterations, some of which may not poll."""
    for _ in range(count):
        await asyncio.sleep(0)


async def settle() -> None:
    """Let the loop run the callbacks that are queued, and those of descriptors that are ready."""
    loop = asyncio.get_running_loop()
    await turns(3)
    one, other = socket.socketpair()
    with one, other:
        # Events come in the order in which their descriptors became ready: after this one, earlier ones have come.
        polled = loop.create_future()
        loop.add_reader(one, lambda: polled.done() or polled.set_result(None))
        other.send(b"x")
        await polled
        loop.remove_reader(one)
    await turns(5)


async def started(awaitable: Awaitable[Any]) -> asyncio.Future[Any]:
    """A task that has reached its first await."""
    task = asyncio.ensure_future(awaitable)
    await turns(2)
    assert not task.done()
    return task


async def ping(
    loop: asyncio.AbstractEventLoop, one: socket.socket, other: socket.socket, content: bytes = b"ping"
) -> None:
    """Have `one` wait for `content`, and send it from `other`."""
    waiting = await started(loop.sock_recv(one, 100))
    other.send(content)
    assert await waiting == content


async def cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def assert_free(loop: asyncio.AbstractEventLoop, sock: socket.socket | int) -> None:
    """Assert that the descriptor is not watched, and can be watched again."""
    assert loop.remove_reader(sock) is False
    assert loop.remove_writer(sock) is False
    for add, remove in ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)):
        add(sock, print)
        assert remove(sock) is True


def counted_turns(loop: asyncio.AbstractEventLoop) -> list[None]:
    """Return a list that grows by one with every iteration of `loop`. Call this before the loop runs."""
    turns: list[None] = []
    run_once = loop._run_once

    def counting() -> None:
        turns.append(None)
        run_once()

    loop._run_once = counting  # every implementation calls a replaced _run_once()
    return turns


@contextlib.contextmanager
def reports_of(loop: asyncio.AbstractEventLoop) -> Iterator[list[dict[str, Any]]]:
    """Collect the calls of the loop's exception handler, which the caller expects."""
    reports: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    try:
        yield reports
    finally:
        loop.set_exception_handler(before)


def file_identity(fd: int) -> tuple[int, int]:
    """Identifies the open file behind a descriptor, even if the number is reused."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def collect() -> None:
    """Collect garbage, and the garbage that finalizers leave."""
    for _ in range(3):
        gc.collect()


async def over(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, factory: Callable[[], Any] = DatagramRecorder
) -> Any:
    return await loop.create_datagram_endpoint(factory, sock=sock)


async def close(*transports: Any) -> None:
    """Close transports and wait until connection_lost() of each protocol was called."""
    for transport in transports:
        protocol = transport.get_protocol()
        transport.close()
        await until(lambda protocol=protocol: protocol.lost)


def datagram_pair() -> list[socket.socket]:
    """A connected pair of Unix datagram sockets. They lose nothing: the sender waits when the receiver is full.

    They have names, because asyncio takes a socket with the peer name "" for one that is not connected."""
    with tempfile.TemporaryDirectory() as folder:
        pair = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        for name, end in zip("ab", pair, strict=True):
            end.bind(os.path.join(folder, name))
            end.setblocking(False)
        for end, peer in (pair, reversed(pair)):
            end.connect(peer.getsockname())
    return pair


def drain(sock: socket.socket) -> list[bytes]:
    """Receive everything that is in the socket's buffer."""
    received = []
    try:
        while True:
            received.append(sock.recv(300_000))
    except BlockingIOError:
        return received


def pipe_files() -> tuple[Any, Any]:
    """The two ends of a pipe, to read from and to write to."""
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


def drain_pipe(fd: int) -> bytes:
    """Read everything that is in the pipe by now."""
    os.set_blocking(fd, False)
    received = bytearray()
    try:
        while data := os.read(fd, 1_000_000):
            received += data
    except BlockingIOError:
        pass
    return bytes(received)


def fill_socket(sock: socket.socket) -> int:
    """Send what the kernel takes; return how much. The socket is non-blocking afterwards."""
    sent = 0
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += sock.send(b"x" * 65_536)
    return sent


def fill_pipe(transport: asyncio.WriteTransport) -> bytearray:
    """Write until some of it is queued in the transport; return all that was written."""
    sent = bytearray()
    while transport.get_write_buffer_size() == 0:
        sent += os.urandom(10_000)
        transport.write(bytes(sent[-10_000:]))
    return sent


def datagram_sockets() -> tuple[socket.socket, socket.socket]:
    """Two non-blocking UDP sockets, not connected."""
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for sock in (one, other):
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
    return one, other
