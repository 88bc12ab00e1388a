"""Reading is resumed in the turn in which data was reported: the data comes in the next turn, as on asyncio.

Pausing cancels asyncio's handle for the read, and the next poll reports the data again.
"""

import asyncio
import os
import select
import selectors

import pytest
from support.endpoints import close, datagram_pair, drain, turns
from support.implementations import load
from support.stream_connections import HAS_UNIX, KINDS, MORE_THAN_FITS, connected_sockets, wait_for


class Receiver(asyncio.Protocol):
    received = lost = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received = True

    def datagram_received(self, data, address):
        self.received = True

    def connection_lost(self, error):
        self.lost = True


async def open_reading(loop, kind):
    """A transport that reads, and functions by which its other end sends and closes."""
    if kind == "pipe":
        ours, peer = os.pipe()
        transport, protocol = await loop.connect_read_pipe(Receiver, os.fdopen(ours, "rb", 0))
        return transport, protocol, lambda: os.write(peer, b"x"), lambda: os.close(peer)
    if kind == "datagram":
        ours, peer = datagram_pair()
        transport, protocol = await loop.create_datagram_endpoint(Receiver, sock=ours)
    else:
        ours, peer = connected_sockets(kind)
        transport, protocol = await loop.create_connection(Receiver, sock=ours)
    return transport, protocol, lambda: peer.send(b"x"), peer.close


async def turns_until_received(protocol):
    count = 0
    while not protocol.received:
        await asyncio.sleep(0)
        count += 1
    return count


async def paused_and_resumed(loop, kind):
    transport, protocol, send, close_peer = await open_reading(loop, kind)
    await turns(5)
    send()
    if kind == "tcp":
        wait_for(transport.get_extra_info("socket"), select.POLLIN)
    await turns(1)
    # The poll has reported the data, and the transport's turn comes after this task's.
    transport.pause_reading()
    transport.resume_reading()
    count = await turns_until_received(protocol)
    await close(transport)
    close_peer()
    return count


@pytest.mark.skipif(not HAS_UNIX, reason="asyncio has no pipes there")
@pytest.mark.parametrize("kind", [*KINDS, "pipe", "datagram"])
def test_paused_and_resumed_after_data_was_reported(impl, kind):
    expected, count = [one.run(scenario(paused_and_resumed, kind)) for one in (load("asyncio"), impl)]
    assert count == expected


async def resumed_when_writing_is_possible(loop, kind):
    ours, peer = connected_sockets(kind)
    transport, protocol = await loop.create_connection(Receiver, sock=ours)
    transport.pause_reading()
    transport.write(bytes(MORE_THAN_FITS))
    peer.send(b"x")
    wait_for(ours, select.POLLIN)
    await turns(5)
    drain(peer)
    wait_for(ours, select.POLLOUT)
    await turns(1)
    # The poll has reported room to write; the data arrived before it.
    transport.resume_reading()
    count = await turns_until_received(protocol)
    transport.abort()
    peer.close()
    while not protocol.lost:
        await asyncio.sleep(0)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_after_writing_was_reported(impl, kind):
    expected, count = [one.run(scenario(resumed_when_writing_is_possible, kind)) for one in (load("asyncio"), impl)]
    assert count == expected


async def scenario(play, kind):
    return await play(asyncio.get_running_loop(), kind)


async def paused_with_data(loop, kind):
    transport, protocol, send, close_peer = await open_reading(loop, kind)
    await turns(5)
    transport.pause_reading()
    send()
    wait_for(transport.get_extra_info("socket"), select.POLLIN)
    await turns(3)
    return transport, protocol, close_peer


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_polls_itself_finds_what_is_to_be_read_again(loop, kind):
    """It asks the selector without a limit of time, hands what that returns to the loop, and runs the handles."""

    async def main():
        transport, protocol, close_peer = await paused_with_data(loop, kind)
        transport.resume_reading()
        loop._process_events(loop._selector.select())
        while loop._ready:
            handle = loop._ready.popleft()
            if not handle._cancelled:
                handle._run()
        assert protocol.received
        transport.close()
        await turns(3)
        close_peer()

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", KINDS)
def test_another_selector_is_put_in_before_it_is_read_again(loop, kind):
    async def main():
        transport, protocol, close_peer = await paused_with_data(loop, kind)
        own = loop._selector
        transport.resume_reading()
        loop._selector = selectors.SelectSelector()
        await turns(3)
        loop._selector.close()
        loop._selector = own
        await turns(3)
        assert protocol.received
        transport.close()
        await turns(3)
        close_peer()

    loop.run_until_complete(main())


async def resumed_on_another(kind):
    """While reading is paused, the program puts another connection, or pipe, under the transport's number."""
    loop = asyncio.get_running_loop()
    transport, protocol, _, close_peer = await open_reading(loop, kind)
    await turns(3)
    transport.pause_reading()
    await turns(3)
    another, _, send, close_another = await open_reading(loop, kind)
    name = "pipe" if kind == "pipe" else "socket"
    os.dup2(another.get_extra_info(name).fileno(), transport.get_extra_info(name).fileno())
    another.abort() if kind != "pipe" else another.close()
    close_peer()
    await turns(3)
    transport.resume_reading()
    await turns(3)
    for _ in range(3):
        protocol.received = False
        send()
        await turns_until_received(protocol)
    await close(transport)
    close_another()


@pytest.mark.skipif(not HAS_UNIX, reason="uses dup2() to put a file under a number")
@pytest.mark.parametrize("kind", [*KINDS, "pipe", "datagram"])
def test_reading_is_resumed_on_another_connection_under_the_number(impl, kind):
    for one in (load("asyncio"), impl):
        one.run(asyncio.wait_for(resumed_on_another(kind), 30))


@pytest.mark.only("c", reason="asyncio's write() raises FileNotFoundError, and loses what the kernel has not taken")
@pytest.mark.parametrize("kind", KINDS)
def test_a_write_waits_for_room_on_another_connection_under_the_number(loop, kind):
    data = b"x" * MORE_THAN_FITS

    async def read_all(sock):
        received = 0
        while received < len(data):
            received += sum(map(len, drain(sock)))
            await turns(1)

    async def main():
        (ours, peer), (another, its_peer) = connected_sockets(kind), connected_sockets(kind)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        with peer, its_peer:
            for sock in (peer, its_peer):
                sock.setblocking(False)
            transport.write(data)
            await read_all(peer)
            os.dup2(another.fileno(), ours.fileno())
            another.close()
            transport.write(data)
            await read_all(its_peer)
            transport.abort()
            await turns(3)

    loop.run_until_complete(main())
