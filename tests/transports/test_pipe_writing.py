"""Write pipe transports: data, flow control, and the end of either side."""

import array
import asyncio
import sys

import pytest
from support.endpoints import close, drain_pipe, fill_pipe, pipe_files, settle, until
from support.interpreter import limits_memory
from support.recording import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")


def test_writing(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            for data in (b"bytes ", bytearray(b"bytearray "), memoryview(b"memoryview"), b"", bytearray()):
                transport.write(data)
            await until(lambda: drain_pipe(reading.fileno()) == b"bytes bytearray memoryview")
            transport.writelines([b"several", bytearray(b" ")])
            transport.writelines([])
            transport.write(b"lines")
            await until(lambda: drain_pipe(reading.fileno()) == b"several lines")
            await close(transport)
            assert drain_pipe(reading.fileno()) == b""
        assert protocol.events == ["connection_made", ("connection_lost", None)] and writing.closed

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio's pipes count items where the kernel counts bytes")
@pytest.mark.parametrize("count", [3, 100_000])
def test_writing_items_larger_than_a_byte(loop, count):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        numbers = array.array("I", range(count))
        expected = numbers.tobytes() + b"end"
        with reading:
            transport.write(memoryview(numbers))
            transport.write(b"end")
            received = bytearray()
            while len(received) < len(expected):
                received += drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            await close(transport)
            assert received + drain_pipe(reading.fileno()) == expected
        assert protocol.events[-1] == ("connection_lost", None)

    loop.run_until_complete(main())


def test_writing_much_is_flow_controlled(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            for _ in range(3):
                protocol.calls.clear()
                sent = fill_pipe(transport)
                while "pause_writing" not in protocol.events:
                    sent += b"y" * 10_000
                    transport.write(b"y" * 10_000)
                assert transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]
                received = bytearray()
                while len(received) < len(sent):
                    received += drain_pipe(reading.fileno())
                    await asyncio.sleep(0)
                assert received == sent
                await until(lambda: transport.get_write_buffer_size() == 0)
                assert protocol.events == ["pause_writing", "resume_writing"]
            await close(transport)

    loop.run_until_complete(main())


def test_watermarks(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        assert transport.get_write_buffer_limits() == (16384, 65536)
        with pytest.raises(ValueError):
            transport.set_write_buffer_limits(high=1, low=2)
        with pytest.raises(ValueError):
            transport.set_write_buffer_limits(low=-1, high=-1)
        transport.set_write_buffer_limits(high=0)
        with reading:
            fill_pipe(transport)
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
        reading, writing = pipe_files()
        transport, _ = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            sent = fill_pipe(transport)
            data = make(b"unchanged")
            transport.write(data)
            data[:] = b"overwritt"
            received = bytearray()
            while len(received) < len(sent) + 9:
                received += drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            assert received == sent + b"unchanged"
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("how", ["close", "write_eof"])
def test_what_is_queued_is_written_before_the_end(loop, how):
    """write_eof() of a pipe is close()."""

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        assert transport.can_write_eof()
        with reading:
            sent = fill_pipe(transport) + b"last"
            transport.write(b"last")
            getattr(transport, how)()
            getattr(transport, how)()
            transport.close()
            assert transport.is_closing() and not protocol.lost
            received = bytearray()
            while not protocol.lost:
                received += drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            assert received + drain_pipe(reading.fileno()) == sent
        assert protocol.events[0] == "connection_made" and protocol.events[-1] == ("connection_lost", None)
        assert writing.closed

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio ends the connection at once, and loses data or ends it twice")
@pytest.mark.parametrize("last", [b"", b"last " * 100_000], ids=["nothing", "more than a pipe takes"])
@pytest.mark.parametrize("how", ["close", "write_eof"])
def test_what_is_written_and_closed_when_writing_is_resumed(loop, how, last):
    def finish():
        protocol.transport.write(last)
        getattr(protocol.transport, how)()

    protocol = Recorder(resume_writing=finish)

    async def main():
        reading, writing = pipe_files()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, writing)
        with reading:
            sent = bytes(300_000)
            transport.write(sent)
            received = bytearray()
            while not protocol.lost:
                received += drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            await settle()
            assert received + drain_pipe(reading.fileno()) == sent + last
        protocol.check_life_cycle()
        assert protocol.events[-1] == ("connection_lost", None)

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio ends the connection twice, the second time with an AttributeError")
def test_abort_when_writing_is_resumed_of_a_transport_that_closes(loop):
    protocol = Recorder(resume_writing=lambda: protocol.transport.abort())

    async def main():
        reading, writing = pipe_files()
        transport, _ = await loop.connect_write_pipe(lambda: protocol, writing)
        with reading:
            transport.write(bytes(300_000))
            transport.close()
            while not protocol.lost:
                drain_pipe(reading.fileno())
                await asyncio.sleep(0)
            await settle()
        protocol.check_life_cycle()
        assert protocol.events[-2:] == ["resume_writing", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio reports an AttributeError as well")
def test_a_program_that_keeps_the_file_of_a_transport(loop):
    """It sets `_pipe` to None, so that closing the transport leaves the file open."""

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading, writing:
            transport._pipe = None
            transport.abort()
            await until(lambda: protocol.lost)
            assert not writing.closed

    loop.set_exception_handler(lambda loop, context: None)  # in the pure implementation there is the report
    loop.run_until_complete(main())


def test_abort_drops_what_is_queued(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            sent = fill_pipe(transport)
            queued = transport.get_write_buffer_size()
            transport.abort()
            assert transport.is_closing()
            await until(lambda: protocol.lost)
            await settle()
            assert drain_pipe(reading.fileno()) == sent[: len(sent) - queued]
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.promise("P09")
def test_writing_after_the_end_is_no_error(loop, asyncio_log):
    async def main():
        reading, writing = pipe_files()
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
            assert drain_pipe(reading.fileno()) == b""

    loop.run_until_complete(main())


@pytest.mark.parametrize("data", ["text", 5, None, [b"x"]], ids=repr)
def test_writing_the_wrong_type(loop, data):
    """asyncio asserts the type; an implementation may raise TypeError as its other transports do."""

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        with reading:
            with pytest.raises((AssertionError, TypeError)):
                transport.write(data)
            transport.write(b"works")
            await until(lambda: drain_pipe(reading.fileno()) == b"works")
            await close(transport)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.parametrize("queued", [True, False])
def test_the_reader_goes(loop, queued):
    """Queued data is lost, so the end is an error; without queued data it is no error."""

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        if queued:
            fill_pipe(transport)
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError" if queued else None)]
        assert writing.closed and transport.is_closing()
        await settle()
        assert len(protocol.events) == 2

    loop.run_until_complete(main())


def test_the_reader_goes_after_a_close_in_connection_made(loop):
    """As after any close(), the transport learns of the reader's end from the poller and not from a failing write."""

    class FillsAndCloses(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            fill_pipe(transport)
            transport.close()

    async def main():
        reading, writing = pipe_files()
        _, protocol = await loop.connect_write_pipe(FillsAndCloses, writing)
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError")]
        assert protocol.error.errno is None

    loop.run_until_complete(main())


def test_writing_after_the_reader_has_gone(loop):
    """The write notices it, in the same turn."""

    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        reading.close()
        transport.write(b"x")
        transport.write(b"y")
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError")]

    loop.run_until_complete(main())


def test_the_reader_goes_while_writing_is_paused(loop):
    async def main():
        reading, writing = pipe_files()
        transport, protocol = await loop.connect_write_pipe(Recorder, writing)
        fill_pipe(transport)
        while "pause_writing" not in protocol.events:
            transport.write(bytes(10_000))
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", "pause_writing", ("connection_lost", "BrokenPipeError")]

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
