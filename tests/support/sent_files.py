"""What tests of sendfile() send and receive."""

import asyncio
import socket

DATA = bytes(range(256)) * 4000  # more than a socket holds


async def read_all(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    received = bytearray()
    while data := await loop.sock_recv(sock, 65536):
        received += data
    return bytes(received)
