"""What a callback writes to a stream leaves before what it then sends in another way: who gets that has the stream's
data, too."""

import asyncio
import os
import socket

import pytest


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


@pytest.mark.parametrize("other", [datagram, pipe, socket_method])
def test_a_write_is_not_overtaken(loop, other):
    closed_at_the_end = []

    def wire(thing):
        closed_at_the_end.append(thing)
        return thing

    async def main():
        listener = wire(socket.create_server(("127.0.0.1", 0)))
        ours = socket.create_connection(listener.getsockname())
        theirs = wire(listener.accept()[0])
        theirs.setblocking(False)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        del ours
        channel, send = await other(loop, wire)
        await asyncio.sleep(0)
        transport.write(b"first")
        send()
        received = theirs.recv(10)
        transport.abort()
        if channel is not None:
            channel.abort()
        await asyncio.sleep(0)
        return received

    try:
        assert loop.run_until_complete(main()) == b"first"
    finally:
        for thing in closed_at_the_end:
            thing.close()
