import asyncio
import socket
from typing import Any

async def sock_connect(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
