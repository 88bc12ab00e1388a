"""Protocols that record their calls: for streams, with and without a buffer of their own, and for datagrams."""

import asyncio
from collections.abc import Callable
from typing import Any


class Recording:
    """The common part. `hooks` maps the name of a callback to a function that is called in it, after it was recorded;
    the transport gets the result of the hook of `eof_received`."""

    def __init__(self, **hooks: Callable[[], Any]) -> None:
        self.calls: list[str] = []  # names in order; data_received and buffer_updated in a row count once, as "data"
        self.error: BaseException | None = None  # the argument of connection_lost()
        self.transport: Any = None
        self.hooks = hooks

    def record(self, callback: str, as_name: str | None = None) -> Any:
        name = as_name or callback
        if name != "data" or self.calls[-1:] != ["data"]:
            self.calls.append(name)
        hook = self.hooks.get(callback)
        return None if hook is None else hook()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.record("connection_made")

    def pause_writing(self) -> None:
        self.record("pause_writing")

    def resume_writing(self) -> None:
        self.record("resume_writing")

    def connection_lost(self, error: BaseException | None) -> None:
        self.error = error
        self.record("connection_lost")

    @property
    def lost(self) -> bool:
        return "connection_lost" in self.calls

    @property
    def events(self) -> list[Any]:
        """The calls without those for data; connection_lost is a tuple with the name of its error's type, or None."""
        lost = "connection_lost", type(self.error).__name__ if self.error else None
        return [lost if name == "connection_lost" else name for name in self.calls if name != "data"]

    def check_life_cycle(self) -> None:
        """Assert what holds for every protocol, whatever happens to it."""
        assert self.calls.count("connection_made") == 1 and self.calls[0] == "connection_made"
        assert self.calls.count("connection_lost") <= 1
        assert not self.lost or self.calls[-1] == "connection_lost"
        flow = [call for call in self.calls if call in ("pause_writing", "resume_writing")]
        assert flow == (["pause_writing", "resume_writing"] * len(flow))[: len(flow)]


class StreamRecording(Recording):
    """The common part for streams: `received` is all data."""

    def __init__(self, **hooks: Callable[[], Any]) -> None:
        super().__init__(**hooks)
        self.received = bytearray()

    def eof_received(self) -> Any:
        return self.record("eof_received")


class Recorder(StreamRecording, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes and data
        self.received += data
        self.record("data_received", "data")


class BufferedRecorder(StreamRecording, asyncio.BufferedProtocol):
    """Returns the same buffer of `size` bytes every time."""

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
        self.record("buffer_updated", "data")


class DatagramRecorder(Recording, asyncio.DatagramProtocol):
    """`received` has the datagrams, `addresses` their senders, and `errors` the arguments of error_received()."""

    def __init__(self, **hooks: Callable[[], Any]) -> None:
        super().__init__(**hooks)
        self.received: list[bytes] = []
        self.addresses: list[Any] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.received.append(data)
        self.addresses.append(address)
        self.record("datagram_received", "data")

    def error_received(self, error: Exception) -> None:
        self.errors.append(error)


RECORDERS = [Recorder, BufferedRecorder]


def when_data_comes(recorder: Recording, hook: Callable[[], Any]) -> None:
    """Have `hook` called whenever a stream recorder of either kind has recorded data."""
    recorder.hooks["data_received" if isinstance(recorder, asyncio.Protocol) else "buffer_updated"] = hook
