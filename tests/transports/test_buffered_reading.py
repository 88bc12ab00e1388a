"""Buffered protocols: when get_buffer() is called, what it may do, and what follows a filled buffer."""

import asyncio

import pytest
from support.implementations import load
from support.python_buffers import PythonBuffer, needs_python_buffers
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, assert_only_refused, connections_on

TURNS = 5  # enough for data that is in the kernel already

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


class CountedBuffers(asyncio.BufferedProtocol):
    """Notes each call; `at_get_buffer` is called in get_buffer()."""

    at_get_buffer = None

    def __init__(self):
        self.calls = []
        self.buffer = bytearray(4)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        self.calls.append("get_buffer")
        if self.at_get_buffer:
            self.at_get_buffer()
        return self.buffer

    def buffer_updated(self, count):
        self.calls.append(bytes(self.buffer[:count]))

    def connection_lost(self, error):
        self.calls.append(error)


@every_kind
def test_get_buffer_is_called_only_if_there_is_something_to_read(loop, connections, kind):
    connection = connections.open(kind, CountedBuffers())
    connection.send(b"12345678")
    run_once(loop, 2 * TURNS)
    assert connection.protocol.calls == ["get_buffer", b"1234", "get_buffer", b"5678"]
    connection.transport.abort()
    run_once(loop, TURNS)


@every_kind
@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_get_buffer_that_closes_its_transport_still_gets_the_data(loop, connections, kind, end):
    connection = connections.open(kind, CountedBuffers())
    connection.protocol.at_get_buffer = getattr(connection.transport, end)
    connection.send(b"12345678")
    run_once(loop, 2 * TURNS)
    assert connection.protocol.calls == ["get_buffer", b"1234", None]


@every_kind
@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_get_buffer_that_closes_its_transport_still_gets_the_end(loop, connections, kind, end):
    connection = connections.open(kind, CountedBuffers())
    connection.protocol.at_get_buffer = getattr(connection.transport, end)
    connection.protocol.eof_received = lambda: connection.protocol.calls.append("eof_received")
    connection.end()
    run_once(loop, 2 * TURNS)
    assert connection.protocol.calls == ["get_buffer", "eof_received", None]


@every_kind
@pytest.mark.parametrize("delay", [None, 0, -1])
def test_what_a_filled_buffer_has_queued_runs_before_the_next(impl, kind, delay):
    """A task that the first piece has woken would come too late for the second: its future would be done already."""

    class Queueing(asyncio.BufferedProtocol):
        def __init__(self, loop):
            self.loop = loop
            self.buffer = bytearray(4)
            self.calls = []

        def get_buffer(self, sizehint):
            return self.buffer

        def buffer_updated(self, count):
            self.calls.append(bytes(self.buffer[:count]))
            note = (self.calls.append, ("after", self.calls[-1]))
            self.loop.call_soon(*note) if delay is None else self.loop.call_later(delay, *note)

    def calls_on(implementation):
        loop = implementation.new_event_loop()
        try:
            with connections_on(loop) as connections:
                connection = connections.open(kind, Queueing(loop))
                connection.send(b"".join(b"%4d" % number for number in range(10)))
                run_until(loop, lambda: len(connection.protocol.calls) == 20)
                return connection.protocol.calls
        finally:
            loop.close()

    assert calls_on(impl) == calls_on(load("asyncio"))


@needs_python_buffers
@pytest.mark.only("c", reason="asyncio refuses to enter the context of a callback within itself, and logs that")
@every_kind
def test_more_comes_while_a_buffer_is_given_back(loop, connections, kind):
    """The loop that its method runs is told of it, in the middle of the read before."""

    def send_and_run_the_loop():
        if not released:
            released.append(True)
            connection.send(b"second")
            for _ in range(2):
                loop.call_soon(list)
                loop._run_once()

    class Protocol(CountedBuffers):
        def get_buffer(self, sizehint):
            self.buffer = PythonBuffer(bytearray(100), when_released=send_and_run_the_loop)
            return self.buffer

        def buffer_updated(self, count):
            self.calls.append(bytes(self.buffer.memory[:count]))

    released = []
    connection = connections.open(kind, Protocol())
    connection.send(b"first")
    run_until(loop, lambda: len(connection.protocol.calls) == 2)
    assert sorted(connection.protocol.calls) == [b"first", b"second"]
    assert_only_refused(connections.take_reports())
