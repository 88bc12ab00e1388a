"""`max_size`, an attribute of asyncio's transports: a read asks for at most so many bytes. Programs set it, some to
read exactly the head of a message."""

import asyncio
import os
import socket
import struct
import sys
from unittest import mock

import pytest
from support.endpoints import until
from support.recording import DatagramRecorder, Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")

KINDS = ["tcp", "pair", "pipe"]


async def reading(loop, kind, protocol):
    """(transport, a file to write to it)."""
    if kind == "pipe":
        source, sink = os.pipe()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(source, "rb", 0))
        return transport, os.fdopen(sink, "wb", 0)
    if kind == "pair":
        ours, peer = socket.socketpair()
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            transport, _ = await loop.create_connection(lambda: protocol, *listener.getsockname())
            peer, _ = listener.accept()
    peer.setblocking(False)
    with peer:
        return transport, peer.makefile("wb", 0)


class Pieces(Recorder):
    def __init__(self):
        super().__init__()
        self.pieces = []

    def data_received(self, data):
        super().data_received(data)
        self.pieces.append(bytes(data))


@pytest.mark.parametrize("kind", KINDS)
def test_no_piece_is_larger(loop, kind):
    async def main():
        protocol = Pieces()
        transport, sink = await reading(loop, kind, protocol)
        assert transport.max_size == 256 * 1024
        transport.max_size = 4
        assert transport.max_size == 4
        with sink:
            sink.write(b"0123456789")
            await until(lambda: len(protocol.received) == 10)
        assert protocol.pieces == [b"0123", b"4567", b"89"]
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", KINDS)
def test_patched(loop, kind):
    """The attribute is the class's: to undo a patch is to delete the transport's own."""

    async def main():
        protocol = Pieces()
        transport, sink = await reading(loop, kind, protocol)
        with sink:
            with mock.patch.object(transport, "max_size", 4):
                sink.write(b"01234")
                await until(lambda: len(protocol.received) == 5)
            assert transport.max_size == 256 * 1024
            sink.write(b"56789")
            await until(lambda: len(protocol.received) == 10)
        assert protocol.pieces == [b"0123", b"4", b"56789"]
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [4_000, 20_000])
def test_after_large_reads(loop, kind, largest):
    """The size of a read is estimated from those before."""

    async def main():
        protocol = Pieces()
        transport, sink = await reading(loop, kind, protocol)
        with sink:
            for size in (None, largest):
                if size is not None:
                    transport.max_size = size
                transport.pause_reading()
                protocol.pieces.clear()
                protocol.received.clear()
                sink.write(bytes(50_000))
                transport.resume_reading()
                await until(lambda: len(protocol.received) == 50_000)
            assert max(map(len, protocol.pieces)) == largest
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", KINDS)
def test_set_for_each_part_of_a_message(loop, kind):
    class Framed(Recorder):
        def __init__(self):
            super().__init__()
            self.messages = []
            self.rest = 0

        def connection_made(self, transport):
            super().connection_made(transport)
            transport.max_size = 4

        def data_received(self, data):
            if self.rest == 0:
                (self.rest,) = struct.unpack("!I", data)
                self.messages.append(b"")
            else:
                self.messages[-1] += data
                self.rest -= len(data)
            self.transport.max_size = self.rest or 4

    async def main():
        messages = [b"a", b"b" * 100, b"c" * 30_000, b"d"]
        protocol = Framed()
        _, sink = await reading(loop, kind, protocol)
        with sink:
            sink.write(b"".join(struct.pack("!I", len(message)) + message for message in messages))
            await until(lambda: len(protocol.messages) == 4 and protocol.rest == 0)
        assert protocol.messages == messages
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_reader(loop, kind):
    async def main():
        reader = asyncio.StreamReader(loop=loop)
        transport, sink = await reading(loop, kind, asyncio.StreamReaderProtocol(reader, loop=loop))
        transport.max_size = 3
        with sink:
            sink.write(b"0123456789")
        assert await reader.read(100) == b"012"
        assert await reader.read() == b"3456789"
        transport.close()

    loop.run_until_complete(main())


def test_the_rest_of_a_datagram_is_lost(loop):
    async def main():
        transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
        transport.max_size = 4
        transport.sendto(b"0123456789", transport.get_extra_info("sockname"))
        transport.sendto(b"ab", transport.get_extra_info("sockname"))
        await until(lambda: len(protocol.received) == 2)
        assert protocol.received == [b"0123", b"ab"]
        transport.close()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio's transports take any value, and fail when they read")
@pytest.mark.parametrize("kind", KINDS)
def test_values(loop, kind):
    async def main():
        protocol = Recorder()
        transport, sink = await reading(loop, kind, protocol)
        transport.max_size = 1 << 100
        assert transport.max_size == 256 * 1024
        for size, error in ((-1, ValueError), (1.5, TypeError), ("4", TypeError), (None, TypeError)):
            with pytest.raises(error):
                transport.max_size = size
        assert transport.max_size == 256 * 1024
        sink.close()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())
