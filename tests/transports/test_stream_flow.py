"""Stream transports: the write buffer's size and limits, and when the protocol is told to pause (P28)."""

import itertools
import socket
import sys

import pytest
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, MORE_THAN_FITS, connected_sockets, connections_on, skip_on_asyncio

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


def flow(connection):
    return [call.removesuffix("_writing") for call in connection.protocol.calls if call.endswith("_writing")]


def set_limits(transport, *arguments):
    """The outcome of set_write_buffer_limits(): the limits, or the exception."""
    try:
        assert transport.set_write_buffer_limits(*arguments) is None
    except Exception as error:
        return type(error), str(error), transport.get_write_buffer_limits()
    return transport.get_write_buffer_limits()


LIMITS = [None, 0, 1, 3, 1000, 10**12, 10**30, -1, -(10**30), True, 2.5, float("inf"), "1", b"1", [], object]


def test_limits_are_kept_or_refused_as_asyncio_does(load_implementation, impl):
    def outcomes(implementation):
        loop = implementation.new_event_loop()
        try:
            with connections_on(loop) as connections:
                transport = connections.open().transport
                found = [transport.get_write_buffer_limits()]
                found += [set_limits(transport, *pair) for pair in itertools.product(LIMITS, LIMITS)]
                found += [set_limits(transport, high) for high in LIMITS]
                return found
        finally:
            loop.close()

    expected = outcomes(load_implementation("asyncio"))
    assert outcomes(impl) == expected


def test_limits(connections):
    transport = connections.open().transport
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
    transport.set_write_buffer_limits(high=1000)
    assert transport.get_write_buffer_limits() == (250, 1000)
    transport.set_write_buffer_limits(low=100)
    assert transport.get_write_buffer_limits() == (100, 400)
    transport.set_write_buffer_limits(high=10, low=10)
    assert transport.get_write_buffer_limits() == (10, 10)
    transport.set_write_buffer_limits(high=0)
    assert transport.get_write_buffer_limits() == (0, 0)
    for limits in ({"high": 1, "low": 2}, {"high": -1}, {"low": -1}, {"high": -1, "low": -2}):
        with pytest.raises(ValueError, match=r"^high \(-?\d+\) must be >= low \(-?\d+\) must be >= 0$"):
            transport.set_write_buffer_limits(**limits)
        assert transport.get_write_buffer_limits() == (0, 0)
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)


@every_kind
def test_the_buffers_size_is_what_the_peer_has_not_been_sent(loop, connections, kind):
    connection = connections.open(kind)
    transport = connection.transport
    assert transport.get_write_buffer_size() == 0
    written = connection.fill()
    transport.writelines([b"0123456789", bytearray(b"0123456789")])
    transport.write(memoryview(b"01234"))
    before = transport.get_write_buffer_size()
    transport.write(b"x" * 12345)
    assert transport.get_write_buffer_size() == before + 12345
    written += 25 + 12345
    received = 0
    while transport.get_write_buffer_size() > MORE_THAN_FITS // 2:
        received += len(connection.receive(1000))
        assert received + transport.get_write_buffer_size() <= written
    assert len(connection.receive(written - received)) == written - received
    assert transport.get_write_buffer_size() == 0
    with pytest.raises(BlockingIOError):
        connection.peer.recv(1)


def test_a_small_write_leaves_nothing_in_the_buffer_by_the_next_turn(loop, connections):
    connection = connections.open("tcp")
    loop.call_soon(connection.transport.write, b"small")
    loop.call_soon(connection.transport.writelines, [b"and ", b"small"])
    run_once(loop)
    sizes = []
    loop.call_soon(lambda: sizes.append(connection.transport.get_write_buffer_size()))
    run_once(loop)
    assert sizes == [0]


@pytest.mark.promise("P28")
@every_kind
def test_paused_above_the_high_limit_and_resumed_at_the_low_one(loop, connections, kind):
    connection = connections.open(kind)
    written = connection.fill()
    assert flow(connection) == ["pause"]
    assert connection.transport.get_write_buffer_size() > 64 * 1024
    connection.receive(written)
    assert flow(connection) == ["pause", "resume"]
    again = connection.fill()
    assert flow(connection) == ["pause", "resume", "pause"]
    connection.receive(again)
    assert flow(connection) == ["pause", "resume", "pause", "resume"]


@pytest.mark.promise("P28")
def test_exactly_at_the_limits(loop, connections):
    """A buffer as large as the high limit is not above it; the write that exceeds the limit pauses the protocol before
    it returns."""
    connection = connections.open("tcp")
    transport = connection.transport
    transport.set_write_buffer_limits(high=10**12)
    written = connection.fill()
    size = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=size + 3, low=0)
    transport.write(b"123")
    assert flow(connection) == []
    transport.write(b"4")
    assert flow(connection) == ["pause"]
    transport.write(b"5")
    assert flow(connection) == ["pause"]
    sizes = []
    connection.protocol.hooks["resume_writing"] = lambda: sizes.append(transport.get_write_buffer_size())
    connection.receive(written + 5)
    assert (flow(connection), sizes) == (["pause", "resume"], [0])


@pytest.mark.promise("P28")
def test_resumed_before_the_buffer_is_empty(loop, connections):
    connection = connections.open("tcp")
    transport = connection.transport
    transport.set_write_buffer_limits(high=10**12)
    written = connection.fill()
    high = transport.get_write_buffer_size() - 1
    transport.set_write_buffer_limits(high=high, low=high)
    assert flow(connection) == ["pause"]
    sizes = []
    connection.protocol.hooks["resume_writing"] = lambda: sizes.append(transport.get_write_buffer_size())
    connection.receive(written)
    assert flow(connection) == ["pause", "resume"]
    assert 0 < sizes[0] <= high


@pytest.mark.promise("P28")
@pytest.mark.skipif("pair" not in KINDS, reason="no Unix sockets here, whose buffers are as small as setsockopt() says")
def test_paused_before_write_returns_whatever_waits_for_the_end_of_the_turn(loop, connections):
    """A low limit holds within each turn, although the loop may send much more than that at once at the turn's end."""
    ours, peer = connected_sockets("pair")
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connection = connections.over(ours, peer)
    connection.transport.set_write_buffer_limits(high=1000)
    seen = []

    def burst():
        while not flow(connection) and len(seen) < 10:
            connection.transport.write(bytes(4000))
            seen.append(connection.protocol.calls[-1])

    loop.call_soon(burst)
    run_once(loop)
    assert seen[-1] == "pause_writing"
    assert connection.receive(4000 * len(seen)) == bytes(4000 * len(seen))
    assert flow(connection) == ["pause", "resume"]


def test_lower_limits_pause_at_once(loop, connections):
    connection = connections.open("tcp")
    transport = connection.transport
    transport.set_write_buffer_limits(high=10**12)
    written = connection.fill()
    size = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=size)
    assert flow(connection) == []
    transport.set_write_buffer_limits(high=size - 1)
    assert flow(connection) == ["pause"]
    transport.set_write_buffer_limits(high=0)
    assert flow(connection) == ["pause"]
    with pytest.raises(ValueError):
        transport.set_write_buffer_limits(high=-1)
    transport.set_write_buffer_limits(high=10**12)  # raising the limit resumes only when something is sent
    assert flow(connection) == ["pause"]
    connection.receive(written)
    assert flow(connection) == ["pause", "resume"]


def test_a_limit_of_zero_does_not_pause_what_the_kernel_takes(loop, connections):
    connection = connections.open("tcp")
    connection.transport.set_write_buffer_limits(high=0)

    def burst():
        for _ in range(10):
            connection.transport.write(b"small")

    burst()
    loop.call_soon(burst)
    assert connection.receive(100) == b"small" * 20
    assert flow(connection) == []


def test_writelines_pauses(loop, connections):
    connection = connections.open("tcp")
    if (3, 12) <= sys.version_info < (3, 14, 10):
        skip_on_asyncio(connection.transport, "its writelines() pauses no protocol until the next write()", mended=True)
    connection.transport.writelines([bytes(MORE_THAN_FITS)])
    assert flow(connection) == ["pause"]
    connection.receive(MORE_THAN_FITS)
    assert flow(connection) == ["pause", "resume"]


@pytest.mark.promise("P28")
def test_writing_more_when_resumed(loop, connections):
    """Each resume_writing() fills the buffer again: writing is paused inside it, and resumed when that data has been
    sent."""
    protocol = Recorder()
    connection = connections.open("tcp", protocol)
    rounds = 5
    written = connection.fill()

    def more():
        nonlocal rounds, written
        if rounds:
            rounds -= 1
            connection.transport.write(bytes(MORE_THAN_FITS))
            written += MORE_THAN_FITS

    protocol.hooks["resume_writing"] = more
    received = 0
    while received < written:
        received += len(connection.receive(written - received))
    run_until(loop, lambda: connection.transport.get_write_buffer_size() == 0)
    assert flow(connection) == ["pause", "resume"] * 6


def test_writing_more_when_paused(loop, connections):
    connection = connections.open("tcp")
    connection.protocol.hooks["pause_writing"] = lambda: connection.transport.write(b"more")
    connection.transport.write(bytes(MORE_THAN_FITS))
    assert flow(connection) == ["pause"]
    assert connection.receive(MORE_THAN_FITS + 4)[-4:] == b"more"
    assert flow(connection) == ["pause", "resume"]


@pytest.mark.parametrize("how", ["close", "abort", "write_eof"])
@pytest.mark.parametrize("where", ["pause_writing", "resume_writing"])
def test_ended_inside_the_callbacks(loop, connections, how, where):
    connection = connections.open("tcp")
    if where == "resume_writing" and how != "write_eof" and sys.version_info < (3, 14, 10):
        skip_on_asyncio(connection.transport, "it calls connection_lost() twice, see cpython gh-156512")
    connection.protocol.hooks[where] = lambda: getattr(connection.transport, how)()
    connection.transport.write(bytes(MORE_THAN_FITS))
    received = connection.receive_all()
    if how == "abort" and where == "pause_writing":
        assert len(received) < MORE_THAN_FITS
        assert flow(connection) == ["pause"]
    elif how == "abort":  # the rest at that time, at most the low limit
        assert len(received) >= MORE_THAN_FITS - 16 * 1024
        assert flow(connection) == ["pause", "resume"]
    else:
        assert len(received) == MORE_THAN_FITS
        assert flow(connection) == ["pause", "resume"]
    if how != "write_eof":
        connection.run_until_lost()
        assert connection.protocol.error is None


def test_an_aborted_connection_is_not_resumed(loop, connections):
    connection = connections.open("tcp")
    connection.fill()
    connection.transport.abort()
    assert connection.transport.get_write_buffer_size() == 0
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "pause_writing", "connection_lost"]


def test_a_closed_connection_is_resumed_while_it_is_flushed(loop, connections):
    connection = connections.open("tcp")
    written = connection.fill()
    connection.transport.close()
    assert len(connection.receive_all()) == written
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "connection_lost"]


def test_another_protocol_gets_the_resume(loop, connections):
    connection = connections.open("tcp")
    written = connection.fill()
    second = Recorder()
    connection.transport.set_protocol(second)
    connection.receive(written)
    run_once(loop)
    assert (flow(connection), second.calls) == (["pause"], ["resume_writing"])
    connection.transport.set_protocol(connection.protocol)
    connection.protocol.calls.append("resume_writing")  # completes its own life cycle


def test_limits_of_what_is_closed(loop, connections):
    connection = connections.open("tcp")
    connection.transport.close()
    connection.transport.set_write_buffer_limits(high=100)
    connection.run_until_lost()
    connection.transport.set_write_buffer_limits(high=200)
    assert connection.transport.get_write_buffer_limits() == (50, 200)
    assert connection.transport.get_write_buffer_size() == 0
