"""TLS: received data, into both kinds of protocol, with reading paused and resumed, and the limits of what is held."""

import asyncio
import sys

import pytest
from support.certificates import every_version
from support.recording import BufferedRecorder, Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, skip_on_asyncio
from support.tls_connections import AT_THE_END, ViewRecorder, every_protocol, every_side, numbered

RECORD = 16384  # bytes; the most that one record of TLS carries


class Pieces(Recorder):
    """Keeps the pieces apart."""

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
    secured = tls.open(side, make_protocol(), version=version)
    secured.deliver(b"hello")
    secured.transport.write(b"and back")
    assert secured.receive(8) == b"and back"
    secured.deliver(b"again")
    assert bytes(secured.protocol.received) == b"helloagain"
    assert secured.protocol.calls == ["connection_made", "data"]


@pytest.mark.parametrize("kind", KINDS)
@every_side
@every_protocol
@pytest.mark.parametrize("size", [1, RECORD - 1, RECORD, RECORD + 1, 200_000, 3_000_000])
def test_sizes(tls, kind, side, make_protocol, size):
    secured = tls.open(side, make_protocol(), kind=kind)
    data = numbered(size)
    secured.deliver(data)
    assert secured.protocol.received == data


@every_version
def test_the_records_that_have_arrived_come_together(tls, version):
    secured = tls.open("server", Pieces(), version=version)
    records = b"".join(secured.peer.encrypted(b"%d;" % number) for number in range(100))
    secured.peer.send_raw(records)
    expected = b"".join(b"%d;" % number for number in range(100))
    run_until(tls.loop, lambda: secured.protocol.received == expected)
    assert secured.protocol.pieces == [expected]


@every_side
@every_version
@every_protocol
def test_a_record_that_comes_byte_by_byte(tls, side, version, make_protocol):
    secured = tls.open(side, make_protocol(), version=version, kind="tcp")
    record = secured.peer.encrypted(b"data")
    for number in range(len(record)):
        assert not secured.protocol.received
        secured.peer.send_raw(record[number : number + 1])
        run_once(tls.loop, 2)
    run_until(tls.loop, lambda: secured.protocol.received)
    assert secured.protocol.received == b"data"


@every_protocol
def test_one_and_a_half_records_and_the_other_half(tls, make_protocol):
    secured = tls.open("client", make_protocol())
    first, second = secured.peer.encrypted(b"1" * 1000), secured.peer.encrypted(b"2" * 1000)
    secured.peer.send_raw(first + second[:500])
    run_until(tls.loop, lambda: secured.protocol.received == b"1" * 1000)
    secured.peer.send_raw(second[500:])
    run_until(tls.loop, lambda: secured.protocol.received == b"1" * 1000 + b"2" * 1000)


@pytest.mark.parametrize("size", [1, 7, 1000, RECORD, RECORD + 1, 300_000])
def test_a_buffered_protocols_buffer_of_any_size(tls, size):
    secured = tls.open("server", ViewRecorder(size))
    data = numbered(2000 if size < 100 else 150_000)
    secured.deliver(data)
    assert secured.protocol.received == data
    assert all(isinstance(hint, int) for hint in secured.protocol.size_hints)


def test_a_buffered_protocols_bytearray(tls):
    secured = tls.open("server", BufferedRecorder(100_000))
    skip_on_asyncio(secured.transport, "it fills slices of a bytearray, which are copies, from the second record on")
    data = numbered(90_000)
    secured.deliver(data)
    assert secured.protocol.received == data


@pytest.mark.parametrize("make", [bytearray, memoryview], ids=["bytearray", "memoryview"])
def test_a_buffer_that_changes_each_time(tls, make):
    protocol = ViewRecorder()

    def offer():
        protocol.buffer = make(bytearray(1 + len(protocol.size_hints) % 50))
        return protocol.buffer

    protocol.hooks["get_buffer"] = offer
    secured = tls.open("client", protocol)
    secured.deliver(numbered(3000))
    assert protocol.received == numbered(3000)


@pytest.mark.parametrize(("first", "second"), [(Recorder, ViewRecorder), (ViewRecorder, Recorder)])
def test_another_protocol_from_inside_a_callback(tls, first, second):
    protocol, successor = first(), second()
    secured = tls.open("server", protocol)
    when_data_comes(protocol, lambda: secured.transport.set_protocol(successor))
    secured.deliver(b"first")
    assert secured.transport.get_protocol() is successor
    secured.protocol = successor
    secured.deliver(b"second")
    assert (protocol.received, successor.received) == (b"first", b"second")
    assert successor.calls == ["data"]
    secured.transport.abort()
    run_until(tls.loop, lambda: successor.lost)
    assert not protocol.lost
    secured.protocol = protocol  # its life ended early


@every_side
@every_protocol
def test_pausing_and_resuming(tls, side, make_protocol):
    secured = tls.open(side, make_protocol())
    assert secured.transport.is_reading()
    secured.transport.pause_reading()
    secured.transport.pause_reading()
    assert not secured.transport.is_reading()
    secured.send(b"while paused")
    run_once(tls.loop, 10)
    assert not secured.protocol.received
    secured.transport.resume_reading()
    secured.transport.resume_reading()
    assert secured.transport.is_reading()
    assert not secured.protocol.received, "the protocol is told later, not from inside resume_reading()"
    run_until(tls.loop, lambda: secured.protocol.received == b"while paused")
    secured.deliver(b"afterwards")


@every_protocol
def test_resuming_and_pausing_again_at_once(tls, make_protocol):
    secured = tls.open("server", make_protocol())
    secured.transport.pause_reading()
    secured.send(b"data")
    run_once(tls.loop, 10)
    secured.transport.resume_reading()
    secured.transport.pause_reading()
    run_once(tls.loop, 10)
    assert not secured.protocol.received
    secured.transport.resume_reading()
    run_until(tls.loop, lambda: secured.protocol.received == b"data")


@every_protocol
def test_pausing_from_inside_a_callback(tls, make_protocol):
    protocol = make_protocol()
    secured = tls.open("server", protocol)
    when_data_comes(protocol, lambda: secured.transport.pause_reading())
    secured.deliver(b"first")
    secured.send(b"second")
    run_once(tls.loop, 10)
    assert protocol.received == b"first"
    secured.transport.resume_reading()
    run_until(tls.loop, lambda: protocol.received == b"firstsecond")
    assert not secured.transport.is_reading()


def test_pausing_while_more_is_decrypted_than_the_buffer_holds(tls):
    protocol = ViewRecorder(10)
    secured = tls.open("server", protocol)
    protocol.hooks["buffer_updated"] = lambda: secured.transport.pause_reading()
    secured.peer.write(numbered(35))
    for expected in (10, 20, 30, 35):
        run_until(tls.loop, lambda expected=expected: len(protocol.received) == expected)
        run_once(tls.loop, 5)
        assert len(protocol.received) == expected
        secured.transport.resume_reading()
    assert protocol.received == numbered(35)


@every_protocol
def test_a_task_that_pauses_and_resumes_loses_nothing(tls, make_protocol):
    secured = tls.open("client", make_protocol(), kind="tcp")
    data = numbered(2_000_000)

    async def flicker():
        while len(secured.protocol.received) < len(data):
            secured.transport.pause_reading()
            await asyncio.sleep(0)
            secured.transport.resume_reading()
            await asyncio.sleep(0.001)

    flickering = tls.loop.create_task(flicker())
    secured.deliver(data)
    tls.loop.run_until_complete(flickering)
    assert secured.protocol.received == data


def test_the_default_read_limits(tls):
    secured = tls.open()
    assert secured.transport.get_read_buffer_limits() == (64 << 10, 256 << 10)
    assert secured.transport.get_read_buffer_size() == 0


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
def test_a_peer_cannot_send_without_end_to_one_who_does_not_read(tls, side, high):
    """The transport holds a limited amount; the rest stays in the kernel, and then with the peer. Nothing is lost."""
    secured = tls.open(side, kind="tcp")
    secured.transport.set_read_buffer_limits(high)
    secured.transport.pause_reading()
    data = numbered(6_000_000)
    secured.peer.write(data)
    quiet, before = 0, -1
    while quiet < 20:
        run_once(tls.loop, 3)
        secured.peer.push()
        quiet = quiet + 1 if before == len(secured.peer.unsent) else 0
        before = len(secured.peer.unsent)
    assert secured.peer.unsent, "the kernel and the transport have taken all of it"
    _, high = secured.transport.get_read_buffer_limits()
    assert secured.transport.get_read_buffer_size() < high + (256 << 10) + RECORD
    secured.transport.resume_reading()
    secured.run_until(lambda: len(secured.protocol.received) == len(data))
    assert secured.protocol.received == data
    assert secured.transport.get_read_buffer_size() == 0


@pytest.mark.promise("P14")
@every_side
@every_version
@every_protocol
@pytest.mark.parametrize("ending", ["close_notify", "close_notify and end", "end alone"])
@pytest.mark.parametrize("size", [100, 100_000])
def test_no_byte_is_lost_when_the_end_comes_while_reading_is_paused(tls, side, version, make_protocol, ending, size):
    secured = tls.open(side, make_protocol(), version=version, kind="tcp")
    if make_protocol is ViewRecorder and size > 65536 and ending != "close_notify":
        skip_on_asyncio(secured.transport, AT_THE_END)
    secured.transport.pause_reading()
    data = numbered(size)
    secured.send(data)
    if "notify" in ending:
        secured.peer.notify_close()
    if "end" in ending:
        secured.end()
    run_once(tls.loop, 10)
    assert secured.protocol.calls == ["connection_made"]
    secured.transport.resume_reading()
    secured.run_until_lost()
    assert secured.protocol.received == data
    assert secured.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert secured.protocol.error is None


@pytest.mark.promise("P14")
@every_protocol
def test_no_byte_is_lost_when_the_end_comes_right_behind_more_than_a_buffer_holds(tls, make_protocol):
    secured = tls.open("server", make_protocol(1000) if make_protocol is ViewRecorder else make_protocol(), kind="tcp")
    if make_protocol is ViewRecorder:
        skip_on_asyncio(secured.transport, AT_THE_END)
    data = numbered(100_000)
    secured.send(data)
    secured.end()
    secured.run_until_lost()
    assert secured.protocol.received == data
    assert secured.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@pytest.mark.promise("P14")
@every_protocol
def test_a_long_farewell_while_reading_is_paused(tls, make_protocol):
    """The data exceeds what is held above the kernel: the end comes behind data that was not yet read when it
    arrived."""
    secured = tls.open("client", make_protocol(), kind="tcp")
    secured.transport.set_read_buffer_limits(1000)
    secured.transport.pause_reading()
    data = numbered(1_000_000)
    secured.peer.write(data)
    run_once(tls.loop, 10)
    secured.transport.resume_reading()
    secured.run_until(lambda: not secured.peer.unsent, peer_reads=False)
    secured.transport.pause_reading()
    secured.peer.notify_close()
    secured.run_until(lambda: not secured.peer.unsent, peer_reads=False)
    secured.end()
    run_once(tls.loop, 10)
    assert "eof_received" not in secured.protocol.calls
    secured.transport.resume_reading()
    secured.run_until_lost()
    assert secured.protocol.received == data
    assert secured.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]


@every_side
@every_version
def test_the_end_is_told_after_the_data(tls, side, version):
    secured = tls.open(side, version=version)
    secured.peer.write(b"data")
    secured.peer.notify_close()
    secured.run_until_lost()
    assert secured.protocol.received == b"data"
    assert secured.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert secured.protocol.error is None
    assert secured.transport.is_closing()


@pytest.mark.parametrize("ending", ["close_notify", "end alone"])
def test_a_true_eof_received_keeps_nothing_open(tls, asyncio_log, ending):
    secured = tls.open("server", Recorder(eof_received=lambda: True))
    secured.peer.notify_close() if ending == "close_notify" else secured.end()
    secured.run_until_lost()
    assert secured.protocol.error is None
    assert asyncio_log.take() == ["returning true from eof_received() has no effect when using ssl"]


def test_in_debug_mode(tls):
    tls.loop.set_debug(True)
    secured = tls.open("server", Pieces())
    secured.deliver(numbered(100_000))
    secured.transport.write(b"back")
    assert secured.receive(4) == b"back"


def test_reading_after_the_end(tls):
    """Pausing and resuming have no effect any more, and raise no error."""
    secured = tls.open("client")
    secured.transport.abort()
    secured.run_until_lost()
    secured.transport.pause_reading()
    secured.transport.resume_reading()
    run_once(tls.loop, 3)


def test_memory_that_is_handed_out_is_the_receivers_own(tls):
    secured = tls.open("server", Pieces())
    for number in range(50):
        secured.deliver(b"%d" % number * 10)
    assert secured.protocol.pieces == [b"%d" % number * 10 for number in range(50)]
    references = [sys.getrefcount(piece) for piece in secured.protocol.pieces]
    assert len(set(references)) == 1, "another object holds some of them"
