"""The ports of a network in memory: those that its clients have, and the next one that is free."""

from collections import Counter
from collections.abc import Collection

FIRST, LAST = 49152, 65535
"""The ports for clients, and for servers at port 0: RFC 6335, the dynamic ports."""


class Ports:
    """All hosts share these ports: one that find_free() returns is free on each of them."""

    def __init__(self) -> None:
        self._clients: Counter[int] = Counter()
        self._next = FIRST

    def take(self, port: int) -> None:
        """A client has the port, until release(). Several can have it, because a program may choose it."""
        self._clients[port] += 1

    def release(self, port: int) -> None:
        self._clients[port] -= 1

    def find_free(self, listening: Collection[int], error_number: int) -> int:
        """A port that no client has and at which no server listens. OSError with that number if there is none."""
        for _ in range(FIRST, LAST + 1):
            port = self._next
            self._next = FIRST if port >= LAST else port + 1
            if port not in listening and not self._clients[port]:
                return port
        raise OSError(error_number, f"all ports from {FIRST} to {LAST} are in use")
