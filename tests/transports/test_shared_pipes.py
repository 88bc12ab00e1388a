"""Two users of one descriptor: one pipe transport reads a terminal or a socket and another one writes to it."""

import asyncio
import contextlib
import os
import pty
import select
import socket
import sys
import tty

import pytest
from support.endpoints import fill_socket, reports_of, settle, until
from support.recording import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")


def terminal():
    """(master as an unbuffered file, slave as a descriptor) of a raw pseudo-terminal."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    return os.fdopen(master, "r+b", 0), slave


# More than a terminal holds in the queues of both sides, whenever the kernel moves it from one to the other.
MUCH = 1 << 18


def fill(transport):
    """Write so much that some of it stays queued in the transport until the other side is read; return how much."""
    transport.write(b"x" * MUCH)
    assert transport.get_write_buffer_size() > 0
    return MUCH


async def read_all(fd, count):
    """Read `count` bytes of a descriptor, waiting until as many have come."""
    received = b""
    os.set_blocking(fd, False)
    while len(received) < count:
        try:
            received += os.read(fd, 65536)
        except BlockingIOError:
            await asyncio.sleep(0.001)
    return received


@pytest.mark.parametrize("order", ["reader first", "writer first"])
def test_both_directions_of_a_terminal(loop, order):
    async def main():
        master, slave = terminal()
        connects = [(loop.connect_read_pipe, Recorder), (loop.connect_write_pipe, Recorder)]
        if order == "writer first":
            connects.reverse()
        pairs = [await connect(protocol, master) for connect, protocol in connects]
        if order == "writer first":
            pairs.reverse()
        (source, reader), (target, writer) = pairs

        os.write(slave, b"typed")
        target.write(b"shown")
        await until(lambda: reader.received == b"typed")
        assert await read_all(slave, 5) == b"shown"

        # Pausing one direction does not pause the other.
        target.set_write_buffer_limits(high=MUCH)
        sent = fill(target)
        source.pause_reading()
        os.write(slave, b"unread")
        await settle()
        assert reader.received == b"typed"
        assert await read_all(slave, sent) == b"x" * sent
        await until(lambda: target.get_write_buffer_size() == 0)
        source.resume_reading()
        await until(lambda: reader.received == b"typedunread")

        target.close()
        await until(lambda: writer.lost)
        source.close()
        await until(lambda: reader.lost)
        os.close(slave)
        assert reader.events == writer.events == ["connection_made", ("connection_lost", None)]

    loop.run_until_complete(main())


def test_a_callback_beside_a_transport(loop):
    """add_writer() on the descriptor of a read pipe."""

    async def main():
        master, slave = terminal()
        source, reader = await loop.connect_read_pipe(Recorder, master)
        writable = loop.create_future()
        loop.add_writer(master, lambda: writable.done() or writable.set_result(None))
        await writable
        os.write(slave, b"typed")
        await until(lambda: reader.received == b"typed")
        assert loop.remove_writer(master) is True
        os.write(slave, b" more")
        await until(lambda: reader.received == b"typed more")
        source.close()
        await until(lambda: reader.lost)
        os.close(slave)

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio takes readable data for a hang-up if the writer comes second")
@pytest.mark.parametrize("order", ["reader first", "writer first"])
def test_both_directions_of_a_socket(loop, order):
    async def main():
        one, other = socket.socketpair()
        if order == "reader first":
            source, reader = await loop.connect_read_pipe(Recorder, one)
        target, writer = await loop.connect_write_pipe(Recorder, one)
        if order == "writer first":
            source, reader = await loop.connect_read_pipe(Recorder, one)
        other.send(b"there")
        target.write(b"back")
        await until(lambda: reader.received == b"there")
        assert await read_all(other.fileno(), 4) == b"back"
        target.close()
        source.close()
        await until(lambda: reader.lost and writer.lost)
        assert reader.events == writer.events == ["connection_made", ("connection_lost", None)]
        other.close()

    loop.run_until_complete(main())


@pytest.mark.promise("P01")
@pytest.mark.only("c", reason="asyncio goes on using the number, whichever file has it by then")
@pytest.mark.parametrize("queued", [True, False])
def test_the_transport_left_does_not_touch_the_next_owner_of_the_number(loop, queued):
    """One of the two closes the shared file. A new pipe gets its number soon after."""

    async def main():
        master, slave = terminal()
        number = master.fileno()
        source, reader = await loop.connect_read_pipe(Recorder, master)
        target, writer = await loop.connect_write_pipe(Recorder, master)
        if queued:
            fill(target)
        reading, writing = os.pipe()
        source.close()
        await until(lambda: reader.lost)
        assert master.closed
        os.dup2(writing, number)
        try:
            os.set_blocking(reading, False)
            calls = []
            loop.add_writer(number, calls.append, None)
            await until(lambda: calls)
            target.write(b"not yours")
            target.write(b"not yours")
            await until(lambda: writer.lost)
            assert writer.events[-1] == ("connection_lost", "OSError")
            del calls[:]
            await until(lambda: calls)
            assert loop.remove_writer(number) is True
            with pytest.raises(BlockingIOError):
                os.read(reading, 100)
        finally:
            for fd in (number, reading, writing, slave):
                os.close(fd)

    loop.run_until_complete(main())


def test_a_writer_that_waits_hears_of_the_end(loop):
    """The other side of the terminal closes while the writer waits for room. The reader gets the end, and closes the
    file."""

    async def main():
        master, slave = terminal()
        _, reader = await loop.connect_read_pipe(Recorder, master)
        target, writer = await loop.connect_write_pipe(Recorder, master)
        fill(target)
        await settle()
        assert not writer.lost
        os.close(slave)
        await until(lambda: reader.lost and writer.lost)
        assert writer.events[-1] == ("connection_lost", "OSError")

    with reports_of(loop):
        loop.run_until_complete(main())


def test_a_file_that_leaves_its_descriptor_open(loop):
    """A transport may close only its own view of the descriptor."""

    async def main():
        master, slave = terminal()
        view = os.fdopen(master.fileno(), "rb", 0, closefd=False)
        source, reader = await loop.connect_read_pipe(Recorder, view)
        target, writer = await loop.connect_write_pipe(Recorder, master)
        source.close()
        await until(lambda: reader.lost)
        assert view.closed and not master.closed
        sent = fill(target)
        assert await read_all(slave, sent) == b"x" * sent
        await until(lambda: target.get_write_buffer_size() == 0)
        target.close()
        await until(lambda: writer.lost)
        os.close(slave)

    loop.run_until_complete(main())


def test_nothing_is_reported_while_paused(loop):
    """A paused pipe with unread data does not keep the loop busy."""

    async def main():
        reading, writing = os.pipe()
        source, reader = await loop.connect_read_pipe(Recorder, os.fdopen(reading, "rb", 0))
        for _ in range(3):
            source.pause_reading()
            os.write(writing, b"x")
            await settle()
            assert reading not in [key.fd for key, _ in loop._selector.select(0)]
            count = len(reader.received)
            source.resume_reading()
            await until(lambda count=count: len(reader.received) > count)
        os.close(writing)
        await until(lambda: reader.lost)

    loop.run_until_complete(main())


def test_nothing_is_reported_when_all_is_written(loop):
    async def main():
        reading, writing = os.pipe()
        target, writer = await loop.connect_write_pipe(Recorder, os.fdopen(writing, "wb", 0))
        for _ in range(3):
            sent = fill(target)
            await read_all(reading, sent)
            await until(lambda: target.get_write_buffer_size() == 0)
            await settle()
            assert writing not in [key.fd for key, _ in loop._selector.select(0)]
        target.close()
        await until(lambda: writer.lost)
        os.close(reading)

    loop.run_until_complete(main())


def test_a_file_that_is_closed_while_its_reader_is_paused(loop):
    """A duplicate keeps the file in the kernel's set, which goes on reporting events that no callback waits for."""

    async def main():
        master, slave = terminal()
        source, reader = await loop.connect_read_pipe(Recorder, master)
        target, writer = await loop.connect_write_pipe(Recorder, master)
        await settle()
        fill(target)
        duplicate = os.dup(master.fileno())
        source.pause_reading()
        master.close()
        os.write(slave, b"typed")
        for _ in range(5):
            await asyncio.sleep(0.001)  # the loop polls meanwhile
        assert reader.received == b""
        if not writer.lost:  # an attempt to write more may end it: the terminal may have room again
            target.abort()
        source.close()
        await until(lambda: reader.lost and writer.lost)
        os.close(slave)
        os.close(duplicate)

    loop.run_until_complete(main())


@pytest.mark.skipif(
    not hasattr(select, "epoll") or os.environ.get("HOTLOOP_POLLER") == "kqueue-shim",
    reason="a kqueue forgets a closed descriptor; the shim does not",
)
def test_a_callback_of_a_file_that_is_closed_while_a_transport_is_paused(loop):
    """A duplicate keeps the file in epoll's set. What comes for the transport does not cost the callback its events."""

    async def main():
        ours, peer = socket.socketpair()
        sent = fill_socket(ours)
        file = os.fdopen(ours.detach(), "rb", 0, closefd=False)
        source, reader = await loop.connect_read_pipe(Recorder, file)
        await settle()
        writable = loop.create_future()
        loop.add_writer(file.fileno(), lambda: writable.done() or writable.set_result(None))
        duplicate = os.dup(file.fileno())
        source.pause_reading()
        os.close(file.fileno())
        peer.sendall(b"unread")
        for _ in range(5):
            await asyncio.sleep(0.001)  # the loop polls meanwhile
        assert not writable.done() and not reader.received
        while sent:
            sent -= len(peer.recv(sent))
        await until(writable.done)
        loop.remove_writer(file.fileno())
        peer.close()
        os.close(duplicate)
        source.close()
        await until(lambda: reader.lost)

    loop.run_until_complete(main())


@pytest.mark.skipif(
    not hasattr(select, "epoll") or os.environ.get("HOTLOOP_POLLER") == "kqueue-shim",
    reason="to change what it reports, a kqueue registers the file that has the number, with asyncio's selector, too",
)
@pytest.mark.parametrize("pauses_first", [True, False])
def test_a_callback_of_a_file_whose_number_another_file_has_taken(loop, pauses_first):
    """The other file is nothing that the callback waits for, whatever becomes of the transport beside it."""

    async def main():
        ours, peer = socket.socketpair()
        fill_socket(ours)
        file = os.fdopen(ours.detach(), "rb", 0)
        fd = file.fileno()
        source, reader = await loop.connect_read_pipe(Recorder, file)
        await settle()
        calls = []
        loop.add_writer(fd, calls.append, "writable")
        duplicate = os.dup(fd)
        read_end, write_end = os.pipe()
        if pauses_first:
            source.pause_reading()
        os.dup2(write_end, fd)
        peer.sendall(b"unread")
        if not pauses_first:
            with contextlib.suppress(FileNotFoundError):  # asyncio's asks the kernel to change what is not registered
                source.pause_reading()
        await settle()
        assert not calls and not reader.received
        loop.remove_writer(fd)
        loop.add_writer(fd, calls.append, "another's")
        await until(lambda: "another's" in calls)
        loop.remove_writer(fd)
        source.close()
        await until(lambda: reader.lost)
        peer.close()
        for open_fd in duplicate, read_end, write_end:
            os.close(open_fd)

    loop.run_until_complete(main())


def test_a_reader_that_is_cancelled_by_its_handle_beside_a_transport_that_has_written_all(loop):
    async def main():
        near, far = socket.socketpair()
        far.setblocking(False)
        fd = near.detach()

        class Writer(Recorder):
            def resume_writing(self):
                super().resume_writing()
                # This callback runs before the next poll, which reports the descriptor as readable and writable.
                handle.cancel()
                far.send(b"y")

        target, writer = await loop.connect_write_pipe(Writer, os.fdopen(fd, "wb", 0))
        target.set_write_buffer_limits(0)
        await settle()
        handle = loop._add_reader(fd, print)  # the public method refuses this beside a transport
        sent = fill(target)
        assert await read_all(far.fileno(), sent) == b"x" * sent
        await until(lambda: "resume_writing" in writer.events)
        await settle()
        assert not loop._remove_reader(fd)
        target.abort()
        await until(lambda: writer.lost)
        far.close()

    loop.run_until_complete(main())


def test_a_loop_whose_iterations_are_asyncios(loop):
    """A replaced _run_once() takes the events from select() and passes them to _process_events()."""
    loop._run_once = lambda: asyncio.BaseEventLoop._run_once(loop)

    async def main():
        master, slave = terminal()
        source, reader = await loop.connect_read_pipe(Recorder, master)
        target, writer = await loop.connect_write_pipe(Recorder, master)
        os.write(slave, b"typed")
        await until(lambda: reader.received == b"typed")
        sent = fill(target)
        assert await read_all(slave, sent) == b"x" * sent
        await until(lambda: target.get_write_buffer_size() == 0)
        source.pause_reading()
        os.write(slave, b"more")
        await settle()
        source.resume_reading()
        await until(lambda: reader.received == b"typedmore")
        for transport in (target, source):
            transport.close()
        await until(lambda: reader.lost and writer.lost)
        os.close(slave)

    loop.run_until_complete(main())


@pytest.mark.promise("P04")
@pytest.mark.only("c", reason="asyncio's classes need their constructors")
@pytest.mark.parametrize("name", ["ReadPipeTransport", "WritePipeTransport"])
def test_a_transport_that_was_never_opened(impl, name):
    from hotloop._c.transports import pipe

    cls = getattr(pipe, name)
    for transport in (cls(), cls.__new__(cls)):
        assert transport.is_closing() and transport.get_protocol() is None
        assert transport.get_extra_info("pipe") is None
        assert repr(transport) == f"<{name} closed fd=-1 closed>"
        transport.close()
        transport.abort()
        transport._fatal_error(OSError())
        transport._force_close(None)
        if name == "ReadPipeTransport":
            transport.pause_reading()
            transport.resume_reading()
            assert not transport.is_reading()
        else:
            transport.write(b"x")
            transport.writelines([b"x"])
            transport.write_eof()
            transport.set_write_buffer_limits(0)
            assert transport.get_write_buffer_size() == 0
        transport._start(None)
        transport._run()
