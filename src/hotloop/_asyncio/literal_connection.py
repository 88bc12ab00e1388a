"""loop.create_connection() to an address literal, without the steps that lead from a name to several addresses.

asyncio's create_connection() resolves the host, tries one address after the other, each in a coroutine of its own, and
collects their errors. A literal is one address, and its error is the only one. What asyncio calls on the way is called
here, too, in the same order and with the same arguments: the socket's constructor and methods, loop.sock_connect() and
loop._create_connection_transport(). asyncio's own code runs in debug mode, with options, and where a program has
replaced one of the steps that are left out.

This is Python for the reasons that literal_resolver.py gives.

Source: asyncio/base_events.py, create_connection() and _connect_sock().
"""

import asyncio
import contextlib
import functools
import socket
from typing import Any

from hotloop._asyncio.mixin import Behind

# asyncio's own function, as it was when this module was imported.
own_create_connection: Any = asyncio.SelectorEventLoop.create_connection


class LiteralConnections(Behind):  # type: ignore[misc]
    """Connects to address literals in one coroutine."""

    @functools.wraps(own_create_connection)
    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        behind = super().create_connection
        address = None
        if getattr(behind, "__func__", None) is own_create_connection and not any_is_set(options):
            address = self._literal_address(host, port)
        if address is None:
            return await behind(protocol_factory, host, port, **options)  # type: ignore[no-any-return]
        sock = socket.socket(family=socket.AF_INET, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        try:
            sock.setblocking(False)
            await self.sock_connect(sock, address)
        except BaseException:
            with contextlib.suppress(OSError):  # it would hide the error of the connection
                sock.close()
            raise
        self._note_connected(sock)
        return await self._create_connection_transport(  # type: ignore[no-any-return]
            sock, protocol_factory, None, None, ssl_handshake_timeout=None, ssl_shutdown_timeout=None
        )


def any_is_set(options: dict[str, Any]) -> bool:
    """Whether one of the options that libraries pass along is more than its default, or another one is there."""
    return bool(options) and any(
        value is not None or name not in ("ssl", "local_addr", "server_hostname") for name, value in options.items()
    )
