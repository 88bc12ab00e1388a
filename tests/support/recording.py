"""Protocols that write down what happens to them."""

import asyncio
from collections.abc import Callable
from typing import Any


class Recording:
    """What the recorders have in common. `hooks` maps a callback's name to what a test wants done inside it, after it
    was written down; what the hook of `eof_received` returns is what the transport gets."""

    def __init__(self, **hooks: Callable[[], Any]) -> None:
        self.calls: list[str] = []  # names in order; data_received and buffer_updated in a row count once, as "data"
        self.received = bytearray()
        self.error: BaseException | None = None  # what connection_lost() was given
        self.transport: Any = None
        self.hooks = hooks

    def happened(self, name: str, noted: str | None = None) -> Any:
        noted = noted or name
        if noted != "data" or self.calls[-1:] != ["data"]:
            self.calls.append(noted)
        hook = self.hooks.get(name)
        return None if hook is None else hook()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.happened("connection_made")

    def eof_received(self) -> Any:
        return self.happened("eof_received")

    def pause_writing(self) -> None:
        self.happened("pause_writing")

    def resume_writing(self) -> None:
        self.happened("resume_writing")

    def connection_lost(self, error: BaseException | None) -> None:
        self.error = error
        self.happened("connection_lost")

    @property
    def lost(self) -> bool:
        return "connection_lost" in self.calls

    def check_life_cycle(self) -> None:
        """What every protocol may rely on, whatever happened to it."""
        assert self.calls.count("connection_made") == 1 and self.calls[0] == "connection_made"
        assert self.calls.count("connection_lost") <= 1
        assert not self.lost or self.calls[-1] == "connection_lost"
        flow = [call for call in self.calls if call in ("pause_writing", "resume_writing")]
        assert flow == (["pause_writing", "resume_writing"] * len(flow))[: len(flow)]


class Recorder(Recording, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes and data
        self.received += data
        self.happened("data_received", "data")


class BufferedRecorder(Recording, asyncio.BufferedProtocol):
    """Offers the same `size` bytes every time."""

    def __init__(self, size: int = 65536, **hooks: Callable[[], Any]) -> None:
        super().__init__(**hooks)
        self.buffer: Any = bytearray(size)
        self.size_hints: list[int] = []

    def get_buffer(self, sizehint: int) -> Any:
        self.size_hints.append(sizehint)
        hook = self.hooks.get("get_buffer")
        return self.buffer if hook is None else hook()

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.received += self.buffer[:nbytes]
        self.happened("buffer_updated", "data")


RECORDERS = [Recorder, BufferedRecorder]


def when_data_comes(recorder: Recording, hook: Callable[[], Any]) -> None:
    """Have `hook` called whenever data has been recorded, whichever kind of protocol it is."""
    recorder.hooks["data_received" if isinstance(recorder, asyncio.Protocol) else "buffer_updated"] = hook
