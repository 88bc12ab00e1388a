"""Random programs on what becomes of connections that servers accept, on several servers and two loops at once.

test_programs_of_listening.py has the life of one server. Here are servers with several sockets or with one that another
server has, too, servers of streams and of TLS, factories that fail or return what is no protocol, clients that leave or
reset at any point, loops that have no descriptor left, and listening sockets that the program closes itself.

All sockets are Unix sockets: connections and data are there before the system call returns. A client binds its socket,
so that its address tells which one it is, and its connection has a trace of its own, because what one poll reports of
several is in the kernel's order. The clock is the program's own: timeouts end when a step moves it.
"""

import asyncio
import contextlib
import dataclasses
import gc
import os
import resource
import socket
import ssl
import sys
import tempfile
import unittest.mock

import hypothesis
import hypothesis.strategies as st
import pytest
from accepted_protocols import Bare, Buffered, Plain, outline
from playing import StageOfRuns, step
from support.certificates import issued
from support.garbage import without_collector
from support.interpreter import uses_hypothesis
from support.leftovers import open_descriptors
from support.tls_connections import Peer

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    # asyncio drops the connections whose transports it would make after the server was closed.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*_SelectorTransport:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*Server:pytest.PytestUnraisableExceptionWarning"),
    # The StreamWriter of a connection that is left is dropped after its loop.
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have no abstract addresses of Unix sockets"),
]

SERVERS, CLIENTS, SOCKETS = 3, 5, 2
OF_CLIENTS = ("connect", "client_")  # how the names of clients' steps begin
# Until 3.13 asyncio accepts one connection less at once than may wait, with a backlog of 0 none.
BACKLOGS = [0, 1, 100] if sys.version_info >= (3, 14) else [100]


# -- what a program is made of -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Serving:
    method: str
    place: object
    options: tuple = ()
    factory: str = "plain"
    made: str = "nothing"  # what connection_made() does
    other_loop: bool = False


servers = st.integers(0, SERVERS - 1)
clients = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4])
sizes = st.integers(1, 50)
places = st.one_of(
    st.tuples(st.just("path"), servers),
    st.tuples(st.just("socket"), st.integers(0, SOCKETS - 1)),
    st.tuples(st.just("socket"), st.integers(0, SOCKETS - 1)),
    st.tuples(st.just("names"), st.lists(servers, min_size=1, max_size=3).map(tuple), st.integers(0, 3)),
)
options = st.dictionaries(st.sampled_from(["backlog", "start_serving", "ssl"]), st.integers(0, 2), max_size=2).map(
    lambda chosen: tuple(chosen.items())
)
factories = st.sampled_from(
    ["plain"] * 12
    + ["buffered", "bare", "raising", "exiting", "interrupted", "None", "object", "not callable", "shared"]
)
made = st.sampled_from(
    ["nothing"] * 9
    + ["raise", "exit", "interrupt", "close", "abort", "write", "pause", "close server", "close all", "stop", "starve"]
)
callbacks = st.sampled_from(["echo", "echo", "echo", "function", "raising", "leaving", "waiting", "raising function"])
a_server = st.one_of(
    st.builds(Serving, st.just("protocols"), places, options, factories, made, st.booleans()),
    st.builds(Serving, st.just("protocols"), places, options, factories, made, st.just(False)),
    st.builds(Serving, st.just("streams"), places, options, callbacks, st.just("nothing"), st.booleans()),
)
of_server = ["start_serving", "serve_forever", "wait_closed", "close", "close", "close_clients", "abort_clients"]
serving = st.one_of(
    step("serve", a_server),
    step("call", st.tuples(servers, st.sampled_from(of_server))),
    step("call", st.tuples(servers, st.sampled_from(of_server))),
    step("cancel", st.integers(0, 5)),
    step("look", servers),
    step("drop", servers),
    step("close_socket", st.integers(0, SOCKETS - 1)),
    step("starve", st.integers(1, 2)),
    step("move_clock", st.sampled_from([1.5, 1.5, 100.0])),
)
on_transports = st.one_of(
    step("on_transport", st.tuples(clients, st.sampled_from(["close", "abort", "pause_reading", "resume_reading"]))),
    step("write", st.tuples(clients, sizes)),
)
a_client = st.one_of(
    *[step("connect", st.tuples(servers, st.integers(0, 50)))] * 4,
    step("connect_tls", servers),
    step("client_sends", st.tuples(clients, sizes)),
    step("client_ends", clients),
    step("client_closes", clients),
    step("client_resets", clients),
    step("client_reads", clients),
)
parts = st.one_of(
    step("wait", st.integers(1, 3)),
    st.lists(st.one_of(a_client, a_client, a_client, serving, on_transports), min_size=1, max_size=3).map(tuple),
)
first_clients = st.lists(a_client, min_size=1, max_size=3).map(tuple)
programs = st.tuples(
    st.lists(step("serve", a_server), min_size=1, max_size=2).map(tuple),
    step("wait", st.sampled_from([4, 4, 4, 1])),
    first_clients,
    st.lists(parts, min_size=1, max_size=9),
).map(lambda chosen: [*chosen[:3], *chosen[3]])


def without_alert(data):
    """Only hotloop says why a handshake failed."""
    return data.partition(b"\x15\x03")[0]


class AcceptingStage(StageOfRuns):
    turns_to_settle = 8

    def __init__(self, loops, program, stack, *, debug):
        super().__init__(loops[0], program, {})
        self.loops = loops
        self.stack = stack
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotloop"))
        self.now = 1000.0
        for loop in loops:
            loop.time = lambda: self.now
            loop.getaddrinfo = self.getaddrinfo
            loop.set_exception_handler(self.report)
            loop.set_debug(debug)
            loop.slow_callback_duration = 1e9
        self.starved = 0  # turns
        self.interrupted = False
        self.tells_ends = True  # whether it is compared of what connections end
        self.servers = []
        self.tasks = []
        self.clients = []
        self.peers = {}  # the TLS of clients
        self.transports = {}
        self.lost = set()
        self.sockets = [self.listener(f"socket {number}") for number in range(SOCKETS)]
        self.loops_of_sockets = {}
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, self.limits)

    def address(self, name):
        return f"\0{self.folder}/{name}"

    def own(self, sock):
        self.stack.callback(sock.close)
        return sock

    def listener(self, name):
        sock = self.own(socket.socket(socket.AF_UNIX))
        sock.bind(self.address(name))
        return sock

    def report(self, loop, context):
        if context["message"].startswith("Task exception was never retrieved"):  # comes when the task is freed
            return
        if not self.tells_ends and isinstance(context.get("exception"), OSError):
            return
        # asyncio goes on accepting after its wait, whether or not the server was closed meanwhile.
        if "Invalid file descriptor: -1" not in str(context.get("exception")):
            note = "report", self.turn, context["message"][:21], repr(context.get("exception"))
            # Without a descriptor asyncio goes on accepting, and reports each of up to 100 attempts.
            if note not in self.trace:
                self.trace.append(note)

    def note(self, who, *what):
        # asyncio's next run has the events of an interrupted turn twice, and reads twice.
        self.trace.append((who, None if self.interrupted else self.turn, *what))

    # -- turns ---------------------------------------------------------------------------------------------------------

    def play(self):
        self.take_parts()
        self.run_some()
        self.finish()
        return sorted(self.trace, key=lambda note: str(note[0]))  # sorting is stable

    def take_part(self, part):
        # A client acts between two turns: what is written in a turn may leave at its end.
        self.perform_all(one for one in part if one.name.startswith(OF_CLIENTS))
        self.loop.call_soon(self.perform_all, [one for one in part if not one.name.startswith(OF_CLIENTS)])

    def run_once(self):
        self.turn += 1
        for loop in self.loops:
            loop.call_soon(loop.stop)
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                self.note("loop", "raises", type(error).__name__)
                self.interrupted = True
        self.starved -= 1
        if self.starved <= 0:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
        gc.collect()  # asyncio leaves connections without a protocol to it
        for peer in self.peers.values():
            with contextlib.suppress(ssl.SSLError):
                peer.handshake()

    def finish(self):
        for number in range(len(self.clients)):
            self.client_reads(number)
        for number in range(SERVERS):
            self.look(number)
            self.call((number, "close"))
        self.run_some()
        for client in self.clients:
            client.close()
        self.run_some()
        for number, transport in self.transports.items():
            if number not in self.lost:
                self.note(number, "left", transport.is_closing())
                transport.abort()
        self.run_some()
        self.note("tasks", [task.done() for task in self.tasks])
        for task in self.tasks:
            task.cancel()
        self.now += 1000
        self.run_some()
        for number in range(SERVERS):
            self.look(number)
        self.note("sockets", [sock.fileno() == -1 for sock in self.sockets])

    def starve(self, turns):
        """There is no descriptor to be had until that many turns are over."""
        if self.starved > 0:
            return
        lowest = os.dup(0)
        os.close(lowest)
        self.starved = turns
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, self.limits[1]))

    def move_clock(self, seconds):
        self.now += seconds

    # -- making servers ------------------------------------------------------------------------------------------------

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):
        for _ in range(int(host.partition(" ")[0])):
            await asyncio.sleep(0)
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", self.address(host.partition(" ")[2]))]

    def serve(self, serving):
        number = len(self.servers)
        if number == SERVERS:
            return
        self.servers.append(None)
        what, *where = serving.place
        other_loop = serving.other_loop
        options = {}
        for name, choice in serving.options:
            if name == "backlog":
                options["backlog"] = BACKLOGS[choice % len(BACKLOGS)]
            elif name == "start_serving":
                options["start_serving"] = choice > 0
            elif name == "ssl":
                options["ssl"] = issued().server_context()
                options["ssl_handshake_timeout"] = [1, None, 50][choice]
        if what == "path":
            options["path"] = self.address(f"path {where[0]}")
        elif what == "socket":
            options["sock"] = self.sockets[where[0]]
            # When one loop closes it, another of asyncio's takes the next file of its number for it, and never serves.
            other_loop = self.loops_of_sockets.setdefault(where[0], other_loop)
        else:
            names, turns = where
            options |= {"host": [f"{turns} name {name}" for name in names], "port": 0}
        loop = self.loops[other_loop]
        make = getattr(self, f"make_{serving.method}")(number, serving, loop, options)
        self.tasks.append(loop.create_task(self.keep(number, make)))

    async def keep(self, number, making):
        try:
            self.servers[number] = server = await making
        except BaseException as error:
            self.note(f"server {number}", "not made", type(error).__name__, getattr(error, "errno", None))
        else:
            self.note(f"server {number}", "made", len(server.sockets), server.is_serving())

    def make_protocols(self, number, serving, loop, options):
        make = loop.create_unix_server if "path" in options else loop.create_server
        return make(self.factory(number, serving), **options)

    def make_streams(self, number, serving, loop, options):
        make = asyncio.start_unix_server if "path" in options else asyncio.start_server
        return make(self.connected_callback(number, serving.factory), **options)

    def factory(self, server, serving):
        kind = serving.factory
        encrypted = any(name == "ssl" for name, _ in serving.options)
        if kind in ("None", "object") and (encrypted or sys.version_info < (3, 13)):
            # asyncio goes on waiting for the handshake until a collection, and until 3.12 wait_closed() goes on waiting
            # for any such connection.
            kind = "plain"
        if kind == "not callable":
            return 5
        shared = Plain(self, serving.made, server)

        def make():
            self.note(f"server {server}", "factory")
            if kind == "raising":
                raise ZeroDivisionError
            elif kind == "exiting":
                raise SystemExit
            elif kind == "interrupted":
                raise KeyboardInterrupt
            elif kind in ("None", "object"):
                return None if kind == "None" else object()
            elif kind == "shared":
                return shared
            return {"buffered": Buffered, "bare": Bare}.get(kind, Plain)(self, serving.made, server)

        return make

    def connected_callback(self, server, kind):
        def function(reader, writer):
            number = self.connection(writer.transport)
            self.transports[number] = writer.transport
            self.note(number, "connected", *self.extra_of(writer.transport))
            if kind == "raising function":
                raise ZeroDivisionError
            return number

        async def coroutine(reader, writer):
            number = function(reader, writer)
            try:
                await getattr(self, f"serve_{kind}")(number, reader, writer)
            except BaseException as error:
                self.note(number, "raises", type(error).__name__)
                raise
            finally:
                self.note(number, "ends")

        return function if kind in ("function", "raising function") else coroutine

    async def serve_echo(self, number, reader, writer):
        while data := await reader.read(100):
            self.note(number, "data", outline(data))
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def serve_raising(self, number, reader, writer):
        await reader.read(1)
        raise ZeroDivisionError

    async def serve_leaving(self, number, reader, writer):
        writer.write(b"leaving")
        await writer.drain()

    async def serve_waiting(self, number, reader, writer):
        await reader.readexactly(10_000)

    def connection(self, transport):
        """The number of the client at the other end."""
        return int(transport.get_extra_info("peername").rpartition(b" ")[2])

    def extra_of(self, transport):
        names = ("sockname", "socket", "cipher", "sslcontext", "ssl_object", "compression")
        return [transport.get_extra_info(name) is not None for name in names]

    # -- the servers' user ---------------------------------------------------------------------------------------------

    def server(self, number):
        return self.servers[number] if number < len(self.servers) else None

    def call(self, what):
        """A method of a server; a coroutine becomes a task."""
        number, name = what
        server = self.server(number)
        if server is None or not hasattr(server, name):
            return
        try:
            result = getattr(server, name)()
        except Exception as error:
            self.note(f"server {number}", name, type(error).__name__)
            return
        if asyncio.iscoroutine(result):
            loop = server.get_loop()
            self.tasks.append(loop.create_task(self.finished(number, name, result)))

    async def finished(self, number, name, coroutine):
        try:
            await coroutine
        except BaseException as error:
            self.note(f"server {number}", name, "raises", type(error).__name__)
        else:
            self.note(f"server {number}", name, "returns")

    def cancel(self, number):
        if number < len(self.tasks):
            self.tasks[-1 - number].cancel()

    def look(self, number):
        server = self.server(number)
        if server is not None:
            self.note(f"server {number}", server.is_serving(), len(server.sockets))

    def drop(self, number):
        """The program forgets the server, which goes on."""
        if number < len(self.servers):
            self.servers[number] = None

    def close_socket(self, number):
        """Close a listening socket itself. asyncio goes on with its number, so no other socket gets it."""
        sock = self.sockets[number]
        if sock.fileno() != -1:
            descriptor = sock.fileno()
            sock.close()
            os.dup2(0, descriptor)
            self.stack.callback(os.close, descriptor)

    def on_transport(self, what):
        number, method = what
        if number not in self.transports or number in self.lost:
            return
        # asyncio's TLS fails to pause what has ended.
        if not (number in self.peers and self.transports[number].is_closing()):
            getattr(self.transports[number], method)()

    def write(self, what):
        number, size = what
        # hotloop's write() finds only at the end of the turn, after what can be read, that the client has left.
        if number in self.transports and number not in self.lost and self.clients[number].fileno() != -1:
            self.transports[number].write(bytes(size))

    # -- clients -------------------------------------------------------------------------------------------------------

    def new_client(self, number):
        serving = [server for server in self.servers if server is not None and server.sockets]
        if not serving or len(self.clients) == CLIENTS:
            return None
        server = serving[number % len(serving)]
        listener = server.sockets[len(self.clients) % len(server.sockets)]
        client = self.own(socket.socket(socket.AF_UNIX))
        client.bind(self.address(f"client {len(self.clients)}"))
        client.setblocking(False)
        self.clients.append(client)
        try:
            client.connect(listener.getsockname())
        except OSError as error:
            self.note(len(self.clients) - 1, "not connected", error.errno)
            return None
        return client

    def connect(self, what):
        number, size = what
        client = self.new_client(number)
        if client is not None:
            client.send(bytes(size))

    def connect_tls(self, number):
        client = self.new_client(number)
        if client is not None:
            self.peers[len(self.clients) - 1] = peer = Peer(client, issued().client_context(), "client")
            peer.handshake()

    def client_sends(self, what):
        number, size = what
        with contextlib.suppress(OSError):
            if number in self.peers:
                if self.peers[number].handshake_complete:
                    self.peers[number].attempt(self.peers[number].tls.write, bytes(size))
            elif number < len(self.clients):
                self.clients[number].send(bytes(size))

    def client_ends(self, number):
        if number < len(self.clients):
            with contextlib.suppress(OSError):
                self.clients[number].shutdown(socket.SHUT_WR)

    def client_closes(self, number):
        if number < len(self.clients):
            with contextlib.suppress(OSError):  # what has not been read would turn the close into a reset
                while self.clients[number].recv(10_000):
                    pass
            self.clients[number].close()

    def client_resets(self, number):
        if number < len(self.clients):
            self.clients[number].close()

    def client_reads(self, number):
        if number < len(self.clients) and self.clients[number].fileno() != -1:
            if number in self.peers:
                peer = self.peers[number]
                if peer.handshake_complete:
                    with contextlib.suppress(ssl.SSLError):
                        peer.read()
                self.note(number, "got", peer.handshake_complete, bytes(peer.received), peer.saw_end)
            elif number in self.transports:  # until a collection asyncio keeps a connection whose factory has failed
                try:
                    data = without_alert(self.clients[number].recv(10_000))
                except OSError as error:
                    data = error.errno
                self.note(number, "got", data)


def is_closing(transport):
    """That of asyncio's TLS since Python 3.14, and of hotloop's on every version (docs/differences.md)."""
    below = transport._ssl_protocol and transport._ssl_protocol._transport
    return transport._closed or bool(below and below.is_closing())


def traced(implementation, program, options):
    with contextlib.ExitStack() as stack:
        stack.enter_context(unittest.mock.patch("asyncio.sslproto._SSLProtocolTransport.is_closing", is_closing))
        loops = [stack.enter_context(contextlib.closing(implementation.new_event_loop())) for _ in range(2)]
        return AcceptingStage(loops, program, stack, **options).play()


def played(implementation, program, **options):
    """The trace of a program, and how many descriptors are left."""
    gc.freeze()  # so that a collection looks at the program's objects alone
    before = open_descriptors()
    with without_collector():  # only between turns, so that the same descriptors are free
        trace = traced(implementation, program, options)
    gc.collect()
    return trace, len(open_descriptors().keys() - before.keys())


@hypothesis.given(program=programs, debug=st.sampled_from([False, False, False, True]))
def test_any_program_of_accepting_is_asyncios(load_implementation, impl, asyncio_log, program, debug):
    actual = played(impl, program, debug=debug)
    expected = played(load_implementation("asyncio"), program, debug=debug)
    asyncio_log.take()
    assert actual == expected
