"""Any sequence of calls on a TLS transport and of actions of its peer has the same outcome as on asyncio.

As in test_stream_orderings.py for plain connections: Hypothesis makes the scripts. Each is played step by step on the
implementation and on asyncio, and between two steps the loop runs until nothing moves any more. The protocol callbacks
must come in the same order, with the same data between them and the same errors, and the same data must reach the peer.
Data after close() does not count: asyncio's transport still delivers it, this implementation does not.

Scripts leave out what asyncio leaves to chance or gets wrong:

- how data is cut into pieces, and when writing is paused, which depend on how much the layers below take;
- data that comes in one read with garbage: asyncio drops the part that it has decrypted;
- more data than a buffered protocol's buffer holds: asyncio loses some at the end;
- close() on a closing transport: asyncio's transport has forgotten its connection by then;
- close() while reading is paused and something waits to be read. OpenSSL takes data for a wrong answer to close_notify;
  and after an end of file, asyncio closes nothing until reading is resumed;
- pausing after the peer has left: asyncio reports the end all the same, and loses the data before it.
"""

import contextlib
import dataclasses
import socket
import ssl

import hypothesis
import hypothesis.strategies as st
import pytest
from support.certificates import VERSIONS, issued
from support.interpreter import uses_hypothesis
from support.recording import Recorder
from support.stepping import run_once
from support.tls_connections import RECORDERS, SIDES, ViewRecorder, tls_connections_on

pytestmark = [pytest.mark.differential, uses_hypothesis]

KIND = "pair"  # delivers within the system call that sends
MOST_WRITTEN = 300_000  # bytes; writing is not paused before there are more
BROKEN = (BrokenPipeError, ConnectionResetError)
CLOSED = "close()"
DATA_CALLBACKS = ["data_received", "buffer_updated"]
FIRST = b"first"
EXPECTED_LOG = {"SSL connection is closed", "socket.send() raised exception."}


@dataclasses.dataclass(frozen=True)
class Action:
    """One call on the transport, one action of the peer, or a call to be made inside a callback."""

    name: str
    arguments: tuple = ()


def action(name, *arguments):
    return st.builds(Action, st.just(name), st.tuples(*arguments))


harmless = st.one_of(
    action("write", st.integers(0, 20_000)),
    action("writelines", st.lists(st.integers(0, 300), max_size=4)),
    action("pause_reading"),
    action("resume_reading"),
)
endings = st.sampled_from([[], [], [], [Action("close")], [Action("abort")]])
callbacks = st.sampled_from(["data", "data", "eof_received", "connection_lost"])
inside = action("inside", callbacks, st.one_of(harmless, st.sampled_from([Action("close"), Action("abort")])))
ours = st.tuples(st.lists(harmless, min_size=1, max_size=5), endings, st.lists(harmless, max_size=2)).map(
    lambda parts: [*parts[0], *parts[1], *(parts[2] if parts[1] else [])]
)
peers = st.one_of(
    st.lists(action("peer_send", st.integers(1, 5000)), min_size=1, max_size=3),
    st.just([Action("peer_reads")]),
    st.just([Action("peer_reads")]),
    st.just([Action("peer_answers")]),
)
leaving = st.sampled_from(
    [[Action("peer_notifies")], [Action("peer_ends")], [Action("peer_closes")], [Action("garbage")], [Action("abort")]]
)
at_once = st.tuples(peers, ours).map(lambda parts: parts[0] + parts[1])
reentrant = st.tuples(inside, peers).map(lambda parts: [parts[0], *parts[1]])
steps = st.one_of(ours, peers, ours, peers, at_once, reentrant, leaving)
scripts = st.lists(steps, min_size=1, max_size=12)


class Tracing:
    """Keeps the data in its trace."""

    def __init__(self):
        super().__init__()
        self.trace = []
        self.traced = 0  # bytes of `received` that are in the trace

    def record(self, callback, as_name=None):
        result = super().record(callback, as_name)
        if as_name == "data":
            data, self.traced = bytes(self.received[self.traced :]), len(self.received)
            if self.trace and isinstance(self.trace[-1], bytes):
                self.trace[-1] += data
            else:
                self.trace.append(data)
        else:
            self.trace.append(callback)
        return result


class TracingRecorder(Tracing, Recorder):
    pass


class TracingViewRecorder(Tracing, ViewRecorder):
    pass


TRACING = dict(zip(RECORDERS, [TracingRecorder, TracingViewRecorder], strict=True))


class Stage:
    """Plays a script on a loop."""

    def __init__(self, connections, side, version, make_protocol):
        self.protocol = make_protocol()
        self.trace = self.protocol.trace
        self.loop = connections.loop
        self.loop.set_exception_handler(self.report)
        self.connection = connections.open(side, self.protocol, kind=KIND, version=version)
        self.transport, self.peer = self.connection.transport, self.connection.peer
        self.connection.deliver(FIRST)
        self.transport.write(b"second")
        assert self.connection.receive(6) == b"second"  # all messages that follow a handshake have been read
        self.peer_left = self.garbled = False
        self.written = 0
        self.sent = 0

    def report(self, loop, context):
        # A callback of what was held back may abort the connection: asyncio's transport reads on, and fails.
        if not context["message"].startswith("Exception in callback SSLProtocol._resume_reading"):
            self.trace.append(("reported", context["message"], type(context.get("exception")).__name__))

    def play(self, script):
        for number, step in enumerate(script):
            self.trace.append(number)
            self.loop.call_soon(self.perform, step)
            self.settle()
            self.trace.append((self.transport.is_closing(), self.transport.is_reading()))
        self.finish()
        self.protocol.check_life_cycle()

    def perform(self, step):
        for one in step:
            try:
                getattr(self, one.name)(*one.arguments)
            except Exception as error:
                self.trace.append((one.name, type(error).__name__))

    def settle(self):
        """Run until nothing moves: no callback for some turns."""
        quiet = 0
        while quiet < 4:
            before = len(self.trace), len(self.protocol.received), self.transport.get_write_buffer_size()
            run_once(self.loop)
            after = len(self.trace), len(self.protocol.received), self.transport.get_write_buffer_size()
            quiet = quiet + 1 if after == before else 0

    def finish(self):
        """The peer reads the rest, sends close_notify and leaves; then the connection ends, if it has not yet."""
        self.trace.append("finish")
        for act in (self.peer_reads, self.peer_answers, self.transport.resume_reading, self.peer_closes):
            act()
            self.settle()
        if not self.protocol.lost:
            self.transport.abort()
            self.settle()
        error = self.protocol.error
        name = "broken" if isinstance(error, BROKEN) else type(error).__name__
        self.trace.append((name, getattr(error, "reason", None)))
        assert self.protocol.lost and self.connection.is_gone

    # Actions on the transport

    def data(self, size):
        first = self.written % 251
        self.written += size
        return (bytes(range(first, 251)) + bytes(range(251)) * (size // 251 + 1))[:size]

    def write(self, size):
        if self.written + size < MOST_WRITTEN:
            self.transport.write(self.data(size))

    def writelines(self, sizes):
        if self.written + sum(sizes) < MOST_WRITTEN:
            self.transport.writelines([self.data(size) for size in sizes])

    def pause_reading(self):
        if not self.peer_left:
            self.transport.pause_reading()

    def resume_reading(self):
        self.transport.resume_reading()

    def close(self):
        if not self.transport.is_closing():
            if self.peer_left or self.sent > len(self.protocol.received) - len(FIRST):
                self.transport.resume_reading()
            # Only asyncio's transport delivers data after this.
            for name in DATA_CALLBACKS:
                self.protocol.hooks.pop(name, None)
            self.trace.append(CLOSED)
            self.transport.close()

    def abort(self):
        self.transport.abort()

    def inside(self, callback, one):
        """Make the call in the next callback of that name."""
        for name in DATA_CALLBACKS if callback == "data" else [callback]:
            self.protocol.hooks[name] = lambda: self.happens_inside(callback, one)

    def happens_inside(self, callback, one):
        for name in DATA_CALLBACKS if callback == "data" else [callback]:
            del self.protocol.hooks[name]
        self.perform([one])

    # Actions of the peer

    def peer_send(self, size):
        with contextlib.suppress(ssl.SSLError):  # the peer has sent close_notify already, or got an alert
            self.peer.write(bytes((self.sent + number) % 253 for number in range(size)))
            self.sent += size

    def peer_reads(self):
        with contextlib.suppress(ssl.SSLError):  # an alert
            self.peer.read()

    def peer_answers(self):
        """Answer a close_notify."""
        self.peer_reads()
        if self.peer.saw_close_notify:
            self.peer.notify_close()

    def peer_notifies(self):
        self.peer_left = True
        self.peer.notify_close()

    def peer_ends(self):
        self.peer_left = True
        self.peer_reads()
        self.peer.push()
        if self.peer.socket.fileno() != -1:
            with contextlib.suppress(OSError):
                self.peer.socket.shutdown(socket.SHUT_WR)

    def peer_closes(self):
        """Read everything first: unread data would turn the close into a reset."""
        self.peer_left = True
        self.peer_reads()
        self.peer.socket.close()

    def garbage(self):
        if self.transport.is_reading() and self.peer.socket.fileno() != -1:
            with contextlib.suppress(OSError):
                self.peer.socket.send(b"garbage" * 10)
                self.garbled = True


def until_closed(trace):
    """The trace without data after close(), which only asyncio's transport delivers."""
    if CLOSED not in trace:
        return trace
    after = trace.index(CLOSED)
    return trace[:after] + [one for one in trace[after:] if not isinstance(one, bytes)]


def played(implementation, side, version, make_protocol, script):
    loop = implementation.new_event_loop()
    try:
        with tls_connections_on(loop, issued()) as connections:
            stage = Stage(connections, side, version, make_protocol)
            stage.play(script)
            # This implementation sends the peer an alert with the reason, after which OpenSSL reports a closed
            # connection.
            closed = None if stage.garbled else stage.peer.saw_close_notify
            return until_closed(stage.trace), bytes(stage.peer.received), closed
    finally:
        loop.close()


@pytest.mark.parametrize("make_protocol", RECORDERS)
@pytest.mark.parametrize("side", SIDES)
@hypothesis.settings(max_examples=30 if hypothesis.settings().max_examples < 1000 else 400)
@hypothesis.example(
    [
        [Action("pause_reading")],
        [Action("inside", ("data", Action("abort"))), Action("peer_send", (1,))],
        [Action("peer_ends")],
    ],
    VERSIONS[0],
)
@hypothesis.given(script=scripts, version=st.sampled_from(VERSIONS))
def test_any_script_comes_to_the_same_as_on_asyncio(
    load_implementation, impl, asyncio_log, side, make_protocol, script, version
):
    expected = played(load_implementation("asyncio"), side, version, TRACING[make_protocol], script)
    actual = played(impl, side, version, TRACING[make_protocol], script)
    assert actual == expected
    assert set(asyncio_log.take()) <= EXPECTED_LOG
