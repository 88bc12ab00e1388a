"""A transport for a socket for which something else waits already: that goes on, as under asyncio. What would begin to
wait beside a transport is refused."""

import asyncio
import gc
import os
import socket
import warnings
from multiprocessing.connection import Connection

import pytest
from support.endpoints import cancelled, started

# More than a pair of sockets holds.
MUCH = b"x" * 5_000_000


@pytest.fixture
def reports(loop):
    """The exceptions of what was reported. asyncio reports the callback that ends a sock_sendall() as misuse."""
    found = []
    loop.set_exception_handler(lambda loop, context: found.append(context["exception"]))
    return found


async def connected(loop, sock):
    return (await loop.create_connection(asyncio.Protocol, sock=sock))[0]


async def received(loop, sock, size):
    """How many bytes came from it, `size` at most."""
    count = 0
    while count < size:
        data = await loop.sock_recv(sock, 1 << 20)
        if not data:
            break
        count += len(data)
    return count


def test_sock_sendall_goes_on(loop, pair, reports):
    one, other = pair

    async def main():
        sending = await started(loop.sock_sendall(one, MUCH))
        transport = await connected(loop, one)
        assert await received(loop, other, len(MUCH)) == len(MUCH)
        await sending
        transport.close()

    loop.run_until_complete(asyncio.wait_for(main(), 60))
    assert {type(error) for error in reports} <= {RuntimeError}


async def all_received(loop, sock):
    """What comes from it until nothing has come for a while."""
    data = bytearray()
    while True:
        try:
            data += await asyncio.wait_for(loop.sock_recv(sock, 1 << 20), 0.5)
        except TimeoutError:
            return data


@pytest.mark.only("c", reason="asyncio's loop cuts off either the one or the other, and keeps the callback registered")
@pytest.mark.parametrize("turns", range(5))
def test_a_transport_that_writes_displaces_sock_sendall(loop, pair, reports, turns):
    one, other = pair

    async def main():
        sending = await started(loop.sock_sendall(one, MUCH))
        transport = await connected(loop, one)
        data = bytearray(other.recv(1 << 18))
        for _ in range(turns):
            await asyncio.sleep(0)
        transport.write(b"y" * 1_000_000)
        data += await all_received(loop, other)
        buffered = transport.get_write_buffer_size()
        transport.abort()
        sending.cancel()
        await asyncio.wait([sending])
        return data.count(b"y"), buffered

    assert loop.run_until_complete(main()) == (1_000_000, 0)


@pytest.mark.only("c", reason="asyncio's loop cuts off the sock_sendall() at some turns")
@pytest.mark.parametrize("turns", range(5))
def test_sock_sendall_goes_on_if_the_transport_is_made_between_two_of_its_waits(loop, pair, reports, turns):
    one, other = pair

    async def main():
        sending = await started(loop.sock_sendall(one, MUCH))
        size = len(other.recv(1 << 18))
        for _ in range(turns):
            await asyncio.sleep(0)
        transport = await connected(loop, one)
        size += len(await all_received(loop, other))
        assert sending.done()
        transport.abort()
        return size

    assert loop.run_until_complete(main()) == len(MUCH)


def test_a_callback_for_writing_goes_on(loop, pair):
    one, _ = pair

    async def main():
        twice = asyncio.Event()
        calls = 0

        def writable():
            nonlocal calls
            calls += 1
            if calls == 2:
                twice.set()

        loop.add_writer(one, writable)
        assert calls == 0
        transport = await connected(loop, one)
        await twice.wait()
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.remove_writer(one)
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.add_reader(one, writable)
        transport.close()

    loop.run_until_complete(asyncio.wait_for(main(), 60))


def test_sock_sendto_goes_on_beside_a_datagram_transport(loop, reports):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.setblocking(False)
    other.setblocking(False)

    async def main():
        with pytest.raises(BlockingIOError):
            while True:
                one.send(b"a datagram")
        sending = await started(loop.sock_sendall(one, b"the last"))
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=one)
        while await loop.sock_recv(other, 100) != b"the last":
            pass
        await sending
        transport.close()

    with one, other:
        loop.run_until_complete(asyncio.wait_for(main(), 60))


def test_the_transport_of_a_socket_that_sock_methods_are_done_with(loop, pair, impl):
    """The registration that they leave is no obstacle."""
    one, other = pair

    async def main():
        receiving = await started(loop.sock_recv(one, 100))
        other.send(b"data")
        assert await receiving == b"data"
        transport = await connected(loop, one)
        assert type(transport).__name__ == ("StreamTransport" if impl.name == "c" else "_SelectorSocketTransport")
        transport.close()

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="the standard library's selector fails for the number of a closed socket that it has")
def test_a_callback_for_a_closed_socket_is_not_called_for_the_next_one(loop):
    one, other = socket.socketpair()
    fd = one.fileno()
    loop.add_writer(one, pytest.fail, "a callback of the closed socket was called")
    one.close()
    other.close()
    one, other = socket.socketpair()
    assert one.fileno() == fd

    async def main():
        transport = await connected(loop, one)
        await asyncio.sleep(0.01)
        transport.close()

    with one, other:
        loop.run_until_complete(main())


@pytest.mark.only("c", reason="the standard library's selector fails for the number of a closed file that it has")
@pytest.mark.parametrize("made", [lambda fd: os.fdopen(fd, "rb", 0), Connection], ids=["file", "Connection"])
def test_a_callback_for_a_closed_file_is_not_called_for_the_next_socket(loop, made):
    """When it is closed, fileno() of an object raises what its class likes."""
    source, sink = os.pipe()
    file = made(source)
    loop.add_reader(file, pytest.fail, "a callback of the closed file was called")
    file.close()
    os.close(sink)
    one, other = socket.socketpair()
    assert one.fileno() == source

    async def main():
        transport = await connected(loop, one)
        other.send(b"for the transport")
        await asyncio.sleep(0.01)
        transport.close()

    with one, other:
        loop.run_until_complete(main())


# -- beside a transport ------------------------------------------------------------------------------------------------


class Paused(asyncio.Protocol):
    def connection_made(self, transport):
        transport.pause_reading()


async def check_refused(loop, sock):
    for wait in (loop.sock_recv(sock, 100), loop.sock_recv_into(sock, bytearray(100))):
        with pytest.raises(RuntimeError, match="is used by"):
            await asyncio.wait_for(wait, 10)
    for add in (loop.add_reader, loop.add_writer):
        with pytest.raises(RuntimeError, match="is used by"):
            add(sock, pytest.fail)
    for remove in (loop.remove_reader, loop.remove_writer):
        with pytest.raises(RuntimeError, match="is used by"):
            remove(sock.fileno())


def test_nothing_waits_beside_a_transport_that_has_not_begun_to_read(loop, pair):
    one, _ = pair

    async def main():
        connecting = asyncio.create_task(connected(loop, one))
        await asyncio.sleep(0)
        await check_refused(loop, one)
        (await connecting).close()

    loop.run_until_complete(main())


def test_nothing_waits_beside_a_transport_that_was_paused_before_it_began(loop, pair):
    one, other = pair

    async def main():
        transport, _ = await loop.create_connection(Paused, sock=one)
        await check_refused(loop, one)
        other.send(b"for the protocol")
        received = loop.create_future()
        transport.get_protocol().data_received = received.set_result
        transport.resume_reading()
        assert await received == b"for the protocol"
        transport.close()

    loop.run_until_complete(asyncio.wait_for(main(), 60))


def test_nothing_waits_beside_a_datagram_transport_that_has_not_begun(loop):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def main():
        connecting = asyncio.create_task(loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=one))
        await asyncio.sleep(0)
        await check_refused(loop, one)
        (await connecting)[0].close()

    with one, other:
        one.setblocking(False)
        loop.run_until_complete(main())


def test_the_socket_of_an_accepted_connection_is_refused_while_it_is_paused(loop, socket_path):
    """Its number was asked for before the connection began to read."""
    asked = []

    class Asking(Paused):
        def connection_made(self, transport):
            super().connection_made(transport)
            asked.append((transport, transport.get_extra_info("socket").fileno()))

    async def main():
        server = await loop.create_unix_server(Asking, socket_path)
        client, _ = await loop.create_unix_connection(asyncio.Protocol, socket_path)
        while not asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        transport, number = asked[0]
        with pytest.raises(RuntimeError, match="is used by"):
            loop.add_reader(number, pytest.fail)
        transport.close()
        client.close()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def test_nothing_joins_what_waits_for_a_socket_that_has_a_transport(loop, pair, reports):
    one, _ = pair

    async def main():
        first = await started(loop.sock_recv(one, 100))
        connecting = asyncio.create_task(connected(loop, one))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="is used by"):
            await asyncio.wait_for(loop.sock_recv(one, 100), 10)
        await cancelled(first)
        (await connecting).close()

    loop.run_until_complete(asyncio.wait_for(main(), 60))


def test_data_that_was_reported_before_the_transport_was_made_is_not_the_transports(loop, pair, reports):
    """In the turn in which the loop learns of the data, the program makes a transport."""
    one, other = pair
    to_protocol = []

    class Receiving(asyncio.Protocol):
        def data_received(self, data):
            to_protocol.append(data)

    async def main():
        first = await started(loop.sock_recv(one, 100))
        other.send(b"for the first")
        # The task runs before the event of the same turn.
        connecting = asyncio.create_task(loop.create_connection(Receiving, sock=one))
        assert await first == b"for the first"
        transport, _ = await connecting
        assert not to_protocol
        transport.close()

    loop.run_until_complete(asyncio.wait_for(main(), 60))


def test_a_file_closes_the_loop_that_asks_for_its_number(impl, pair):
    class File:
        def fileno(self):
            loop.close()
            return pair[0].fileno()

    loop = impl.new_event_loop()
    with pytest.raises(RuntimeError, match="closed"):
        loop.add_reader(File(), int)


@pytest.mark.only("c", reason="asyncio's _make_socket_transport() does not call it")
def test_a_loop_that_closes_when_a_socket_gets_its_transport(impl, pair):
    class Closing(impl.EventLoop):
        def _ensure_fd_no_transport(self, fd):
            self.close()

    with warnings.catch_warnings():
        # asyncio's transport, which it gets then.
        warnings.simplefilter("ignore", ResourceWarning)
        with pytest.raises(RuntimeError, match="closed"):
            Closing()._make_socket_transport(pair[0], asyncio.Protocol())
        gc.collect()
