import asyncio
import socket
from typing import Any

def resume_accepting(loop: asyncio.AbstractEventLoop, sock: socket.socket, arguments: tuple[Any, ...]) -> None: ...

# Cython's: what the compiled modules take from each other.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
