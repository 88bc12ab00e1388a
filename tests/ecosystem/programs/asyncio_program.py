"""A typical program with asyncio: tasks, connections, threads and a child. It prints facts about its loop."""

import asyncio
import json

from facts import facts


async def echo(reader, writer):
    writer.write(await reader.read())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def over_tcp():
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"sent")
        writer.write_eof()
        assert await reader.read() == b"sent"
        writer.close()
        await writer.wait_closed()


async def in_a_child():
    child = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert await child.communicate(b"through") == (b"through", None)


async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(over_tcp())
        group.create_task(in_a_child())
        group.create_task(asyncio.to_thread(int))
    print(json.dumps(facts()))


if __name__ == "__main__":
    asyncio.run(main())
