"""The task of an accepted connection with TLS.

asyncio has a task for each connection that a server accepts: it makes protocol and transport, and waits until the
connection is the protocol's. Without TLS that takes a turn and needs no task (network/accepting.pyx). A TLS handshake
takes as long as the peer likes, so it has one: a program that ends cancels all tasks, as asyncio.run() does, and so
closes the connections that no code of the program knows yet.

Source: asyncio/selector_events.py, _accept_connection2().
"""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotloop._c.network.accepting import AcceptedConnection


async def complete_handshake(connection: "AcceptedConnection") -> None:
    """Close the connection if its handshake fails or is cancelled. asyncio reports either in debug mode only."""
    transport: asyncio.Transport | None = None
    waiter: asyncio.Future[None] | None = None
    try:
        transport, waiter = connection._open_tls()
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        pass
    finally:
        # The exception's traceback has this frame: no cycle of the three, which only the garbage collector would end.
        del connection, transport, waiter
