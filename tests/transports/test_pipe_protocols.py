"""Pipe transports and their protocols: replacing a protocol, extra information, contexts, and callbacks that raise."""

import asyncio
import contextvars
import gc
import os
import sys

import pytest
from support.endpoints import close, drain_pipe, fill_pipe, pipe_files, reports_of, settle, until
from support.interpreter import counts_references
from support.recording import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")


def test_a_new_protocol(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_read_pipe(Recorder, reading)
        new = Recorder()
        assert transport.get_protocol() is protocol
        writing.write(b"old")
        await until(lambda: protocol.received)
        transport.set_protocol(new)
        assert transport.get_protocol() is new
        writing.write(b"new")
        await until(lambda: new.received)
        writing.close()
        await until(lambda: new.lost)
        assert (protocol.received, protocol.events) == (b"old", ["connection_made"])
        assert (new.received, new.events) == (b"new", ["eof_received", ("connection_lost", None)])

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
def test_extra_info_and_classes(loop, kind):
    async def main():
        reading, writing = pipe_files()
        ours, other = (reading, writing) if kind == "read" else (writing, reading)
        fd = ours.fileno()
        connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
        transport, protocol = await connect(Recorder, ours)
        assert transport.get_extra_info("pipe") is ours
        assert transport.get_extra_info("socket") is None
        assert transport.get_extra_info("nonsense", 5) == 5
        assert isinstance(transport, asyncio.ReadTransport if kind == "read" else asyncio.WriteTransport)
        assert not os.get_blocking(fd)
        assert f"fd={fd}" in repr(transport) and ("polling" in repr(transport) or "idle" in repr(transport))
        transport.close()
        assert "closing" in repr(transport)
        await until(lambda: protocol.lost)
        assert "closed" in repr(transport)
        assert transport.get_extra_info("pipe") is ours
        other.close()

    loop.run_until_complete(main())


@pytest.mark.promise("P27")
@pytest.mark.parametrize("kind", ["read", "write"])
def test_callbacks_run_in_the_context_of_creation(loop, kind):
    variable = contextvars.ContextVar("variable", default="none")
    seen = {}

    class InContext(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            seen["connection_made"] = variable.get()

        def data_received(self, data):
            super().data_received(data)
            seen["data"] = variable.get()

        def eof_received(self):
            seen["eof_received"] = variable.get()

        def connection_lost(self, error):
            super().connection_lost(error)
            seen["lost"] = variable.get()

    async def main():
        reading, writing = pipe_files()
        variable.set("creation")
        connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
        ours, other = (reading, writing) if kind == "read" else (writing, reading)
        _, protocol = await connect(InContext, ours)
        variable.set("later")
        if kind == "read":
            other.write(b"x")
            await until(lambda: protocol.received)
        other.close()
        await until(lambda: protocol.lost)
        names = {"connection_made", "lost"} | ({"data", "eof_received"} if kind == "read" else set())
        assert seen == dict.fromkeys(names, "creation")

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
@counts_references
def test_a_transport_that_is_dropped_warns(impl, kind):
    loop = impl.new_event_loop()
    reading, writing = pipe_files()
    ours, other = (reading, writing) if kind == "read" else (writing, reading)
    transport, _ = loop.run_until_complete(
        (loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe)(Recorder, ours)
    )
    with other:
        loop.close()
        assert "open" in repr(transport)
        with pytest.warns(ResourceWarning, match="unclosed transport"):
            del transport, loop, _
            gc.collect()
        assert ours.closed


@pytest.mark.filterwarnings("error:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_transport_that_is_dropped_closes_its_pipe_if_warnings_are_errors(impl, monkeypatch, kind):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append(str(raised.exc_value)))
    loop = impl.new_event_loop()
    reading, writing = pipe_files()
    ours, other = (reading, writing) if kind == "read" else (writing, reading)
    connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
    made = loop.run_until_complete(connect(Recorder, ours))
    number = ours.fileno()
    with other:
        loop.close()
        del made, loop, connect, reading, writing, ours
        gc.collect()
        with pytest.raises(OSError):
            os.fstat(number)
    assert any(message.startswith("unclosed transport") for message in unraisable)


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_pipe_is_closed_if_its_protocol_cannot_be_told_of_it(loop, kind):
    reading, writing = pipe_files()
    ours, other = (reading, writing) if kind == "read" else (writing, reading)
    connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
    with other:
        with pytest.raises(AttributeError, match="connection_made"):
            loop.run_until_complete(connect(object, ours))
        gc.collect()
        assert ours.closed


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_pipe_that_cannot_be_made_non_blocking_is_closed(loop, kind, monkeypatch):
    def refuse(fd, blocking):
        raise OSError("refused")

    reading, writing = pipe_files()
    ours, other = (reading, writing) if kind == "read" else (writing, reading)
    connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
    with other:
        monkeypatch.setattr(os, "set_blocking", refuse)
        with pytest.raises(OSError, match="refused"):
            loop.run_until_complete(connect(Recorder, ours))
        monkeypatch.undo()
        gc.collect()
        assert ours.closed


@pytest.mark.parametrize("failing", ["data_received", "eof_received", "connection_lost"])
def test_exceptions_in_the_callbacks_of_a_read_pipe(loop, failing):
    class Failing(Recorder):
        pass

    def fail(self, *arguments):
        getattr(Recorder, failing)(self, *arguments)
        raise ZeroDivisionError(failing)

    setattr(Failing, failing, fail)

    async def main():
        reading, writing = pipe_files()
        with reports_of(loop) as reports:
            transport, protocol = await loop.connect_read_pipe(Failing, reading)
            writing.write(b"1")
            await until(lambda: protocol.received)
            await settle()
            assert not transport.is_closing()
            writing.write(b"2")
            await until(lambda: len(protocol.received) == 2)
            writing.close()
            await until(lambda: protocol.lost)
            await settle()
        count = 2 if failing == "data_received" else 1
        assert [str(report["exception"]) for report in reports] == [failing] * count
        assert protocol.events == ["connection_made", "eof_received", ("connection_lost", None)]
        assert reading.closed

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio goes on reading, so the protocol misses data")
def test_no_memory_for_data_received_ends_a_read_pipe(loop):
    class Failing(Recorder):
        def data_received(self, data):
            raise MemoryError

    async def main():
        reading, writing = pipe_files()
        with reports_of(loop) as reports, writing:
            _, protocol = await loop.connect_read_pipe(Failing, reading)
            writing.write(b"1")
            await until(lambda: protocol.lost)
        assert [type(report["exception"]) for report in reports] == [MemoryError]
        assert protocol.events == ["connection_made", ("connection_lost", "MemoryError")]
        assert reading.closed

    loop.run_until_complete(main())


def test_exceptions_in_the_callbacks_of_a_write_pipe(loop):
    class Failing(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise ZeroDivisionError("pause_writing")

        def resume_writing(self):
            super().resume_writing()
            raise ZeroDivisionError("resume_writing")

        def connection_lost(self, error):
            super().connection_lost(error)
            raise ZeroDivisionError("lost")

    async def main():
        reading, writing = pipe_files()
        with reading, reports_of(loop) as reports:
            transport, protocol = await loop.connect_write_pipe(Failing, writing)
            fill_pipe(transport)
            while "pause_writing" not in protocol.events:
                transport.write(bytes(10_000))
            while "resume_writing" not in protocol.events:
                drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            assert not transport.is_closing()
            await close(transport)
            await settle()
        assert [str(report["exception"]) for report in reports] == ["pause_writing", "resume_writing", "lost"]
        assert writing.closed

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_protocol_factory_that_raises(loop, kind):
    async def main():
        reading, writing = pipe_files()
        with reading, writing:
            connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
            with pytest.raises(ZeroDivisionError):
                await connect(lambda: 1 / 0, reading if kind == "read" else writing)
            assert not reading.closed and not writing.closed

    loop.run_until_complete(main())
