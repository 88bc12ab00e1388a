"""A program whose connections have aiofastnet's transports. It prints facts about its loop."""

import asyncio
import json

from facts import facts
from native import has_native_transports

import hotloop


async def main():
    ended = asyncio.Event()
    modules = set()

    async def echo(reader, writer):
        modules.add(type(writer.transport).__module__)
        writer.write(await reader.read())
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        modules.add(type(writer.transport).__module__)
        writer.write(b"sent" * 100_000)
        writer.write_eof()
        assert await reader.read() == b"sent" * 100_000
        writer.close()
        await writer.wait_closed()
        await ended.wait()
    assert modules == {"aiofastnet.selector_transport"}, modules
    assert has_native_transports(asyncio.get_running_loop()) == (hotloop.implementation == "c")
    print(json.dumps(facts()))
