"""Connections come, are read from and end in asyncio's turns, and among other callbacks in asyncio's place.

Each test writes down what happens and in which turn, on asyncio's loop and on the other one. What peers send has
arrived before the turns are counted.
"""

import asyncio
import contextlib
import fcntl
import itertools
import socket
import struct
import termios

import pytest
from support.stream_connections import HAS_UNIX, connected_sockets

KINDS = ["tcp", pytest.param("unix", marks=pytest.mark.skipif(not HAS_UNIX, reason="no Unix sockets here"))]


class Trace:
    """What happens, each with the turn, and the sockets to close in the end."""

    def __init__(self, stack):
        self.loop = asyncio.get_running_loop()
        self.stack = stack
        self.turn = 0
        self.events = []
        self.protocols = []

    def note(self, *what):
        self.events.append((self.turn, *what))

    async def turns(self, count, actions=()):
        """Let `count` turns pass; `actions`: what to do in some of them."""
        for number in range(count):
            self.turn += 1
            if number in actions:
                self.note("action")
                actions[number]()
            await asyncio.sleep(0)

    def started(self, name, awaitable):
        """A task that notes when it begins, and when and how the awaitable ends."""

        async def run():
            self.note("begins", name)
            try:
                result = await awaitable
            except (OSError, asyncio.CancelledError) as error:
                self.note("raises", name, type(error).__name__)
            else:
                self.note("returns", name)
                return result

        return self.loop.create_task(run())

    def protocol(self):
        self.protocols.append(Noting(self, len(self.protocols) + 1))
        return self.protocols[-1]

    def own(self, sock):
        return self.stack.enter_context(contextlib.closing(sock))

    def pair(self, kind):
        return [self.own(sock) for sock in connected_sockets(kind)]

    def listener(self, kind, path):
        """A listening socket."""
        if kind == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(path)
            sock.listen()
        else:
            sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        return self.own(sock)

    def client(self, listener, data):
        """A client whose connection and data the listener's kernel has."""
        client = self.own(socket.socket(listener.family))
        client.connect(listener.getsockname())
        send(client, data)
        return client


class Noting(asyncio.Protocol):
    """Notes its callbacks, and what each of them queues."""

    def __init__(self, trace, name):
        self.trace = trace
        self.name = name
        self.note("made by the factory")

    def note(self, *what):
        self.trace.note(self.name, *what)
        self.trace.loop.call_soon(self.trace.note, self.name, "after", *what)

    def connection_made(self, transport):
        self.transport = transport
        self.note("connection_made")

    def data_received(self, data):
        self.note("data_received", data)

    def eof_received(self):
        self.note("eof_received")

    def connection_lost(self, error):
        self.note("connection_lost", type(error).__name__)


def send(sock, data):
    """Send, and return when the peer's kernel has the data."""
    sock.sendall(data)
    while struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0] and sock.family != socket.AF_UNIX:
        pass


def traced(make_loop, scenario):
    loop = make_loop()

    async def run():
        with contextlib.ExitStack() as stack:
            trace = Trace(stack)
            await scenario(trace)
        return trace.events

    try:
        return loop.run_until_complete(run())
    finally:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture
def happens_as_on_asyncio(impl):
    def compare(scenario):
        expected = traced(asyncio.SelectorEventLoop, scenario)
        assert expected
        assert traced(impl.new_event_loop, scenario) == expected

    return compare


# -- accepting ---------------------------------------------------------------------------------------------------------


async def serve(trace, kind, path):
    listener = trace.listener(kind, path)
    if kind == "unix":
        return listener, await trace.loop.create_unix_server(trace.protocol, sock=listener)
    return listener, await trace.loop.create_server(trace.protocol, sock=listener)


@pytest.fixture
def new_path(tmp_path):
    numbers = itertools.count()
    return lambda: str(tmp_path / f"socket-{next(numbers)}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 6])
def test_connections_that_have_sent_something(happens_as_on_asyncio, kind, count, new_path):
    async def scenario(trace):
        listener, server = await serve(trace, kind, new_path())
        await trace.turns(3)
        for number in range(count):
            trace.client(listener, b"x" * (number % 2))
        await trace.turns(10)
        server.close()

    happens_as_on_asyncio(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_in_each_turn_keeps_its_place(happens_as_on_asyncio, kind, new_path):
    async def scenario(trace):
        def again(number):
            trace.note("callback", number)
            if number < 12:
                trace.loop.call_soon(again, number + 1)

        listener, server = await serve(trace, kind, new_path())
        await trace.turns(3)
        clients = [trace.client(listener, b"hello") for _ in range(2)]
        again(0)
        await trace.turns(6)
        for client in clients:
            send(client, b"more")
        await trace.turns(6)
        server.close()

    happens_as_on_asyncio(scenario)


# asyncio drops a connection whose transport is made after that. Its finalizer fails then since 3.13.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:.*_SelectorTransport:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", range(6))
def test_the_server_is_closed_while_connections_come(happens_as_on_asyncio, kind, when, new_path):
    async def scenario(trace):
        listener, server = await serve(trace, kind, new_path())
        await trace.turns(3)
        for _ in range(3):
            trace.client(listener, b"hello")
        await trace.turns(10, {when: server.close})
        server.close()

    happens_as_on_asyncio(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_that_is_paused_and_resumed(happens_as_on_asyncio, kind):
    async def scenario(trace):
        ours, peer = trace.pair(kind)
        transport, _ = await trace.loop.create_connection(trace.protocol, sock=ours)
        await trace.turns(3)
        transport.pause_reading()
        send(peer, b"hello")
        await trace.turns(3)
        transport.resume_reading()
        trace.loop.call_soon(trace.note, "queued after resume_reading()")
        await trace.turns(4)
        for number in range(2):
            transport.pause_reading()
            await trace.turns(2)
            transport.resume_reading()
            send(peer, b"more")
            await trace.turns(number)
        await trace.turns(3)
        transport.close()
        await trace.turns(4)

    happens_as_on_asyncio(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_one_read_takes(happens_as_on_asyncio, kind):
    """A protocol of 16 bytes at a time: the rest comes after what the first has queued."""

    class Buffered(Noting, asyncio.BufferedProtocol):
        data_received = None

        def connection_made(self, transport):
            super().connection_made(transport)
            self.buffer = bytearray(16)

        def get_buffer(self, hint):
            return self.buffer

        def buffer_updated(self, size):
            self.note("buffer_updated", size)

    async def scenario(trace):
        ours, peer = trace.pair(kind)
        transport, _ = await trace.loop.create_connection(lambda: Buffered(trace, 1), sock=ours)
        await trace.turns(3)
        send(peer, bytes(100))
        await trace.turns(10)
        transport.close()
        await trace.turns(4)

    happens_as_on_asyncio(scenario)


# -- sock_*() and connecting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_socket_methods_that_wait(happens_as_on_asyncio, kind, new_path):
    async def scenario(trace):
        loop = trace.loop
        ours, peer = trace.pair(kind)
        for number in range(3):
            task = trace.started("sock_recv", loop.sock_recv(ours, 10))
            await trace.turns(2)
            send(peer, b"hello")
            loop.call_soon(trace.note, "queued after the data came")
            await trace.turns(2 + number)
            await task
        task = trace.started("sock_recv_into", loop.sock_recv_into(ours, bytearray(10)))
        await trace.turns(2)
        send(peer, b"hello")
        await trace.turns(4)
        await task
        listener = trace.listener(kind, new_path())
        task = trace.started("sock_accept", loop.sock_accept(listener))
        await trace.turns(2)
        trace.client(listener, b"hello")
        await trace.turns(4)
        trace.own((await task)[0])

    happens_as_on_asyncio(scenario)


@pytest.mark.parametrize("when", range(1, 8))
def test_connecting_is_cancelled(happens_as_on_asyncio, when):
    async def scenario(trace):
        listener = trace.listener("tcp", None)
        task = trace.started(
            "create_connection", trace.loop.create_connection(trace.protocol, *listener.getsockname()[:2])
        )
        await trace.turns(12, {when: task.cancel})
        await asyncio.gather(task, return_exceptions=True)
        for protocol in trace.protocols:
            protocol.transport.close()
        await trace.turns(4)

    happens_as_on_asyncio(scenario)


def test_connecting_to_a_port_where_nobody_listens(happens_as_on_asyncio):
    async def scenario(trace):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        task = trace.started("create_connection", trace.loop.create_connection(trace.protocol, *address))
        await trace.turns(8)
        await task

    happens_as_on_asyncio(scenario)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["factory", "eager factory", "method"])
def test_the_program_makes_the_tasks(happens_as_on_asyncio, kind, way, new_path):
    """It also makes those of accepted connections, as it does on asyncio."""
    if way == "eager factory" and not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("eager tasks came with CPython 3.12")

    async def scenario(trace):
        loop = trace.loop
        listener, server = await serve(trace, kind, new_path())
        if way == "factory":

            def make(loop, coro, **options):
                trace.note("factory")
                return asyncio.Task(coro, loop=loop, **options)

            loop.set_task_factory(make)
        elif way == "eager factory":
            loop.set_task_factory(asyncio.eager_task_factory)
        else:
            original = loop.create_task

            def create_task(coro, **options):
                trace.note("create_task")
                return original(coro, **options)

            loop.create_task = create_task
        await trace.turns(3)
        for _ in range(2):
            trace.client(listener, b"hello")
        await trace.turns(8)
        server.close()
        loop.set_task_factory(None)
        if way == "method":
            del loop.create_task

    happens_as_on_asyncio(scenario)
