"""Random programs that make connections: to addresses that accept, refuse or are silent, several at once, with every
kind of socket, and with protocols and factories that fail.

A program starts calls such as create_connection(), and then cancels them, closes their sockets, answers as the peer or
uses the transports. Each turn is one run of the loop, and before it begins, the kernel has decided about all attempts
except those that nothing answers (`settle`). Each call has a trace of its own, because what one poll reports of several
sockets is in the kernel's order. The clock may be the program's own: then delays and timeouts of a second end when a
step moves it. At the end the peers' data, the descriptors that are left and the warnings count, too.
"""

import asyncio
import contextlib
import dataclasses
import gc
import os
import re
import socket
import ssl
import sys
import warnings

import hypothesis
import hypothesis.strategies as st
import pytest
from destinations import OtherSocket, Places, deliver, end_sending, received, settle
from playing import StageOfRuns, Step, step
from support.certificates import HOST, issued
from support.interpreter import uses_hypothesis
from support.leftovers import open_descriptors

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform != "linux", reason="tcp(7): other systems do not say what they have delivered"),
]

CALLS = 3
LONG = 3600  # seconds; no program takes that long
SHORT = 1  # seconds; on a clock of the program's own
VARYING = re.compile(r"0x[0-9a-f]+|fd=\d+|Task-\d+|\[closed\] ?|descriptor .* is used by .*|laddr=.*")
GROUPS = {"all_errors": True} if sys.version_info >= (3, 12) else {}


# -- what a program is made of -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Call:
    method: str
    target: object
    options: tuple = ()
    factory: str = "plain"
    made: str = "nothing"  # what connection_made() does
    within: str = "nothing"


USUAL = ["open 4", "open 4", "open 6", "refusing 4", "refusing 6", "silent"]
UNUSUAL = ["broadcast", "wrong port", "no address", "no family"]
addresses = st.sampled_from(USUAL + UNUSUAL)
names = st.one_of(
    st.lists(addresses, max_size=3).map(lambda chosen: ("at once", *chosen)),
    st.lists(addresses, min_size=1, max_size=4).map(lambda chosen: ("at once", *chosen)),
    st.lists(addresses, max_size=3).map(lambda chosen: ("slowly", *chosen)),
    st.lists(addresses, max_size=3).map(lambda chosen: ("later", *chosen)),
    st.just(("raising",)),
)
literals = st.sampled_from(
    ["open 4", "open 4", "open 6", "refusing 4", "refusing 6", "silent", "wrong port", "broadcast"]
)
paths = st.sampled_from(["open", "open", "abstract", "refusing", "full", "missing", "file", "long", "empty"])
CONNECTED = ["pair", "pair", "blocking", "shared", "shared", "tcp", "tls", "subclass"]
UNCONNECTED = ["datagram", "closed", "unconnected", "listening", "none"]
sockets = st.sampled_from(CONNECTED + UNCONNECTED)
options = st.dictionaries(
    st.sampled_from(
        ["local", "delay", "delay", "interleave", "all_errors", "family", "ssl", "name", "timeout", "sock", "proto"]
    ),
    st.integers(0, 3),
    max_size=2,
).map(lambda chosen: tuple(chosen.items()))
ssl_options = st.dictionaries(st.sampled_from(["ssl", "name", "timeout", "sock"]), st.integers(0, 3), max_size=2).map(
    lambda chosen: tuple(chosen.items())
)
no_options = st.just(())
factories = st.sampled_from(["plain"] * 6 + ["buffered", "raising", "exiting", "interrupted", "bare"])
made = st.sampled_from(
    ["nothing"] * 6 + ["raise", "exit", "close", "abort", "write", "write and close", "pause", "stop"]
)
within = st.sampled_from(["nothing"] * 6 + ["no time", "some time", "much time", "shield"])


def calls(method, target, options=no_options):
    return st.builds(Call, st.just(method), target, options, factories, made, within)


any_call = st.one_of(
    calls("create_connection", names, options),
    calls("create_connection", names),
    calls("create_connection", literals, st.one_of(no_options, options)),
    calls("connect_with", sockets, st.one_of(no_options, ssl_options)),
    calls("open_connection", literals, st.one_of(no_options, options)),
    calls("create_unix_connection", paths, st.one_of(no_options, ssl_options)),
    calls("unix_with", sockets, st.one_of(no_options, ssl_options)),
    calls("connect_accepted_socket", sockets, st.one_of(no_options, ssl_options)),
    calls("sock_connect", st.tuples(sockets, addresses)),
)
numbers = st.integers(0, CALLS - 1)
starts = step("start", any_call)
acts = st.one_of(
    step("cancel", numbers),
    step("cancel", numbers),
    step("close_socket", numbers),
    step("move_clock", st.sampled_from([0.5, 1.0, 1.0, 100.0])),
    step("move_clock", st.just(1.0)),
    step("peer_sends", st.tuples(numbers, st.integers(1, 100))),
    step("peer_ends", numbers),
    step("write", st.tuples(numbers, st.integers(0, 100))),
    step(
        "on_transport",
        st.tuples(numbers, st.sampled_from(["close", "abort", "write_eof", "pause_reading", "resume_reading"])),
    ),
    step("look", numbers),
)
parts = st.one_of(
    step("wait", st.integers(1, 4)),
    st.lists(st.one_of(starts, acts, acts), min_size=1, max_size=3).map(tuple),
)
programs = st.lists(parts, max_size=8).flatmap(
    lambda rest: any_call.map(lambda first: [(Step("start", first),), *rest])
)


# -- protocols ---------------------------------------------------------------------------------------------------------


class Bare(asyncio.BaseProtocol):
    def __init__(self, stage, number, made):
        self.stage = stage
        self.number = number
        self.made = made
        self.lost = False

    def note(self, *what):
        self.stage.note(self.number, *what)

    def connection_made(self, transport):
        self.stage.transports[self.number] = transport, self
        self.note("connection_made", *self.stage.ends_of(self.number, transport))
        if self.made == "raise":
            raise ZeroDivisionError
        elif self.made == "exit":
            raise SystemExit
        elif self.made in ("close", "abort"):
            getattr(transport, self.made)()
        elif self.made == "write":
            transport.write(b"made")
        elif self.made == "write and close":
            transport.write(b"made")
            transport.close()
        elif self.made == "pause":
            transport.pause_reading()
        elif self.made == "stop":
            self.stage.loop.stop()

    def connection_lost(self, error):
        self.lost = True
        self.note("connection_lost", repr(error))


class Plain(Bare, asyncio.Protocol):
    def data_received(self, data):
        self.note("data", bytes(data))

    def eof_received(self):
        self.note("eof_received")


class Buffered(Bare, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint):
        self.buffer = bytearray(10_000)
        return self.buffer

    def buffer_updated(self, nbytes):
        self.note("data", bytes(self.buffer[:nbytes]))

    def eof_received(self):
        self.note("eof_received")


class ConnectingStage(StageOfRuns):
    turns_to_settle = 12

    def __init__(self, loop, program, stack, own_clock):
        super().__init__(loop, program, {})
        self.now = 1000.0
        self.short = SHORT if own_clock else LONG
        if own_clock:
            loop.time = lambda: self.now
        self.first_descriptor = max(map(int, os.listdir("/proc/self/fd"))) + 1
        self.stack = stack
        self.places = Places(stack)
        self.calls = []
        self.tasks = []
        self.shielded = []  # tasks that go on when those are cancelled
        self.given = {}  # the sockets that calls got from the program
        self.transports = {}
        self.names = {}
        self.peers = {}
        self.expected = {}  # where the peer of a call waits to be accepted, and the call's own address
        loop.getaddrinfo = self.getaddrinfo

    def report(self, loop, context):
        if not context["message"].startswith("Task exception was never retrieved"):  # comes when the task is freed
            self.note(None, "reported", self.plain(context["message"])[:21], self.described(context.get("exception")))

    def plain(self, text):
        return VARYING.sub("...", self.places.name_addresses(text).replace(self.places.folder, "FOLDER"))

    def described(self, error):
        if error is None:
            return None
        inner = [self.described(one) for one in getattr(error, "exceptions", ())]
        return type(error).__name__, getattr(error, "errno", None), self.plain(str(error)), inner

    # -- turns ---------------------------------------------------------------------------------------------------------

    def play(self):
        self.take_parts()
        self.run_some()
        self.finish()
        return sorted(self.trace, key=lambda note: str(note[1]))

    def run_once(self):
        try:
            super().run_once()
        except (SystemExit, KeyboardInterrupt) as error:
            self.note(None, "the loop raises", type(error).__name__)
        if not all(task.done() for task in self.tasks):
            settle(self.first_descriptor)

    def finish(self):
        for task in self.tasks:
            task.cancel()
        self.run_some()
        for task in self.shielded:
            task.cancel()
        self.run_some()
        for number in range(len(self.tasks)):
            self.peer_of(number)
        for number, (transport, protocol) in self.transports.items():
            self.note(number, "at the end", transport.is_closing(), protocol.lost)
            transport.abort()
        self.run_some()
        self.tasks.clear()
        self.shielded.clear()
        self.transports.clear()
        gc.collect()
        for number, given in self.given.items():
            self.note(number, "given", [sock.fileno() == -1 for sock in given])
            for sock in given:
                sock.close()
        for number, peer in self.peers.items():
            self.note(number, "the peer got", *received(peer))

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):
        self.note(None, "getaddrinfo", host.split()[0], family, type, proto, flags)
        how, *chosen = self.names.get(host, ("raising",))
        if how == "slowly":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        elif how == "later":
            await asyncio.sleep(self.short)
        if how == "raising":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        found = [self.places.addresses[name] for name in chosen]
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for family, address in found]

    def start(self, call):
        number = len(self.calls)
        if number < CALLS:
            self.calls.append(call)
            self.tasks.append(self.loop.create_task(self.run_call(number, call)))

    async def run_call(self, number, call):
        try:
            making = getattr(self, f"make_{call.method}")(number, call)
            if call.within == "no time":
                making = asyncio.wait_for(making, 0)
            elif call.within == "some time":
                making = asyncio.wait_for(making, self.short)
            elif call.within == "much time":
                making = asyncio.wait_for(making, LONG)
            elif call.within == "shield":
                self.shielded.append(self.loop.create_task(making))
                making = asyncio.shield(self.shielded[-1])
            result = await making
        except BaseException as error:
            self.note(number, "raises", self.described(error))
        else:
            self.note(number, "returns", type(result).__name__)

    def factory(self, number, call):
        def make():
            self.note(number, "factory")
            if call.factory == "raising":
                raise ZeroDivisionError
            if call.factory == "exiting":
                raise SystemExit
            if call.factory == "interrupted":
                raise KeyboardInterrupt
            kind = {"buffered": Buffered, "bare": Bare}.get(call.factory, Plain)
            return kind(self, number, call.made)

        return make

    def chosen(self, number, call):
        """The keywords that the call's options stand for."""
        found = {}
        for name, choice in call.options:
            if name == "local":
                local = ["open 4", "refusing 4", "free", "other name"][choice]
                found["local_addr"] = self.places.addresses.get(local, (0, ("127.0.0.1", 0)))[1]
                if local == "other name":
                    found["local_addr"] = f"local {number}", 0
                    self.names[f"local {number}"] = "at once", "open 6", "open 4"
            elif name == "delay":
                found["happy_eyeballs_delay"] = [0, self.short, self.short, LONG][choice]
            elif name == "interleave":
                found["interleave"] = choice
            elif name == "all_errors":
                found |= GROUPS
            elif name == "family":
                found["family"] = [0, socket.AF_INET, socket.AF_INET6, 999][choice]
            elif name == "proto":
                found["proto"] = [0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, 0][choice]
            elif name == "ssl":
                found["ssl"] = [None, issued().client_context(), issued().client_context(), ssl][choice]
            elif name == "name":
                found["server_hostname"] = [None, HOST, HOST, ""][choice]
            elif name == "timeout":
                found["ssl_handshake_timeout"] = [None, self.short, 0, -1][choice]
            elif name == "sock":
                found["sock"] = self.socket(number, ["shared", "pair", "pair", "none"][choice])
        return found

    def make_create_connection(self, number, call):
        if isinstance(call.target, tuple):
            host, port = f"name {number}", 80
            self.names[host] = call.target
        else:
            host, port = self.places.addresses[call.target][1][:2]
            self.names[host] = "at once", call.target
        return self.loop.create_connection(self.factory(number, call), host, port, **self.chosen(number, call))

    async def make_open_connection(self, number, call):
        host, port = self.places.addresses[call.target][1][:2]
        self.names[host] = "at once", call.target
        _, writer = await asyncio.open_connection(host, port, **self.chosen(number, call))
        writer.write(b"hello")
        self.note(number, *self.ends_of(number, writer.transport))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def make_connect_with(self, number, call):
        given = {"sock": self.socket(number, call.target)} | self.chosen(number, call)
        return self.loop.create_connection(self.factory(number, call), **given)

    def make_create_unix_connection(self, number, call):
        path = self.places.paths[call.target]
        return self.loop.create_unix_connection(self.factory(number, call), path, **self.chosen(number, call))

    def make_unix_with(self, number, call):
        given = {"sock": self.socket(number, call.target)} | self.chosen(number, call)
        return self.loop.create_unix_connection(self.factory(number, call), **given)

    def make_connect_accepted_socket(self, number, call):
        given = self.chosen(number, call)
        if given.pop("server_hostname", None):
            given["ssl"] = issued().server_context()
        given = {"sock": self.socket(number, call.target)} | given
        return self.loop.connect_accepted_socket(self.factory(number, call), **given)

    def make_sock_connect(self, number, call):
        kind, name = call.target
        sock = self.socket(number, kind)
        family, address = self.places.addresses[name]
        if kind in ("unconnected", "subclass"):
            sock = self.places.own((OtherSocket if kind == "subclass" else socket.socket)(family))
            self.given[number].append(sock)
            sock.setblocking(False)
        return self.loop.sock_connect(sock, address)

    def socket(self, number, kind):
        """A socket for a call."""
        sock, peer = self.places.socket(kind)
        if peer is not None:
            self.peers.setdefault(number, peer)
        if sock is not None:
            self.given.setdefault(number, []).append(sock)
        return sock

    def ends_of(self, number, transport):
        """Which place the transport is connected to."""
        peer = transport.get_extra_info("peername")
        sock = transport.get_extra_info("socket")
        for name, (_, address) in self.places.addresses.items():
            if peer == address:
                self.expected[number] = name, sock.getsockname()
                return (name,)
        return (self.plain(str(peer)),)

    def peer_of(self, number):
        if number not in self.peers and number in self.expected:
            self.peers[number] = self.places.accepted(*self.expected[number])
        return self.peers.get(number)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def move_clock(self, seconds):
        self.now += seconds

    def cancel(self, number):
        if number < len(self.tasks):
            self.tasks[number].cancel()

    def close_socket(self, number):
        # Until 3.11 asyncio made another transport for the descriptor's next file.
        if sys.version_info >= (3, 12) or (number in self.given and self.calls[number].method == "sock_connect"):
            for sock in self.given.get(number, ()):
                sock.close()

    def peer_sends(self, what):
        number, size = what
        peer = self.peer_of(number)
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.sendall(bytes(size))
                deliver(peer)

    def peer_ends(self, number):
        peer = self.peer_of(number)
        if peer is not None:
            end_sending(peer)

    def on_transport(self, what):
        number, method = what
        if number in self.transports:
            getattr(self.transports[number][0], method)()

    def write(self, what):
        number, size = what
        if number in self.transports:
            self.transports[number][0].write(bytes(size))

    def look(self, number):
        if number in self.transports:
            transport = self.transports[number][0]
            self.note(number, "state", transport.is_closing(), transport.is_reading())


def traced(implementation, program, own_clock):
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(contextlib.closing(implementation.new_event_loop()))
        return ConnectingStage(loop, program, stack, own_clock).play()


def played(implementation, program, own_clock):
    """The trace of a program, the warnings, and the descriptors that are left."""
    gc.freeze()  # so that a collection looks at the program's objects alone
    before = open_descriptors()
    hook = sys.unraisablehook
    unraisable = []
    sys.unraisablehook = lambda report: unraisable.append(repr(report.exc_value))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace = traced(implementation, program, own_clock)
            gc.collect()
    finally:
        sys.unraisablehook = hook
    kinds = sorted(str(warning.message)[:20] for warning in caught)
    return trace, kinds, unraisable, len(open_descriptors().keys() - before.keys())


@hypothesis.given(program=programs, own_clock=st.booleans())
def test_any_program_of_connections_is_asyncios(load_implementation, impl, asyncio_log, program, own_clock):
    actual = played(impl, program, own_clock)
    expected = played(load_implementation("asyncio"), program, own_clock)
    asyncio_log.take()
    assert actual == expected
