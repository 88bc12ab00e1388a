import asyncio
import socket
from typing import IO, Any

async def sock_connect(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None: ...
async def send_file(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, file: IO[bytes], offset: int, count: int | None
) -> int: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
