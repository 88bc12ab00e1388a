"""Written data that is a Python object: its methods write, raise, run the loop, or end the transport that asks them."""

import contextlib
import errno
import sys

import pytest
from support.endpoints import close, datagram_pair, drain, drain_pipe, fill_pipe, pipe_files, reports_of, until
from support.python_buffers import PythonData, fail, needs_python_buffers
from support.recording import DatagramRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import HAS_UNIX, KINDS, MORE_THAN_FITS, WritingData, connections_on

every_kind = pytest.mark.parametrize("kind", KINDS)
needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")
needs_unix = pytest.mark.skipif(not HAS_UNIX, reason="this platform has no Unix sockets")


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


def abort_and_fail(transport):
    """What data does when it is asked for its memory."""

    def when_asked():
        transport.abort()
        fail()

    return when_asked


# -- streams -----------------------------------------------------------------------------------------------------------


@needs_python_buffers
@every_kind
@pytest.mark.parametrize("size", [10, 20_000])
def test_data_that_writes_to_its_connection_when_it_is_asked(loop, connections, kind, size):
    connection = connections.open(kind)
    data = WritingData(connection.transport, b"first", b"x" * size)
    loop.call_soon(connection.transport.write, data)
    assert connection.receive(5 + size) == b"first" + b"x" * size


@needs_python_buffers
@every_kind
@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize("method", ["close", "abort"])
@pytest.mark.parametrize("when", ["when_asked", "when_released"])
def test_data_that_ends_its_connection(loop, connections, kind, size, method, when):
    connection = connections.open(kind)
    data = PythonData(b"x" * size, **{when: getattr(connection.transport, method)})
    loop.call_soon(connection.transport.write, b"first")
    loop.call_soon(connection.transport.write, data)
    assert connection.receive_all() == b"first" + b"x" * size
    connection.run_until_lost()
    assert connection.protocol.error is None


@needs_python_buffers
@every_kind
@pytest.mark.parametrize("size", [10, 20_000])
def test_data_that_writes_the_end_when_it_gives_its_memory_back(loop, connections, kind, size):
    connection = connections.open(kind)
    data = PythonData(b"x" * size, when_released=connection.transport.write_eof)
    loop.call_soon(connection.transport.write, data)
    assert connection.receive_all() == b"x" * size
    assert not connection.transport.is_closing()


@needs_python_buffers
@every_kind
def test_data_that_raises_when_a_connection_asks(loop, connections, kind):
    connection = connections.open(kind)

    def write():
        connection.transport.write(b"first")
        connection.transport.write(PythonData(b"second", when_asked=fail))
        connection.transport.write(b"third")

    loop.call_soon(write)
    assert connection.receive_all() == b"first"
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, ZeroDivisionError)
    assert [report["message"] for report in connections.take_reports()] == ["Fatal write error on socket transport"]


@needs_python_buffers
@every_kind
def test_data_that_ends_its_connection_and_raises(loop, connections, kind):
    connection = connections.open(kind)
    connection.transport.write(PythonData(b"data", when_asked=abort_and_fail(connection.transport)))
    connection.run_until_lost()
    assert connection.receive_all() == b""
    assert [report["message"] for report in connections.take_reports()] == ["Fatal write error on socket transport"]


@pytest.mark.only("c", reason="asyncio's transport fails if its queue is cleared while it sends, or adds to it")
@needs_python_buffers
@every_kind
@pytest.mark.parametrize("size", [10, 20_000])
def test_nothing_is_sent_behind_what_its_data_has_dropped(loop, connections, kind, size):
    connection = connections.open(kind)
    written = connection.fill()
    received = connection.peer_read(1 << 20)
    connection.transport.write(PythonData(b"x" * size, when_asked=connection.transport.abort))
    received += connection.receive_all()
    assert (b"f" * written + b"x" * size).startswith(received)


def test_a_subclass_of_bytearray_that_pause_writing_changes(loop, connections):
    class Data(bytearray):
        pass

    data = Data(MORE_THAN_FITS)
    failures = []

    class Protocol(Recorder):
        def pause_writing(self):
            super().pause_writing()
            try:
                data.clear()
            except BufferError as error:
                failures.append(error)

    connection = connections.open("tcp", Protocol())
    connection.transport.write(data)
    # asyncio keeps a view of it since CPython 3.12.
    assert bool(failures) == bool(data) == (sys.version_info >= (3, 12))
    assert connection.receive(MORE_THAN_FITS) == bytes(MORE_THAN_FITS)


# -- pipes -------------------------------------------------------------------------------------------------------------


@needs_pipes
@needs_python_buffers
@pytest.mark.parametrize("size", [10, 200_000])
def test_data_that_ends_its_pipe_at_once_when_it_gives_its_memory_back(loop, size):
    class Data(bytearray):
        def __buffer__(self, flags):
            return memoryview(b"x" * size)

        def __release_buffer__(self, view):
            view.release()
            transport.abort()
            run_once(loop, 2)

    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        # asyncio's goes on with the loop that it has left.
        with contextlib.suppress(AttributeError):
            transport.write(Data(b"x" * size))
        run_once(loop, 2)
        assert protocol.calls.count("connection_lost") == 1
        assert set(drain_pipe(reading.fileno())) == set(b"x")


@needs_pipes
@needs_python_buffers
@pytest.mark.parametrize("runs", ["when asked", "when given back"])
def test_data_of_a_pipe_that_runs_the_loop(loop, runs):
    """More than the pipe takes: the rest waits for room, which the loop sees meanwhile."""

    class Data(bytearray):
        def __buffer__(self, flags):
            if runs == "when asked":
                run_once(loop, 2)
            return super().__buffer__(flags)

        def __release_buffer__(self, view):
            super().__release_buffer__(view)
            if runs == "when given back":
                run_once(loop, 2)

    much = b"much" * 25_000
    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.write(Data(much))
        transport.write(b"more")
        transport.close()
        received = bytearray()
        run_until(loop, lambda: received.extend(drain_pipe(reading.fileno())) or protocol.lost)
        assert received + drain_pipe(reading.fileno()) == much + b"more"
        assert protocol.error is None


@needs_pipes
@needs_python_buffers
@pytest.mark.parametrize("size", [10, 200_000])
def test_data_that_writes_to_its_pipe_when_it_is_asked(loop, size):
    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.write(WritingData(transport, b"first", b"x" * size))
        transport.close()
        received = bytearray()
        run_until(loop, lambda: received.extend(drain_pipe(reading.fileno())) or protocol.lost)
        assert received + drain_pipe(reading.fileno()) == b"first" + b"x" * size


@needs_pipes
@needs_python_buffers
@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize("method", ["close", "abort"])
@pytest.mark.parametrize("when", ["when_asked", "when_released"])
def test_data_that_ends_its_pipe(loop, size, method, when):
    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.write(PythonData(b"x" * size, **{when: getattr(transport, method)}))
        run_until(loop, lambda: protocol.lost)
        assert drain_pipe(reading.fileno()) == b"x" * size
        assert protocol.error is None


@needs_pipes
@needs_python_buffers
def test_data_that_raises_when_a_pipe_asks(loop):
    reading, writing = pipe_files()
    with reading, reports_of(loop) as reports:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.write(PythonData(b"data", when_asked=fail))
        assert transport.is_closing()
        run_until(loop, lambda: protocol.lost)
        assert drain_pipe(reading.fileno()) == b""
        assert isinstance(protocol.error, ZeroDivisionError)
        assert [report["message"] for report in reports] == ["Fatal write error on pipe transport"]
        # A closing transport asks for nothing.
        transport.write(PythonData(b"data", when_asked=fail))


@needs_pipes
@needs_python_buffers
def test_data_that_ends_its_pipe_and_raises(loop):
    reading, writing = pipe_files()
    with reading, reports_of(loop) as reports:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.write(PythonData(b"data", when_asked=abort_and_fail(transport)))
        run_until(loop, lambda: protocol.lost)
        assert drain_pipe(reading.fileno()) == b""
        # asyncio's transport fails once more, because it closes itself twice.
        assert reports[0]["message"] == "Fatal write error on pipe transport"


@needs_pipes
@needs_python_buffers
@pytest.mark.parametrize("size", [10, 200_000])
def test_nothing_is_written_behind_what_its_data_has_dropped(loop, size):
    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        written = fill_pipe(transport)
        received = drain_pipe(reading.fileno())
        transport.write(PythonData(b"x" * size, when_asked=transport.abort))
        run_until(loop, lambda: protocol.lost)
        received += drain_pipe(reading.fileno())
        assert written.startswith(received)


@needs_pipes
@needs_python_buffers
def test_a_bytearray_that_raises_when_a_closing_pipe_asks(loop):
    class Data(bytearray):
        def __buffer__(self, flags):
            fail()

    reading, writing = pipe_files()
    with reading:
        transport, protocol = loop.run_until_complete(loop.connect_write_pipe(Recorder, writing))
        transport.close()
        with pytest.raises(ZeroDivisionError):
            transport.write(Data(b"data"))
        run_until(loop, lambda: protocol.lost)


# -- datagrams ---------------------------------------------------------------------------------------------------------


async def endpoints(loop, *, connected):
    """A sender on loopback, maybe connected to the other; the receiver; and the address of the receiver."""
    receiver, _ = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
    address = receiver.get_extra_info("sockname")
    end = {"remote_addr": address} if connected else {"local_addr": ("127.0.0.1", 0)}
    sender, _ = await loop.create_datagram_endpoint(DatagramRecorder, **end)
    return sender, receiver, address


@needs_python_buffers
def test_data_that_raises_when_an_endpoint_asks(loop):
    def refuse():
        raise OSError(errno.EIO, "refused")

    async def main():
        sender, receiver, address = await endpoints(loop, connected=False)
        protocol = sender.get_protocol()
        sender.sendto(PythonData(b"data", when_asked=refuse), address)
        assert [error.errno for error in protocol.errors] == [errno.EIO]
        sender.sendto(b"still here", address)
        await until(lambda: receiver.get_protocol().received)
        with reports_of(loop) as reports:
            sender.sendto(PythonData(b"data", when_asked=fail), address)
            assert sender.is_closing()
            await until(lambda: protocol.lost)
        assert isinstance(protocol.error, ZeroDivisionError)
        assert [report["message"] for report in reports] == ["Fatal write error on datagram transport"]
        await close(receiver)

    loop.run_until_complete(main())


@needs_python_buffers
def test_data_that_ends_its_endpoint(loop):
    async def main():
        sender, receiver, _ = await endpoints(loop, connected=True)
        received, protocol = receiver.get_protocol().received, sender.get_protocol()
        sender.sendto(PythonData(b"data", when_asked=sender.close))
        await until(lambda: received and protocol.lost)
        assert received == [b"data"]
        await close(receiver)

    loop.run_until_complete(main())


@needs_python_buffers
@pytest.mark.parametrize("connected", [False, True])
def test_data_that_ends_its_endpoint_and_raises(loop, connected):
    async def main():
        sender, receiver, address = await endpoints(loop, connected=connected)
        protocol = sender.get_protocol()
        with reports_of(loop) as reports:
            sender.sendto(PythonData(b"data", when_asked=abort_and_fail(sender)), None if connected else address)
            await until(lambda: protocol.lost)
        assert [report["message"] for report in reports] == ["Fatal write error on datagram transport"]
        await close(receiver)

    loop.run_until_complete(main())


@needs_python_buffers
def test_data_is_asked_after_the_address_and_the_loss_are_looked_at(loop):
    async def main():
        sender, receiver, _ = await endpoints(loop, connected=True)
        protocol = sender.get_protocol()
        with pytest.raises(ValueError, match="Invalid address"):
            sender.sendto(PythonData(b"data", when_asked=fail), ("127.0.0.1", 9))
        assert not sender.is_closing()
        sender.abort()
        sender.sendto(PythonData(b"data", when_asked=fail))
        await until(lambda: protocol.lost)
        assert protocol.error is None
        await close(receiver)

    loop.run_until_complete(main())


@needs_unix
@pytest.mark.only("c", reason="asyncio's transport fails if its queue is cleared while it sends, or adds to it")
@needs_python_buffers
def test_no_datagram_is_sent_behind_those_that_its_data_has_dropped(loop):
    async def main():
        ours, peer = datagram_pair()
        with peer:
            transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=ours)
            sent = []
            while not transport.get_write_buffer_size():
                sent.append(b"%d" % len(sent))
                transport.sendto(sent[-1])
            received = drain(peer)
            transport.sendto(PythonData(b"data", when_asked=transport.abort))
            await until(lambda: protocol.lost)
            received += drain(peer)
            assert received == sent[: len(received)]

    loop.run_until_complete(main())
