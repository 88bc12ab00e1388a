"""TLS: received data, into both kinds of protocol, with reading paused and resumed, and the limits of what is held."""

import asyncio
import sys

import pytest
from support.certificates import every_version
from support.python_buffers import PythonBuffer, needs_python_buffers
from support.recording import BufferedRecorder, Recorder, when_data_comes
from support.stepping import run_once, run_until, turns_until
from support.stream_connections import KINDS, assert_only_refused, called_within_itself, skip_on_asyncio
from support.tls_connections import AT_THE_END, ViewRecorder, every_protocol, every_side, numbered

RECORD = 16384  # bytes; the most that one record of TLS carries


class Pieces(Recorder):
    """Keeps each received piece as an item of its own."""

    def __init__(self, **hooks):
        super().__init__(**hooks)
        self.pieces = []

    def data_received(self, data):
        self.pieces.append(data)
        super().data_received(data)


@every_side
@every_version
@every_protocol
def test_data_both_ways(tls, side, version, make_protocol):
    connection = tls.open(side, make_protocol(), version=version)
    connection.deliver(b"hello")
    connection.transport.write(b"and back")
    assert connection.receive(8) == b"and back"
    connection.deliver(b"again")
    assert bytes(connection.protocol.received) == b"helloagain"
    assert connection.protocol.calls == ["connection_made", "data"]


@pytest.mark.parametrize("kind", KINDS)
@every_side
@every_protocol
@pytest.mark.parametrize("size", [1, RECORD - 1, RECORD, RECORD + 1, 200_000, 3_000_000])
def test_sizes(tls, kind, side, make_protocol, size):
    connection = tls.open(side, make_protocol(), kind=kind)
    data = numbered(size)
    connection.deliver(data)
    assert connection.protocol.received == data


@every_version
def test_the_records_that_have_arrived_come_together(tls, version):
    connection = tls.open("server", Pieces(), version=version)
    records = b"".join(connection.peer.encrypted(b"%d;" % number) for number in range(100))
    connection.peer.send_raw(records)
    expected = b"".join(b"%d;" % number for number in range(100))
    run_until(tls.loop, lambda: connection.protocol.received == expected)
    assert connection.protocol.pieces == [expected]


@every_side
@every_version
@every_protocol
def test_a_record_that_comes_byte_by_byte(tls, side, version, make_protocol):
    connection = tls.open(side, make_protocol(), version=version, kind="tcp")
    record = connection.peer.encrypted(b"data")
    for number in range(len(record)):
        assert not connection.protocol.received
        connection.peer.send_raw(record[number : number + 1])
        run_once(tls.loop, 2)
    run_until(tls.loop, lambda: connection.protocol.received)
    assert connection.protocol.received == b"data"


@every_protocol
def test_one_and_a_half_records_and_the_other_half(tls, make_protocol):
    connection = tls.open("client", make_protocol())
    first, second = connection.peer.encrypted(b"1" * 1000), connection.peer.encrypted(b"2" * 1000)
    connection.peer.send_raw(first + second[:500])
    run_until(tls.loop, lambda: connection.protocol.received == b"1" * 1000)
    connection.peer.send_raw(second[500:])
    run_until(tls.loop, lambda: connection.protocol.received == b"1" * 1000 + b"2" * 1000)


@pytest.mark.parametrize("size", [1, 7, 1000, RECORD, RECORD + 1, 300_000])
def test_a_buffered_protocols_buffer_of_any_size(tls, size):
    connection = tls.open("server", ViewRecorder(size))
    data = numbered(2000 if size < 100 else 150_000)
    connection.deliver(data)
    assert connection.protocol.received == data
    assert all(isinstance(hint, int) for hint in connection.protocol.size_hints)


def test_a_buffered_protocols_bytearray(tls):
    connection = tls.open("server", BufferedRecorder(100_000))
    skip_on_asyncio(connection.transport, "it fills slices of a bytearray, which are copies, from the second record on")
    data = numbered(90_000)
    connection.deliver(data)
    assert connection.protocol.received == data


def test_each_filled_buffer_has_a_turn_of_its_own(tls):
    """asyncio queues the next read, then calls buffer_updated(). A task that the first piece has woken would come too
    late if all pieces came in one turn: its future would be done already."""
    protocol, order = ViewRecorder(4), []

    def note():
        piece = bytes(protocol.received[-4:])
        order.append(piece)
        tls.loop.call_soon(order.append, b"after " + piece)

    protocol.hooks["buffer_updated"] = note
    connection = tls.open("server", protocol)
    connection.deliver(b"1...2...3...")
    run_once(tls.loop, 2)
    assert order == [b"1...", b"2...", b"after 1...", b"3...", b"after 2...", b"after 3..."]


@pytest.mark.parametrize("pausing", [False, True])
def test_the_peers_end_comes_after_all_that_did_not_fit_into_the_buffer(tls, pausing):
    protocol = ViewRecorder(10)
    connection = tls.open("server", protocol)
    skip_on_asyncio(connection.transport, AT_THE_END)
    if pausing:
        protocol.hooks["buffer_updated"] = lambda: (
            connection.transport.pause_reading(),
            tls.loop.call_soon(connection.transport.resume_reading),
        )
    connection.peer.write(numbered(95))
    connection.end()
    connection.run_until_lost()
    assert protocol.received == numbered(95)
    assert protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


def test_closing_while_the_next_piece_waits_for_its_turn(tls):
    protocol = ViewRecorder(10)
    connection = tls.open("server", protocol)
    when_data_comes(protocol, connection.transport.close)
    connection.peer.write(numbered(95))
    connection.run_until_lost()
    assert protocol.received in (numbered(10), numbered(20))  # asyncio delivers the piece that is queued


def test_all_that_was_held_back_comes_in_one_call(tls):
    connection = tls.open("server", Pieces())
    connection.transport.set_read_buffer_limits(high=1 << 20)
    connection.transport.pause_reading()
    connection.peer.write(numbered(600_000))
    connection.run_until(lambda: not connection.peer.unsent)
    run_once(tls.loop, 10)
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: connection.protocol.received)
    assert connection.protocol.pieces == [numbered(600_000)]


@pytest.mark.parametrize("make", [bytearray, memoryview], ids=["bytearray", "memoryview"])
def test_a_buffer_that_changes_each_time(tls, make):
    protocol = ViewRecorder()

    def offer():
        protocol.buffer = make(bytearray(1 + len(protocol.size_hints) % 50))
        return protocol.buffer

    protocol.hooks["get_buffer"] = offer
    connection = tls.open("client", protocol)
    connection.deliver(numbered(3000))
    assert protocol.received == numbered(3000)


@pytest.mark.parametrize(("first", "second"), [(Recorder, ViewRecorder), (ViewRecorder, Recorder)])
def test_another_protocol_from_inside_a_callback(tls, first, second):
    protocol, successor = first(), second()
    connection = tls.open("server", protocol)
    when_data_comes(protocol, lambda: connection.transport.set_protocol(successor))
    connection.deliver(b"first")
    assert connection.transport.get_protocol() is successor
    connection.protocol = successor
    connection.deliver(b"second")
    assert (protocol.received, successor.received) == (b"first", b"second")
    assert successor.calls == ["data"]
    connection.transport.abort()
    run_until(tls.loop, lambda: successor.lost)
    assert not protocol.lost
    connection.protocol = protocol  # its life ended early


@every_side
@every_protocol
def test_pausing_and_resuming(tls, side, make_protocol):
    connection = tls.open(side, make_protocol())
    assert connection.transport.is_reading()
    connection.transport.pause_reading()
    connection.transport.pause_reading()
    assert not connection.transport.is_reading()
    connection.send(b"while paused")
    run_once(tls.loop, 10)
    assert not connection.protocol.received
    connection.transport.resume_reading()
    connection.transport.resume_reading()
    assert connection.transport.is_reading()
    assert not connection.protocol.received, "the protocol is told later, not from inside resume_reading()"
    run_until(tls.loop, lambda: connection.protocol.received == b"while paused")
    connection.deliver(b"afterwards")


@every_protocol
def test_resuming_and_pausing_again_at_once(tls, make_protocol):
    connection = tls.open("server", make_protocol())
    connection.transport.pause_reading()
    connection.send(b"data")
    run_once(tls.loop, 10)
    connection.transport.resume_reading()
    connection.transport.pause_reading()
    run_once(tls.loop, 10)
    assert not connection.protocol.received
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: connection.protocol.received == b"data")


@every_protocol
def test_pausing_from_inside_a_callback(tls, make_protocol):
    protocol = make_protocol()
    connection = tls.open("server", protocol)
    when_data_comes(protocol, lambda: connection.transport.pause_reading())
    connection.deliver(b"first")
    connection.send(b"second")
    run_once(tls.loop, 10)
    assert protocol.received == b"first"
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: protocol.received == b"firstsecond")
    assert not connection.transport.is_reading()


def test_pausing_while_more_is_decrypted_than_the_buffer_holds(tls):
    protocol = ViewRecorder(10)
    connection = tls.open("server", protocol)
    protocol.hooks["buffer_updated"] = lambda: connection.transport.pause_reading()
    connection.peer.write(numbered(35))
    for expected in (10, 20, 30, 35):
        run_until(tls.loop, lambda expected=expected: len(protocol.received) == expected)
        run_once(tls.loop, 5)
        assert len(protocol.received) == expected
        connection.transport.resume_reading()
    assert protocol.received == numbered(35)


@every_protocol
def test_a_task_that_pauses_and_resumes_loses_nothing(tls, make_protocol):
    connection = tls.open("client", make_protocol(), kind="tcp")
    data = numbered(2_000_000)

    async def flicker():
        while len(connection.protocol.received) < len(data):
            connection.transport.pause_reading()
            await asyncio.sleep(0)
            connection.transport.resume_reading()
            await asyncio.sleep(0.001)

    flickering = tls.loop.create_task(flicker())
    connection.deliver(data)
    tls.loop.run_until_complete(flickering)
    assert connection.protocol.received == data


def test_the_default_read_limits(tls):
    connection = tls.open()
    assert connection.transport.get_read_buffer_limits() == (64 << 10, 256 << 10)
    assert connection.transport.get_read_buffer_size() == 0


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((1000, 10), (10, 1000)), ((1000, None), (250, 1000)), ((None, 10), (10, 40)), ((0, 0), (0, 0)), ((7, 7), (7, 7))],
)
def test_read_limits(tls, limits, expected):
    transport = tls.open().transport
    transport.set_read_buffer_limits(*limits)
    assert transport.get_read_buffer_limits() == expected
    transport.set_read_buffer_limits()
    assert transport.get_read_buffer_limits() == (64 << 10, 256 << 10)


@pytest.mark.parametrize("limits", [(10, 20), (-1, None), (None, -1), (0, 1)])
def test_read_limits_that_cannot_be(tls, limits):
    transport = tls.open().transport
    with pytest.raises(ValueError, match="must be >="):
        transport.set_read_buffer_limits(*limits)
    assert transport.get_read_buffer_limits() == (64 << 10, 256 << 10)


@every_side
@pytest.mark.parametrize("high", [1, 10_000, None])
def test_a_peer_cannot_send_without_end_while_reading_is_paused(tls, side, high):
    """The transport holds a limited amount. The rest stays in the kernel and, when its buffers are full, with the
    peer. No data is lost."""
    connection = tls.open(side, kind="tcp")
    connection.transport.set_read_buffer_limits(high)
    connection.transport.pause_reading()
    data = numbered(6_000_000)
    connection.peer.write(data)
    quiet, before = 0, -1
    while quiet < 20:
        run_once(tls.loop, 3)
        connection.peer.push()
        quiet = quiet + 1 if before == len(connection.peer.unsent) else 0
        before = len(connection.peer.unsent)
    assert connection.peer.unsent, "the kernel and the transport have taken all of it"
    _, high = connection.transport.get_read_buffer_limits()
    assert connection.transport.get_read_buffer_size() < high + (256 << 10) + RECORD
    connection.transport.resume_reading()
    connection.run_until(lambda: len(connection.protocol.received) == len(data))
    assert connection.protocol.received == data
    assert connection.transport.get_read_buffer_size() == 0


@pytest.mark.promise("P14")
@every_side
@every_version
@every_protocol
@pytest.mark.parametrize("ending", ["close_notify", "close_notify and end", "end alone"])
@pytest.mark.parametrize("size", [100, 100_000])
def test_no_byte_is_lost_when_the_end_comes_while_reading_is_paused(tls, side, version, make_protocol, ending, size):
    connection = tls.open(side, make_protocol(), version=version, kind="tcp")
    if make_protocol is ViewRecorder and size > 65536 and ending != "close_notify":
        skip_on_asyncio(connection.transport, AT_THE_END)
    connection.transport.pause_reading()
    data = numbered(size)
    connection.send(data)
    if "notify" in ending:
        connection.peer.notify_close()
    if "end" in ending:
        connection.end()
    run_once(tls.loop, 10)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert connection.protocol.received == data
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert connection.protocol.error is None


@pytest.mark.promise("P14")
@every_protocol
def test_no_byte_is_lost_when_the_end_comes_right_behind_more_than_a_buffer_holds(tls, make_protocol):
    protocol = make_protocol(1000) if make_protocol is ViewRecorder else make_protocol()
    connection = tls.open("server", protocol, kind="tcp")
    if make_protocol is ViewRecorder:
        skip_on_asyncio(connection.transport, AT_THE_END)
    data = numbered(100_000)
    connection.send(data)
    connection.end()
    connection.run_until_lost()
    assert connection.protocol.received == data
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@pytest.mark.promise("P14")
@every_protocol
def test_a_long_farewell_while_reading_is_paused(tls, make_protocol):
    """There is more data than the transport holds: part of it is still unread when the end arrives behind it."""
    connection = tls.open("client", make_protocol(), kind="tcp")
    connection.transport.set_read_buffer_limits(1000)
    connection.transport.pause_reading()
    data = numbered(1_000_000)
    connection.peer.write(data)
    run_once(tls.loop, 10)
    connection.transport.resume_reading()
    connection.run_until(lambda: not connection.peer.unsent, peer_reads=False)
    connection.transport.pause_reading()
    connection.peer.notify_close()
    connection.run_until(lambda: not connection.peer.unsent, peer_reads=False)
    connection.end()
    run_once(tls.loop, 10)
    assert "eof_received" not in connection.protocol.calls
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert connection.protocol.received == data
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@every_side
@every_version
def test_the_end_is_told_after_the_data(tls, side, version):
    connection = tls.open(side, version=version)
    connection.peer.write(b"data")
    connection.peer.notify_close()
    connection.run_until_lost()
    assert connection.protocol.received == b"data"
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert connection.protocol.error is None
    assert connection.transport.is_closing()


@pytest.mark.parametrize("ending", ["close_notify", "end alone"])
def test_a_true_eof_received_keeps_nothing_open(tls, asyncio_log, ending):
    connection = tls.open("server", Recorder(eof_received=lambda: True))
    connection.peer.notify_close() if ending == "close_notify" else connection.end()
    connection.run_until_lost()
    assert connection.protocol.error is None
    assert asyncio_log.take() == ["returning true from eof_received() has no effect when using ssl"]


def test_in_debug_mode(tls):
    tls.loop.set_debug(True)
    connection = tls.open("server", Pieces())
    connection.deliver(numbered(100_000))
    connection.transport.write(b"back")
    assert connection.receive(4) == b"back"


def test_reading_after_the_end(tls):
    """After the end, pausing and resuming have no effect and raise no error."""
    connection = tls.open("client")
    connection.transport.abort()
    connection.run_until_lost()
    connection.transport.pause_reading()
    connection.transport.resume_reading()
    run_once(tls.loop, 3)


def test_memory_that_is_handed_out_is_the_receivers_own(tls):
    connection = tls.open("server", Pieces())
    for number in range(50):
        connection.deliver(b"%d" % number * 10)
    assert connection.protocol.pieces == [b"%d" % number * 10 for number in range(50)]
    references = [sys.getrefcount(piece) for piece in connection.protocol.pieces]
    assert len(set(references)) == 1, "another object holds some of them"


@called_within_itself
@every_side
@every_protocol
def test_reading_is_resumed_while_a_callback_runs_the_loop(tls, side, make_protocol):
    """As nest_asyncio does; the callback has entered the context of the connection's callbacks."""
    connection = tls.open(side, make_protocol())
    protocol = connection.protocol
    within = []

    def hook():
        protocol.hooks.clear()
        connection.transport.resume_reading()
        for _ in range(5):
            tls.loop._run_once()
        within.append(True)

    connection.transport.pause_reading()
    connection.send(b"held")
    run_once(tls.loop, 3)
    connection.fill()
    protocol.hooks["resume_writing"] = hook
    turns_until(tls.loop, lambda: connection.peer.read() or (within and protocol.received))
    assert protocol.received == b"held"
    assert_only_refused(tls.take_reports())


@needs_python_buffers
@every_side
def test_a_buffer_that_runs_the_loop_when_it_is_asked_for_its_memory(tls, side):
    connection = tls.open(side, BufferedRecorder())
    protocol = connection.protocol
    memory = bytearray(65536)

    def run_the_loop():
        protocol.hooks.clear()
        connection.transport.pause_reading()
        connection.transport.resume_reading()
        for _ in range(3):
            tls.loop.call_soon(list)
            tls.loop._run_once()

    protocol.hooks["get_buffer"] = lambda: PythonBuffer(memory, when_asked=run_the_loop)
    connection.send(b"first")
    run_until(tls.loop, lambda: protocol.received)
    connection.send(b" second")
    run_until(tls.loop, lambda: len(protocol.received) == 12)
    assert protocol.received == b"first second"
    assert not connection.transport.is_closing()
    assert_only_refused(tls.take_reports())


@needs_python_buffers
@every_side
def test_a_buffer_that_runs_the_loop_when_it_gives_its_memory_back(tls, side):
    """What waits behind the data in the buffer is decrypted meanwhile."""
    small = []
    offered = []
    pieces = []

    def run_the_loop():
        connection.transport.pause_reading()
        connection.transport.resume_reading()
        for _ in range(3):
            tls.loop.call_soon(list)
            tls.loop._run_once()

    class Protocol(BufferedRecorder):
        def get_buffer(self, sizehint):
            buffer = small.pop() if small else memoryview(bytearray(65536))
            offered.append(getattr(buffer, "memory", buffer))
            return buffer

        def buffer_updated(self, nbytes):
            # asyncio's asks for a buffer even if there is nothing to put into it.
            filled = next(memory for memory in reversed(offered) if memory[0])
            pieces.append(bytes(filled[:nbytes]))
            filled[0] = 0

    connection = tls.open(side, Protocol())
    small.append(PythonBuffer(bytearray(5), when_released=run_the_loop))
    connection.peer.send_raw(connection.peer.encrypted(b"first") + connection.peer.encrypted(b" second"))
    turns_until(tls.loop, lambda: len(pieces) == 2 or connection.transport.is_closing())
    assert sorted(pieces) == [b" second", b"first"]
    assert not connection.transport.is_closing()
    assert_only_refused(tls.take_reports())


@needs_python_buffers
@every_side
def test_a_buffer_that_ends_the_connection_when_it_gives_its_memory_back(tls, side):
    def end_the_connection():
        if not connection.protocol.received:
            connection.transport._ssl_protocol.connection_lost(None)

    memory = bytearray(5)
    connection = tls.open(side, BufferedRecorder())
    ssl_protocol = connection.transport._ssl_protocol
    below = ssl_protocol._transport
    connection.protocol.hooks["get_buffer"] = lambda: PythonBuffer(memory, when_released=end_the_connection)
    connection.send(b"first")
    run_until(tls.loop, lambda: connection.protocol.lost)
    below.abort()
    run_until(tls.loop, lambda: below._sock is None)
    assert memory == b"first"
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert_only_refused(tls.take_reports())
