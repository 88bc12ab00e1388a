"""A program reaches into a transport by asyncio's private names, in the middle of everything: the connection ends once,
nothing that was written is lost, and the loop goes on."""

import asyncio
import contextlib
import gc
import os
import selectors
import socket

import pytest
from support.endpoints import datagram_sockets, pipe_files, settle, turns, until
from support.recording import BufferedRecorder, DatagramRecorder, Recorder
from support.stepping import run_once, run_until

KINDS = ["protocol", "buffered", "buffered before the read"]


@contextlib.contextmanager
def without_registrations(loop):
    """asyncio's transports leave their registration behind when a program calls _call_connection_lost() itself."""
    before = set(loop._selector.get_map())
    yield
    for fd in set(loop._selector.get_map()) - before:
        loop._remove_reader(fd)


class Ending(Recorder):
    """Calls what ends the connection when it gets data."""

    def data_received(self, data):
        super().data_received(data)
        self.transport._call_connection_lost(None)


class EndingBuffered(asyncio.BufferedProtocol):
    def __init__(self, when):
        self.when = when
        self.calls = []

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        if self.when == "buffered before the read":
            self.transport._call_connection_lost(None)
        return bytearray(10)

    def buffer_updated(self, nbytes):
        self.transport._call_connection_lost(None)

    def connection_lost(self, error):
        self.calls.append("connection_lost")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 10, 300_000])
def test_the_end_while_more_is_there_to_read(impl, loop, kind, size):
    """The end of the stream is in the same event as the data."""
    loop.set_exception_handler(lambda loop, context: None)  # asyncio's _read_ready() looks at its connection afterwards

    async def main():
        made = []

        def make():
            made.append(Ending() if kind == "protocol" else EndingBuffered(kind))
            return made[-1]

        async with await loop.create_server(make, "127.0.0.1", 0) as server:
            with socket.create_connection(server.sockets[0].getsockname()) as peer:
                await until(lambda: made and hasattr(made[0], "transport"))
                peer.setblocking(False)
                assert peer.send(bytes(size))
                with contextlib.suppress(OSError):  # the connection has been reset, with data unread
                    peer.shutdown(socket.SHUT_WR)
                await until(lambda: "connection_lost" in made[0].calls)
                await turns(5)
        assert made[0].calls.count("connection_lost") == 1

    with without_registrations(loop):
        loop.run_until_complete(main())


def test_the_end_while_more_datagrams_wait(impl, loop):
    class EndingDatagrams(asyncio.DatagramProtocol):
        lost = 0

        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, addr):
            self.transport._call_connection_lost(None)

        def connection_lost(self, error):
            self.lost += 1

    loop.set_exception_handler(lambda loop, context: None)

    async def main():
        ours, theirs = datagram_sockets()
        with theirs:
            address = ours.getsockname()
            _, protocol = await loop.create_datagram_endpoint(EndingDatagrams, sock=ours)
            for _ in range(3):
                theirs.sendto(b"x", address)
            await until(lambda: protocol.lost)
            await turns(5)
            assert protocol.lost == 1

    with without_registrations(loop):
        loop.run_until_complete(main())


def test_a_pipe_whose_file_was_taken_away(impl, loop):
    """The kernel still reports the reader's end when the transport is gone."""
    loop.set_exception_handler(lambda loop, context: None)

    async def main():
        reading, writing = pipe_files()
        with writing:
            transport, protocol = await loop.connect_write_pipe(Recorder, writing)
            transport.write(bytes(200_000))
            transport._pipe = None
            transport.close()
            os.set_blocking(reading.fileno(), False)
            left = 200_000
            while left and (data := reading.read(65_536)) is not None:
                left -= len(data)
                await asyncio.sleep(0.001)
            reading.close()
            await settle()
            assert protocol.calls.count("connection_lost") <= 1

    loop.run_until_complete(main())


def test_a_selector_replaced_while_a_pipe_is_paused(impl, loop):
    async def main():
        reading, writing = pipe_files()
        with writing, selectors.SelectSelector() as other:
            transport, protocol = await loop.connect_read_pipe(Recorder, reading)
            transport.pause_reading()
            own, loop._selector = loop._selector, other
            transport.resume_reading()
            loop._selector = own
            transport.close()
            await until(lambda: "connection_lost" in protocol.calls)

    loop.run_until_complete(main())


def test_what_follows_a_look_at_the_number_is_sent(impl, loop):
    """_sock_fd is the first that the program asks of a connection that a server has accepted."""

    class Answering(asyncio.Protocol):
        def connection_made(self, transport):
            assert transport._sock_fd > 0
            transport.write(b"answer")
            transport.close()

    async def main():
        async with await loop.create_server(Answering, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == b"answer"
            writer.close()

    loop.run_until_complete(main())


class LastWords(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        self.transport.write(b"last words")


def test_what_connection_lost_writes_leaves_and_the_transport_is_closed_afterwards(impl, loop):
    async def main():
        ends = list(socket.socketpair())
        with ends.pop() as theirs:
            transport, _ = await loop.create_connection(LastWords, sock=ends.pop())
            transport._call_connection_lost(None)
            assert theirs.recv(100) == b"last words"
            assert transport.get_write_buffer_size() == 0
            transport.set_write_buffer_limits(5)
            if impl.name == "c":
                transport._detach_for_sendfile()
                transport.pause_reading()
                transport.close()
            else:
                for method in (transport.pause_reading, transport.close):
                    with contextlib.suppress(AttributeError):  # asyncio's has no loop any more
                        method()

    with without_registrations(loop):
        loop.run_until_complete(main())


def test_a_protocol_that_cannot_be_looked_at_changes_nothing(impl, loop):
    class Unreadable:
        @property
        def __class__(self):
            raise ZeroDivisionError

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            with pytest.raises(ZeroDivisionError):
                writer.transport.set_protocol(Unreadable())
            theirs.sendall(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()
            await writer.wait_closed()

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio's transports have one set_protocol()")
def test_the_base_class_changes_the_protocol(impl, loop):
    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            recorder = Recorder()
            bases = [base for base in type(writer.transport).__mro__ if "set_protocol" in vars(base)]
            bases[-1].set_protocol(writer.transport, recorder)
            theirs.sendall(b"x")
            await until(lambda: recorder.calls)
            assert recorder.calls == ["data"]
            writer.transport.abort()

    loop.run_until_complete(main())


def run_nested(loop):
    """Run the loop, maybe in one of its callbacks."""
    for _ in range(3):
        loop.call_soon(list)
        loop._run_once()


@pytest.mark.parametrize("way", ["brought", "accepted"])
def test_what_connection_lost_writes_before_it_fails_leaves(impl, loop, way):
    class Failing(LastWords):
        def connection_lost(self, error):
            super().connection_lost(error)
            raise ZeroDivisionError

    async def main():
        made = []

        def make():
            made.append(Failing())
            return made[-1]

        if way == "brought":
            ours, theirs = socket.socketpair()
            await loop.create_connection(make, sock=ours)
            del ours
        else:
            server = await loop.create_server(make, "127.0.0.1", 0)
            theirs = socket.create_connection(server.sockets[0].getsockname())
            await until(lambda: made and hasattr(made[0], "transport"))
            server.close()
        with theirs:
            with pytest.raises(ZeroDivisionError):
                made[0].transport._call_connection_lost(None)
            assert theirs.recv(100) == b"last words"

    with without_registrations(loop):
        loop.run_until_complete(main())


@pytest.mark.parametrize("after", [Recorder, BufferedRecorder])
@pytest.mark.parametrize("base", [asyncio.Protocol, asyncio.BufferedProtocol])
def test_the_last_reference_to_the_protocol_before_goes_with_set_protocol(impl, loop, base, after):
    """Its finalizer runs the loop, and the next protocol, which takes data in another way, gets what comes then."""

    class Before(base):
        def __del__(self):
            theirs.send(b"data")
            run_nested(loop)

    ours, theirs = socket.socketpair()
    transport, before = loop.run_until_complete(loop.create_connection(Before, sock=ours))
    with theirs:
        del before
        protocol = after()
        transport.set_protocol(protocol)
        assert protocol.received == b"data"
        assert not transport.is_closing()
        transport.abort()
        run_once(loop, 2)


def test_the_last_reference_to_the_protocol_goes_with_the_end(impl, loop):
    """Its finalizer runs the loop when data is there, but no protocol to take it."""
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))

    class Ended(asyncio.Protocol):
        def __del__(self):
            with contextlib.suppress(BrokenPipeError):  # asyncio has closed the socket by then
                theirs.send(b"data")
            run_nested(loop)

    ours, theirs = socket.socketpair()
    with theirs, without_registrations(loop):
        transport, protocol = loop.run_until_complete(loop.create_connection(Ended, sock=ours))
        del protocol
        transport._call_connection_lost(None)
        assert reports == []
    loop.set_exception_handler(None)


@pytest.mark.parametrize("method", ["sendto", "recvfrom"])
def test_a_socket_of_the_program_ends_its_datagram_transport(impl, loop, method):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))

    class Ending(socket.socket):
        def end(self, result):
            transport.abort()
            run_nested(loop)
            return result

        def sendto(self, *arguments):
            return self.end(super().sendto(*arguments))

        def recvfrom(self, *arguments):
            return self.end(super().recvfrom(*arguments))

    ours = Ending(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind(("127.0.0.1", 0))
    with ours, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs:
        theirs.bind(("127.0.0.1", 0))
        transport, protocol = loop.run_until_complete(loop.create_datagram_endpoint(DatagramRecorder, sock=ours))
        if method == "sendto":
            transport.sendto(b"data", theirs.getsockname())
            assert theirs.recv(100) == b"data"
        else:
            theirs.sendto(b"data", ours.getsockname())
        run_until(loop, lambda: protocol.lost)
        run_once(loop, 2)
    # The protocol is gone when recvfrom() returns.
    assert [type(report) for report in reports] == [AttributeError] * (method == "recvfrom")
    loop.set_exception_handler(None)


@contextlib.contextmanager
def at_collection(number, action):
    """Call `action` in the garbage collection with this number: up to Python 3.11 any allocation may begin one."""
    count = 0

    def count_collections(phase, info):
        nonlocal count
        count += phase == "start"
        if phase == "start" and count == number:
            with contextlib.suppress(AttributeError):
                action()

    gc.callbacks.append(count_collections)
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1_000_000, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(count_collections)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("way", ["close", "end of file"])
def test_the_end_in_a_garbage_collection(loop, way, debug):
    loop.set_debug(debug)
    loop.set_exception_handler(lambda loop, context: None)  # asyncio's transport goes on without its loop

    async def main(number):
        reading, writing = pipe_files()
        with writing, reading:
            transport, protocol = await loop.connect_read_pipe(Recorder, reading)
            with at_collection(number, lambda: transport._call_connection_lost(None)):
                if way == "close":
                    with contextlib.suppress(AttributeError):
                        transport.close()
                else:
                    writing.close()
                await turns(3)
            if "connection_lost" not in protocol.calls:
                transport._call_connection_lost(None)

    for number in range(1, 12):
        with without_registrations(loop):
            loop.run_until_complete(main(number))


@pytest.mark.only("c", reason="asyncio's transports use their loop, which is None by then")
def test_the_end_in_a_property_of_the_protocol(loop, monkeypatch):
    loop.set_exception_handler(lambda loop, context: None)
    data_received = asyncio.StreamReaderProtocol.data_received

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            _, writer = await asyncio.open_connection(sock=ours)
            transport = writer.transport

            def look_up(protocol):
                if transport._loop is not None:
                    transport._call_connection_lost(None)
                return data_received.__get__(protocol)

            monkeypatch.setattr(asyncio.StreamReaderProtocol, "data_received", property(look_up))
            theirs.send(b"data")
            await until(lambda: transport._loop is None)
            await settle()

    with without_registrations(loop):
        loop.run_until_complete(main())


def test_an_end_before_the_start_whose_waiter_is_done(impl, loop):
    """The waiter's exception is reported although the transport has no loop any more."""
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(type(context["exception"])))
    waiter = loop.create_future()

    class Protocol(Recorder):
        def connection_made(self, transport):
            waiter.set_result(None)
            transport._call_connection_lost(None)

    async def main():
        loop._make_socket_transport(ours, Protocol(), waiter)
        await turns(3)

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, without_registrations(loop):
        loop.run_until_complete(main())
    assert reports[-1] is asyncio.InvalidStateError
    loop.set_exception_handler(None)
