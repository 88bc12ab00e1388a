"""Random programs on sockets of the program's own: sock_*() methods, add_reader(), add_writer() and transports.

They share sockets, and the program closes, duplicates and replaces sockets under them. The sockets are Unix sockets:
data is at the other end before the system call returns, even on a loaded machine.

A compiled sock_*() method that has waited takes its data when its task goes on, asyncio's a turn earlier. So programs
that act in each turn are compared with asyncio as socket_oracles.py changes it. In settled programs each part's
consequences end before the next part begins; these are compared with asyncio itself.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
import tempfile

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import Stage, Step, step, traced
from socket_oracles import LateAsyncio, MendedAsyncio
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems wake a Unix socket's writers at other times"),
]

SMALL_BUFFER = 4096  # bytes
TURNS_TO_SETTLE = 6
MAX_CALLS = 3  # of one callback, which then removes itself
PAIRS = 2
LISTENER = 2 * PAIRS  # behind the ends of the pairs
ORACLES = {"c": LateAsyncio, "python": MendedAsyncio}

ends = st.integers(0, 2 * PAIRS - 1)
pairs = st.integers(0, PAIRS - 1)
any_socket = st.integers(0, LISTENER)
sizes = st.integers(0, 300)


def operation(name, socket=ends, size=sizes):
    return st.tuples(st.just(name), socket, size)


operations = st.one_of(
    *(operation(name) for name in ("recv", "recv", "recv_into", "recvfrom", "recvfrom_into", "timed_recv")),
    *(operation(name) for name in ("sendall", "sendall", "sendto", "sleep")),
    operation("connect", st.just(LISTENER)),
    operation("accept", st.just(LISTENER)),
)
starts = st.one_of(
    step("start", st.lists(operations, min_size=1, max_size=3).map(tuple)),
    step("start", st.tuples(operations)),
    step("start", st.tuples(operation("sendfile"))),  # in settled programs each wait would take it a turn longer
)
cancels = step("cancel", st.integers(0, 5))
own_data = st.one_of(
    step("send_now", st.tuples(ends, sizes)),
    step("send_now", st.tuples(ends, sizes)),
    step("recv_now", st.tuples(ends, sizes)),
    step("fill", ends),
    step("drain", ends),
    step("connect_now"),
    step("accept_now"),
)
watching = st.one_of(
    step("add_reader", st.tuples(any_socket, st.sampled_from(["note", "recv", "once"]), st.booleans())),
    step("add_writer", st.tuples(ends, st.sampled_from(["note", "once"]), st.booleans())),
    step("remove_reader", st.tuples(any_socket, st.booleans())),
    step("remove_writer", st.tuples(ends, st.booleans())),
)
lives = st.one_of(
    step("shut_down", st.tuples(ends, st.sampled_from([socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR]))),
    step("close", any_socket),
    step("reopen", pairs),
    step("duplicate", any_socket),
    step("continue_as_duplicate", any_socket),
    step("wrap_again", any_socket),
    step("close_duplicates"),
)
transports = st.one_of(
    step("make_transport", st.tuples(ends, st.sampled_from(["connect", "accept"]))),
    step("write", st.tuples(ends, sizes)),
    step("close_transport", ends),
    step("abort_transport", ends),
    step("pause_reading", ends),
    step("resume_reading", ends),
)
scheduling = st.one_of(step("soon"), step("later"), step("stop"))
steps = st.one_of(starts, starts, own_data, own_data, cancels, watching, lives, transports, scheduling)
parts = st.one_of(step("wait", st.integers(1, 3)), st.lists(steps, min_size=1, max_size=3).map(tuple))
programs = st.lists(parts, max_size=12)
single_starts = step("start", st.tuples(operations))
settled_steps = st.one_of(single_starts, single_starts, own_data, cancels, watching, lives, transports)
settled_programs = st.lists(st.lists(settled_steps, min_size=1, max_size=2).map(tuple), max_size=10)


class Protocol(asyncio.Protocol):
    def __init__(self, stage, number):
        self.stage = stage
        self.number = number
        self.lost = False

    def connection_made(self, transport):
        self.stage.note(self.number, "connection_made")

    def data_received(self, data):
        self.stage.note(self.number, "data", bytes(data))

    def eof_received(self):
        self.stage.note(self.number, "eof_received")

    def connection_lost(self, error):
        self.lost = True
        self.stage.note(self.number, "connection_lost", repr(error))


class SocketStage(Stage):
    def __init__(self, loop, program, *, kind, small):
        super().__init__(loop, program, {})
        self.kind = kind
        self.small = small
        self.numbers = itertools.count()
        self.tasks = {}
        self.sockets = {}  # that the tasks use
        self.transports = {}  # the last one for each of the ends
        self.made = []
        self.passed_on = set()
        self.connecting = set()  # of those, the ones whose transport is being made
        self.callbacks = set()
        self.opened = []
        self.ends = []
        self.sent = 0
        self.resources = contextlib.ExitStack()
        with tempfile.TemporaryFile("w+b", 0) as file:
            file.write(bytes(range(256)) * 2)
            self.file = self.resources.enter_context(os.fdopen(os.dup(file.fileno()), "rb", 0))
        for _ in range(PAIRS):
            self.ends += self.new_pair()
        listener = self.keep(socket.socket(socket.AF_UNIX))
        listener.bind("")  # an address that the kernel chooses
        listener.listen(2)
        self.address = listener.getsockname()
        self.ends.append(listener)

    def keep(self, sock):
        sock.setblocking(False)
        self.opened.append(sock)
        self.resources.callback(sock.close)
        return sock

    def new_pair(self):
        pair = socket.socketpair(type=self.kind)
        for end in pair:
            self.keep(end)
            if self.small:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        return pair

    def begun(self):
        return True

    def report(self, loop, context):
        # asyncio reports the end of an operation as misuse if the socket has a transport by then.
        error = context.get("exception")
        if not isinstance(error, RuntimeError):
            self.note("reported", "OSError" if isinstance(error, OSError) else type(error).__name__)

    def play(self):
        with self.resources:
            self.loop.call_soon(self.take_turn)
            while self.program or self.waiting:
                self.loop.run_forever()
            self.trace.append("finish")
            self.finish()
        return self.trace

    def finish(self):
        for _ in range(TURNS_TO_SETTLE):
            self.run_once()
        for number, task in self.tasks.items():
            closed = number in self.sockets and self.sockets[number].fileno() == -1
            self.trace.append("closed" if closed else "done" if task.done() else "pending")
            task.cancel()
        for _ in range(TURNS_TO_SETTLE):
            self.run_once()
        for transport, protocol in self.made:
            if not protocol.lost:
                with contextlib.suppress(OSError):  # asyncio's cleanup fails once if the socket was closed under it
                    transport.abort()
                transport.abort()
        for _ in range(TURNS_TO_SETTLE):
            self.run_once()
        assert all(task.done() for task in self.tasks.values())
        for sock in self.opened:
            for remove in (self.loop._remove_reader, self.loop._remove_writer):
                if sock.fileno() != -1:
                    with contextlib.suppress(OSError):
                        remove(sock.fileno())

    def some_bytes(self, size):
        self.sent += 1
        return bytes([self.sent % 256]) * size

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def start(self, operations):
        number = next(self.numbers)
        self.tasks[number] = self.loop.create_task(self.operate(number, operations))

    async def operate(self, number, operations):
        for name, index, size in operations:
            sock = self.sockets[number] = self.ends[index]
            try:
                result = await getattr(self, f"await_{name}")(sock, size)
            except BaseException as error:
                if sock.fileno() == -1:
                    return
                self.note(number, name, type(error).__name__, getattr(error, "errno", None))
                if not isinstance(error, Exception):
                    raise
            else:
                self.note(number, name, result)

    async def await_recv(self, sock, size):
        return await self.loop.sock_recv(sock, size)

    async def await_recv_into(self, sock, size):
        buffer = bytearray(size)
        count = await self.loop.sock_recv_into(sock, buffer)
        return count, bytes(buffer[:count])

    async def await_recvfrom(self, sock, size):
        return (await self.loop.sock_recvfrom(sock, size))[0]

    async def await_recvfrom_into(self, sock, size):
        buffer = bytearray(size + 1)
        count, _ = await self.loop.sock_recvfrom_into(sock, buffer)
        return count, bytes(buffer[:count])

    async def await_timed_recv(self, sock, size):
        return await asyncio.wait_for(self.loop.sock_recv(sock, size), 0 if size < 100 else 600)

    async def await_sendall(self, sock, size):
        return await self.loop.sock_sendall(sock, self.some_bytes(size))

    async def await_sendto(self, sock, size):
        return await self.loop.sock_sendto(sock, self.some_bytes(size), self.address)

    async def await_sendfile(self, sock, size):
        self.passed_on.add(sock)  # asyncio's goes on only until the socket gets a transport
        return await self.loop.sock_sendfile(sock, self.file, 0, size or None, fallback=False)

    async def await_connect(self, sock, size):
        client = self.keep(socket.socket(socket.AF_UNIX))
        return await self.loop.sock_connect(client, self.address)

    async def await_accept(self, sock, size):
        connection, _ = await self.loop.sock_accept(sock)
        return self.keep(connection).family

    async def await_sleep(self, sock, size):
        await asyncio.sleep(0)

    def cancel(self, index):
        if self.tasks:
            list(self.tasks.values())[index % len(self.tasks)].cancel()

    # -- the program's own system calls --------------------------------------------------------------------------------

    def send_now(self, arguments):
        index, size = arguments
        self.note("sent", self.ends[index].send(self.some_bytes(size)))

    def recv_now(self, arguments):
        index, size = arguments
        self.note("received", self.ends[index].recv(size))

    def fill(self, index):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.ends[index].send(b"fill" * 100)

    def drain(self, index):
        count = 0
        with contextlib.suppress(BlockingIOError):
            while data := self.ends[index].recv(1 << 20):
                count += len(data)
        self.note("drained", count)

    def connect_now(self):
        self.keep(socket.socket(socket.AF_UNIX)).connect(self.address)

    def accept_now(self):
        self.keep(self.ends[LISTENER].accept()[0])

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def add_reader(self, arguments):
        self.add_callback("reader", *arguments)

    def add_writer(self, arguments):
        self.add_callback("writer", *arguments)

    def add_callback(self, kind, index, what, by_number):
        sock = self.ends[index]
        if sock.fileno() != -1:  # asyncio takes a closed socket if it was watched, and does not watch it again
            add = getattr(self.loop, f"add_{kind}")
            self.callbacks.add((sock, kind))
            file = sock.fileno() if by_number else sock
            add(file, self.called, next(self.numbers), sock, kind, what, itertools.count(1))

    def called(self, number, sock, kind, what, counts):
        call = next(counts)
        self.note(number, kind, call)
        if what == "recv":
            try:
                self.note(number, sock.recv(100))
            except OSError as error:
                self.note(number, type(error).__name__, error.errno)
        if what == "once" or call == MAX_CALLS:
            self.remove_callback(kind, sock, False)

    def remove_reader(self, arguments):
        index, by_number = arguments
        self.remove_callback("reader", self.ends[index], by_number)

    def remove_writer(self, arguments):
        index, by_number = arguments
        self.remove_callback("writer", self.ends[index], by_number)

    def remove_callback(self, kind, sock, by_number):
        remove = getattr(self.loop, f"remove_{kind}")
        if sock.fileno() == -1:  # asyncio may ask the kernel for changes of a descriptor that is not registered
            with contextlib.suppress(OSError, ValueError):
                remove(sock)
            return
        removed = remove(sock.fileno() if by_number else sock)
        self.callbacks.discard((sock, kind))
        # Until its task goes on, asyncio removes an operation that has ended; hotloop has nothing to remove.
        if sock not in self.sockets.values():
            self.note("removed", removed)

    # -- what becomes of sockets ---------------------------------------------------------------------------------------

    def shut_down(self, arguments):
        index, how = arguments
        # The kernel reports a datagram socket that was shut down for ever, but there is no end to receive.
        if self.kind != socket.SOCK_DGRAM or how == socket.SHUT_WR:
            self.ends[index].shutdown(how)

    def close_socket(self, sock):
        """Close a socket. asyncio goes on with its number if that is watched, so no other socket gets it then.

        A watched socket that has a duplicate stays open: the kernel would go on reporting it, and asyncio takes no more
        events at once than it watches descriptors. So does one that something waits for, while a transport is made for
        it: asyncio's transport takes over what is registered, and does not notice that the socket is closed."""
        fd = sock.fileno()
        watched = fd != -1 and self.is_watched(sock)
        if watched and self.has_duplicate(sock):
            return
        if sock in self.connecting and self.is_waited_for(sock):
            return
        sock.close()
        if watched:
            os.dup2(self.file.fileno(), fd)
            self.resources.callback(os.close, fd)

    def is_watched(self, sock):
        return sock in self.passed_on or self.is_waited_for(sock)

    def is_waited_for(self, sock):
        used = {self.sockets.get(number) for number, task in self.tasks.items() if not task.done()}
        return sock in used or any(sock is watched for watched, _ in self.callbacks)

    def has_duplicate(self, sock):
        others = [other.fileno() for other in self.opened if other is not sock and other.fileno() != -1]
        return any(os.path.sameopenfile(sock.fileno(), other) for other in others)

    def close(self, index):
        self.close_socket(self.ends[index])

    def reopen(self, pair):
        for end in self.ends[2 * pair : 2 * pair + 2]:
            self.close_socket(end)
        self.ends[2 * pair : 2 * pair + 2] = self.new_pair()

    def duplicate(self, index):
        self.keep(self.ends[index].dup())

    def continue_as_duplicate(self, index):
        before = self.ends[index]
        self.ends[index] = self.keep(before.dup())
        self.close_socket(before)

    def wrap_again(self, index):
        if not self.is_watched(self.ends[index]):  # hotloop takes one that waits for it for one of a closed socket
            self.ends[index] = self.keep(socket.socket(fileno=self.ends[index].detach()))

    def close_duplicates(self):
        for sock in self.opened:
            if sock not in self.ends:
                self.close_socket(sock)

    # -- transports ----------------------------------------------------------------------------------------------------

    def make_transport(self, arguments):
        index, how = arguments
        number = next(self.numbers)
        self.tasks[number] = self.loop.create_task(self.connect_transport(number, index, how))

    async def connect_transport(self, number, index, how):
        sock = self.ends[index]
        if sock in self.passed_on:  # asyncio makes a second transport, before CPython 3.12
            return
        self.passed_on.add(sock)
        self.connecting.add(sock)
        make = self.loop.create_connection if how == "connect" else self.loop.connect_accepted_socket
        try:
            transport, protocol = await make(lambda: Protocol(self, number), sock=sock)
        except Exception as error:
            self.note(number, type(error).__name__, getattr(error, "errno", None))
        else:
            self.connecting.discard(sock)
            self.transports[index] = transport, protocol
            self.made.append((transport, protocol))
            self.note(number, "connected")

    def write(self, arguments):
        index, size = arguments
        self.transports[index][0].write(self.some_bytes(size))

    def close_transport(self, index):
        self.transports[index][0].close()

    def abort_transport(self, index):
        transport, protocol = self.transports[index]
        if not protocol.lost:  # asyncio's abort() fails once lost, before CPython 3.14.10
            transport.abort()

    def pause_reading(self, index):
        self.transports[index][0].pause_reading()

    def resume_reading(self, index):
        self.transports[index][0].resume_reading()

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def soon(self):
        self.loop.call_soon(self.note, "soon")

    def later(self):
        self.loop.call_later(0, self.note, "later")

    def stop(self):
        self.loop.stop()


def by_actor(trace):
    """In which order the kernel reports several sockets in one turn is not certain: each turn is put in order by what
    has noted something."""
    noted = [one for one in trace if isinstance(one, tuple)]
    return sorted(noted, key=lambda one: (one[0], str(one[1]))), [one for one in trace if isinstance(one, str)]


kinds = st.sampled_from([socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])


CLOSED_AFTER_ITS_FILE_WAS_SENT = [
    (Step("start", (("sendfile", 1, 0),)),),
    Step("wait", 1),
    (Step("start", (("connect", LISTENER, 0),)), Step("close", 1)),
]


ANOTHER_FILE_IS_SENT_WHEN_ONE_IS_CANCELLED = [
    (Step("start", (("sendfile", 0, 0),)),),
    (Step("start", (("sendfile", 0, 0),)),),
    (Step("cancel", 0),),
]


@hypothesis.example(program=CLOSED_AFTER_ITS_FILE_WAS_SENT, kind=socket.SOCK_STREAM, small=False)
@hypothesis.example(program=ANOTHER_FILE_IS_SENT_WHEN_ONE_IS_CANCELLED, kind=socket.SOCK_STREAM, small=False)
@hypothesis.given(program=programs, kind=kinds, small=st.booleans())
def test_any_program_of_sockets_is_asyncios(impl, asyncio_log, program, kind, small):
    actual = traced(impl, SocketStage, program, kind=kind, small=small)
    expected = traced(ORACLES.get(impl.name, impl), SocketStage, program, kind=kind, small=small)
    asyncio_log.take()  # reports of asyncio's transports about writes after the end
    assert by_actor(actual) == by_actor(expected)


@hypothesis.given(program=settled_programs, kind=kinds, small=st.booleans())
def test_any_settled_program_of_sockets_is_asyncios(load_implementation, impl, asyncio_log, program, kind, small):
    program = [one for part in program for one in (part, Step("wait", TURNS_TO_SETTLE))]
    actual = traced(impl, SocketStage, program, kind=kind, small=small)
    expected = traced(load_implementation("asyncio"), SocketStage, program, kind=kind, small=small)
    asyncio_log.take()
    assert by_actor(actual) == by_actor(expected)
