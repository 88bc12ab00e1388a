"""What a callback writes to a stream leaves before what it then sends in another way, also by another loop: whatever
gets that has the stream's data, too."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys

import pytest
from support.endpoints import datagram_pair, drain, drain_pipe, pipe_files, settle
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


async def full_pipe(loop):
    reading, writing = pipe_files()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writing)
    return transport, transport.write, reading, lambda: drain_pipe(reading.fileno())


async def full_datagram_socket(loop):
    ours, theirs = datagram_pair()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=ours)
    return transport, transport.sendto, theirs, lambda: b"".join(drain(theirs))


@pytest.mark.parametrize("channel", [full_pipe, full_datagram_socket])
def test_a_write_is_not_overtaken_by_what_waited_for_room(loop, channel):
    async def main():
        waiting, write, other_end, received = await channel(loop)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
        del ours  # what is written to a socket that the program keeps leaves at once
        done = loop.create_future()

        def make_room():
            received()
            # In the next turn this is called before the event that there is room, and look() after it.
            loop.call_soon(transport.write, b"first")
            loop.call_later(0, look)

        def look():
            done.set_result((received()[-4:], drain(theirs)))

        with other_end, theirs:
            while waiting.get_write_buffer_size() == 0:
                write(b"x" * 1000)
            write(b"rest")
            loop.call_soon(make_room)
            assert await done == (b"rest", [b"first"])
            for opened in (transport, waiting):
                opened.abort()
            await settle()

    loop.run_until_complete(main())


async def transport_and_peer(loop):
    """A transport, whose socket the program does not keep, and a socket that reads what it writes."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    return transport, theirs


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="this system has no os.sendfile()")
def test_a_write_is_not_overtaken_by_a_file(loop, tmp_path, monkeypatch):
    async def main():
        transport, theirs = await transport_and_peer(loop)
        arrived = []

        def sendfile(*arguments):
            arrived.append(drain(theirs))
            return os_sendfile(*arguments)

        os_sendfile = os.sendfile
        monkeypatch.setattr(os, "sendfile", sendfile)
        (tmp_path / "file").write_bytes(b"second")
        sending, receiving = socket.socketpair()
        sending.setblocking(False)
        with theirs, sending, receiving, open(tmp_path / "file", "rb") as file:
            transport.write(b"first")
            await loop.sock_sendfile(sending, file)
            assert arrived[0] == [b"first"]
            assert receiving.recv(10) == b"second"
            transport.abort()
            await settle()

    loop.run_until_complete(main())


def test_a_write_is_not_overtaken_by_a_child(loop, monkeypatch):
    async def main():
        transport, theirs = await transport_and_peer(loop)
        arrived = []

        class Popen(subprocess.Popen):
            def __init__(self, *arguments, **keywords):
                arrived.extend(drain(theirs))
                super().__init__(*arguments, **keywords)

        monkeypatch.setattr(subprocess, "Popen", Popen)
        with theirs:
            transport.write(b"first")
            process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "")
            assert arrived == [b"first"]
            await process.wait()
            transport.abort()
            await settle()

    loop.run_until_complete(main())
