"""Scenarios that are wrong on purpose, one for each kind of defect: they show that the machinery detects it.

They go wrong only where pipe2() fails, except Starves, which goes wrong at a failing allocation.
"""

import asyncio
import ctypes
import os
import signal
from typing import Any

from .connections import HalfClosed, Serving
from .scenario import Scenario


def _fails() -> bool:
    try:
        for end in os.pipe():
            os.close(end)
    except OSError:
        return True
    return False


class Defective(Scenario):
    async def act(self) -> None:
        if _fails():
            await self.go_wrong()

    async def go_wrong(self) -> None:
        raise NotImplementedError


class Crashes(Defective):
    async def go_wrong(self) -> None:
        ctypes.string_at(0)


class Starves(Scenario):
    """Crashes without memory."""

    async def act(self) -> None:
        try:
            bytearray(100_000)
        except MemoryError:
            ctypes.string_at(0)


class Hangs(Defective):
    """Hangs like C code that never checks for signals."""

    async def go_wrong(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        signal.pause()


class IsStuck(Defective):
    async def go_wrong(self) -> None:
        await self.loop.create_future()


class Spins(Defective):
    """A reader that never reads."""

    async def prepare(self) -> None:
        self.ends = os.pipe()
        os.write(self.ends[1], b"x")

    async def go_wrong(self) -> None:
        self.loop.add_reader(self.ends[0], bool)

    async def close(self) -> None:
        self.loop.remove_reader(self.ends[0])
        for end in self.ends:
            os.close(end)


class LeaksADescriptor(Defective):
    async def go_wrong(self) -> None:
        os.dup(0)


class EndsTheLoop(Defective):
    async def go_wrong(self) -> None:
        def end() -> None:
            del self.loop._run_once
            raise OSError("ends the loop")

        self.loop._run_once = end  # type: ignore[method-assign]
        await asyncio.sleep(0)


class Raises(Defective):
    async def go_wrong(self) -> None:
        raise SystemError("returned NULL without setting an exception")


class LosesAByte(HalfClosed):
    """An answer without its last byte, and no report of it."""

    class server_protocol(HalfClosed.server_protocol):
        def eof_received(self) -> None:
            self.transport.write(self.received[:-1] if _fails() else self.received)


class SwapsBytes(HalfClosed):
    class server_protocol(HalfClosed.server_protocol):
        def eof_received(self) -> None:
            self.transport.write(self.received[::-1] if _fails() else self.received)


class StopsServing(Serving):
    """A server that no longer listens."""

    async def act(self) -> None:
        if _fails():
            server: Any = self.server
            self.loop._stop_serving(server._sockets[0])  # type: ignore[attr-defined]


DEFECTS: dict[type[Scenario], tuple[str, str]] = {
    Crashes: ("pipe2:EMFILE:1", "dies by SIGSEGV"),
    Starves: ("python", "dies by SIGSEGV"),
    Hangs: ("pipe2:EMFILE:1", "hangs"),
    IsStuck: ("pipe2:EMFILE:1", "stuck in silence"),
    Spins: ("pipe2:EMFILE:1", "spins"),
    LeaksADescriptor: ("pipe2:EMFILE:1", "leaks a descriptor"),
    EndsTheLoop: ("pipe2:EMFILE:1", "ends the loop"),
    Raises: ("pipe2:EMFILE:1", "raises SystemError"),
    LosesAByte: ("pipe2:EMFILE:1", "lost in silence"),
    SwapsBytes: ("pipe2:EMFILE:1", "corrupt"),
    StopsServing: ("pipe2:EMFILE:1", "serves no longer"),
}
