"""asyncio's streams on the loop under test, with a plain socket at the other end."""

import asyncio
import contextlib

from support.stream_connections import connected_sockets

LIMIT = 100  # bytes; the default limit of the readers made here


class StreamConnection:
    """A reader and a writer with a plain socket at the other end."""

    def __init__(self, reader, writer, peer):
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.reports = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.reports.append(context))

    def send(self, data):
        assert self.peer.send(data) == len(data)


@contextlib.asynccontextmanager
async def stream_connection(
    limit=LIMIT, make_reader=asyncio.StreamReader, make_protocol=asyncio.StreamReaderProtocol, kind="tcp"
):
    loop = asyncio.get_running_loop()
    ours, peer = connected_sockets(kind)
    reader = make_reader(limit=limit, loop=loop)
    transport, protocol = await loop.create_connection(lambda: make_protocol(reader, loop=loop), sock=ours)
    wire = StreamConnection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), peer)
    try:
        yield wire
        assert wire.reports == []
    finally:
        peer.close()
        transport.abort()
        with contextlib.suppress(Exception):  # the test is not about the error that ended the connection
            await wire.writer.wait_closed()
