"""The task that waits for the TLS handshake of an accepted connection.

asyncio has a task for each connection that a server accepts. Accepting needs none (network/accepting.pyx), but a
program that ends cancels all tasks, as asyncio.run() does, and so ends the handshakes that go on then. Otherwise such a
connection, which no code of the program knows yet, would stay open until the garbage collector finds it.

Source: asyncio/selector_events.py, _accept_connection2().
"""

from __future__ import annotations

import asyncio


async def wait_for_handshake(transport: asyncio.Transport | None, waiter: asyncio.Future[None] | None) -> None:
    """Close the connection if its handshake fails or is cancelled. asyncio reports either in debug mode only."""
    assert transport is not None and waiter is not None
    try:
        await waiter
    except BaseException as error:
        transport.close()
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            raise
    finally:
        # The exception's traceback has this frame: no cycle of the three, which only the garbage collector would end.
        transport = waiter = None
