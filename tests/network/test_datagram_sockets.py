"""P24: every datagram socket of the system works as `sock=`, whatever its family and the form of its addresses."""

import os
import socket
import struct
import sys

import pytest
from support.endpoints import close, over, until
from support.recording import DatagramRecorder

LINUX = sys.platform.startswith("linux")
ANY_TYPE_BUT_STREAM = sys.version_info >= (3, 13)  # earlier versions of asyncio require SOCK_DGRAM


def pair_or_skip(make):
    """Return the result of `make()`, or skip with the reason why this system has no such sockets."""
    try:
        return make()
    except (OSError, AttributeError) as error:
        pytest.skip(f"not available here: {error}")


async def exchange(loop, one, other, *, answer=True):
    """Two endpoints on bound sockets talk. Each one's address is the one that the system gives plain sockets."""
    first, heard_first = await over(loop, one)
    second, heard_second = await over(loop, other)
    assert first.get_extra_info("sockname") == one.getsockname()
    for number in range(5):
        first.sendto(b"to the second %d" % number, other.getsockname())
    await until(lambda: len(heard_second.received) == 5)
    assert heard_second.received == [b"to the second %d" % number for number in range(5)]
    assert heard_second.addresses == [one.getsockname()] * 5
    second.sendto(b"to the first", heard_second.addresses[0])
    await until(lambda: heard_first.received)
    assert (heard_first.received, heard_first.addresses) == ([b"to the first"], [other.getsockname()])
    assert not heard_first.errors and not heard_second.errors
    await close(first, second)
    assert one.fileno() == other.fileno() == -1


def bound_pair(family, addresses, kind=socket.SOCK_DGRAM, proto=0):
    made = []
    try:
        for address in addresses:
            made.append(socket.socket(family, kind, proto))
            made[-1].bind(address)
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made


UNIX_NAMES = {
    "ordinary": lambda folder, end: os.path.join(folder, end),
    "not ascii": lambda folder, end: os.path.join(folder, "ä" + end),
    "abstract": lambda folder, end: f"\0hotloop {os.getpid()} {end}",
    "abstract with zeros": lambda folder, end: b"\0hotloop\0\0%d\0" % os.getpid() + end.encode() + b"\0",
    "abstract, not utf-8": lambda folder, end: b"\0hotloop %d \xff\xfe" % os.getpid() + end.encode(),
    "autobound": lambda folder, end: "",
}


@pytest.mark.promise("P24")
@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")
@pytest.mark.parametrize("names", UNIX_NAMES)
def test_unix_sockets(loop, tmp_path, names):
    if not LINUX and names not in ("ordinary", "not ascii"):
        pytest.skip("abstract names are Linux's")
    addresses = [UNIX_NAMES[names](str(tmp_path), end) for end in "ab"]
    loop.run_until_complete(exchange(loop, *bound_pair(socket.AF_UNIX, addresses)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")
def test_an_unnamed_pair_receives(loop):
    """The pair cannot send: asyncio takes a socket whose peer has the name "" for an unconnected one."""

    async def main():
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        transport, protocol = await over(loop, one)
        with other:
            for number in range(5):
                other.send(b"%d" % number)
            await until(lambda: len(protocol.received) == 5)
            assert set(protocol.addresses) == {None}
            assert protocol.received == [b"%d" % number for number in range(5)]
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.promise("P24")
def test_ipv4_sockets(loop):
    loop.run_until_complete(exchange(loop, *bound_pair(socket.AF_INET, [("127.0.0.1", 0)] * 2)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not socket.has_ipv6, reason="Python without IPv6")
def test_ipv6_sockets(loop):
    loop.run_until_complete(exchange(loop, *pair_or_skip(lambda: bound_pair(socket.AF_INET6, [("::1", 0)] * 2))))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not socket.has_ipv6, reason="Python without IPv6")
def test_both_families_on_one_socket(loop):
    async def main(sock):
        transport, protocol = await over(loop, sock)
        port = sock.getsockname()[1]
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four,
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six,
        ):
            four.sendto(b"four", ("127.0.0.1", port))
            await until(lambda: protocol.received == [b"four"])
            six.sendto(b"six", ("::1", port))
            await until(lambda: protocol.received == [b"four", b"six"])
            assert protocol.addresses[0] == ("::ffff:127.0.0.1", four.getsockname()[1], 0, 0)
            assert protocol.addresses[1] == ("::1", six.getsockname()[1], 0, 0)
            for peer, address in zip((four, six), protocol.addresses, strict=True):
                transport.sendto(b"answer", address)
                assert peer.recv(10) == b"answer"
        await close(transport)

    def make():
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        return sock

    loop.run_until_complete(main(pair_or_skip(make)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not hasattr(socket, "IPPROTO_UDPLITE"), reason="this platform has no UDP-Lite")
def test_udplite_sockets(loop):
    def make():
        return bound_pair(socket.AF_INET, [("127.0.0.1", 0)] * 2, proto=socket.IPPROTO_UDPLITE)

    loop.run_until_complete(exchange(loop, *pair_or_skip(make)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="this platform has no netlink")
@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW"])
def test_netlink_sockets(loop, kind):
    """The test asks the kernel for its interfaces; an address is a pair of numbers."""
    if kind == "SOCK_RAW" and not ANY_TYPE_BUT_STREAM:
        pytest.skip("before CPython 3.13 asyncio requires SOCK_DGRAM")
    header, get_link, request_dump, new_link, done = struct.Struct("=LHHLL"), 18, 0x301, 16, 3

    async def main(sock):
        transport, protocol = await over(loop, sock)
        assert transport.get_extra_info("sockname") == sock.getsockname()
        body = struct.pack("=BxHiLL", socket.AF_UNSPEC, 0, 0, 0, 0)
        transport.sendto(header.pack(header.size + len(body), get_link, request_dump, 77, 0) + body, (0, 0))
        await until(lambda: protocol.received and header.unpack_from(protocol.received[-1])[1] == done)
        assert set(protocol.addresses) == {(0, 0)}
        assert header.unpack_from(protocol.received[0])[1:4:2] == (new_link, 77)
        assert b"lo\0" in b"".join(protocol.received)
        await close(transport)

    def make():
        sock = socket.socket(socket.AF_NETLINK, getattr(socket, kind), socket.NETLINK_ROUTE)
        sock.bind((0, 0))
        return sock

    loop.run_until_complete(main(pair_or_skip(make)))


@pytest.mark.promise("P24")
def test_vsock_sockets(loop):
    def make():
        return bound_pair(socket.AF_VSOCK, [(socket.VMADDR_CID_ANY, 5000 + end) for end in range(2)])

    loop.run_until_complete(exchange(loop, *pair_or_skip(make)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not ANY_TYPE_BUT_STREAM, reason="before CPython 3.13 asyncio requires SOCK_DGRAM")
def test_can_sockets(loop):
    """A CAN frame sent on a virtual bus reaches the other sockets on it."""
    frame = struct.pack("=IB3x8s", 0x123, 8, b"8 bytes!")

    async def main(one, other):
        first, _ = await over(loop, one)
        second, protocol = await over(loop, other)
        first.sendto(frame, ("vcan0",))
        await until(lambda: protocol.received)
        assert (protocol.received, protocol.addresses) == ([frame], [("vcan0",)])
        await close(first, second)

    def make():
        return bound_pair(socket.AF_CAN, [("vcan0",)] * 2, socket.SOCK_RAW, socket.CAN_RAW)

    loop.run_until_complete(main(*pair_or_skip(make)))


@pytest.mark.promise("P24")
@pytest.mark.skipif(not LINUX, reason="ping sockets are Linux's")
def test_ping_sockets(loop):
    """A datagram socket of ICMP: loopback answers an echo request by itself."""

    async def main(sock):
        transport, protocol = await over(loop, sock)
        transport.sendto(struct.pack("!BBHHH", 8, 0, 0, 0, 5) + b"payload", ("127.0.0.1", 0))
        await until(lambda: protocol.received)
        assert protocol.received[0][0] == 0 and protocol.received[0].endswith(b"payload")
        assert protocol.addresses[0][0] == "127.0.0.1"
        await close(transport)

    loop.run_until_complete(
        main(pair_or_skip(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)))
    )


@pytest.mark.promise("P24")
@pytest.mark.skipif(not ANY_TYPE_BUT_STREAM, reason="before CPython 3.13 asyncio requires SOCK_DGRAM")
@pytest.mark.skipif(not LINUX, reason="Unix sockets of this type are Linux's")
def test_sequenced_packets(loop):
    async def main():
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        transport, protocol = await over(loop, one)
        with other:
            for number in range(5):
                other.send(b"%d" % number)
            await until(lambda: len(protocol.received) == 5)
            assert protocol.received == [b"%d" % number for number in range(5)]
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.skipif(ANY_TYPE_BUT_STREAM, reason="CPython 3.13 accepts them")
@pytest.mark.skipif(not LINUX, reason="Unix sockets of this type are Linux's")
def test_sequenced_packets_are_refused_by_old_pythons(loop):
    async def main():
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with one, other, pytest.raises(ValueError, match="A UDP Socket was expected"):
            await over(loop, one)

    loop.run_until_complete(main())


@pytest.mark.promise("P24")
def test_a_blocking_socket_is_made_non_blocking(loop):
    async def main():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(5)
        transport, _ = await over(loop, sock)
        assert sock.gettimeout() == 0 and not os.get_blocking(sock.fileno())
        await close(transport)

    loop.run_until_complete(main())


@pytest.mark.promise("P24")
def test_a_subclass_of_socket(loop):
    class Socket(socket.socket):
        pass

    async def main():
        sock = Socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        transport, protocol = await over(loop, sock, DatagramRecorder)
        transport.sendto(b"x", sock.getsockname())
        await until(lambda: protocol.received == [b"x"])
        await close(transport)

    loop.run_until_complete(main())
