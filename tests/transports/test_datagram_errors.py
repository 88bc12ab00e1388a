"""Datagram endpoints: errors reach error_received() and the endpoint keeps working (P23)."""

import errno
import os
import socket
import subprocess
import sys

import pytest
from support.endpoints import close, datagram_pair, drain, over, reports_of, settle, until
from support.recording import DatagramRecorder

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")

UNREACHABLE = "192.0.2.1"  # RFC 5737: reserved. A socket bound to loopback cannot send there; nothing leaves


async def two_endpoints(loop):
    """An unconnected endpoint on loopback, and another to show that the first one works: (sender, receiver)."""
    sender, _ = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
    receiver, _ = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
    return sender, receiver


async def works(sender, receiver):
    """Assert that a datagram of `sender` still arrives, and an answer, too."""
    received, answers = receiver.get_protocol().received, sender.get_protocol().received
    before = len(received), len(answers)
    sender.sendto(b"still here", receiver.get_extra_info("sockname"))
    await until(lambda: len(received) > before[0])
    receiver.sendto(b"so am I", sender.get_extra_info("sockname"))
    await until(lambda: len(answers) > before[1])


SEND_ERRORS = {
    "too large": (bytes(70_000), lambda port: ("127.0.0.1", port), errno.EMSGSIZE),
    "broadcast": (b"x", lambda port: ("255.255.255.255", port), errno.EACCES),
    "off loopback": (b"x", lambda port: (UNREACHABLE, port), errno.EINVAL),
    "another family": (b"x", lambda port: ("::1", port), socket.EAI_ADDRFAMILY),
}


def test_error_received_runs_in_the_exceptions_handler(loop):
    """So logger.exception() in it has something to log, and a bare `raise` something to raise again."""
    seen = []

    class Protocol(DatagramRecorder):
        def error_received(self, error):
            seen.append((sys.exc_info()[1] is error, error.__traceback__ is not None))
            super().error_received(error)

    async def main():
        with socket.socket(type=socket.SOCK_DGRAM) as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = nobody.getsockname()
        transport, protocol = await loop.create_datagram_endpoint(Protocol, remote_addr=address)
        transport.sendto(b"x")
        await until(lambda: protocol.errors)
        await close(transport)
        assert seen == [(True, True)] * len(protocol.errors)

    loop.run_until_complete(main())


@pytest.mark.promise("P23")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the error numbers are Linux's")
@pytest.mark.parametrize("case", SEND_ERRORS)
def test_an_error_of_sending_reaches_error_received(loop, case):
    data, address, number = SEND_ERRORS[case]

    async def main():
        sender, receiver = await two_endpoints(loop)
        protocol = sender.get_protocol()
        for count in range(1, 4):
            sender.sendto(data, address(receiver.get_extra_info("sockname")[1]))
            await until(lambda count=count: len(protocol.errors) == count)
            await works(sender, receiver)
        assert [error.errno for error in protocol.errors] == [number] * 3
        assert all(isinstance(error, OSError) for error in protocol.errors)
        await close(sender, receiver)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.promise("P23")
def test_an_error_in_the_midst_of_a_burst(loop):
    """The datagrams before and after it are sent, in order."""

    async def main():
        sender, receiver = await two_endpoints(loop)
        address = receiver.get_extra_info("sockname")
        for number in range(60):
            sender.sendto(bytes(70_000) if number % 10 == 5 else b"%d" % number, address)
        received, errors = receiver.get_protocol().received, sender.get_protocol().errors
        await until(lambda: len(received) == 54 and len(errors) == 6)
        assert received == [b"%d" % number for number in range(60) if number % 10 != 5]
        assert {error.errno for error in errors} == {errno.EMSGSIZE}
        await close(sender, receiver)

    loop.run_until_complete(main())


@pytest.mark.promise("P23")
def test_an_error_among_queued_datagrams(loop):
    """The peer goes while datagrams are queued: error_received() gets the error and the transport stays open."""

    async def main():
        one, other = datagram_pair()
        transport, protocol = await over(loop, one)
        while transport.get_write_buffer_size() == 0:
            transport.sendto(bytes(1000))
        other.close()
        await until(lambda: protocol.errors)
        assert all(isinstance(error, ConnectionError) for error in protocol.errors)
        assert not transport.is_closing()
        # asyncio's transport waits for another write event when an error took the last datagram of its queue. If that
        # comes after abort(), it closes the socket twice.
        await settle()
        transport.abort()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.promise("P23")
def test_a_refused_datagram(loop):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as placeholder:
            placeholder.bind(("127.0.0.1", 0))
            address = placeholder.getsockname()
            transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=address)
        for count in range(1, 4):
            transport.sendto(b"anybody?")
            await until(lambda count=count: len(protocol.errors) == count)
        assert all(isinstance(error, ConnectionRefusedError) for error in protocol.errors)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(address)
            receiver.setblocking(False)
            transport.sendto(b"hello")
            assert await loop.sock_recvfrom(receiver, 100) == (b"hello", transport.get_extra_info("sockname"))
            await loop.sock_sendto(receiver, b"world", transport.get_extra_info("sockname"))
            await until(lambda: protocol.received)
        await close(transport)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


# A process in a network namespace of its own, where even loopback is down, passes a socket of that namespace to the
# test. On request it sets loopback up.
UNCONNECTED_NETWORK = """
import ctypes, fcntl, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNET = 0x10000000, 0x40000000
if libc.unshare(NEWNET) and libc.unshare(NEWUSER | NEWNET):
    sys.exit("unshare(): " + os.strerror(ctypes.get_errno()))
channel = socket.socket(fileno=int(sys.argv[1]))
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
socket.send_fds(channel, [b"here"], [sock.fileno()])
channel.recv(10)
SIOCSIFFLAGS, UP = 0x8914, 1
fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", UP))
channel.send(b"up")
channel.recv(10)
"""


@pytest.mark.promise("P23")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="network namespaces are Linux's")
def test_an_unreachable_network(loop):
    channel, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", UNCONNECTED_NETWORK, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
    with child:
        with channel:  # closing it ends the child, however this block ends
            _, fds, _, _ = socket.recv_fds(channel, 10, 1)
            if not fds:
                pytest.skip(f"no network namespace: {child.stderr.read().strip()}")
            loop.run_until_complete(unreachable_then_reachable(loop, socket.socket(fileno=fds[0]), channel))
        assert (child.stderr.read(), child.wait()) == ("", 0)


async def unreachable_then_reachable(loop, sock, channel):
    transport, protocol = await over(loop, sock)
    transport.sendto(b"lost", ("127.0.0.1", 9999))
    await until(lambda: protocol.errors)
    assert protocol.errors[0].errno == errno.ENETUNREACH
    channel.send(b"set it up")
    assert channel.recv(10) == b"up"
    own = ("127.0.0.1", sock.getsockname()[1])  # the first attempt has bound the socket
    transport.sendto(b"to myself", own)
    await until(lambda: protocol.received)
    assert (protocol.received, protocol.addresses) == ([b"to myself"], [own])
    await close(transport)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("target", ["missing", "abandoned", "stream"])
def test_a_unix_name_without_a_listener(loop, tmp_path, target):
    async def main():
        sender, protocol = await loop.create_datagram_endpoint(
            DatagramRecorder, local_addr=str(tmp_path / "sender"), family=socket.AF_UNIX
        )
        path = str(tmp_path / "target")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if target == "stream" else socket.SOCK_DGRAM) as other:
            if target != "missing":
                other.bind(path)
            if target == "abandoned":
                other.close()
            sender.sendto(b"x", path)
            await until(lambda: protocol.errors)
        expected = {"missing": errno.ENOENT, "abandoned": errno.ECONNREFUSED, "stream": errno.EPROTOTYPE}
        assert protocol.errors[0].errno == expected[target]
        sender.sendto(b"to myself", str(tmp_path / "sender"))
        await until(lambda: protocol.received == [b"to myself"])
        await close(sender)

    loop.run_until_complete(main())


@pytest.mark.parametrize("data", ["text", 5, None, [b"list"], {}, 1.5], ids=repr)
def test_data_of_the_wrong_type(loop, data):
    async def main():
        sender, receiver = await two_endpoints(loop)
        address = receiver.get_extra_info("sockname")
        connected, _ = await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=address)
        for _ in range(2):
            with pytest.raises(TypeError, match="data argument must be a bytes"):
                sender.sendto(data, address)
            with pytest.raises(TypeError, match="data argument must be a bytes"):
                connected.sendto(data)
        await works(sender, receiver)
        connected.sendto(b"works")
        await until(lambda: receiver.get_protocol().received[-1] == b"works")
        await close(sender, receiver, connected)

    loop.run_until_complete(main())


def test_too_many_arguments_and_too_few(loop):
    async def main():
        sender, receiver = await two_endpoints(loop)
        with pytest.raises(TypeError):
            sender.sendto()
        with pytest.raises(TypeError):
            sender.sendto(b"x", None, None)
        with pytest.raises(TypeError):
            sender.sendto(b"x", address=("127.0.0.1", 1))
        sender.sendto(data=b"by name", addr=receiver.get_extra_info("sockname"))
        await until(lambda: receiver.get_protocol().received == [b"by name"])
        await works(sender, receiver)
        await close(sender, receiver)

    loop.run_until_complete(main())


BAD_ADDRESSES = {
    "none": (lambda host, port: None, TypeError),
    "text": (lambda host, port: host, TypeError),
    "a number": (lambda host, port: port, TypeError),
    "a list": (lambda host, port: [host, port], TypeError),
    "no port": (lambda host, port: (host,), TypeError),
    "three parts": (lambda host, port: (host, port, 0), TypeError),
    "a port that is a float": (lambda host, port: (host, float(port)), TypeError),
    "a port that is text": (lambda host, port: (host, str(port)), TypeError),
    "a host that is none": (lambda host, port: (None, port), TypeError),
    "a port too high": (lambda host, port: (host, 65536 + port), OverflowError),
    "a negative port": (lambda host, port: (host, -1), OverflowError),
}


@pytest.mark.parametrize("case", BAD_ADDRESSES)
def test_a_bad_address_ends_the_endpoint(loop, case):
    """An exception other than OSError is a mistake of the program; asyncio reports it and closes the endpoint. An
    address that equals a valid earlier one (1.0 == 1) is still invalid."""
    make, error = BAD_ADDRESSES[case]

    async def main():
        sender, receiver = await two_endpoints(loop)
        protocol = sender.get_protocol()
        await works(sender, receiver)
        with reports_of(loop) as reports:
            sender.sendto(b"x", make(*receiver.get_extra_info("sockname")))
            await until(lambda: protocol.lost)
        assert [type(report["exception"]) for report in reports] == [error]
        assert reports[0]["transport"] is sender and reports[0]["protocol"] is protocol
        assert reports[0]["message"] == "Fatal write error on datagram transport"
        assert protocol.events == ["connection_made", ("connection_lost", error.__name__)]
        await close(receiver)

    loop.run_until_complete(main())


def test_another_address_on_a_connected_endpoint(loop):
    async def main():
        sender, receiver = await two_endpoints(loop)
        address = receiver.get_extra_info("sockname")
        connected, protocol = await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=address)
        for other in (sender.get_extra_info("sockname"), ("127.0.0.1",), "text", 5, ()):
            with pytest.raises(ValueError, match="Invalid address: must be None or"):
                connected.sendto(b"x", other)
        connected.sendto(b"without")
        connected.sendto(b"with", address)
        connected.sendto(b"equal", (address[0], address[1]))
        received = receiver.get_protocol().received
        await until(lambda: len(received) == 3)
        assert received == [b"without", b"with", b"equal"]
        assert not sender.get_protocol().received and not protocol.errors
        await close(sender, receiver, connected)

    loop.run_until_complete(main())


def test_a_socket_connected_beforehand_ignores_the_address(loop):
    """asyncio compares the address only if asyncio itself connected the socket."""

    async def main():
        sender, receiver = await two_endpoints(loop)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(receiver.get_extra_info("sockname"))
        connected, _ = await over(loop, sock)
        connected.sendto(b"x", sender.get_extra_info("sockname"))
        await until(lambda: receiver.get_protocol().received == [b"x"])
        assert sender.get_protocol().received == []
        await close(sender, receiver, connected)

    loop.run_until_complete(main())


def test_a_program_sets_the_address_of_a_socket_connected_beforehand(loop):
    """asyncio-dgram does, as asyncio itself looks at the address only if it has connected the socket."""

    async def main():
        sender, receiver = await two_endpoints(loop)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(receiver.get_extra_info("sockname"))
        connected, _ = await over(loop, sock)
        connected._address = connected.get_extra_info("peername")
        assert connected._address == receiver.get_extra_info("sockname")
        with pytest.raises(ValueError, match="Invalid address"):
            connected.sendto(b"x", sender.get_extra_info("sockname"))
        connected.sendto(b"1")
        connected.sendto(b"2", connected._address)
        connected._address = None
        connected.sendto(b"3", sender.get_extra_info("sockname"))
        await until(lambda: receiver.get_protocol().received == [b"1", b"2", b"3"])
        await close(sender, receiver, connected)

    loop.run_until_complete(main())


@pytest.mark.promise("P09")
@pytest.mark.parametrize("how", ["close", "abort"])
def test_sendto_on_a_closing_transport(loop, asyncio_log, how):
    """sendto() raises nothing, even after connection_lost(); from the sixth call on asyncio warns."""

    async def main():
        sender, receiver = await two_endpoints(loop)
        address = receiver.get_extra_info("sockname")
        connected, protocol = await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=address)
        getattr(connected, how)()
        for _ in range(4):
            connected.sendto(b"too late")
        assert asyncio_log.take() == []
        await until(lambda: protocol.lost)
        for _ in range(3):
            connected.sendto(b"much too late", address)
        assert asyncio_log.take() == ["socket.send() raised exception."] * 3
        with pytest.raises(TypeError):
            connected.sendto("text")
        with pytest.raises(ValueError, match="Invalid address"):
            connected.sendto(b"x", ("127.0.0.1", 1))
        await settle()
        assert receiver.get_protocol().received == []
        assert protocol.events == ["connection_made", ("connection_lost", None)]
        await close(sender, receiver)

    loop.run_until_complete(main())


def test_an_exception_in_datagram_received(loop):
    class Failing(DatagramRecorder):
        def datagram_received(self, data, address):
            super().datagram_received(data, address)
            if data == b"bad":
                raise ZeroDivisionError(len(self.received))

    async def main():
        one, other = datagram_pair()
        transport, protocol = await over(loop, one, Failing)
        sent = [b"good", b"bad", b"bad", b"good", b"bad", b"good"]
        with other, reports_of(loop) as reports:
            for data in sent:
                other.send(data)
            await until(lambda: len(protocol.received) == len(sent))
            assert protocol.received == sent
            await settle()
            assert [report["exception"].args for report in reports] == [(2,), (3,), (5,)]
            assert not transport.is_closing()
            transport.sendto(b"works")
            await until(lambda: drain(other) == [b"works"])
            await close(transport)

    loop.run_until_complete(main())


def test_an_exception_in_error_received(loop):
    class Failing(DatagramRecorder):
        def error_received(self, error):
            super().error_received(error)
            raise ZeroDivisionError

    async def main():
        sender, receiver = await two_endpoints(loop)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as placeholder:
            placeholder.bind(("127.0.0.1", 0))
            connected, protocol = await loop.create_datagram_endpoint(Failing, remote_addr=placeholder.getsockname())
        with reports_of(loop) as reports:
            connected.sendto(b"nobody is there")
            await until(lambda: reports)
        assert [type(error) for error in protocol.errors] == [ConnectionRefusedError]
        assert isinstance(reports[0]["exception"], ZeroDivisionError)
        assert not connected.is_closing()
        await works(sender, receiver)
        await close(sender, receiver, connected)

    loop.run_until_complete(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_datagram_received_leaves_the_loop(loop, error):
    class Interrupting(DatagramRecorder):
        def datagram_received(self, data, address):
            super().datagram_received(data, address)
            if data == b"stop":
                raise error

    one, other = datagram_pair()
    transport, protocol = loop.run_until_complete(over(loop, one, Interrupting))
    with other:
        for data in (b"before", b"stop", b"after"):
            other.send(data)
        with pytest.raises(error):
            loop.run_forever()
        assert protocol.received == [b"before", b"stop"]
        loop.run_until_complete(until(lambda: protocol.received[-1] == b"after"))
        loop.run_until_complete(close(transport))


BAD_CALLS = {
    "a stream socket": ({"sock": lambda: socket.socket()}, ValueError),
    "sock and an address": ({"sock": lambda: datagram_socket(), "local_addr": ("127.0.0.1", 0)}, ValueError),
    "sock and a flag": ({"sock": lambda: datagram_socket(), "allow_broadcast": True}, ValueError),
    "nothing": ({}, ValueError),
    "an address that is text": ({"local_addr": "127.0.0.1:0"}, TypeError),
    "a unix address that is a tuple": ({"local_addr": ("127.0.0.1", 0), "family": socket.AF_UNIX}, TypeError),
    "a unix path too long": ({"local_addr": "/tmp/" + "x" * 200, "family": socket.AF_UNIX}, OSError),
    "a unix path that is not there": (
        {"remote_addr": "/nonexistent/path", "family": socket.AF_UNIX},
        FileNotFoundError,
    ),
    "a port out of range": ({"local_addr": ("127.0.0.1", 70_000)}, OverflowError),
    "an address of nobody here": ({"local_addr": (UNREACHABLE, 0)}, OSError),
    "families that do not match": ({"local_addr": ("127.0.0.1", 0), "remote_addr": ("::1", 5)}, ValueError),
}


def datagram_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@pytest.mark.parametrize("case", BAD_CALLS)
def test_an_endpoint_that_cannot_be_made(loop, case):
    """The loop raises asyncio's exception, and nothing stays open."""
    keywords, error = BAD_CALLS[case]
    keywords = dict(keywords)
    sock = keywords["sock"] = keywords["sock"]() if "sock" in keywords else None
    made = []

    async def main():
        with pytest.raises(error):
            await loop.create_datagram_endpoint(lambda: made.append(1), **keywords)

    loop.run_until_complete(main())
    assert made == []
    if sock is not None:
        assert sock.fileno() >= 0, "it is still its owner's"
        sock.close()


def test_a_closed_socket(loop):
    async def main():
        sock = datagram_socket()
        sock.close()
        with pytest.raises(OSError) as caught:
            await over(loop, sock)
        assert caught.value.errno == errno.EBADF

    loop.run_until_complete(main())


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_protocol_factory_that_raises(loop, error):
    def factory():
        raise error

    async def main():
        with datagram_socket() as sock:
            try:
                await over(loop, sock, factory)
            except error:
                assert sock.fileno() >= 0
            else:
                pytest.fail("nothing was raised")

    loop.run_until_complete(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before CPython 3.12 nothing stops a second transport")
def test_a_socket_that_has_a_transport_already(loop):
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            transport, protocol = await over(loop, sock)
            with pytest.raises(RuntimeError, match="is used by transport"):
                await over(loop, sock)
            transport.sendto(b"works", sock.getsockname())
            await until(lambda: protocol.received == [b"works"])
            await close(transport)

    loop.run_until_complete(main())


def test_descriptors_of_an_endpoint_are_its_own(loop):
    async def main():
        one, other = datagram_pair()
        transport, _ = await over(loop, one)
        fd = one.fileno()
        with other:
            for method in (loop.add_reader, loop.add_writer):
                with pytest.raises(RuntimeError, match="is used by transport"):
                    method(fd, print)
            for method in (loop.remove_reader, loop.remove_writer):
                with pytest.raises(RuntimeError, match="is used by transport"):
                    method(fd)
            await close(transport)
            with pytest.raises(OSError):
                os.fstat(fd)

    loop.run_until_complete(main())
