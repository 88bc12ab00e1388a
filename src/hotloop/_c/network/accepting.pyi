import asyncio
import socket
from typing import Any, final

@final
class AcceptedConnection:
    def _open_tls(self) -> tuple[asyncio.Transport, asyncio.Future[None]]: ...

def resume_accepting(loop: asyncio.AbstractEventLoop, sock: socket.socket, arguments: tuple[Any, ...]) -> None: ...

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
