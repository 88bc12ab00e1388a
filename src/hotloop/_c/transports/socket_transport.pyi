import asyncio
import socket
from asyncio.trsock import TransportSocket

from typing_extensions import disjoint_base

# The methods that it inherits at run time from Transport have the same types in asyncio's class.
@disjoint_base
class SocketTransport(asyncio.Transport): ...

class FlushingSocket(TransportSocket):
    def __init__(self, transport: SocketTransport, sock: socket.socket) -> None: ...

__test__: dict[str, str]
