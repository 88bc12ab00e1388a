"""CountingSocket: counts for loop.metrics() what asyncio's socket transports receive and send."""

from typing import Any

from hotloop._pure.loop.metrics import Measurements


class CountingSocket:
    """Stands between a transport and its socket, and counts the bytes. Everything else is the socket's own."""

    __slots__ = ("_measurements", "_recv", "_send", "_socket")

    def __init__(self, socket: Any, measurements: Measurements) -> None:
        self._socket = socket
        self._measurements = measurements
        self._recv = socket.recv
        self._send = socket.send

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> Any:
        """See socket.recv()."""
        data = self._recv(size)
        self._measurements.received(data)
        return data

    def recv_into(self, buffer: Any) -> Any:
        """See socket.recv_into()."""
        count = self._socket.recv_into(buffer)
        self._measurements.received(count)
        return count

    def recvfrom(self, size: int) -> Any:
        """See socket.recvfrom()."""
        received = self._socket.recvfrom(size)
        self._measurements.received(received)
        return received

    def send(self, data: Any) -> Any:
        """See socket.send()."""
        return self._sent(self._send(data))

    def sendmsg(self, buffers: Any) -> Any:
        """See socket.sendmsg()."""
        return self._sent(self._socket.sendmsg(buffers))

    def sendto(self, data: Any, address: Any) -> Any:
        """See socket.sendto()."""
        return self._sent(self._socket.sendto(data, address))

    def _sent(self, count: Any) -> Any:
        self._measurements.sent(count)
        return count
