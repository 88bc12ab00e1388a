"""Random programs of two streams that talk in plain text, upgrade to TLS, send data both ways at once, and close.

Both ends are on the same loop, over sockets with small buffers or the kernel's own. How data is cut into pieces is the
kernel's and OpenSSL's affair, so what is compared is the outcome: all that each end reads, and how each call ends.
"""

import asyncio
import dataclasses
import socket
import ssl
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import SECONDS_BEFORE_A_PROGRAM_HANGS, counted
from support.certificates import HOST, VERSIONS, issued
from support.endpoints import turns
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    # Where the upgrade fails, nothing closes the TLS transport that asyncio has made.
    pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems take other sizes for a socket's buffers"),
]

LONG = 3600  # seconds; no program takes that long
sizes = st.one_of(st.integers(0, 300), st.integers(0, 20_000), st.integers(0, 400_000))


@dataclasses.dataclass(frozen=True)
class End:
    """What one of the two does."""

    plain: tuple  # the sizes of lines that it sends in plain text
    waits: int  # turns before it upgrades
    writes: tuple  # sizes
    drains: bool  # after each write
    at_once: bool  # writelines()
    limits: tuple | None  # of the write buffer: high, low; asyncio's TLS hangs with 0, 0
    reads: int  # bytes at a time; 0: all in one call
    rests: int  # turns between two reads
    pauses: bool  # pauses its transport while it upgrades
    shutdown_timeout: float | None


ends = st.builds(
    End,
    plain=st.lists(st.integers(0, 3000), max_size=2).map(tuple),
    waits=st.integers(0, 4),
    writes=st.lists(sizes, max_size=4).map(tuple),
    drains=st.booleans(),
    at_once=st.booleans(),
    limits=st.sampled_from([None, None, (1, 0), (1000, 100), (100_000, 0), (1 << 20, 1 << 19)]),
    reads=st.sampled_from([0, 0, 1000, 20_000, 1 << 20]),
    rests=st.integers(0, 3),
    pauses=st.booleans(),
    shutdown_timeout=st.sampled_from([None, LONG]),
)


@dataclasses.dataclass(frozen=True)
class Program:
    client: End
    server: End
    kind: str
    buffer: int | None  # of the sockets, in bytes
    limit: int  # of the readers
    version: ssl.TLSVersion
    first: str  # the end that upgrades first
    closes: str  # the end that closes first
    fault: str
    turns: int  # before the fault


FAULTS_OF_THE_SECOND = ["peer closes", "peer aborts", "no TLS"]  # of the end that is not the first
faults = ["cancel", "no trust", "wrong name", *FAULTS_OF_THE_SECOND]
programs = st.builds(
    Program,
    client=ends,
    server=ends,
    kind=st.sampled_from(["unix", "unix", "tcp"]),
    buffer=st.sampled_from([None, 4096, 16_384]),
    limit=st.sampled_from([100, 3000, 1 << 16]),
    version=st.sampled_from(VERSIONS),
    first=st.sampled_from(["client", "server", "server"]),
    closes=st.sampled_from(["client", "server"]),
    fault=st.sampled_from(["none"] * 8 + faults),
    turns=st.integers(0, 4),
)


def connected(program):
    """The two ends, connected, with buffers of the program's size."""
    family, address = (socket.AF_UNIX, "") if program.kind == "unix" else (socket.AF_INET, ("127.0.0.1", 0))
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen()
        client = socket.socket(family)
        client.connect(listener.getsockname())
        server, _ = listener.accept()
    for sock in (client, server):
        sock.setblocking(False)
        if program.buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, program.buffer)
            if program.kind == "tcp":
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


async def server_streams(sock, limit):
    """As start_server() makes them, so that StreamWriter.start_tls() takes the server's side."""
    loop = asyncio.get_running_loop()
    made = loop.create_future()

    def connected(reader, writer):
        made.set_result((reader, writer))

    reader = asyncio.StreamReader(limit=limit, loop=loop)
    await loop.connect_accepted_socket(lambda: asyncio.StreamReaderProtocol(reader, connected, loop=loop), sock)
    return await made


class Side:
    def __init__(self, program, name, streams, trace):
        self.program = program
        self.name = name
        self.end = getattr(program, name)
        self.other = program.server if name == "client" else program.client
        self.reader, self.writer = streams
        self.trace = trace
        self.began = asyncio.Event()

    def note(self, *what):
        self.trace.append(what)

    async def talk_plainly(self):
        for number, size in enumerate(self.end.plain):
            self.writer.write(counted(number, size, 9).replace(b"\n", b"-") + b"\n")
        if self.end.drains:
            await self.writer.drain()
        for _ in self.other.plain:
            # readline() would drop a line that is longer than the reader's limit.
            line = b""
            while not line.endswith(b"\n"):
                line += await self.reader.read(1)
            self.note("line", len(line))

    def context(self):
        if self.program.fault == "no trust" and self.name == "client":
            return issued().client_context(self.program.version, trusts=False)
        return issued().context(self.name, self.program.version)

    async def upgrade(self, peer):
        if self.program.first != self.name:
            await peer.began.wait()
        await turns(self.end.waits)
        self.began.set()
        name = {}
        if self.name == "client":
            name["server_hostname"] = "other.example" if self.program.fault == "wrong name" else HOST
        if self.end.shutdown_timeout is not None and sys.version_info >= (3, 12):
            name["ssl_shutdown_timeout"] = self.end.shutdown_timeout
        if self.end.pauses:
            self.writer.transport.pause_reading()
        await self.writer.start_tls(self.context(), **name)
        self.note("upgraded", self.writer.get_extra_info("ssl_object").version(), self.writer.can_write_eof())

    async def send(self):
        data = [counted(number, size, 251) for number, size in enumerate(self.end.writes)]
        if self.end.limits is not None:
            self.writer.transport.set_write_buffer_limits(*self.end.limits)
            self.note("limits", self.writer.transport.get_write_buffer_limits())
        if self.end.at_once:
            self.writer.writelines(data)
        for one in [] if self.end.at_once else data:
            self.writer.write(one)
            if self.end.drains:
                await self.writer.drain()
        await self.writer.drain()

    async def receive(self):
        expected = sum(self.other.writes)
        received = b""
        if not self.end.reads:
            received = await self.reader.readexactly(expected)
        while len(received) < expected:
            await turns(self.end.rests)
            data = await self.reader.read(min(self.end.reads, expected - len(received)))
            if not data:
                break
            received += data
        right = b"".join(counted(number, size, 251) for number, size in enumerate(self.other.writes))
        self.note("received", len(received), received == right)

    async def leave(self):
        try:
            self.writer.write_eof()
        except NotImplementedError:
            self.note("no write_eof()")
        if self.program.closes != self.name:
            self.note("rest", await self.reader.read())
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError as error:
            self.note("wait_closed", type(error).__name__)
        self.note("closed", self.writer.is_closing(), self.reader.at_eof())

    async def run(self, peer):
        try:
            await self.talk_plainly()
            await self.upgrade(peer)
            await asyncio.gather(self.send(), self.receive())
            await self.leave()
        except (Exception, asyncio.CancelledError) as error:
            if self.program.fault == "none":
                self.note("raises", type(error).__name__, str(error))
            else:
                self.note("fails")
        finally:
            self.writer.close()

    async def fail(self, peer):
        """The fault instead of this side's part, from the upgrade on."""
        try:
            await self.talk_plainly()
        finally:
            await peer.began.wait()
            await turns(self.program.turns)
            if self.program.fault == "no TLS":
                self.writer.write(b"this is no TLS\n" * 3)
                await self.reader.read(-1)
                self.writer.close()
            elif self.program.fault == "peer closes":
                self.writer.close()
            else:
                self.writer.transport.abort()


async def play(program):
    """Returns what each side has noted."""
    traces = {"client": [], "server": []}
    client, server = connected(program)
    loop = asyncio.get_running_loop()
    server_side = loop.create_task(server_streams(server, program.limit))
    client_streams = await asyncio.open_connection(sock=client, limit=program.limit)
    sides = {
        "client": Side(program, "client", client_streams, traces["client"]),
        "server": Side(program, "server", await server_side, traces["server"]),
    }
    first, second = (sides[program.first], sides["server" if program.first == "client" else "client"])
    second_part = second.fail if program.fault in FAULTS_OF_THE_SECOND else second.run
    tasks = [loop.create_task(first.run(second)), loop.create_task(second_part(first))]
    if program.fault == "cancel":
        await first.began.wait()
        await turns(program.turns)
        tasks[0].cancel()
    _, pending = await asyncio.wait(tasks, timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for side in sides.values():
        side.writer.transport.abort()
    await turns(4)
    return traces, len(pending)


def played(implementation, program):
    reports = []
    loop = implementation.new_event_loop()
    loop.set_exception_handler(lambda loop, context: reports.append(context["message"]))
    try:
        traces, pending = loop.run_until_complete(play(program))
    finally:
        loop.close()
    if program.fault == "cancel":
        return pending  # how far the sides come until then is left to chance
    return traces, pending, reports if program.fault == "none" else None


def expecting(program):
    """The program for asyncio, whose servers before 3.14.4 lose a ClientHello that comes before the upgrade."""
    return program if program.fault in FAULTS_OF_THE_SECOND else dataclasses.replace(program, first="server")


@hypothesis.given(program=programs)
def test_any_program_of_upgraded_streams_is_asyncios(load_implementation, impl, asyncio_log, program):
    actual = played(impl, expecting(program) if impl.name == "asyncio" else program)
    expected = played(load_implementation("asyncio"), expecting(program))
    asyncio_log.take()
    assert actual == expected
