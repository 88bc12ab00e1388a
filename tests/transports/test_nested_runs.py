"""Callbacks of a protocol that run the loop, as packages such as nest_asyncio do: what happens meanwhile on the same
connection is not lost."""

import asyncio
import contextlib
import os
import select
import sys

import pytest
from support.endpoints import datagram_sockets, fill_pipe, pipe_files, reports_of
from support.recording import RECORDERS, DatagramRecorder, Recorder, when_data_comes
from support.stepping import run_once, turns_until
from support.stream_connections import (
    KINDS,
    MORE_THAN_FITS,
    assert_only_refused,
    called_within_itself,
    connected_sockets,
    connections_on,
    sockets_of,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


@pytest.fixture(autouse=True)
def refusals(asyncio_log, loop):
    """Since 3.12 asyncio calls the exception handler in the context of the handle that failed: it is refused, too."""
    yield
    for message in asyncio_log.take():
        assert message.startswith("Unhandled error in exception handler") and "cannot enter context" in message


def run_nested(loop, happened=lambda: False):
    for _ in range(5):
        if not happened():
            loop._run_once()


def run_handles(loop):
    """nest_asyncio's replacement of _run_once(), without timers."""
    for _ in range(5):
        loop._process_events(loop._selector.select(0))
        for _ in range(len(loop._ready)):
            if not loop._ready:
                break
            handle = loop._ready.popleft()
            if not handle._cancelled:
                handle._run()


ways = pytest.mark.parametrize("run", [run_nested, run_handles])


@called_within_itself
@every_kind
@pytest.mark.parametrize("make_protocol", RECORDERS)
def test_data_that_comes_while_resume_writing_runs_the_loop(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    protocol = connection.protocol
    connection.fill()
    within = []

    def resumed():
        connection.send(b"data")
        run_nested(loop)
        within.append(bytes(protocol.received))

    def read_until_resumed():
        connection.peer_read(1 << 20)
        return within

    protocol.hooks["resume_writing"] = resumed
    turns_until(loop, read_until_resumed)
    assert within == [b"data"]
    connection.send(b" and more")
    turns_until(loop, lambda: protocol.received == b"data and more")
    assert_only_refused(connections.take_reports())


@ways
@every_kind
@pytest.mark.parametrize("make_protocol", RECORDERS)
def test_data_that_comes_while_data_received_runs_the_loop(loop, connections, kind, make_protocol, run):
    """It comes when that has returned."""
    connection = connections.open(kind, make_protocol())
    protocol = connection.protocol

    def received():
        protocol.hooks.clear()
        connection.send(b"second")
        run(loop)
        assert protocol.received == b"first "

    when_data_comes(protocol, received)
    connection.send(b"first ")
    turns_until(loop, lambda: protocol.received == b"first second")
    assert_only_refused(connections.take_reports())


@called_within_itself
@pytest.mark.only("c", "python", reason="asyncio's iteration fails on the emptied queue")
@every_kind
@pytest.mark.parametrize("make_protocol", RECORDERS)
def test_a_write_buffer_is_sent_while_data_received_runs_the_loop(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    protocol = connection.protocol
    left = []

    def received():
        protocol.hooks.clear()
        while connection.transport.get_write_buffer_size():
            connection.peer_read(1 << 20)
            loop._run_once()
        left.append(connection.transport.get_write_buffer_size())

    connection.fill()
    when_data_comes(protocol, received)
    connection.send(b"data")
    turns_until(loop, lambda: left)
    assert left == [0]


@called_within_itself
@every_kind
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("method", ["close", "abort"])
def test_a_connection_is_lost_while_data_received_runs_the_loop(loop, connections, kind, method, debug):
    connection = connections.open(kind)
    protocol = connection.protocol
    within = []

    def received():
        getattr(connection.transport, method)()
        run_nested(loop)
        within.append(protocol.lost)

    protocol.hooks["data_received"] = received
    connection.send(b"data")
    loop.set_debug(debug)
    turns_until(loop, lambda: within)
    assert within == [True]
    assert connection.receive_all() == b""


@called_within_itself
@pytest.mark.only("c", "python", reason="asyncio's iteration fails on the emptied queue")
@every_kind
def test_a_connection_begins_while_connection_made_runs_the_loop(loop, connections, kind):
    protocol = Recorder()
    within = []

    def made():
        run_nested(loop)
        within.append(bytes(protocol.received))

    protocol.hooks["connection_made"] = made
    ours, peer = sockets_of(loop) if kind == "tcp" else connected_sockets(kind)
    peer.send(b"data")
    connections.over(ours, peer, protocol)
    assert within == [b"data"]
    peer.send(b" and more")
    turns_until(loop, lambda: protocol.received == b"data and more")


@ways
def test_datagrams_that_come_while_datagram_received_runs_the_loop(loop, run):
    ours, peer = datagram_sockets()
    protocol = DatagramRecorder()
    address = ours.getsockname()
    with reports_of(loop) as reports, peer:
        transport, _ = loop.run_until_complete(loop.create_datagram_endpoint(lambda: protocol, sock=ours))

        def received():
            protocol.hooks.clear()
            peer.sendto(b"second", address)
            run(loop)

        protocol.hooks["datagram_received"] = received
        peer.sendto(b"first", address)
        turns_until(loop, lambda: protocol.received == [b"first", b"second"])
        transport.abort()
        turns_until(loop, lambda: protocol.lost)
    assert_only_refused(reports)


@pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")
@ways
def test_a_pipe_ends_while_its_protocol_runs_the_loop(loop, run):
    reading, writing = pipe_files()
    protocol = Recorder()
    with reports_of(loop) as reports:
        loop.run_until_complete(loop.connect_read_pipe(lambda: protocol, reading))

        def received():
            protocol.hooks.clear()
            writing.close()
            run(loop)

        protocol.hooks["data_received"] = received
        os.write(writing.fileno(), b"data")
        turns_until(loop, lambda: protocol.lost)
    assert protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert_only_refused(reports)


@pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no pipes on Windows")
@pytest.mark.only("c", "python", reason="asyncio's transport calls a method of its loop, which it has left by then")
def test_a_reader_goes_while_resume_writing_runs_the_loop(loop):
    reading, writing = pipe_files()
    protocol = Recorder()
    with reports_of(loop) as reports:
        transport, _ = loop.run_until_complete(loop.connect_write_pipe(lambda: protocol, writing))
        fill_pipe(transport)
        transport.write(b"x" * 200_000)

        def resumed():
            reading.close()
            run_nested(loop)

        protocol.hooks["resume_writing"] = resumed
        os.set_blocking(reading.fileno(), False)
        while not protocol.lost:
            if not reading.closed:
                reading.read(1 << 20)
            run_once(loop)
    assert_only_refused(reports)


def test_a_task_of_a_connection_that_runs_the_loop(loop, connections):
    """What a StreamReader gets in a nested run from a task, in whose context no transport runs."""
    connection = connections.open("tcp")

    async def main():
        connection.send(b"data")
        current = asyncio.current_task(loop)
        asyncio.tasks._leave_task(loop, current)
        try:
            run_nested(loop, lambda: connection.protocol.received)
        finally:
            asyncio.tasks._enter_task(loop, current)

    loop.run_until_complete(main())
    assert connection.protocol.received == b"data"


def test_a_poll_in_resume_writing_reports_new_data(loop):
    """Reading and writing are reported at once, and the poll in the callback reports only reading, by an edge."""

    class Filling(asyncio.Protocol):
        received = b""
        polled = False

        def data_received(self, data):
            self.received += data

        def resume_writing(self):
            if self.polled:
                return
            self.polled = True
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(number, bytes(10_000))
            peer.sendall(b"hello")
            select.select([number], [], [])
            loop._process_events(loop._selector.select(0))

    async def main():
        transport, protocol = await loop.create_connection(Filling, sock=ours)
        transport.set_write_buffer_limits(high=0)
        transport.write(bytes(MORE_THAN_FITS))
        await asyncio.sleep(0)
        while not protocol.polled:
            # The kernel has room again, and there is something to read, before the loop polls.
            with contextlib.suppress(BlockingIOError):
                while peer.recv(1 << 20):
                    pass
            peer.sendall(b"x")
            select.select([number], [], [])
            await asyncio.sleep(0)
        while not protocol.received.endswith(b"hello"):
            await asyncio.sleep(0)
        transport.abort()
        await asyncio.sleep(0)

    ours, peer = connected_sockets("tcp")
    number = ours.fileno()
    peer.setblocking(False)
    with peer:
        loop.run_until_complete(main())
