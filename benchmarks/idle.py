"""What the measurements of idle connections share: their protocol, and the memory of this process."""

import asyncio
from pathlib import Path
from typing import Any


class NotMeasured(Exception):
    """The reason why there are no figures."""


class Echo(asyncio.Protocol):
    """A trivial protocol. It has no instance dictionary, so sys.getsizeof() is its whole size."""

    __slots__ = ("transport",)
    connections = 0
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        Echo.connections += 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        Echo.connections -= 1


async def until_connected(wanted: int) -> None:
    """Wait until there are that many connections; TimeoutError after a minute."""
    async with asyncio.timeout(60):
        while Echo.connections != wanted:
            await asyncio.sleep(0.001)


def anonymous_memory() -> int:
    """Bytes, resident or swapped out, without pages of files: those change with what other processes do."""
    return memory_field("RssAnon") + memory_field("VmSwap")


def resident_size() -> int:
    """Bytes."""
    return memory_field("VmRSS")


def memory_field(name: str) -> int:
    """Bytes (proc_pid_status(5))."""
    path = Path("/proc/self/status")
    for line in path.read_text().splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise NotMeasured("this system does not say how much memory the process has")
