"""loop.metrics(): moved bytes count once, also if the operation was cancelled, failed, or began before the first
snapshot."""

import asyncio
import os
import selectors
import socket
import struct
import sys

import pytest
from support.endpoints import cancelled, close, datagram_sockets, drain, pipe_files, settle, started, until
from support.recording import Recorder

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loop has no metrics")

MUCH = bytes(range(256)) * 8192  # more than a socket or a pipe holds


def received(metrics):
    return (metrics.bytes_received, metrics.receives)


def sent(metrics):
    return (metrics.bytes_sent, metrics.sends)


async def read_all(sock):
    """Read to the end, in a thread, where the loop does not count it."""
    content = await asyncio.to_thread(lambda: b"".join(iter(lambda: sock.recv(65536), b"")))
    await asyncio.get_running_loop().shutdown_default_executor()
    return content


@pytest.fixture
def sendable(tmp_path):
    (tmp_path / "file").write_bytes(MUCH)
    with open(tmp_path / "file", "rb") as file:
        yield file


# -- each method, at once and after a wait -----------------------------------------------------------------------------

RECEIVING = {
    "sock_recv": lambda loop, sock: loop.sock_recv(sock, 100),
    "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(100)),
    "sock_recvfrom": lambda loop, sock: loop.sock_recvfrom(sock, 100),
    "sock_recvfrom_into": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(100)),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("method", RECEIVING)
def test_receiving(loop, method, waits):
    async def main():
        one, other = datagram_sockets()
        with one, other:
            before = loop.metrics()
            if waits:
                receiving = await started(RECEIVING[method](loop, one))
                other.sendto(b"x" * 60, one.getsockname())
            else:
                other.sendto(b"x" * 60, one.getsockname())
                receiving = RECEIVING[method](loop, one)
            await receiving
            assert received(loop.metrics() - before) == (60, 1)
            assert sent(loop.metrics() - before) == (0, 0)

    loop.run_until_complete(main())


class OwnSocket(socket.socket):
    """The loop calls its methods."""


@pytest.mark.parametrize("kind", [socket.socket, OwnSocket])
@pytest.mark.parametrize("method", ["sock_recvfrom", "sock_recvfrom_into"])
def test_a_datagram_without_bytes_is_one(loop, method, kind):
    async def main():
        one, other = (kind(each.family, each.type, each.proto, each.detach()) for each in datagram_sockets())
        with one, other:
            before = loop.metrics()
            assert await loop.sock_sendto(other, b"", one.getsockname()) == 0
            await RECEIVING[method](loop, one)
            happened = loop.metrics() - before
            assert (received(happened), sent(happened)) == ((0, 1), (0, 1))

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", [socket.socket, OwnSocket])
def test_the_end_of_a_stream_does_not_count(loop, kind):
    async def main():
        one, other = (kind(each.family, each.type, each.proto, each.detach()) for each in socket.socketpair())
        with one, other:
            one.setblocking(False)
            other.close()
            before = loop.metrics()
            assert await loop.sock_recv(one, 10) == b""
            assert await loop.sock_recv_into(one, bytearray(10)) == 0
            assert received(loop.metrics() - before) == (0, 0)

    loop.run_until_complete(main())


def test_sendto_that_has_to_wait(loop, tmp_path):
    """The peer's queue is full: a sender on a Unix datagram socket then waits."""

    async def main():
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
        ):
            for number, sock in enumerate((one, other)):
                sock.bind(os.fspath(tmp_path / str(number)))
                sock.setblocking(False)
            one.connect(other.getsockname())
            before = loop.metrics()
            count = 0
            while True:
                sending = asyncio.ensure_future(loop.sock_sendto(one, b"x" * 100, other.getsockname()))
                await settle()
                count += 1
                if not sending.done():
                    break
            assert sent(loop.metrics() - before) == (100 * (count - 1), count - 1)
            assert len(drain(other)) == count - 1
            assert await sending == 100
            assert sent(loop.metrics() - before) == (100 * count, count)

    loop.run_until_complete(main())


def test_the_end_of_a_stream_is_none(loop, pair):
    async def main():
        before = loop.metrics()
        receiving = await started(loop.sock_recv(pair[0], 100))
        pair[1].shutdown(socket.SHUT_WR)
        assert await receiving == b""
        assert await loop.sock_recv_into(pair[0], bytearray(1)) == 0
        assert received(loop.metrics() - before) == (0, 0)

    loop.run_until_complete(main())


@pytest.mark.parametrize("how", ["sock_sendfile", "sendfile"])
def test_a_file_that_the_system_sends(loop, pair, sendable, how):
    async def main():
        before = loop.metrics()
        pair[1].setblocking(True)
        if how == "sendfile":
            transport, _ = await loop.create_connection(Recorder, sock=pair[0])
            sending = asyncio.ensure_future(loop.sendfile(transport, sendable, 1000, fallback=False))
        else:
            sending = asyncio.ensure_future(loop.sock_sendfile(pair[0], sendable, 1000, fallback=False))
        # The peer does not read before the socket is full: with a fast enough reader one call would send it all.
        await until(lambda: (loop.metrics() - before).sends)
        reading = asyncio.ensure_future(read_all(pair[1]))
        assert await sending == len(MUCH) - 1000
        if how == "sendfile":
            await close(transport)
        else:
            pair[0].close()
        assert await reading == MUCH[1000:]
        happened = loop.metrics() - before
        assert happened.bytes_sent == len(MUCH) - 1000
        assert happened.sends > 1

    loop.run_until_complete(main())


@pytest.mark.parametrize("how", ["sock_sendfile", "sendfile"])
def test_a_file_that_is_read_and_sent_counts_once(loop, pair, how):
    class Unknown:
        """A file without a descriptor."""

        def __init__(self):
            self.rest = memoryview(MUCH)

        def readinto(self, buffer):
            count = min(len(buffer), len(self.rest))
            buffer[:count] = self.rest[:count]
            self.rest = self.rest[count:]
            return count

    async def main():
        before = loop.metrics()
        pair[1].setblocking(True)
        reading = asyncio.ensure_future(asyncio.to_thread(pair[1].recv, len(MUCH), socket.MSG_WAITALL))
        if how == "sendfile":
            transport, _ = await loop.create_connection(Recorder, sock=pair[0])
            await loop.sendfile(transport, Unknown())
            await close(transport)
        else:
            await loop.sock_sendfile(pair[0], Unknown())
        assert await reading == MUCH
        await loop.shutdown_default_executor()
        assert (loop.metrics() - before).bytes_sent == len(MUCH)

    loop.run_until_complete(main())


# -- cancelled in the middle -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", RECEIVING)
def test_receiving_that_was_cancelled_has_moved_nothing(loop, method):
    async def main():
        one, other = datagram_sockets()
        with one, other:
            before = loop.metrics()
            await cancelled(await started(RECEIVING[method](loop, one)))
            other.sendto(b"x", one.getsockname())
            await settle()
            assert received(loop.metrics() - before) == (0, 0)
            await RECEIVING[method](loop, one)
            assert received(loop.metrics() - before) == (1, 1)

    loop.run_until_complete(main())


@pytest.mark.parametrize("method", ["sock_sendall", "sock_sendfile"])
def test_what_was_sent_before_it_was_cancelled_counts(loop, pair, sendable, method):
    one, other = pair

    async def main():
        before = loop.metrics()
        content = MUCH if method == "sock_sendall" else sendable
        sending = await started(getattr(loop, method)(one, content))
        arrived = 0
        while not arrived:
            # Make room for some more.
            arrived = len(b"".join(drain(other)))
            await settle()
        assert not sending.done()
        await cancelled(sending)
        one.shutdown(socket.SHUT_WR)
        other.setblocking(True)
        arrived += len(await read_all(other))
        happened = loop.metrics() - before
        assert happened.bytes_sent == arrived < len(MUCH)
        assert happened.sends > 1

    loop.run_until_complete(main())


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("method", ["sock_recv", "sock_recv_into"])
def test_receiving_that_fails_has_moved_nothing(loop, method, waits):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
        with one, other:
            one.setblocking(False)
            before = loop.metrics()
            receiving = RECEIVING[method](loop, one)
            if waits:
                receiving = await started(receiving)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
            with pytest.raises(ConnectionResetError):
                await receiving
            assert received(loop.metrics() - before) == (0, 0)

    loop.run_until_complete(main())


@pytest.mark.parametrize("method", ["sock_sendall", "sock_sendfile"])
def test_what_was_sent_before_it_failed_counts(loop, pair, sendable, method):
    async def main():
        before = loop.metrics()
        sending = await started(getattr(loop, method)(pair[0], MUCH if method == "sock_sendall" else sendable))
        await settle()
        taken = sent(loop.metrics() - before)
        assert 0 < taken[0] < len(MUCH)
        pair[1].close()
        with pytest.raises(ConnectionError):
            await sending
        assert sent(loop.metrics() - before) == taken

    loop.run_until_complete(main())


def test_a_refused_argument_has_moved_nothing(loop, pair):
    async def main():
        before = loop.metrics()
        with pytest.raises(TypeError):
            await loop.sock_sendall(pair[0], "text")
        with pytest.raises(TypeError):
            await loop.sock_recv_into(pair[0], b"read-only")
        with pytest.raises(ValueError, match="negative"):
            await loop.sock_recv(pair[0], -1)
        happened = loop.metrics() - before
        assert (received(happened), sent(happened)) == ((0, 0), (0, 0))

    loop.run_until_complete(main())


def test_what_is_no_socket_may_answer_what_it_likes(loop):
    class Odd:
        """An object whose own methods the loop has to call."""

        def gettimeout(self):
            return 0

        def recv(self, size):
            return "text"

        def recvfrom(self, size):
            return None

        def send(self, data):
            return len(data)

    async def main():
        before = loop.metrics()
        assert await loop.sock_recv(Odd(), 1) == "text"
        assert await loop.sock_recvfrom(Odd(), 1) is None
        await loop.sock_sendall(Odd(), b"12345")
        happened = loop.metrics() - before
        assert (received(happened), sent(happened)) == ((0, 0), (5, 1))

    loop.run_until_complete(main())


# -- pipes -------------------------------------------------------------------------------------------------------------


def test_a_pipe_that_is_full(loop):
    """The transport keeps in its queue whatever the kernel has not taken."""

    async def main():
        before = loop.metrics()
        reading, writing = pipe_files()
        with reading:
            writer, _ = await loop.connect_write_pipe(Recorder, writing)
            writer.write(MUCH)
            taken = sent(loop.metrics() - before)
            assert taken == (len(MUCH) - writer.get_write_buffer_size(), 1)
            assert writer.get_write_buffer_size() > 0
            content = bytearray()
            while len(content) < len(MUCH):
                content += reading.read(65536)
                await settle()
            assert content == MUCH
            happened = loop.metrics() - before
            assert happened.bytes_sent == len(MUCH)
            assert 1 < happened.sends <= len(MUCH) // 4096
            await close(writer)

    loop.run_until_complete(main())


def test_what_a_broken_pipe_did_not_take_does_not_count(loop):
    async def main():
        before = loop.metrics()
        reading, writing = pipe_files()
        writer, protocol = await loop.connect_write_pipe(Recorder, writing)
        writer.write(MUCH)
        taken = sent(loop.metrics() - before)
        reading.close()
        writer.write(b"more")
        await until(lambda: protocol.lost)
        assert sent(loop.metrics() - before) == taken

        reading, writing = pipe_files()
        writer, protocol = await loop.connect_write_pipe(Recorder, writing)
        reading.close()
        writer.write(b"refused at once")
        await until(lambda: protocol.lost)
        assert sent(loop.metrics() - before) == taken

    loop.run_until_complete(main())


def test_the_end_of_a_pipe_is_none(loop):
    async def main():
        before = loop.metrics()
        reading, writing = pipe_files()
        _, protocol = await loop.connect_read_pipe(Recorder, reading)
        writing.write(b"x" * 7)
        await until(lambda: protocol.received)
        writing.close()
        await until(lambda: protocol.lost)
        assert received(loop.metrics() - before) == (7, 1)

    loop.run_until_complete(main())


CAT = (sys.executable, "-c", "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)")


def test_a_subprocess(impl):
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.metrics()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*CAT, stdin=pipe, stdout=pipe)
        output, _ = await process.communicate(MUCH)
        assert output == MUCH
        happened = loop.metrics() - before
        assert (happened.bytes_sent, happened.bytes_received) == (len(MUCH), len(MUCH))

    impl.run(main())


# -- from when ---------------------------------------------------------------------------------------------------------


def first(loop, impl, moved_before):
    """The first snapshot; `moved_before`: bytes sent until then."""
    snapshot = loop.metrics()
    assert snapshot.bytes_sent == (0 if impl.name == "python" else moved_before)
    return snapshot


def test_a_pipe_that_was_open_before_anybody_asked(impl, loop):
    async def main():
        reading, writing = pipe_files()
        reader, protocol = await loop.connect_read_pipe(Recorder, reading)
        writer, _ = await loop.connect_write_pipe(Recorder, writing)
        reader.pause_reading()
        writer.write(MUCH)
        waiting = writer.get_write_buffer_size()
        before = first(loop, impl, len(MUCH) - waiting)
        reader.resume_reading()
        await until(lambda: len(protocol.received) == len(MUCH))
        happened = loop.metrics() - before
        assert (happened.bytes_sent, happened.bytes_received) == (waiting, len(MUCH))
        await close(writer)
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_a_subprocess_that_ran_before_anybody_asked(impl):
    async def main():
        loop = asyncio.get_running_loop()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*CAT, stdin=pipe, stdout=pipe)
        process.stdin.write(b"12345")
        before = first(loop, impl, 5)
        output, _ = await process.communicate(b"678")
        assert output == b"12345678"
        happened = loop.metrics() - before
        assert (happened.bytes_sent, happened.bytes_received) == (3, 8)

    impl.run(main())


def test_methods_that_waited_before_anybody_asked(impl, loop, pair):
    async def main():
        receiving = await started(loop.sock_recv(pair[0], 100))
        before = first(loop, impl, 0)
        pair[1].send(b"12345")
        await receiving
        assert received(loop.metrics() - before) == (5, 1)

    loop.run_until_complete(main())


@pytest.mark.parametrize("method", ["sock_sendall", "sock_sendfile"])
def test_much_of_which_a_part_was_sent_before_anybody_asked(impl, loop, pair, sendable, method):
    one, other = pair

    async def main():
        sending = await started(getattr(loop, method)(one, MUCH if method == "sock_sendall" else sendable))
        await settle()
        arrived = b"".join(drain(other))
        # The loop has not had an event about the room yet.
        before = first(loop, impl, len(arrived))
        other.setblocking(True)
        reading = asyncio.ensure_future(read_all(other))
        await sending
        one.shutdown(socket.SHUT_WR)
        assert arrived + await reading == MUCH
        assert (loop.metrics() - before).bytes_sent == len(MUCH) - len(arrived)

    loop.run_until_complete(main())


def test_a_transport_that_sent_a_file_before_anybody_asked(loop, pair, sendable):
    async def main():
        pair[1].setblocking(True)
        transport, _ = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, sendable))
        await settle()
        loop.metrics()
        reading = asyncio.ensure_future(read_all(pair[1]))
        await sending
        before = loop.metrics()
        transport.write(b"12345")
        await close(transport)
        assert await reading == MUCH + b"12345"
        assert sent(loop.metrics() - before) == (5, 1)

    loop.run_until_complete(main())


# -- foreign parts -----------------------------------------------------------------------------------------------------


def test_a_selector_of_the_standard_library(impl):
    """On such a loop, the compiled implementation uses asyncio's transports and methods, whose bytes it does not
    count."""

    async def main():
        loop = asyncio.get_running_loop()
        before = loop.metrics()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            await loop.sock_sendall(one, b"12345")
            assert await loop.sock_recv(other, 100) == b"12345"
        reading, writing = pipe_files()
        _, protocol = await loop.connect_read_pipe(Recorder, reading)
        writer, _ = await loop.connect_write_pipe(Recorder, writing)
        writer.write(b"678")
        await until(lambda: protocol.received)
        happened = loop.metrics() - before
        expected = (0, 0) if impl.name == "c" else (8, 2)
        assert (received(happened), sent(happened)) == (expected, expected)
        await close(writer)
        await until(lambda: protocol.lost)

    with asyncio.Runner(loop_factory=lambda: impl.EventLoop(selectors.SelectSelector())) as runner:
        runner.run(main())


def test_another_librarys_socket_class(impl, loop):
    class Own(socket.socket):
        pass

    async def main():
        one, other = socket.socketpair()
        own = Own(one.family, one.type, one.proto, fileno=one.detach())
        with other:
            before = loop.metrics()
            transport, protocol = await loop.create_connection(Recorder, sock=own)
            transport.write(b"12345")
            other.send(b"678")
            await until(lambda: protocol.received)
            happened = loop.metrics() - before
            expected = ((0, 0), (0, 0)) if impl.name == "c" else ((5, 1), (3, 1))
            assert (sent(happened), received(happened)) == expected
            await close(transport)

    loop.run_until_complete(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_users_see_their_own_objects(loop, pair, when):
    async def main():
        if when == "before":
            loop.metrics()
        reading, writing = pipe_files()
        transports = [
            (await loop.connect_read_pipe(Recorder, reading))[0],
            (await loop.connect_write_pipe(Recorder, writing))[0],
            (await loop.create_connection(Recorder, sock=pair[0]))[0],
        ]
        loop.metrics()
        assert transports[0].get_extra_info("pipe") is reading
        assert transports[1].get_extra_info("pipe") is writing
        assert isinstance(transports[2].get_extra_info("socket"), asyncio.trsock.TransportSocket)
        assert transports[2].get_extra_info("socket").fileno() == pair[0].fileno()
        await close(*transports[1:])
        await until(lambda: transports[0].get_protocol() is None)

    loop.run_until_complete(main())


@pytest.mark.only("python", reason="the compiled transports have other names")
def test_what_a_transport_is_shown_as_is_what_asyncio_shows(loop):
    async def main():
        reading, writing = pipe_files()
        reader, protocol = await loop.connect_read_pipe(Recorder, reading)
        writer, _ = await loop.connect_write_pipe(Recorder, writing)
        await settle()
        assert repr(reader) == f"<_UnixReadPipeTransport fd={reading.fileno()} polling>"
        assert repr(writer) == f"<_UnixWritePipeTransport fd={writing.fileno()} idle bufsize=0>"
        await close(writer)
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())
