"""What a callback writes to a stream leaves before what it then sends in another way, also by another loop: whatever
gets that has the stream's data, too."""

import asyncio
import contextlib
import os
import socket

import pytest
from support.stepping import run_once


async def datagram(loop, wire):
    receiver = wire(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receiver.bind(("127.0.0.1", 0))
    endpoint, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=receiver.getsockname())
    return endpoint, lambda: endpoint.sendto(b"second")


async def pipe(loop, wire):
    reading, writing = os.pipe()
    wire(os.fdopen(reading, "rb"))
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb"))
    return transport, lambda: transport.write(b"second")


async def socket_method(loop, wire):
    ours, theirs = (wire(end) for end in socket.socketpair())
    ours.setblocking(False)

    def send():
        coroutine = loop.sock_sendall(ours, b"second")
        with pytest.raises(StopIteration):
            coroutine.send(None)
        assert theirs.recv(10) == b"second"

    return None, send


@pytest.fixture(params=["the same loop", "another loop"])
def second_loop(request, loop, impl):
    if request.param == "the same loop":
        yield loop
        return
    with contextlib.closing(impl.new_event_loop()) as another:
        yield another


@pytest.mark.parametrize("other", [datagram, pipe, socket_method])
def test_a_write_is_not_overtaken(loop, second_loop, other):
    closed_at_the_end = []

    def wire(thing):
        closed_at_the_end.append(thing)
        return thing

    async def connect():
        listener = wire(socket.create_server(("127.0.0.1", 0)))
        ours = socket.create_connection(listener.getsockname())
        theirs = wire(listener.accept()[0])
        theirs.setblocking(False)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        return transport, theirs

    async def write_and_send():
        transport.write(b"first")
        send()
        received = theirs.recv(10)
        transport.abort()
        await asyncio.sleep(0)
        return received

    try:
        transport, theirs = loop.run_until_complete(connect())
        channel, send = second_loop.run_until_complete(other(second_loop, wire))
        run_once(loop)
        assert loop.run_until_complete(write_and_send()) == b"first"
        if channel is not None:
            channel.abort()
        run_once(second_loop, 2)
    finally:
        for thing in closed_at_the_end:
            thing.close()
