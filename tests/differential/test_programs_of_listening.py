"""Random programs on the life of servers: how they are made, serve, are waited for and end, while clients come and go.

A server is made for TCP or for a Unix path, with addresses and sockets of every kind, also those that cannot be; then a
program calls the methods of asyncio.Server in any order. Clients connect to Unix servers alone: data and connections
are there before the system call returns. Everything is compared turn by turn, and what is left of paths, sockets,
descriptors and tasks at the end.
"""

import asyncio
import contextlib
import gc
import os
import socket
import sys
import tempfile

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import StageOfRuns, Step, step
from support.interpreter import uses_hypothesis
from support.leftovers import open_descriptors

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    # asyncio drops the connections whose transports it would make after the server was closed.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*_SelectorTransport:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*Server:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have other rules for taken addresses"),
]

CLIENTS = 4
CLIENT_STEPS = ["connect", "client_sends", "client_closes"]
# Until 3.13 asyncio accepts one connection less at once than may wait, with a backlog of 0 none.
BACKLOGS = [0, 1, 100] if sys.version_info >= (3, 14) else [100]
SINCE_3_13 = sys.version_info >= (3, 13)

clients = st.integers(0, CLIENTS - 1)
unix_places = st.sampled_from(["path", "path", "path", "abstract", "stale", "file", "no folder", "socket", "closed"])
tcp_places = st.sampled_from(
    ["any port", "two hosts", "taken", "taken second", "socket", "closed", "datagram", "none", "both"]
)
options = st.fixed_dictionaries(
    {},
    optional={
        "backlog": st.sampled_from(BACKLOGS),
        "start_serving": st.just(False),
        "cleanup_socket": st.booleans(),
        "reuse_port": st.just(True),
        "keep_alive": st.just(True),
        "ssl_handshake_timeout": st.just(5),
    },
).map(lambda chosen: tuple(chosen.items()))
protocols = st.sampled_from(["plain"] * 5 + ["raising", "exiting", "close", "abort", "write", "raise", "close server"])
made = st.one_of(
    st.tuples(st.just("unix"), unix_places, options, protocols),
    st.tuples(st.just("unix"), st.just("path"), st.just(()), protocols),
    st.tuples(st.just("tcp"), tcp_places, options, protocols),
)
of_server = ["start_serving", "serve_forever", "wait_closed", "wait_closed", "close", "close_clients", "abort_clients"]
steps = st.one_of(
    step("call", st.sampled_from([*of_server, "enter", "leave"])),
    step("call", st.sampled_from(of_server)),
    step("cancel"),
    step("look"),
    step("connect", st.integers(0, 50)),
    step("connect", st.integers(0, 50)),
    step("client_sends", st.tuples(clients, st.integers(1, 50))),
    step("client_closes", clients),
    step("close_transport", clients),
    step("remove_path"),
)
parts = st.one_of(step("wait", st.integers(1, 3)), st.lists(steps, min_size=1, max_size=3).map(tuple))
programs = st.tuples(made, st.lists(parts, max_size=9)).map(lambda both: [(Step("make", both[0]),), *both[1]])


class Protocol(asyncio.Protocol):
    def __init__(self, stage, made):
        self.stage = stage
        self.made = made
        self.number = len(stage.protocols)
        stage.protocols.append(self)
        self.transport = None
        self.lost = False

    def connection_made(self, transport):
        self.transport = transport
        self.stage.note("connection_made", self.number)
        if self.made == "raise":
            raise ZeroDivisionError
        elif self.made in ("close", "abort"):
            getattr(transport, self.made)()
        elif self.made == "write":
            transport.write(b"made")
        elif self.made == "close server" and self.stage.server is not None:
            self.stage.server.close()

    def data_received(self, data):
        self.stage.note("data", self.number, bytes(data))

    def eof_received(self):
        self.stage.note("eof_received", self.number)

    def connection_lost(self, error):
        self.lost = True
        self.stage.note("connection_lost", self.number, type(error).__name__)


class ListeningStage(StageOfRuns):
    def __init__(self, loop, program, stack):
        super().__init__(loop, program, {})
        self.stack = stack
        self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotloop"))
        self.path = None
        self.server = None
        self.tasks = []
        self.protocols = []
        self.clients = []
        self.sockets = []  # of the program's own

    def report(self, loop, context):
        if not context["message"].startswith("Task exception was never retrieved"):  # comes when the task is freed
            self.note("reported", context["message"][:21], repr(context.get("exception")))

    # -- turns ---------------------------------------------------------------------------------------------------------

    def play(self):
        self.take_parts()
        self.run_some()
        self.finish()
        # What comes in one turn may be in any order: the server has its connections in a set.
        return sorted(self.trace, key=lambda note: (note[0], repr(note)))

    def take_part(self, part):
        # A client acts between two turns: what is written in a turn may leave at its end.
        self.perform_all(one for one in part if one.name in CLIENT_STEPS)
        super().take_part([one for one in part if one.name not in CLIENT_STEPS])

    def run_once(self):
        try:
            super().run_once()
        except (SystemExit, KeyboardInterrupt) as error:
            self.note("the loop raises", type(error).__name__)

    def finish(self):
        self.look()
        if self.server is not None:
            self.server.close()
        self.run_some()
        self.note("path", self.path is not None and os.path.exists(self.path))
        for client in self.clients:
            client.close()
        self.run_some()
        for protocol in self.protocols:
            if protocol.transport is not None and not protocol.lost:
                protocol.transport.abort()
        self.run_some()
        self.note("tasks", [task.done() for task in self.tasks])
        for task in self.tasks:
            task.cancel()
        self.run_some()
        self.look()
        self.note("sockets", [sock.fileno() == -1 for sock in self.sockets])

    # -- making a server -----------------------------------------------------------------------------------------------

    def own(self, sock):
        self.sockets.append(sock)
        self.stack.callback(sock.close)
        return sock

    def factory(self, kind):
        def make():
            if kind == "raising":
                raise ZeroDivisionError
            if kind == "exiting":
                raise SystemExit
            return Protocol(self, kind)

        return make

    def make(self, what):
        family, place, options, protocol = what
        options = dict(options)
        if not SINCE_3_13 or family == "tcp":
            options.pop("cleanup_socket", None)
        if family == "unix":
            options.pop("reuse_port", None)
        if family == "unix" or sys.version_info < (3, 13):
            options.pop("keep_alive", None)
        place = getattr(self, f"{family}_place")(place)
        make = self.loop.create_unix_server if family == "unix" else self.loop.create_server
        self.tasks.append(self.loop.create_task(self.keep(make(self.factory(protocol), **place, **options))))

    async def keep(self, making):
        try:
            self.server = await making
        except BaseException as error:
            self.note("not made", type(error).__name__, getattr(error, "errno", None))
        else:
            self.note("made", len(self.server.sockets), self.server.is_serving())

    def unix_place(self, name):
        self.path = f"{self.folder}/{name}"
        if name == "abstract":
            return {"path": f"\0{self.path}"}
        if name in ("stale", "socket", "closed"):
            sock = self.own(socket.socket(socket.AF_UNIX))
            sock.bind(self.path)
            if name == "socket":
                return {"sock": sock}
            sock.close()
            if name == "closed":
                return {"sock": sock}
        elif name == "file":
            with open(self.path, "w"):
                pass
        elif name == "no folder":
            self.path += "/socket"
        return {"path": self.path}

    def tcp_place(self, name):
        if name == "none":
            return {}
        if name in ("any port", "two hosts"):
            return {"host": "127.0.0.1" if name == "any port" else ["127.0.0.1", "::1"], "port": 0}
        sock = self.own(socket.socket(type=socket.SOCK_DGRAM if name == "datagram" else socket.SOCK_STREAM))
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        if name == "closed":
            sock.close()
        if name.startswith("taken"):
            sock.listen()
            return {"host": ["127.0.0.1"] if name == "taken" else ["::1", "127.0.0.1"], "port": port}
        return {"sock": sock} if name != "both" else {"sock": sock, "port": 0}

    # -- the server's user ---------------------------------------------------------------------------------------------

    def call(self, name):
        """A method of the server; a coroutine becomes a task."""
        name = {"enter": "__aenter__", "leave": "__aexit__"}.get(name, name)
        if self.server is None or not hasattr(self.server, name):
            return
        result = getattr(self.server, name)(*([None] * 3 if name == "__aexit__" else []))
        if asyncio.iscoroutine(result):
            self.tasks.append(self.loop.create_task(self.finished(name, result)))

    async def finished(self, name, coroutine):
        try:
            await coroutine
        except BaseException as error:
            self.note(name, "raises", type(error).__name__)
        else:
            self.note(name, "returns")

    def cancel(self):
        if self.tasks:
            self.tasks[-1].cancel()

    def look(self):
        if self.server is not None:
            self.note("server", self.server.is_serving(), len(self.server.sockets))

    def remove_path(self):
        with contextlib.suppress(OSError):
            os.unlink(self.path or "")

    # -- clients -------------------------------------------------------------------------------------------------------

    def close_transport(self, number):
        if number < len(self.protocols) and self.protocols[number].transport is not None:
            self.protocols[number].transport.close()

    def connect(self, size):
        if self.server is None or not self.server.sockets or len(self.clients) == CLIENTS:
            return
        sock = self.server.sockets[0]
        if sock.family == socket.AF_UNIX:
            client = socket.socket(socket.AF_UNIX)
            self.clients.append(client)
            client.setblocking(False)
            client.connect(sock.getsockname())
            client.send(bytes(size))

    def client_sends(self, what):
        number, size = what
        if number < len(self.clients):
            with contextlib.suppress(OSError):  # a connection whose protocol cannot be made is closed with its garbage
                self.clients[number].send(bytes(size))

    def client_closes(self, number):
        if number < len(self.clients):
            self.clients[number].close()


def traced(implementation, program):
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(contextlib.closing(implementation.new_event_loop()))
        return ListeningStage(loop, program, stack).play()


def played(implementation, program):
    """The trace of a program, and how many descriptors are left."""
    gc.freeze()  # so that a collection looks at the program's objects alone
    before = open_descriptors()
    trace = traced(implementation, program)
    gc.collect()
    return trace, len(open_descriptors().keys() - before.keys())


@hypothesis.given(program=programs)
def test_any_program_of_listening_is_asyncios(load_implementation, impl, asyncio_log, program):
    actual = played(impl, program)
    expected = played(load_implementation("asyncio"), program)
    asyncio_log.take()
    assert actual == expected
