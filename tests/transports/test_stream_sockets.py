"""P24: every stream socket of the system works as `sock=`, whatever its family and the form of its addresses."""

import asyncio
import contextlib
import os
import socket
import sys
from unittest import mock

import pytest
from support.endpoints import settle, turns, until
from support.recording import Recorder

pytestmark = pytest.mark.promise("P24")

LINUX = sys.platform.startswith("linux")
HAS_UNIX = hasattr(socket, "AF_UNIX")
IPPROTO_MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)  # not where libc is older than the kernel
VMADDR_CID_LOCAL = 1  # bind() refuses it where the kernel has no loopback for vsock
MUCH = bytes(range(256)) * 4096  # more than a socket takes at once
FLOW = ("pause_writing", "resume_writing")

INTERNET = {
    "IPv4": lambda: bound(socket.AF_INET, ("127.0.0.1", 0)),
    "IPv6": lambda: bound(socket.AF_INET6, ("::1", 0)),
    "MPTCP": lambda: bound(socket.AF_INET, ("127.0.0.1", 0), IPPROTO_MPTCP),
    "SCTP": lambda: bound(socket.AF_INET, ("127.0.0.1", 0), socket.IPPROTO_SCTP),
    "vsock": lambda: bound(socket.AF_VSOCK, (VMADDR_CID_LOCAL, 5000)),
}
UNIX_NAMES = {
    "ordinary": lambda folder: os.path.join(folder, "s"),
    "not ascii": lambda folder: os.path.join(folder, "ä"),
    "abstract": lambda folder: f"\0hotloop stream {os.getpid()}",
    "abstract with zeros": lambda folder: b"\0hotloop stream\0\0%d\0" % os.getpid(),
    "abstract, not utf-8": lambda folder: b"\0hotloop stream %d \xff\xfe" % os.getpid(),
    "autobound": lambda folder: "",
}


class Subclass(socket.socket):
    """A class with its own recv() and send(), which a transport must not bypass."""

    used = 0

    def recv(self, *arguments):
        Subclass.used += 1
        return super().recv(*arguments)


def bound(family, address, proto=0):
    sock = socket.socket(family, socket.SOCK_STREAM, proto)
    try:
        sock.bind(address)
        sock.listen()
    except BaseException:
        sock.close()
        raise
    return sock


def connected(listener):
    """A plain socket that is connected to a listening one."""
    client = socket.socket(listener.family, listener.type, listener.proto)
    try:
        client.connect(listener.getsockname())
    except BaseException:
        client.close()
        raise
    return client


def to_be_had(make, *arguments):
    """Return the result of `make()`, or skip with the reason why this system has no such sockets."""
    try:
        return make(*arguments)
    except (OSError, AttributeError) as error:
        pytest.skip(f"not available here: {error}")


async def talk(one, other):
    """Both directions, little and much, and then the end."""
    for sender, receiver in ((one, other), (other, one)):
        sender.transport.write(b"little")
        await until(lambda receiver=receiver: receiver.received == b"little")
        sender.transport.writelines([b"and", MUCH])
        expected = b"littleand" + MUCH
        await until(lambda receiver=receiver, expected=expected: len(receiver.received) >= len(expected))
        assert receiver.received == expected
    one.transport.close()
    await until(lambda: one.lost and other.lost)
    begin_and_end, end_of_stream = ["connection_made", ("connection_lost", None)], "eof_received"
    assert [event for event in one.events if event not in FLOW] == begin_and_end
    assert [event for event in other.events if event not in (*FLOW, end_of_stream)] == begin_and_end
    assert end_of_stream in other.events


async def serve_and_talk(loop, listener, client):
    """The loop gets both the listening and the connected socket. The extra information matches the sockets."""
    accepted = []

    def accept():
        accepted.append(Recorder())
        return accepted[-1]

    names = client.getsockname(), client.getpeername()
    create_server = (
        loop.create_unix_server if listener.family == getattr(socket, "AF_UNIX", None) else loop.create_server
    )
    server = await create_server(accept, sock=listener)
    transport, protocol = await loop.create_connection(Recorder, sock=client)
    assert (transport.get_extra_info("sockname"), transport.get_extra_info("peername")) == names
    assert transport.get_extra_info("socket").family == listener.family
    await until(lambda: accepted and accepted[0].transport)
    assert accepted[0].transport.get_extra_info("peername") == names[0]
    await talk(protocol, accepted[0])
    server.close()
    await server.wait_closed()
    await settle()
    assert client.fileno() == listener.fileno() == -1


def run_over(loop, make, *arguments):
    listener = to_be_had(make, *arguments)
    try:
        client = to_be_had(connected, listener)
    except BaseException:
        listener.close()
        raise
    loop.run_until_complete(serve_and_talk(loop, listener, client))


@pytest.mark.parametrize("kind", INTERNET)
def test_stream_sockets(loop, kind):
    run_over(loop, INTERNET[kind])


@pytest.mark.skipif(not HAS_UNIX, reason="this platform has no Unix sockets")
@pytest.mark.parametrize("names", UNIX_NAMES)
def test_unix_stream_sockets(loop, tmp_path, names):
    if not LINUX and names not in ("ordinary", "not ascii"):
        pytest.skip("abstract names are Linux's")
    run_over(loop, bound, getattr(socket, "AF_UNIX", None), UNIX_NAMES[names](str(tmp_path)))


@pytest.mark.skipif(not HAS_UNIX, reason="this platform has no Unix sockets")
@pytest.mark.parametrize("way", ["create_connection", "create_unix_connection", "connect_accepted_socket"])
@pytest.mark.parametrize("timeout", [None, 5.0, 0.0])
def test_every_way_to_give_a_connected_socket(loop, way, timeout):
    """Blocking, with a timeout or without one: it does not block the loop."""

    async def main():
        one, other = socket.socketpair()
        one.settimeout(timeout)
        if way == "connect_accepted_socket":
            _, first = await loop.connect_accepted_socket(Recorder, one)
        else:
            _, first = await getattr(loop, way)(Recorder, sock=one)
        _, second = await loop.create_connection(Recorder, sock=other)
        assert one.gettimeout() == 0 and not os.get_blocking(one.fileno())
        await talk(first, second)
        assert one.fileno() == -1

    loop.run_until_complete(main())


def test_a_subclass_of_socket_is_read_by_its_own_method(loop):
    async def main():
        ends = socket.socketpair()
        one, other = (Subclass(end.family, end.type, end.proto, end.detach()) for end in ends)
        Subclass.used = 0
        (_, first), (_, second) = [await loop.create_connection(Recorder, sock=sock) for sock in (one, other)]
        await talk(first, second)
        assert Subclass.used

    loop.run_until_complete(main())


@pytest.mark.skipif(not HAS_UNIX, reason="this platform has no Unix sockets")
@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)])
def test_other_sockets_are_refused_as_streams(loop, kind):
    """Refused sockets stay with their owner, unchanged."""

    async def main():
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        with one, other, contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            for making in (
                loop.create_connection(asyncio.Protocol, sock=one),
                loop.create_unix_connection(asyncio.Protocol, sock=one),
                loop.connect_accepted_socket(asyncio.Protocol, one),
                loop.create_server(asyncio.Protocol, sock=listener),
                loop.create_unix_server(asyncio.Protocol, sock=listener),
            ):
                with pytest.raises(ValueError, match=r"A (UNIX Domain )?Stream Socket was expected"):
                    await making
            other.send(b"still there")
            assert one.recv(100) == b"still there"

    loop.run_until_complete(main())


@pytest.mark.skipif(not LINUX, reason="messages of other systems are smaller")
@pytest.mark.parametrize("kind", ["SOCK_SEQPACKET", "SOCK_DGRAM"])
def test_messages_stay_apart(loop, kind):
    """create_connection() refuses sockets that are no streams, so libraries call the method behind it: for raw
    Bluetooth sockets, which are not everywhere."""

    async def main():
        ours, peer = socket.socketpair(socket.AF_UNIX, getattr(socket, kind))
        ours.setblocking(False)
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
        sizes = []
        connecting = loop._create_connection_transport(ours, Recorder, None, None)
        del ours
        transport, protocol = await connecting
        protocol.data_received = lambda data: sizes.append(len(data))
        for message in (b"one", b"two"):
            transport.write(message)
        await settle()
        assert (peer.recv(100), peer.recv(100)) == (b"one", b"two")
        for size in (16_384, 100_000):
            peer.send(bytes(size))
            await until(lambda: sizes)
            assert sizes.pop() == size
        transport.close()
        await until(lambda: protocol.lost)
        peer.close()

    loop.run_until_complete(main())


def test_socket_object_while_the_class_is_a_mock(loop):
    """An accepted connection's socket object is made when it is asked for."""

    async def main():
        accepted = []
        server = await asyncio.start_server(lambda *streams: accepted.append(streams), "127.0.0.1", 0)
        _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
        await until(lambda: accepted)
        reader, writer = accepted[0]
        with mock.patch("socket.socket") as replaced:
            sock = writer.get_extra_info("socket")
        assert not replaced.called
        assert sock.getpeername() == client.get_extra_info("sockname")
        client.write(b"data")
        assert await reader.read(10) == b"data"
        for each in (client, writer):
            each.close()
            await each.wait_closed()
        server.close()

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio's socket objects do not know their transports")
def test_socket_object_with_another_transport(loop):
    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            sock = transport.get_extra_info("socket")
            sock._transport = object
            with pytest.raises(TypeError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with pytest.raises(TypeError):
                sock.fileno()
            transport.close()
            await turns(2)

    loop.run_until_complete(main())
