"""Random programs on a server and its clients: connections come, are read from and end in asyncio's turns.

The connections are TCP, which the compiled loop watches edge-triggered, so it has to remember what it has not read. A
step of a client returns when the kernel has delivered it, even on a loaded machine. What callbacks queue is part of the
trace, so a read that comes too early or too late shows by its place.

Each connection has a trace of its own, because what one poll reports of several is in the kernel's order. That is
another one for a level-triggered socket that was reported before.
"""

import asyncio
import contextlib
import socket
import struct
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from destinations import deliver, end_sending
from playing import Stage, Step, counted, step, traced
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    # asyncio drops the connections whose transports it would make after the server was closed. Since 3.13 their
    # finalizers fail then.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*_SelectorTransport:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="tcp(7): other systems do not say what they have delivered"),
]

BUFFER = 40  # bytes that a buffered protocol takes at once

connections = st.integers(0, 3)
own = st.one_of(
    step("write", st.tuples(connections, st.integers(0, 100))),
    step("pause_reading", connections),
    step("resume_reading", connections),
    step("resume_reading", connections),
    step("queue", connections),
    step("set_protocol", connections),
    step("look", connections),
)
ends = st.one_of(
    step("write_eof", connections), step("close", connections), step("abort", connections), step("close_server")
)
clients = st.one_of(
    step("connect", st.integers(0, 100)),
    step("connect", st.integers(0, 100)),
    step("send", st.tuples(connections, st.integers(1, 200))),
    step("send", st.tuples(connections, st.integers(1, 200))),
    step("shut_down", connections),
)
turns = st.one_of(
    step("wait", st.integers(1, 5)),
    st.lists(st.one_of(clients, clients, clients, own, own, ends), min_size=1, max_size=4).map(tuple),
)
programs = st.lists(turns, min_size=2, max_size=12).map(lambda parts: [(Step("connect", 10),), *parts])
reactions = st.dictionaries(
    st.sampled_from(["made", "data", "eof"]),
    st.lists(st.one_of(own, own, ends), min_size=1, max_size=2).map(tuple),
    max_size=2,
)


class Protocol:
    """The common part of both kinds of protocols."""

    def __init__(self, stage):
        self.stage = stage
        self.number = len(stage.transports)
        stage.transports.append(None)
        stage.note("factory", self.number)

    def happened(self, name, *arguments):
        self.stage.loop.call_soon(self.stage.note, "after", self.number, name)
        self.stage.note(name, self.number, *arguments)
        if self.number not in self.stage.reacted_to:
            self.stage.reacted_to.add(self.number)
            for one in self.stage.reactions.get(name, ()):
                self.stage.perform(Step(one.name, on_connection(one.argument, self.number)))

    def connection_made(self, transport):
        self.stage.transports[self.number] = transport
        self.happened("made")

    def eof_received(self):
        self.happened("eof")
        return self.stage.keep_open

    def connection_lost(self, error):
        self.stage.lost.add(self.number)
        self.happened("lost", type(error).__name__)


def on_connection(argument, number):
    """The step's argument, with another connection's number in it."""
    return (number, argument[1]) if isinstance(argument, tuple) else argument if argument is None else number


class Streaming(Protocol, asyncio.Protocol):
    def data_received(self, data):
        self.happened("data", bytes(data))


class Buffered(Protocol, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint):
        self.buffer = bytearray(BUFFER)
        return self.buffer

    def buffer_updated(self, nbytes):
        self.happened("data", bytes(self.buffer[:nbytes]))


class ServerStage(Stage):
    def __init__(self, loop, program, reactions, *, buffered, keep_open):
        super().__init__(loop, program, reactions)
        self.keep_open = keep_open
        self.kind = Buffered if buffered else Streaming
        self.transports = []
        self.reacted_to = set()  # a connection reacts once, so that the others' order does not matter
        self.lost = set()
        self.clients = []
        self.sent = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listening = loop.create_task(loop.create_server(lambda: self.kind(self), sock=self.listener))

    def begun(self):
        return self.listening.done()

    def finish(self):
        self.close_server()
        for _ in range(20):
            self.run_once()
        for number, transport in enumerate(self.transports):
            if transport is not None and number not in self.lost:
                transport.abort()
        for _ in range(20):
            self.run_once()
        for client in self.clients:
            client.close()
        # Sorting is stable.
        self.trace = sorted((note for note in self.trace if note != "finish"), key=lambda note: str(note[2:3]))

    # -- the transports' user ------------------------------------------------------------------------------------------

    def transport(self, number):
        return self.transports[number] if number < len(self.transports) else None

    def on_transport(self, number, method, *arguments):
        transport = self.transport(number)
        if transport is not None and number not in self.lost:
            getattr(transport, method)(*arguments)

    def write(self, what):
        number, size = what
        self.on_transport(number, "write", bytes(size))

    def write_eof(self, number):
        self.on_transport(number, "write_eof")

    def pause_reading(self, number):
        self.on_transport(number, "pause_reading")

    def resume_reading(self, number):
        self.on_transport(number, "resume_reading")

    def close(self, number):
        self.on_transport(number, "close")

    def abort(self, number):
        self.on_transport(number, "abort")

    def set_protocol(self, number):
        """One of the other kind, with the same number."""
        transport = self.transport(number)
        if transport is not None and number not in self.lost:
            kind = Streaming if isinstance(transport.get_protocol(), Buffered) else Buffered
            protocol = kind.__new__(kind)
            protocol.stage = self
            protocol.number = number
            transport.set_protocol(protocol)

    def look(self, number):
        transport = self.transport(number)
        if transport is not None:
            self.note("state", number, transport.is_closing(), transport.is_reading())

    def queue(self, number):
        self.loop.call_soon(self.note, "queued", number)

    def close_server(self):
        self.listening.result().close()

    # -- the clients ---------------------------------------------------------------------------------------------------

    def connect(self, size):
        waiting = self.waiting_connections()
        if waiting is None or len(self.clients) == 4:
            return
        client = socket.create_connection(self.listener.getsockname())
        self.clients.append(client)
        self.sent.append(0)
        while self.waiting_connections() == waiting:
            pass
        if size:
            self.send((len(self.clients) - 1, size))

    def waiting_connections(self):
        """How many connections wait to be accepted: tcpi_unacked. None: the listening socket is closed."""
        if self.listener.fileno() == -1:
            return None
        return struct.unpack_from("I", self.listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)[0]

    def send(self, what):
        number, size = what
        if number < len(self.clients):
            client = self.clients[number]
            with contextlib.suppress(ConnectionError):
                client.sendall(counted(self.sent[number], size, 251))
                self.sent[number] += size
                deliver(client)

    def shut_down(self, number):
        if number < len(self.clients):
            end_sending(self.clients[number])


@hypothesis.given(program=programs, reactions=reactions, buffered=st.booleans(), keep_open=st.booleans())
def test_any_program_of_a_server_is_asyncios(
    load_implementation, impl, asyncio_log, program, reactions, buffered, keep_open
):
    options = {"buffered": buffered, "keep_open": keep_open}
    actual = traced(impl, ServerStage, program, reactions, **options)
    expected = traced(load_implementation("asyncio"), ServerStage, program, reactions, **options)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert actual == expected
