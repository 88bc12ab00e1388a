"""Stream transports: received data and its order, and how reading is paused."""

import array
import asyncio
import contextlib
import hashlib
import mmap
import select
import threading

import pytest
from support.recording import RECORDERS, BufferedRecorder, Recorder, StreamRecording, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connected_sockets, connections_on, reset, wait_for

TURNS = 5  # enough for data that is in the kernel already

every_kind = pytest.mark.parametrize("kind", KINDS)
every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


@every_kind
@every_protocol
def test_a_connection_from_its_beginning_to_its_end(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    connection.send(b"one")
    run_until(loop, lambda: connection.protocol.received == b"one")
    connection.send(b"two")
    run_until(loop, lambda: connection.protocol.received == b"onetwo")
    connection.peer.close()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert connection.protocol.error is None
    assert connection.protocol.transport is connection.transport


@every_protocol
def test_nothing_is_received_before_connection_made(loop, connections, make_protocol):
    """The peer's data from before the transport was made comes after connection_made(), and so does its end."""
    ours, peer = connected_sockets("tcp")
    peer.send(b"early")
    peer.close()
    wait_for(ours, select.POLLIN)
    connection = connections.over(ours, peer, make_protocol())
    connection.run_until_lost()
    assert connection.protocol.received == b"early"
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@every_kind
@every_protocol
def test_no_data_comes_while_reading_is_paused(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    transport = connection.transport
    assert transport.is_reading()
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    connection.send(b"kept")
    run_once(loop, TURNS)
    assert connection.protocol.calls == ["connection_made"]
    transport.resume_reading()
    transport.resume_reading()
    assert transport.is_reading()
    run_until(loop, lambda: connection.protocol.received == b"kept")
    connection.send(b" and more")
    run_until(loop, lambda: connection.protocol.received == b"kept and more")


@every_kind
@every_protocol
def test_paused_again_and_again(loop, connections, kind, make_protocol):
    """Paused with data waiting, with none, and twice between two turns: nothing is lost and nothing comes early."""
    connection = connections.open(kind, make_protocol())
    transport, protocol = connection.transport, connection.protocol
    sent = bytearray()
    for number in range(50):
        transport.pause_reading()
        if number % 3:
            run_once(loop)
        if number % 5 == 0:
            transport.resume_reading()
            transport.pause_reading()
        before = bytes(protocol.received)
        sent.extend(b"%d," % number)
        connection.send(b"%d," % number)
        run_once(loop, number % 4)
        assert protocol.received == before
        transport.resume_reading()
        run_until(loop, lambda: protocol.received == sent)


def test_resumed_without_a_turn_between(loop, connections):
    connection = connections.open("tcp")
    connection.send(b"one")
    connection.transport.pause_reading()
    connection.transport.resume_reading()
    run_until(loop, lambda: connection.protocol.received == b"one")
    connection.transport.pause_reading()
    connection.transport.resume_reading()
    connection.send(b"two")
    run_until(loop, lambda: connection.protocol.received == b"onetwo")


@pytest.mark.promise("P14")
@every_kind
@every_protocol
def test_data_and_the_end_that_arrive_while_paused_are_not_lost(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    connection.transport.pause_reading()
    connection.send(b"last words")
    connection.peer.close()
    wait_for(connection.socket, select.POLLIN)
    run_once(loop, TURNS)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert connection.protocol.received == b"last words"
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@every_kind
def test_a_reset_that_arrives_while_paused_is_noticed_on_resuming(loop, connections, kind):
    connection = connections.open(kind)
    connection.transport.pause_reading()
    connection.reset()
    run_once(loop, TURNS)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert isinstance(connection.protocol.error, ConnectionResetError)


@every_kind
@every_protocol
def test_pausing_from_inside_the_callback(loop, connections, kind, make_protocol):
    """The peer sends more and more data, of which the protocol takes one piece at a time."""
    protocol = make_protocol()
    connection = connections.open(kind, protocol)
    pieces = 0

    def pause():
        nonlocal pieces
        pieces += 1
        assert connection.transport.is_reading(), "called while paused"
        connection.transport.pause_reading()
        loop.call_soon(loop.call_soon, connection.transport.resume_reading)

    when_data_comes(protocol, pause)
    flood = bytes(range(256)) * 8192
    to_send = memoryview(flood)

    def received_all():
        nonlocal to_send
        with contextlib.suppress(BlockingIOError):
            to_send = to_send[connection.peer.send(to_send) :]
        return len(protocol.received) == len(flood)

    run_until(loop, received_all)
    assert protocol.received == flood
    assert pieces > 1
    run_once(loop, TURNS)  # the last resume_reading()


@every_protocol
def test_paused_and_resumed_inside_the_callback(loop, connections, make_protocol):
    protocol = make_protocol()
    connection = connections.open("tcp", protocol)

    def hook():
        connection.transport.pause_reading()
        connection.transport.resume_reading()

    when_data_comes(protocol, hook)
    for text in (b"one", b"two", b"three"):
        before = len(protocol.received)
        connection.send(text)
        run_until(loop, lambda before=before: len(protocol.received) > before)
    assert protocol.received == b"onetwothree"


@every_protocol
def test_resumed_by_a_task_and_by_another_thread(loop, connections, make_protocol):
    connection = connections.open("tcp", make_protocol())
    transport, protocol = connection.transport, connection.protocol

    async def resume():
        await asyncio.sleep(0)
        transport.resume_reading()

    transport.pause_reading()
    connection.send(b"one")
    loop.run_until_complete(resume())
    run_until(loop, lambda: protocol.received == b"one")

    transport.pause_reading()
    connection.send(b"two")
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=[transport.resume_reading])
    thread.start()
    run_until(loop, lambda: protocol.received == b"onetwo")
    thread.join()


@every_protocol
@pytest.mark.parametrize("resumed", [False, True])
def test_paused_in_connection_made(loop, connections, make_protocol, resumed):
    protocol = make_protocol()

    def hook():
        protocol.transport.pause_reading()
        if resumed:
            protocol.transport.resume_reading()

    protocol.hooks["connection_made"] = hook
    connection = connections.open("tcp", protocol)
    assert connection.transport.is_reading() == resumed
    connection.send(b"data")
    if not resumed:
        run_once(loop, TURNS)
        assert not protocol.received
        connection.transport.resume_reading()
    run_until(loop, lambda: protocol.received == b"data")


def test_pausing_and_resuming_what_is_closed_does_nothing(loop, connections):
    connection = connections.open()
    transport = connection.transport
    transport.close()
    assert not transport.is_reading()
    transport.pause_reading()
    transport.resume_reading()
    assert not transport.is_reading()
    connection.run_until_lost()
    transport.pause_reading()
    transport.resume_reading()
    assert not transport.is_reading()

    paused = connections.open()
    paused.transport.pause_reading()
    paused.send(b"never read")
    paused.transport.close()
    paused.transport.resume_reading()
    paused.run_until_lost()
    assert paused.protocol.calls == ["connection_made", "connection_lost"]


@every_kind
@every_protocol
@pytest.mark.parametrize("how", ["close", "abort"])
def test_closed_inside_the_callback_no_more_data_comes(loop, connections, kind, make_protocol, how):
    protocol = make_protocol() if make_protocol is Recorder else make_protocol(size=10)
    connection = connections.open(kind, protocol)
    when_data_comes(protocol, lambda: getattr(connection.transport, how)())
    connection.peer.send(b"a" * 10)
    connection.send(b"b" * 10)
    connection.run_until_lost()
    run_once(loop, TURNS)
    assert protocol.calls == ["connection_made", "data", "connection_lost"]
    assert protocol.error is None
    if make_protocol is BufferedRecorder:
        assert protocol.received == b"a" * 10


@every_protocol
@pytest.mark.parametrize("how", ["close", "abort"])
def test_closed_before_waiting_data_is_read(loop, connections, make_protocol, how):
    connection = connections.open("tcp", make_protocol())
    connection.send(b"too late")
    getattr(connection.transport, how)()
    connection.run_until_lost()
    run_once(loop, TURNS)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_protocol
def test_data_of_the_same_turn_in_which_another_callback_closes(loop, connections, make_protocol):
    """Both are readable in one poll. The one served first closes the other, which gets no more data."""
    one = connections.open("tcp", make_protocol())
    other = connections.open("tcp", make_protocol())
    when_data_comes(one.protocol, other.transport.abort)
    when_data_comes(other.protocol, one.transport.abort)
    one.send(b"data")
    other.send(b"data")
    run_until(loop, lambda: one.protocol.lost or other.protocol.lost)
    run_once(loop, TURNS)
    assert sorted([len(one.protocol.received), len(other.protocol.received)]) == [0, 4]


@every_protocol
def test_data_of_the_same_turn_in_which_another_callback_pauses(loop, connections, make_protocol):
    """Both are readable in one poll, but pausing takes effect at once."""
    one = connections.open("tcp", make_protocol())
    other = connections.open("tcp", make_protocol())
    when_data_comes(one.protocol, other.transport.pause_reading)
    when_data_comes(other.protocol, one.transport.pause_reading)
    one.send(b"data")
    other.send(b"data")
    run_once(loop, TURNS)
    assert sorted([len(one.protocol.received), len(other.protocol.received)]) == [0, 4]
    one.transport.resume_reading()
    other.transport.resume_reading()
    run_until(loop, lambda: one.protocol.received and other.protocol.received)


@every_kind
@every_protocol
@pytest.mark.parametrize("replacement", RECORDERS)
def test_another_protocol_takes_over(loop, connections, kind, make_protocol, replacement):
    """The protocol changes inside the callback that gets the data, and may change its kind."""
    first, second = make_protocol(), replacement()
    connection = connections.open(kind, first)
    second.transport = connection.transport
    when_data_comes(first, lambda: connection.transport.set_protocol(second))
    assert connection.transport.get_protocol() is first
    connection.send(b"hello")
    run_until(loop, lambda: first.received)
    assert connection.transport.get_protocol() is second
    connection.send(b"goodbye")
    connection.peer.close()
    run_until(loop, lambda: second.lost)
    assert (first.calls, first.received) == (["connection_made", "data"], b"hello")
    assert (second.calls, second.received) == (["data", "eof_received", "connection_lost"], b"goodbye")
    connection.protocol = None  # neither had a complete life cycle


@every_protocol
@pytest.mark.parametrize("replacement", RECORDERS)
def test_another_protocol_takes_over_amid_a_flood(loop, connections, make_protocol, replacement):
    """No byte is lost or doubled between the two protocols, even if much waits in the kernel."""
    first, second = make_protocol(), replacement()
    connection = connections.open("tcp", first)
    when_data_comes(first, lambda: connection.transport.set_protocol(second))
    flood = bytes(range(251)) * 4000
    sent = connection.peer.send(flood)
    run_until(loop, lambda: len(first.received) + len(second.received) >= sent)
    assert first.received + second.received == flood[:sent]
    connection.protocol = None


def test_another_protocol_between_two_turns(loop, connections):
    connection = connections.open("tcp")
    second = BufferedRecorder()
    connection.send(b"data")
    connection.transport.set_protocol(second)
    run_until(loop, lambda: second.received == b"data")
    connection.transport.set_protocol(connection.protocol)
    connection.send(b"back")
    run_until(loop, lambda: connection.protocol.received == b"back")


def test_the_buffer_that_is_offered_bounds_what_comes(loop, connections):
    protocol = BufferedRecorder(size=7)
    connection = connections.open("tcp", protocol)
    data = bytes(range(200))
    connection.send(data)
    run_until(loop, lambda: protocol.received == data)
    assert set(protocol.size_hints) == {-1}


@pytest.mark.parametrize(
    "make_buffer",
    [bytearray, lambda size: memoryview(bytearray(size + 9))[9:], lambda size: array.array("B", bytes(size))],
    ids=["bytearray", "memoryview", "array"],
)
def test_any_writable_buffer_may_be_offered(loop, connections, make_buffer):
    protocol = BufferedRecorder()
    protocol.buffer = make_buffer(100)
    connection = connections.open("tcp", protocol)
    connection.send(b"0123456789" * 25)
    run_until(loop, lambda: len(protocol.received) == 250)
    assert protocol.received == b"0123456789" * 25


def test_a_memory_map_may_be_offered(loop, connections):
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        protocol = BufferedRecorder()
        protocol.buffer = memory
        connection = connections.open("tcp", protocol)
        connection.send(b"mapped")
        run_until(loop, lambda: protocol.received == b"mapped")
        connection.transport.abort()
        connection.run_until_lost()


def test_the_offered_buffer_may_be_resized_in_buffer_updated(loop, connections):
    """The transport has released the buffer by then."""
    protocol = BufferedRecorder(size=4)
    connection = connections.open("tcp", protocol)
    when_data_comes(protocol, lambda: protocol.buffer.extend(b"more room"))
    connection.send(b"0123456789" * 10)
    run_until(loop, lambda: len(protocol.received) == 100)
    assert protocol.received == b"0123456789" * 10


def test_what_was_received_is_the_protocols_to_keep(loop, connections):
    """Each piece is an object of its own; later data does not change it."""

    class Keeping(Recorder):
        pieces = ()

        def data_received(self, data):
            self.pieces = (*self.pieces, data)
            super().data_received(data)

    protocol = Keeping()
    connection = connections.open("tcp", protocol)
    for size in (1, 100, 1000, 60_000, 3):
        for letter in (b"a", b"b"):
            before = len(protocol.received)
            connection.send(letter * size)
            run_until(loop, lambda before=before, size=size: len(protocol.received) == before + size)
    assert b"".join(protocol.pieces) == protocol.received
    assert [piece.strip(piece[:1]) for piece in protocol.pieces] == [b""] * len(protocol.pieces)


@every_kind
@every_protocol
def test_a_long_stream_arrives_intact(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    block = bytes(range(256)) * 256
    total = 32 << 20
    expected = hashlib.sha256(block * (total // len(block)))
    sent = 0

    def feed():
        nonlocal sent
        while sent < total:
            begin = sent % len(block)
            try:
                sent += connection.peer.send(memoryview(block)[begin:])
            except BlockingIOError:
                break
        return len(connection.protocol.received) == total

    run_until(loop, feed)
    assert hashlib.sha256(connection.protocol.received).digest() == expected.digest()


@every_kind
@every_protocol
def test_single_bytes(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    for number in range(256):
        connection.send(bytes([number]))
        run_until(loop, lambda number=number: len(connection.protocol.received) == number + 1)
    assert connection.protocol.received == bytes(range(256))


def test_reading_goes_on_while_writing_is_blocked(loop, connections):
    connection = connections.open("tcp")
    connection.fill()
    connection.send(b"still heard")
    run_until(loop, lambda: connection.protocol.received == b"still heard")


def test_reading_is_paused_while_writing_is_blocked(loop, connections):
    """Waiting for room to write must not resume reading."""
    connection = connections.open("tcp")
    written = connection.fill()
    connection.transport.pause_reading()
    connection.send(b"unheard")
    connection.receive(written)
    run_once(loop, TURNS)
    assert not connection.protocol.received
    connection.transport.resume_reading()
    run_until(loop, lambda: connection.protocol.received == b"unheard")


def test_a_reset_right_after_data(loop, connections):
    """Data that was delivered stays delivered; the reset is reported once."""
    connection = connections.open("tcp")
    connection.send(b"data")
    run_until(loop, lambda: connection.protocol.received == b"data")
    reset(connection.peer)
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert isinstance(connection.protocol.error, ConnectionResetError)


class ByMethods(StreamRecording):
    """A buffered protocol by its methods alone, not a subclass of asyncio's."""

    def __init__(self):
        super().__init__()
        self.buffer = bytearray(5)

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, count):
        self.received += self.buffer[:count]
        self.record("buffer_updated", "data")


class Both(ByMethods):
    def data_received(self, data):
        self.received += data.upper()
        self.record("data_received", "data")


takes_uvloops = pytest.mark.only("c", "python", reason="asyncio wants a subclass of BufferedProtocol, uvloop does not")


@takes_uvloops
@every_kind
def test_a_buffered_protocol_by_its_methods(loop, connections, kind):
    connection = connections.open(kind, ByMethods())
    connection.send(b"seven bytes")
    run_until(loop, lambda: connection.protocol.received == b"seven bytes")
    connection.peer.close()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@takes_uvloops
def test_a_buffered_protocol_by_its_methods_takes_over(loop, connections):
    connection = connections.open("tcp", Recorder())
    following = ByMethods()
    connection.transport.set_protocol(following)
    connection.send(b"data")
    run_until(loop, lambda: following.received == b"data")
    connection.transport.set_protocol(connection.protocol)
    connection.send(b"more")
    run_until(loop, lambda: connection.protocol.received == b"more")


@every_kind
def test_data_received_counts_for_more_than_get_buffer(loop, connections, kind):
    connection = connections.open(kind, Both())
    connection.send(b"data")
    run_until(loop, lambda: connection.protocol.received == b"DATA")


def test_the_exception_of_a_lost_connection_has_a_traceback(connections):
    connection = connections.open("tcp", Recorder())
    connection.reset()
    connection.run_until_lost()
    assert connection.protocol.error.__traceback__ is not None
