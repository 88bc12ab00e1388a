"""The task that waits for the TLS handshake of an accepted connection.

asyncio has a task for each connection that a server accepts. Accepting needs none (network/accepting.pyx), but a
program that ends cancels all tasks, as asyncio.run() does, and so ends the handshakes that go on then. Otherwise such a
connection, which no code of the program knows yet, would stay open until the garbage collector finds it.

Source: asyncio/selector_events.py, _accept_connection2().
"""

import asyncio


async def wait_for_handshake(transport: asyncio.Transport, waiter: "asyncio.Future[None]") -> None:
    """Close the connection if its handshake fails or is cancelled. asyncio reports either in debug mode only."""
    try:
        await waiter
    except (SystemExit, KeyboardInterrupt):
        transport.close()
        raise
    except BaseException:
        transport.close()
    finally:
        # The exception's traceback has this frame: no cycle of the three, which only the garbage collector would end.
        del transport, waiter
