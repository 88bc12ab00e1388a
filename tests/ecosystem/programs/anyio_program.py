"""A typical program with anyio. It prints facts about its loop."""

import json
import signal

import anyio
from facts import facts


async def serve(client):
    async with client:
        await client.send(await client.receive())


async def over_tcp():
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"sent")
            assert await stream.receive() == b"sent"
        group.cancel_scope.cancel()


async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(over_tcp)
        group.start_soon(anyio.to_thread.run_sync, int)
    assert (await anyio.run_process(["cat"], input=b"through")).stdout == b"through"
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
        signal.raise_signal(signal.SIGUSR1)
        assert await anext(signals) == signal.SIGUSR1
    # From inside another task it looks for the task that run() has made.
    assert anyio.get_current_task().id
    print(json.dumps(facts()))
