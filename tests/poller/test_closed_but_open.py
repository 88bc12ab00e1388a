"""A descriptor is closed while the loop watches it, and another descriptor, maybe a child's, keeps the file open. The
kernel goes on reporting the file, and has no call that stops it. The loop must stop listening, and be able to sleep."""

import asyncio
import os
import socket
import sys

import pytest
from support.endpoints import datagram_pair, reports_of, turns, until
from support.recording import DatagramRecorder, Recorder
from support.stepping import run_once
from support.stream_connections import KINDS, connected_sockets

pytestmark = [
    pytest.mark.only("c", reason="asyncio polls in vain again and again"),
    pytest.mark.skipif(sys.platform == "win32", reason="there is no such kernel interface"),
    pytest.mark.skipif(
        os.environ.get("HOTLOOP_POLLER") == "kqueue-shim",
        reason="a kqueue forgets a closed descriptor; the shim does not",
    ),
]


async def open_reading(loop, kind):
    """A transport that reads, its protocol, the program's file, and functions by which the peer sends and closes."""
    if kind == "pipe":
        ours, peer = os.pipe()
        file = os.fdopen(ours, "rb", 0)
        transport, protocol = await loop.connect_read_pipe(Recorder, file)
        return transport, protocol, file, lambda: os.write(peer, b"x"), lambda: os.close(peer)
    if kind == "datagram":
        file, peer = datagram_pair()
        transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=file)
    else:
        file, peer = connected_sockets(kind)
        transport, protocol = await loop.create_connection(Recorder, sock=file)
    return transport, protocol, file, lambda: peer.send(b"x"), peer.close


async def assert_sleeps(loop):
    """A poll that finds nothing takes microseconds, so a loop that does not sleep makes thousands of them here."""
    await turns(5)
    before = loop.metrics().polls
    await asyncio.sleep(0.05)
    assert loop.metrics().polls - before < 50


CASES = [(kind, closed) for kind in (*KINDS, "datagram", "pipe") for closed in ("in the pause", "before the pause")]
# A datagram transport stays open and gets EBADF again and again, as on asyncio.
CASES += [(kind, "while reading") for kind in (*KINDS, "pipe")]


@pytest.mark.parametrize(("kind", "closed"), CASES)
def test_of_a_transport(loop, kind, closed):
    async def main():
        transport, protocol, file, send, close_peer = await open_reading(loop, kind)
        await turns(3)
        duplicate = os.dup(file.fileno())
        if closed == "before the pause":
            file.close()
        if closed != "while reading":
            transport.pause_reading()
        file.close()
        send()
        await assert_sleeps(loop)
        transport.close()
        await until(lambda: protocol.lost)
        await assert_sleeps(loop)
        os.close(duplicate)
        close_peer()

    with reports_of(loop):
        loop.run_until_complete(main())


@pytest.mark.parametrize("count", [1, 5])
def test_of_a_callback(loop, count):
    """All other descriptors are watched as before."""
    pairs = [socket.socketpair() for _ in range(count)]
    watched, peer = socket.socketpair()
    seen = []
    loop.add_reader(watched, lambda: seen.append(watched.recv(1)))
    duplicates = []
    for one, other in pairs:
        number = one.fileno()
        loop.add_reader(number, seen.append, "not any more")
        duplicates.append(one.dup())
        one.close()
        loop.remove_reader(number)
        other.send(b"x")
    loop.run_until_complete(assert_sleeps(loop))
    peer.send(b"y")
    loop.run_until_complete(until(lambda: seen))
    assert seen == [b"y"]
    loop.run_until_complete(assert_sleeps(loop))
    loop.remove_reader(watched)
    for one in (watched, peer, *duplicates, *(other for _, other in pairs)):
        one.close()


def test_other_threads_still_wake_the_loop(loop):
    one, other = socket.socketpair()
    duplicate = one.dup()
    with other, duplicate:
        number = one.fileno()
        loop.add_reader(number, print)
        one.close()
        loop.remove_reader(number)
        other.send(b"x")
        loop.run_until_complete(assert_sleeps(loop))
        for _ in range(3):
            loop.run_until_complete(loop.run_in_executor(None, int))
        loop.run_until_complete(loop.shutdown_default_executor())


def test_a_registration_that_is_reported_once_is_reported_once_more(loop):
    """TCP sockets are registered edge-triggered. Data that arrives while the loop registers one again is not lost."""
    one, other = socket.socketpair()
    duplicate = one.dup()
    ours, peer = connected_sockets("tcp")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with other, duplicate, peer:
        number = one.fileno()
        loop.add_reader(number, print)
        one.close()
        loop.remove_reader(number)
        other.send(b"x")
        for _ in range(20):
            peer.send(b"y")
            run_once(loop)
        loop.run_until_complete(until(lambda: len(protocol.received) == 20))
        protocol.transport.close()
        loop.run_until_complete(until(lambda: protocol.lost))


def test_a_set_that_the_program_may_watch_is_not_replaced(impl):
    """Another selector may watch this selector's number; it would get no more events if that number were replaced."""
    inner, outer = impl.DefaultSelector(), impl.DefaultSelector()
    one, other = socket.socketpair()
    two, peer = socket.socketpair()
    duplicate = one.dup()
    with inner, outer, one, other, two, peer, duplicate:
        outer.register(inner.fileno(), 1)
        inner.register(one, 1)
        inner.register(two, 1)
        number = one.fileno()
        one.close()
        inner.unregister(number)
        other.send(b"x")
        for _ in range(5):
            assert inner.select(0) == []
        peer.send(b"y")
        assert len(outer.select(0)) == 1
        assert [key.fileobj for key, _ in inner.select(0)] == [two]
