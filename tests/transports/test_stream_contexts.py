"""P27: the context that a transport's callbacks run in."""

import asyncio
import contextvars
import sys

import pytest
from support.recording import RECORDERS, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import MORE_THAN_FITS, connected_sockets, skip_on_asyncio

origin = contextvars.ContextVar("origin", default="unset")

# python/cpython#140947, in 3.15, gave servers a context that their connections keep.
NOT_KEPT = "its callbacks run in the context of the last resume_reading() or write()"


class Connected:
    """A connection made by a task in whose context `origin` is "maker", and the values that its callbacks found."""

    def __init__(self, loop, make_protocol):
        self.loop = loop
        self.found = {}
        self.protocol = protocol = make_protocol()
        for name in ("connection_made", "eof_received", "connection_lost", "pause_writing", "resume_writing"):
            protocol.hooks[name] = lambda name=name: self.look(name)
        when_data_comes(protocol, lambda: self.look("data"))
        protocol.hooks["get_buffer"] = lambda: self.look("get_buffer") or protocol.buffer
        ours, self.peer = connected_sockets("tcp")

        async def connect():
            origin.set("maker")
            transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
            return transport

        self.transport = loop.run_until_complete(connect())

    def look(self, name):
        self.found.setdefault(name, []).append(origin.get())

    def receive(self, data=b"data"):
        before = len(self.protocol.received)
        self.peer.send(data)
        run_until(self.loop, lambda: len(self.protocol.received) == before + len(data))

    def run_as(self, name, function, *arguments):
        """Call `function` from a task in whose context `origin` is `name`."""

        async def call():
            origin.set(name)
            function(*arguments)

        self.loop.run_until_complete(call())

    def drain(self):
        """Have the peer read until the transport has nothing left to write."""

        def drained():
            try:
                while self.peer.recv(1 << 20):
                    pass
            except BlockingIOError:
                pass
            return self.transport.get_write_buffer_size() == 0

        run_until(self.loop, drained)


@pytest.fixture
def connect(loop):
    opened = []

    def connect(make_protocol):
        opened.append(Connected(loop, make_protocol))
        return opened[-1]

    yield connect
    for connected in opened:
        if not connected.protocol.lost:
            connected.transport.abort()
        connected.peer.close()
        run_until(loop, lambda connected=connected: connected.protocol.lost)


every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)


@pytest.mark.promise("P27")
@every_protocol
def test_the_context_in_which_the_transport_was_made(connect, make_protocol):
    connected = connect(make_protocol)
    connected.receive()
    connected.receive()
    connected.peer.close()
    run_until(connected.loop, lambda: connected.protocol.lost)
    assert set(connected.found) - {"get_buffer"} == {"connection_made", "data", "eof_received", "connection_lost"}
    assert {name for found in connected.found.values() for name in found} == {"maker"}


@pytest.mark.promise("P27")
@every_protocol
def test_after_pause_and_resume_from_a_task(connect, make_protocol):
    connected = connect(make_protocol)
    if sys.version_info < (3, 15):
        skip_on_asyncio(connected.transport, NOT_KEPT)
    connected.transport.pause_reading()
    connected.run_as("another", connected.transport.resume_reading)
    connected.receive()
    connected.peer.close()
    run_until(connected.loop, lambda: connected.protocol.lost)
    assert {name for found in connected.found.values() for name in found} == {"maker"}


@pytest.mark.promise("P27")
def test_resume_writing(connect):
    """write() calls pause_writing(), so it runs in the writer's context; resume_writing() runs in the maker's."""
    connected = connect(RECORDERS[0])
    if sys.version_info < (3, 15):
        skip_on_asyncio(connected.transport, NOT_KEPT)
    connected.run_as("another", connected.transport.write, bytes(MORE_THAN_FITS))
    connected.drain()
    assert (connected.found["pause_writing"], connected.found["resume_writing"]) == (["another"], ["maker"])


def test_pause_writing_runs_where_write_was_called(connect):
    connected = connect(RECORDERS[0])
    connected.run_as("another", connected.transport.write, bytes(MORE_THAN_FITS))
    assert connected.found["pause_writing"] == ["another"]
    connected.drain()


@pytest.mark.promise("P27")
@pytest.mark.parametrize("how", ["close", "abort"])
def test_connection_lost(connect, how):
    connected = connect(RECORDERS[0])
    if sys.version_info < (3, 15):
        skip_on_asyncio(connected.transport, "connection_lost() runs in the context of the close() call")
    connected.run_as("another", getattr(connected.transport, how))
    run_until(connected.loop, lambda: connected.protocol.lost)
    assert connected.found["connection_lost"] == ["maker"]


@every_protocol
def test_what_one_read_sets_the_next_one_sees(connect, make_protocol):
    """All reads share one context, with no fresh copy for each; code outside does not see its changes."""
    connected = connect(make_protocol)
    numbers = contextvars.ContextVar("numbers", default=0)
    seen = []

    def count():
        seen.append(numbers.get())
        numbers.set(numbers.get() + 1)

    when_data_comes(connected.protocol, count)
    for _ in range(3):
        connected.receive()
    assert seen == [0, 1, 2]
    assert numbers.get() == 0


def test_contexts_of_two_connections_do_not_mix(connect):
    one, other = connect(RECORDERS[0]), connect(RECORDERS[0])
    when_data_comes(one.protocol, lambda: origin.set("one"))
    one.receive()
    other.receive()
    assert other.found["data"] == ["maker"]


@pytest.mark.promise("P27")
def test_accepted_connections(loop):
    """Their callbacks run in a copy of the context that the server was made in."""
    found = []
    made = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            found.append(origin.get())
            made.append(transport)

        def data_received(self, data):
            found.append(origin.get())

        def connection_lost(self, error):
            found.append(origin.get())
            made.append("lost")

    async def serve():
        origin.set("server")
        return await loop.create_server(Protocol, "127.0.0.1", 0)

    async def connect(address):
        origin.set("client")
        return await loop.create_connection(asyncio.Protocol, *address)

    server = loop.run_until_complete(serve())
    client, _ = loop.run_until_complete(connect(server.sockets[0].getsockname()))
    run_until(loop, lambda: made)
    client.write(b"data")
    run_until(loop, lambda: len(found) == 2)
    client.close()
    run_until(loop, lambda: "lost" in made)
    server.close()
    loop.run_until_complete(server.wait_closed())
    run_once(loop)
    assert found == ["server"] * 3
