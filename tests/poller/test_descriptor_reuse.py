"""P37: the program closes its own socket or file under a transport. Another file may have the number by then; the
transport never writes to it, reads from it, closes it or unregisters it."""

import asyncio
import contextlib
import errno
import os
import socket
import sys

import pytest
from support.endpoints import datagram_pair, reports_of, turns, until
from support.recording import DatagramRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connected_sockets

pytestmark = [
    pytest.mark.promise("P37"),
    pytest.mark.skipif(sys.platform == "win32", reason="uses dup2() to put a file under a number"),
]


@contextlib.contextmanager
def closed_and_reused(file):
    """Close a file, as its program would, and give its number to one end of another connection, which must carry only
    the test's own data. Yields the other end."""
    number = file.fileno()
    one, other = socket.socketpair()
    with one, other:
        other.setblocking(False)
        file.close()
        del file
        os.dup2(one.fileno(), number)
        try:
            other.send(b"for the next owner")
            yield other
            assert os.read(number, 100) == b"for the next owner"
            with pytest.raises(BlockingIOError):
                other.recv(100)
        finally:
            os.close(number)


def next_number_is(number):
    """Take all lower numbers, so that the next descriptor gets this one, which is free. Return the descriptors to
    close."""
    taken = []
    while (fd := os.dup(0)) < number:
        taken.append(fd)
    os.close(fd)
    assert fd == number
    return taken


WRITES = {
    "write": lambda transport: transport.write(b"secret"),
    "writelines": lambda transport: transport.writelines([b"sec", b"ret"]),
    "much": lambda transport: transport.write(bytearray(100_000)),
}


@pytest.mark.parametrize("turn", ["inside", "outside"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("given_up", [False, True])
def test_what_is_written_to_a_closed_socket(loop, write, turn, given_up):
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with peer, closed_and_reused(ours):
        if given_up:
            del ours
        if turn == "inside":
            loop.call_soon(WRITES[write], protocol.transport)
        else:
            WRITES[write](protocol.transport)
        run_until(loop, lambda: protocol.lost)
        assert protocol.error.errno == errno.EBADF
        protocol.transport.write(b"late")


@pytest.mark.parametrize("end", ["close", "abort"])
def test_the_end_of_a_transport_whose_socket_is_closed(loop, end):
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with peer, closed_and_reused(ours):
        getattr(protocol.transport, end)()
        run_until(loop, lambda: protocol.lost)
        assert protocol.error is None
        assert protocol.transport.get_extra_info("sockname") is not None


def test_write_eof_of_a_closed_socket(loop):
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with peer, closed_and_reused(ours) as other:
        with pytest.raises(OSError) as caught:
            protocol.transport.write_eof()
        assert caught.value.errno == errno.EBADF
        with pytest.raises(BlockingIOError):
            other.recv(1)
        protocol.transport.abort()
        run_until(loop, lambda: protocol.lost)


def test_what_is_read_from_a_closed_socket(loop):
    """Another descriptor of the same socket keeps it open, and registered with the kernel."""
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    with ours.dup(), peer, closed_and_reused(ours):
        peer.send(b"reported, if at all, under the old number")
        loop.run_until_complete(turns(5))
        protocol.transport.abort()
        run_until(loop, lambda: protocol.lost)
        assert not protocol.received


@pytest.mark.only("c", reason="asyncio refuses a connection that has the number of an open transport")
def test_the_next_owner_of_the_number_is_accepted(loop):
    """A server's connection gets the number, and the end of the former transport does not stop its reading."""
    old, peer = connected_sockets("pair")
    protocol, accepted = Recorder(), Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=old))
    server = loop.run_until_complete(loop.create_server(lambda: accepted, "127.0.0.1", 0))
    client = socket.socket()
    number = old.fileno()
    old.close()
    taken = next_number_is(number)
    client.connect(server.sockets[0].getsockname())
    run_until(loop, lambda: accepted.transport)
    for fd in taken:
        os.close(fd)
    with client, peer:
        if accepted.transport.get_extra_info("socket").fileno() != number:
            pytest.skip("something else was opened meanwhile")
        client.send(b"one")
        run_until(loop, lambda: accepted.received == b"one")
        protocol.transport.pause_reading()
        protocol.transport.close()
        run_until(loop, lambda: protocol.lost)
        client.send(b"two")
        run_until(loop, lambda: accepted.received == b"onetwo")
        accepted.transport.abort()
        run_until(loop, lambda: accepted.lost)
        server.close()
        loop.run_until_complete(server.wait_closed())


async def open_reading(loop, kind):
    """A transport that reads, its protocol, the file that the program has, too, and a function that closes the peer."""
    if kind == "pipe":
        ours, peer = os.pipe()
        file = os.fdopen(ours, "rb", 0)
        return *await loop.connect_read_pipe(Recorder, file), file, lambda: os.close(peer)
    if kind == "datagram":
        file, peer = datagram_pair()
        return *await loop.create_datagram_endpoint(DatagramRecorder, sock=file), file, peer.close
    file, peer = connected_sockets(kind)
    return *await loop.create_connection(Recorder, sock=file), file, peer.close


async def resume_and_close(transport, protocol):
    """A resume_reading() that fails leaves the transport in asyncio's state; the program may try again, or close it."""
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as caught:
            transport.resume_reading()
        assert caught.value.errno == errno.EBADF
        assert transport.is_reading() and not transport.is_closing()
        assert "polling" not in repr(transport)
        await turns(5)
        transport.pause_reading()
    assert not protocol.lost
    transport.close()
    await until(lambda: protocol.lost)
    assert protocol.error is None


@pytest.mark.parametrize("closed", ["before the pause", "in the pause"])
@pytest.mark.parametrize("kind", [*KINDS, "datagram", "pipe"])
def test_reading_of_a_closed_file_is_resumed(loop, kind, closed):
    async def main():
        transport, protocol, file, close_peer = await open_reading(loop, kind)
        await turns(3)
        if closed == "before the pause":
            file.close()
        transport.pause_reading()
        file.close()
        await resume_and_close(transport, protocol)
        close_peer()

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio watches the file that has the number")
@pytest.mark.parametrize("kind", [*KINDS, "datagram", "pipe"])
def test_reading_is_resumed_when_the_number_has_another_owner(loop, kind):
    async def main():
        transport, protocol, file, close_peer = await open_reading(loop, kind)
        await turns(3)
        transport.pause_reading()
        with closed_and_reused(file):
            await resume_and_close(transport, protocol)
        close_peer()

    loop.run_until_complete(main())


def test_reading_of_a_closed_socket_is_resumed_over_tls(loop, tls):
    """TLS pauses the transport below when much has arrived; its error ends the connection."""
    secured = tls.open("client")
    secured.transport.pause_reading()
    below = secured.transport._ssl_protocol._transport
    while below.is_reading():
        secured.peer.write(bytes(100_000))
        run_once(loop, 5)
    secured.peer.opposite.close()
    secured.transport.resume_reading()
    run_until(loop, lambda: secured.protocol.lost)
    assert secured.protocol.error.errno == errno.EBADF
    secured.peer.socket.close()


def test_datagrams_to_a_closed_socket(loop):
    async def main():
        one, other = datagram_pair()
        transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=one)
        with other, closed_and_reused(one):
            transport.sendto(b"secret")
            await until(lambda: protocol.errors)
            assert [error.errno for error in protocol.errors] == [errno.EBADF]
            transport.close()
            await until(lambda: protocol.lost)

    loop.run_until_complete(main())


# asyncio's pipe transports go on using the number, whichever file has it.
PIPES = pytest.mark.only("c", "python", reason="asyncio writes to and reads from whichever file has the number")


@PIPES
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_to_a_closed_pipe(loop, write):
    async def main():
        reading, writing = os.pipe()
        file = os.fdopen(writing, "wb", 0)
        transport, protocol = await loop.connect_write_pipe(Recorder, file)
        with closed_and_reused(file):
            WRITES[write](transport)
            await until(lambda: protocol.lost)
            assert protocol.events[-1] == ("connection_lost", "OSError")
        os.close(reading)

    loop.run_until_complete(main())


@PIPES
def test_what_is_read_from_a_closed_pipe(loop):
    """Another descriptor keeps the pipe open, and registered with the kernel."""

    async def main():
        reading, writing = os.pipe()
        file = os.fdopen(reading, "rb", 0)
        _, protocol = await loop.connect_read_pipe(Recorder, file)
        kept = os.dup(reading)
        with closed_and_reused(file):
            os.write(writing, b"reported under the old number")
            await until(lambda: protocol.lost)
            assert protocol.events[-1] == ("connection_lost", "OSError")
            assert protocol.received == b""
        os.close(kept)
        os.close(writing)

    with reports_of(loop) as reports:
        loop.run_until_complete(main())
    assert [report["exception"].errno for report in reports] == [errno.EBADF]


def test_a_method_that_waits_at_a_socket_that_is_closed(loop):
    """sock_recv() waits; the program closes the socket, gives its number to another one, and receives from that."""

    async def main():
        ours, peer = connected_sockets("pair")
        waiting = asyncio.ensure_future(loop.sock_recv(ours, 10))
        await turns(2)
        number = ours.fileno()
        one, other = socket.socketpair()
        one.setblocking(False)
        with peer, one, other:
            ours.close()
            os.dup2(one.fileno(), number)
            with socket.socket(fileno=number) as next_owner:
                next_owner.setblocking(False)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                receiving = asyncio.ensure_future(loop.sock_recv(next_owner, 10))
                await turns(2)
                other.send(b"for it")
                assert await receiving == b"for it"

    loop.run_until_complete(main())
