"""Pipe transports on files other than plain pipes (FIFOs, terminals, devices, sockets), and files that they refuse."""

import asyncio
import contextlib
import io
import os
import pty
import socket
import sys
import tempfile
import tty

import pytest
from support.endpoints import reports_of, settle, turns, until
from support.recording import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")


def fifo_ends(path):
    """(read end, write end) of a FIFO as unbuffered files."""
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return os.fdopen(reading, "rb", 0), open(path, "wb", 0)


def terminal():
    """(master, slave) of a pseudo-terminal, raw, as unbuffered files."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    return os.fdopen(master, "r+b", 0), os.fdopen(slave, "r+b", 0)


def test_a_fifo(loop, tmp_path):
    async def main():
        reading, writing = fifo_ends(tmp_path / "fifo")
        source, reader = await loop.connect_read_pipe(Recorder, reading)
        target, _ = await loop.connect_write_pipe(Recorder, writing)
        for number in range(10):
            target.write(b"%d" % number)
            await until(lambda number=number: len(reader.received) > number)
        target.close()
        await until(lambda: reader.lost)
        assert reader.received == b"0123456789"
        assert reader.events == ["connection_made", "eof_received", ("connection_lost", None)]
        assert source.is_closing()

    loop.run_until_complete(main())


def test_the_reader_of_a_fifo_goes(loop, tmp_path):
    async def main():
        reading, writing = fifo_ends(tmp_path / "fifo")
        _, protocol = await loop.connect_write_pipe(Recorder, writing)
        reading.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


def test_unread_data_in_a_fifo_is_no_hang_up(loop, tmp_path):
    async def main():
        reading, writing = fifo_ends(tmp_path / "fifo")
        with reading:
            transport, protocol = await loop.connect_write_pipe(Recorder, writing)
            transport.write(b"unread")
            await settle()
            assert not transport.is_closing()
            assert reading.read(100) == b"unread"
            transport.close()
            await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_reading_a_terminal_ends_with_eio(loop):
    """When its other side is closed, a terminal gives an error instead of an end of file. It is not reported."""

    async def main():
        master, slave = terminal()
        transport, protocol = await loop.connect_read_pipe(Recorder, master)
        slave.write(b"from the terminal")
        await until(lambda: protocol.received == b"from the terminal")
        slave.close()
        await until(lambda: protocol.lost)
        assert protocol.events in (
            ["connection_made", ("connection_lost", "OSError")],
            ["connection_made", "eof_received", ("connection_lost", None)],
        )
        if sys.platform.startswith("linux"):
            assert protocol.events == ["connection_made", ("connection_lost", "OSError")]
        assert master.closed and transport.is_closing()

    loop.run_until_complete(main())


def test_writing_to_a_terminal(loop):
    async def main():
        master, slave = terminal()
        transport, protocol = await loop.connect_write_pipe(Recorder, slave)
        transport.write(b"to the terminal")
        await settle()
        assert os.read(master.fileno(), 100) == b"to the terminal"
        transport.write(b"more")
        transport.close()
        await until(lambda: protocol.lost)
        assert os.read(master.fileno(), 100) == b"more"
        assert protocol.events == ["connection_made", ("connection_lost", None)]
        master.close()

    loop.run_until_complete(main())


def test_both_directions_of_a_terminal(loop):
    async def main():
        master, slave = terminal()
        with master:
            copy = os.fdopen(os.dup(slave.fileno()), "wb", 0)
            source, reader = await loop.connect_read_pipe(Recorder, slave)
            target, writer = await loop.connect_write_pipe(Recorder, copy)
            os.write(master.fileno(), b"typed")
            await until(lambda: reader.received == b"typed")
            target.write(b"shown")
            await settle()
            assert os.read(master.fileno(), 100) == b"shown"
            source.close()
            target.close()
            await until(lambda: reader.lost and writer.lost)

    loop.run_until_complete(main())


def device(path, mode):
    return open(path, mode, 0)


def test_dev_null_takes_everything(loop):
    async def main():
        transport, protocol = await loop.connect_write_pipe(Recorder, device("/dev/null", "wb"))
        for _ in range(10):
            transport.write(bytes(1_000_000))
        await settle()
        assert transport.get_write_buffer_size() == 0 and not transport.is_closing()
        transport.close()
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this platform has no /dev/full")
def test_dev_full_takes_nothing(loop):
    async def main():
        transport, protocol = await loop.connect_write_pipe(Recorder, device("/dev/full", "wb"))
        transport.write(b"x")
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "OSError")]
        assert transport.is_closing()

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", ["/dev/null", "/dev/zero"])
def test_reading_a_device_that_epoll_refuses(loop, name):
    """asyncio reports the error of the registration, on Linux; the transport can be closed."""

    async def main():
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
        transport, protocol = await loop.connect_read_pipe(Recorder, device(name, "rb"))
        await settle()
        if sys.platform.startswith("linux"):
            assert [type(report) for report in reports] == [PermissionError]
            assert not protocol.received
        transport.close()
        await until(lambda: protocol.lost)
        assert ("connection_lost", None) in protocol.events

    loop.run_until_complete(main())


def test_a_device_that_is_paused_is_never_watched(loop):
    class Paused(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    async def main():
        transport, protocol = await loop.connect_read_pipe(Paused, device("/dev/zero", "rb"))
        await settle()
        assert not protocol.received and not transport.is_reading()
        transport.close()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_a_socket(loop):
    """Each direction of a socket can be a pipe transport, given as a socket object or as a file."""

    async def main():
        one, other = socket.socketpair()
        source, reader = await loop.connect_read_pipe(Recorder, one)
        target, writer = await loop.connect_write_pipe(Recorder, os.fdopen(other.detach(), "wb", 0))
        assert source.get_extra_info("pipe") is one
        target.write(b"x" * 100_000)
        await until(lambda: len(reader.received) == 100_000)
        target.close()
        await until(lambda: reader.lost)
        assert writer.events == ["connection_made", ("connection_lost", None)]
        assert reader.events == ["connection_made", "eof_received", ("connection_lost", None)]

    loop.run_until_complete(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="messages of other systems are smaller")
@pytest.mark.parametrize("kind", ["SOCK_SEQPACKET", "SOCK_DGRAM"])
def test_messages_of_any_size_are_whole(loop, kind):
    """What a read leaves of a message is lost, so none may be read with a guess at its size."""

    async def main():
        one, other = socket.socketpair(socket.AF_UNIX, getattr(socket, kind))
        with other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
            sizes = []
            transport, protocol = await loop.connect_read_pipe(Recorder, one)
            protocol.data_received = lambda data: sizes.append(len(data))
            for size in (16_384, 100_000):
                other.send(bytes(size))
                await until(lambda: sizes)
                assert sizes.pop() == size
            transport.close()
            await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("what", ["data", "the end"])
def test_anything_to_read_is_taken_for_a_hang_up_of_a_written_socket(loop, what):
    """asyncio watches a write pipe for readability, to notice that the other side has closed."""

    async def main():
        one, other = socket.socketpair()
        with other:
            transport, protocol = await loop.connect_write_pipe(Recorder, one)
            if what == "data":
                other.send(b"x")
            else:
                other.shutdown(socket.SHUT_WR)
            await until(lambda: protocol.lost)
            assert protocol.events == ["connection_made", ("connection_lost", None)]
            assert transport.is_closing()

    loop.run_until_complete(main())


def test_a_reset_socket(loop):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
        _, protocol = await loop.connect_read_pipe(Recorder, client)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.close()
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(context))
        await until(lambda: protocol.lost)
        assert protocol.events == ["connection_made", ("connection_lost", "ConnectionResetError")]
        assert [type(report["exception"]) for report in reports] == [ConnectionResetError]
        assert reports[0]["message"] == "Fatal read error on pipe transport"
        assert client.fileno() == -1

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("what", ["a regular file", "a directory", "a memory file", "a block of nothing"])
def test_what_is_no_pipe_is_refused(loop, tmp_path, kind, what):
    """The call raises asyncio's ValueError; the file stays open and remains its owner's."""

    async def main():
        with contextlib.ExitStack() as stack:
            if what == "a regular file":
                file = stack.enter_context(open(tmp_path / "file", "w+b", 0))
            elif what == "a directory":
                fd = os.open(tmp_path, os.O_RDONLY)
                stack.callback(os.close, fd)
                file = Descriptor(fd)
            elif what == "a memory file":
                if not hasattr(os, "memfd_create"):
                    pytest.skip("this platform has no memory files")
                file = stack.enter_context(os.fdopen(os.memfd_create("test"), "w+b", 0))
            else:
                file = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
            made = []

            def factory():
                made.append(Recorder())
                return made[-1]

            with pytest.raises(ValueError, match="Pipe transport is"):
                await connect(factory, file)
            await settle()
            assert [protocol.events for protocol in made] == [[]]
            assert os.fstat(file.fileno()) and os.get_blocking(file.fileno())

    loop.run_until_complete(main())


class Descriptor:
    """The interface that asyncio requires of a pipe: a descriptor, and a way to close it."""

    def __init__(self, fd):
        self.fd = fd
        self.closed = 0

    def fileno(self):
        return self.fd

    def close(self):
        self.closed += 1
        os.close(self.fd)


def test_any_object_with_a_descriptor(loop):
    async def main():
        reading, writing = map(Descriptor, os.pipe())
        source, reader = await loop.connect_read_pipe(Recorder, reading)
        target, _ = await loop.connect_write_pipe(Recorder, writing)
        assert source.get_extra_info("pipe") is reading
        target.write(b"x")
        target.close()
        await until(lambda: reader.lost)
        assert reader.received == b"x"
        assert (reading.closed, writing.closed) == (1, 1)

    loop.run_until_complete(main())


half_made = pytest.mark.filterwarnings(  # asyncio's transports have a finalizer that fails when __init__() has failed
    "ignore:Exception ignored .*Pipe.*__del__:pytest.PytestUnraisableExceptionWarning"
)


@half_made
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("nonsense", [5, None, "text", object()], ids=["number", "none", "text", "object"])
def test_what_has_no_descriptor_is_refused(loop, kind, nonsense):
    async def main():
        connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
        with pytest.raises(AttributeError):
            await connect(Recorder, nonsense)
        await settle()

    loop.run_until_complete(main())


@half_made
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_closed_file_is_refused(loop, kind):
    async def main():
        reading, writing = os.pipe()
        files = os.fdopen(reading, "rb"), os.fdopen(writing, "wb")
        for file in files:
            file.close()
        connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
        with pytest.raises(ValueError):
            await connect(Recorder, files[kind == "write"])

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("count", range(4))
def test_a_cancelled_connect_closes_what_it_took(loop, kind, count):
    """Either the transport exists and closes the pipe, or the pipe still belongs to its owner."""

    async def main():
        reading, writing = os.pipe()
        files = os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)
        connect = loop.connect_read_pipe if kind == "read" else loop.connect_write_pipe
        ours = files[kind == "write"]
        task = asyncio.ensure_future(connect(Recorder, ours))
        await turns(count)
        task.cancel()
        try:
            transport, _ = await task
        except asyncio.CancelledError:
            pass
        else:
            transport.close()
        await settle()
        assert ours.closed is (count > 0)
        for file in files:
            file.close()

    loop.run_until_complete(main())


@pytest.mark.promise("P04")
@pytest.mark.only("c", reason="asyncio does not ask a file for its number again")
@pytest.mark.parametrize("end", ["abort", "_call_connection_lost"])
def test_a_file_that_ends_its_transport_when_it_is_asked(loop, end):
    class File(io.FileIO):
        ends = None

        def fileno(self):
            if self.ends is not None:
                ends, self.ends = self.ends, None
                ends()
            return super().fileno()

    async def main():
        reading, writing = os.pipe()
        source, sink = File(reading, "rb"), File(writing, "wb")
        incoming, reader = await loop.connect_read_pipe(Recorder, source)
        outgoing, writer = await loop.connect_write_pipe(Recorder, sink)
        arguments = () if end == "abort" else (None,)
        outgoing.write(b"before")
        source.ends = lambda: getattr(incoming, end)(*arguments)
        sink.ends = lambda: getattr(outgoing, end)(*arguments)
        outgoing.write(b"in between")
        await until(lambda: reader.lost and writer.lost)

    with reports_of(loop):
        loop.run_until_complete(main())
