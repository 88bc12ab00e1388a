"""What does a message cost a real WebSocket server?"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from .. import load
from ..load import Generator, Network
from .registry import Rows, missing
from .serving import Loop, driven

rows = Rows()

CONNECTIONS, SIZE = 32, 1024


@contextlib.asynccontextmanager
async def by_websockets(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    from websockets.asyncio.server import serve  # only here: a worker that does not measure this row must not load it
    from websockets.exceptions import ConnectionClosed

    async def echo(connection: Any) -> None:
        with contextlib.suppress(ConnectionClosed):  # the load generator ends without saying so
            async for message in connection:
                await connection.send(message)

    # No pings: the loop stands still while the others have their rounds.
    server = await serve(echo, "127.0.0.1", 0, compression=None, ping_interval=None)
    yield "{}:{}".format(*server.sockets[0].getsockname())
    server.close()
    await server.wait_closed()


def drive(address: str, path: str) -> Generator:
    return Generator("tcp", address, CONNECTIONS, SIZE, websocket=True)


rows.on_network(
    "websockets-32x1KiB",
    "What does it cost to echo a binary message of 1 KiB by the library websockets, with 32 connected?",
    operations=300,
    opened=driven(by_websockets, "tcp", CONNECTIONS, drive),
    table="Libraries",
    packages=("websockets",),
    unavailable=lambda: missing("websockets") or load.unavailable(),
)
