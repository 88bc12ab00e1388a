import asyncio
import socket
from typing import IO

async def send_file(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, file: IO[bytes], offset: int, count: int | None
) -> int: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
