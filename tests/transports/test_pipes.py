"""Read and write pipe transports on pipes, FIFOs, terminals, devices and sockets."""

import asyncio
import contextlib
import contextvars
import gc
import os
import sys
import threading

import pytest
from support.endpoints import reports_of, settle, until
from support.interpreter import counts_references, limits_memory
from support.recording import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")


def pipe():
    """(read end, write end) as unbuffered files."""
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


async def close(*transports):
    for transport in transports:
        protocol = transport.get_protocol()
        transport.close()
        await until(lambda protocol=protocol: protocol.lost)


def drain(fd):
    """Read everything that is in the pipe by now."""
    os.set_blocking(fd, False)
    received = bytearray()
    try:
        while data := os.read(fd, 1_000_000):
            received += data
    except BlockingIOError:
        pass
    return bytes(received)


def fill(transport):
    """Write until some of it is queued in the transport; return all that was written."""
    sent = bytearray()
    while transport.get_write_buffer_size() == 0:
        sent += os.urandom(10_000)
        transport.write(bytes(sent[-10_000:]))
    return sent


def test_reading(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_read_pipe(Recorder, reading)
        assert protocol.events == ["connection_made"] and protocol.transport is transport
        with writing:
            for number in range(1, 10):
                writing.write(b"%d" % number)
                await until(lambda number=number: len(protocol.received) == number)
        await until(lambda: protocol.lost)
        assert protocol.received == b"123456789"
        assert protocol.events == ["connection_made", "eof_received", ("connection_lost", None)]
        assert reading.closed

    loop.run_until_complete(main())


def test_reading_much(loop):
    data = os.urandom(3_000_000)

    sizes = []

    class Sizes(Recorder):
        def data_received(self, data):
            super().data_received(data)
            sizes.append(len(data))

    async def main():
        reading, writing = pipe()
        _, protocol = await loop.connect_read_pipe(Sizes, reading)

        def write():
            with os.fdopen(os.dup(writing.fileno()), "wb") as file:
                file.write(data)
            writing.close()

        thread = threading.Thread(target=write)
        thread.start()
        await until(lambda: protocol.lost)
        thread.join()
        assert protocol.received == data
        assert max(sizes) <= 256 * 1024

    loop.run_until_complete(main())


def test_what_was_written_before_the_end_is_read(loop):
    async def main():
        reading, writing = pipe()
        writing.write(b"x" * 60_000)
        writing.close()
        _, protocol = await loop.connect_read_pipe(Recorder, reading)
        await until(lambda: protocol.lost)
        assert protocol.received == b"x" * 60_000
        assert protocol.events == ["connection_made", "eof_received", ("connection_lost", None)]

    loop.run_until_complete(main())


def test_pausing_and_resuming(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_read_pipe(Recorder, reading)
        assert transport.is_reading()
        for _ in range(2):
            transport.pause_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            before = bytes(protocol.received)
            writing.write(b"x" * 1000)
            await settle()
            assert protocol.received == before
            transport.resume_reading()
            transport.resume_reading()
            assert transport.is_reading()
            await until(lambda before=before: len(protocol.received) == len(before) + 1000)
        transport.pause_reading()
        writing.write(b"end")
        writing.close()
        await settle()
        assert not protocol.lost and "eof_received" not in protocol.events
        transport.resume_reading()
        await until(lambda: protocol.lost)
        assert protocol.received == b"x" * 2000 + b"end"

    loop.run_until_complete(main())


def test_pausing_in_data_received(loop):
    class Pausing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_read_pipe(Pausing, reading)
        with writing:
            writing.write(b"1")
            await until(lambda: protocol.received)
            writing.write(b"2")
            await settle()
            assert protocol.received == b"1"
            transport.resume_reading()
            await until(lambda: len(protocol.received) == 2)
            assert protocol.received == b"12"
            await close(transport)

    loop.run_until_complete(main())


def test_pausing_in_connection_made(loop):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    async def main():
        reading, writing = pipe()
        with writing:
            writing.write(b"x")
            transport, protocol = await loop.connect_read_pipe(Paused, reading)
            await settle()
            assert not protocol.received
            transport.resume_reading()
            await until(lambda: protocol.received == b"x")
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("inside", [True, False])
def test_closing_a_read_pipe(loop, inside):
    """Neither data nor an end of file is delivered after close()."""

    class Closing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.close()

    async def main():
        reading, writing = pipe()
        with writing:
            transport, protocol = await loop.connect_read_pipe(Closing if inside else Recorder, reading)
            writing.write(b"x")
            await until(lambda: protocol.received)
            transport.close()
            transport.close()
            assert transport.is_closing() and not transport.is_reading()
            with contextlib.suppress(BrokenPipeError):  # closed for good by now
                writing.write(b"late")
            await until(lambda: protocol.lost)
            transport.close()
            transport.pause_reading()
            transport.resume_reading()
            await settle()
            assert protocol.received == b"x"
            assert protocol.events == ["connection_made", ("connection_lost", None)]
            assert reading.closed
            with pytest.raises(BrokenPipeError):
                writing.write(b"x")

    loop.run_until_complete(main())


def test_what_waits_in_a_pipe_comes_before_the_end_of_another_that_is_closed_next(loop):
    """A program goes on with another pipe and closes the first. The first one's connection_lost() comes after the data
    of the second pipe, because asyncio polls for I/O in each iteration."""
    happened = []

    class Naming(Recorder):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def data_received(self, data):
            happened.append((self.name, data))

        def connection_lost(self, error):
            happened.append((self.name, "lost"))

    async def main():
        (first, first_end), (second, second_end) = os.pipe(), os.pipe()
        os.write(first_end, b"one")
        os.write(second_end, b"two")
        transport, _ = await loop.connect_read_pipe(lambda: Naming("first"), os.fdopen(first, "rb", 0))
        await until(lambda: happened)
        for _ in range(3000):  # the loop has polled for I/O without a result for long
            await asyncio.sleep(0)
        other, _ = await loop.connect_read_pipe(lambda: Naming("second"), os.fdopen(second, "rb", 0))
        transport.close()
        await until(lambda: len(happened) == 3)
        other.close()
        os.close(first_end)
        os.close(second_end)
        await until(lambda: len(happened) == 4)

    loop.run_until_complete(main())
    assert happened == [("first", b"one"), ("second", b"two"), ("first", "lost"), ("second", "lost")]


def test_a_new_protocol(loop):
    async def main():
        reading, writing = pipe()
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


def test_writing(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            for data in (b"bytes ", bytearray(b"bytearray "), memoryview(b"memoryview"), b"", bytearray()):
                transport.write(data)
            await until(lambda: drain(reading.fileno()) == b"bytes bytearray memoryview")
            transport.writelines([b"several", bytearray(b" ")])
            transport.writelines([])
            transport.write(b"lines")
            await until(lambda: drain(reading.fileno()) == b"several lines")
            await close(transport)
            assert drain(reading.fileno()) == b""
        assert protocol.events == ["connection_made", ("connection_lost", None)] and writing.closed

    loop.run_until_complete(main())


def test_writing_much_is_flow_controlled(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            for _ in range(3):
                protocol.calls.clear()
                sent = fill(transport)
                while "pause_writing" not in protocol.events:
                    sent += b"y" * 10_000
                    transport.write(b"y" * 10_000)
                assert transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]
                received = bytearray()
                while len(received) < len(sent):
                    received += drain(reading.fileno())
                    await asyncio.sleep(0)
                assert received == sent
                await until(lambda: transport.get_write_buffer_size() == 0)
                assert protocol.events == ["pause_writing", "resume_writing"]
            await close(transport)

    loop.run_until_complete(main())


def test_watermarks(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        assert transport.get_write_buffer_limits() == (16384, 65536)
        with pytest.raises(ValueError):
            transport.set_write_buffer_limits(high=1, low=2)
        with pytest.raises(ValueError):
            transport.set_write_buffer_limits(low=-1, high=-1)
        transport.set_write_buffer_limits(high=0)
        with reading:
            fill(transport)
            assert protocol.events == ["connection_made", "pause_writing"]
            transport.set_write_buffer_limits(low=1000)
            assert transport.get_write_buffer_limits() == (1000, 4000)
            transport.abort()
            await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.promise("P28")
@pytest.mark.parametrize("make", [bytearray, lambda data: memoryview(bytearray(data))])
def test_data_changed_after_write_is_not_sent_changed(loop, make):
    async def main():
        reading, writing = pipe()
        transport, _ = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            sent = fill(transport)
            data = make(b"unchanged")
            transport.write(data)
            data[:] = b"overwritt"
            received = bytearray()
            while len(received) < len(sent) + 9:
                received += drain(reading.fileno())
                await asyncio.sleep(0)
            assert received == sent + b"unchanged"
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("how", ["close", "write_eof"])
def test_what_is_queued_is_written_before_the_end(loop, how):
    """write_eof() of a pipe is close()."""

    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        assert transport.can_write_eof()
        with reading:
            sent = fill(transport) + b"last"
            transport.write(b"last")
            getattr(transport, how)()
            getattr(transport, how)()
            transport.close()
            assert transport.is_closing() and not protocol.lost
            received = bytearray()
            while not protocol.lost:
                received += drain(reading.fileno())
                await asyncio.sleep(0)
            assert received + drain(reading.fileno()) == sent
        assert protocol.events[0] == "connection_made" and protocol.events[-1] == ("connection_lost", None)
        assert writing.closed

    loop.run_until_complete(main())


def test_abort_drops_what_is_queued(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            sent = fill(transport)
            queued = transport.get_write_buffer_size()
            transport.abort()
            assert transport.is_closing()
            await until(lambda: protocol.lost)
            await settle()
            assert drain(reading.fileno()) == sent[: len(sent) - queued]
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.promise("P09")
def test_writing_after_the_end_is_no_error(loop, asyncio_log):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            transport.close()
            for _ in range(5):
                transport.write(b"x")
            assert asyncio_log.take() == []
            transport.write(b"x")
            assert asyncio_log.take() == ["pipe closed by peer or os.write(pipe, data) raised exception."]
            await until(lambda: protocol.lost)
            transport.write(b"x")
            transport.write(b"")
            assert len(asyncio_log.take()) == 1
            assert drain(reading.fileno()) == b""

    loop.run_until_complete(main())


@pytest.mark.parametrize("data", ["text", 5, None, [b"x"]], ids=repr)
def test_writing_the_wrong_type(loop, data):
    """asyncio asserts the type; an implementation may raise TypeError as its other transports do."""

    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            with pytest.raises((AssertionError, TypeError)):
                transport.write(data)
            transport.write(b"works")
            await until(lambda: drain(reading.fileno()) == b"works")
            await close(transport)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.parametrize("queued", [True, False])
def test_the_reader_goes(loop, queued):
    """Queued data is lost, so the end is an error; without queued data it is not."""

    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        if queued:
            fill(transport)
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError" if queued else None)]
        assert writing.closed and transport.is_closing()
        await settle()
        assert len(protocol.events) == 2

    loop.run_until_complete(main())


def test_writing_after_the_reader_has_gone(loop):
    """The write notices it, in the same turn."""

    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        reading.close()
        transport.write(b"x")
        transport.write(b"y")
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError")]

    loop.run_until_complete(main())


def test_the_reader_goes_while_writing_is_paused(loop):
    async def main():
        reading, writing = pipe()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        fill(transport)
        while "pause_writing" not in protocol.events:
            transport.write(bytes(10_000))
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", "pause_writing", ("connection_lost", "BrokenPipeError")]

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
def test_extra_info_and_classes(loop, kind):
    async def main():
        reading, writing = pipe()
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
        reading, writing = pipe()
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
    reading, writing = pipe()
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


@pytest.mark.parametrize("failing", ["data_received", "eof_received", "connection_lost"])
def test_exceptions_in_the_callbacks_of_a_read_pipe(loop, failing):
    class Failing(Recorder):
        pass

    def fail(self, *arguments):
        getattr(Recorder, failing)(self, *arguments)
        raise ZeroDivisionError(failing)

    setattr(Failing, failing, fail)

    async def main():
        reading, writing = pipe()
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
        reading, writing = pipe()
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
        reading, writing = pipe()
        with reading, reports_of(loop) as reports:
            transport, protocol = await loop.connect_write_pipe(Failing, writing)
            fill(transport)
            while "pause_writing" not in protocol.events:
                transport.write(bytes(10_000))
            while "resume_writing" not in protocol.events:
                drain(reading.fileno())
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
        reading, writing = pipe()
        with reading, writing:
            connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
            with pytest.raises(ZeroDivisionError):
                await connect(lambda: 1 / 0, reading if kind == "read" else writing)
            assert not reading.closed and not writing.closed

    loop.run_until_complete(main())


@limits_memory
@pytest.mark.only("c", "python", reason="asyncio writes data twice if it cannot drop it from the buffer")
def test_no_memory_for_what_is_written(impl):
    """All data arrives once, or the pipe ends with a report."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script("""if True:
        import _testcapi, contextlib, gc, itertools
        gc.disable()  # it needs memory, too
        DATA = os.urandom(200_000)

        class Protocol(asyncio.BaseProtocol):
            lost = False
            def connection_lost(self, error):
                self.lost = True

        def run_once(runs_out):
            if runs_out:
                _testcapi.set_nomemory(allocation, allocation + 1)
            try:
                loop.stop()
                loop.run_forever()
            except MemoryError:
                _testcapi.remove_mem_hooks()
                asyncio._set_running_loop(None)
            finally:
                _testcapi.remove_mem_hooks()

        for allocation, turn in itertools.product(range(20), range(1, 6)):
            loop = impl.new_event_loop()
            messages = []
            loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            received = bytearray()
            connecting = loop.connect_write_pipe(Protocol, os.fdopen(writing, "wb", 0))
            transport, protocol = loop.run_until_complete(connecting)
            transport.write(DATA)
            transport.close()
            turns = itertools.count()
            while not protocol.lost:
                with contextlib.suppress(BlockingIOError):
                    received += os.read(reading, 50_000)
                run_once(runs_out=next(turns) == turn)
            os.set_blocking(reading, True)
            while part := os.read(reading, 1 << 16):
                received += part
            assert DATA.startswith(received), f"{allocation}, {turn}: what has arrived is not what was written"
            assert messages or received == DATA, f"{allocation}, {turn}: a loss that nothing tells of"
            os.close(reading)
            loop.close()
        """)
