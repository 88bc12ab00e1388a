"""Data received before a connection's end is delivered before connection_lost(): paused or not, with TLS or without, on
TCP, Unix sockets and pipes, and in either order of the end and resume_reading().

The tests make both happen in one turn of the loop, as happens by chance on a loaded machine.
"""

import asyncio
import contextlib
import os
import select

import pytest
from support.certificates import every_version
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connections_on, skip_on_asyncio, wait_for
from support.tls_connections import AT_THE_END, UpgradableConnection, ViewRecorder, every_protocol, every_side, numbered

pytestmark = pytest.mark.promise("P36")

every_kind = pytest.mark.parametrize("kind", KINDS)
TLS_ENDINGS = ["close_notify", "close_notify and end", "end alone"]
WHOLE_LIFE = ["connection_made", "data", "eof_received", "connection_lost"]


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


def end_tls(connection, ending):
    if "notify" in ending:
        connection.peer.notify_close()
    if "end" in ending:
        connection.end()
    wait_for(connection.socket, select.POLLIN)


def hold(connection, data):
    """Pause the transport and have it take in `data`."""
    connection.transport.pause_reading()
    connection.send(data)
    run_until(connection.loop, lambda: connection.transport.get_read_buffer_size() >= len(data))


# -- TLS ---------------------------------------------------------------------------------------------------------------


@every_side
@every_version
@every_protocol
@pytest.mark.parametrize("ending", TLS_ENDINGS)
@pytest.mark.parametrize("size", [100, 60_000, 100_000])
def test_tls_is_resumed_in_the_turn_of_the_end(tls, side, version, make_protocol, ending, size):
    connection = tls.open(side, make_protocol(), version=version, kind="tcp")
    if make_protocol is ViewRecorder and size > 65536:
        skip_on_asyncio(connection.transport, AT_THE_END)
    hold(connection, numbered(size))
    end_tls(connection, ending)
    # This callback runs before the end is processed, and its own callbacks run after it.
    tls.loop.call_soon(connection.transport.resume_reading)
    connection.run_until_lost()
    assert connection.protocol.received == numbered(size)
    assert connection.protocol.calls == WHOLE_LIFE
    assert connection.protocol.error is None


@every_side
@pytest.mark.parametrize("ending", TLS_ENDINGS)
@pytest.mark.parametrize("paused_after", range(3))
@pytest.mark.parametrize("turns", range(5))
def test_tls_is_resumed_some_turns_from_the_end(tls, side, ending, paused_after, turns):
    """Resumed before the end and after it; paused before the data, between two parts, or after them."""
    connection = tls.open(side, kind="tcp")
    data = numbered(30_000)
    for number, part in enumerate([data[:10_000], data[10_000:]]):
        if number == paused_after:
            connection.transport.pause_reading()
        connection.send(part)
        run_once(tls.loop, 3)
    connection.transport.pause_reading()
    if turns >= 3:
        end_tls(connection, ending)
        run_once(tls.loop, turns - 3)
        tls.loop.call_soon(connection.transport.resume_reading)
    else:
        tls.loop.call_soon(connection.transport.resume_reading)
        run_once(tls.loop, turns)
        end_tls(connection, ending)
    connection.run_until_lost()
    assert connection.protocol.received == data
    assert connection.protocol.calls == WHOLE_LIFE


@every_protocol
@pytest.mark.parametrize("ending", TLS_ENDINGS)
def test_tls_is_paused_by_each_piece(tls, make_protocol, ending):
    """Each piece pauses the stream, even the pieces that come with the end."""
    protocol = make_protocol(1000) if make_protocol is ViewRecorder else make_protocol()
    connection = tls.open("server", protocol, kind="tcp")
    skip_on_asyncio(connection.transport, "at the end it does not keep its data for a protocol that pauses")

    def pause():
        connection.transport.pause_reading()
        tls.loop.call_soon(connection.transport.resume_reading)

    protocol.hooks.update(data_received=pause, buffer_updated=pause)
    hold(connection, numbered(50_000))
    end_tls(connection, ending)
    tls.loop.call_soon(connection.transport.resume_reading)
    connection.run_until_lost()
    assert protocol.received == numbered(50_000)
    assert protocol.calls == WHOLE_LIFE


@pytest.mark.parametrize("ending", TLS_ENDINGS)
def test_tls_is_told_of_the_end_twice(tls, ending):
    """The transport below reports the end again when it is resumed: the protocol is still paused."""
    connection = tls.open("server", kind="tcp")
    hold(connection, numbered(1000))
    end_tls(connection, ending)
    run_once(tls.loop, 3)
    connection.transport.set_read_buffer_limits(500, 100)
    connection.transport.set_read_buffer_limits()
    skip_on_asyncio(connection.transport, "the second time it drops the held data")
    run_once(tls.loop, 3)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert connection.protocol.received == numbered(1000)
    assert connection.protocol.calls == WHOLE_LIFE


def resume_beside_a_reset(tls, side, protocol, resume):
    connection = tls.open(side, protocol, kind="tcp")
    hold(connection, numbered(50_000))
    connection.reset()
    resume(connection.transport.resume_reading)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert connection.protocol.received == numbered(50_000)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert isinstance(connection.protocol.error, ConnectionResetError)


@every_side
@every_protocol
def test_tls_is_resumed_ahead_of_a_reset(tls, side, make_protocol):
    resume_beside_a_reset(tls, side, make_protocol(), tls.loop.call_soon)


@every_side
@every_protocol
@pytest.mark.only("c", reason="asyncio's TLS drops held data when the connection below is lost")
def test_tls_is_resumed_right_behind_a_reset(tls, side, make_protocol):
    """Timers run behind the events of the poll."""
    resume_beside_a_reset(tls, side, make_protocol(), lambda callback: tls.loop.call_later(0, callback))


@every_side
@pytest.mark.parametrize("ending", TLS_ENDINGS)
def test_tls_after_start_tls(tls, side, ending):
    connection = UpgradableConnection(tls, side).upgrade()
    hold(connection, numbered(1000))
    end_tls(connection, ending)
    tls.loop.call_soon(connection.transport.resume_reading)
    connection.run_until_lost()
    assert connection.protocol.received == numbered(1000)
    assert connection.protocol.calls == WHOLE_LIFE


class Streams(asyncio.StreamReaderProtocol):
    """data_received() of a subclass is called; asyncio's own class may be bypassed."""


async def read_all(reader, turns):
    received = bytearray()
    while data := await reader.read(700):
        received += data
        for _ in range(turns):
            await asyncio.sleep(0)
    return bytes(received)


@pytest.mark.parametrize("make_protocol", [asyncio.StreamReaderProtocol, Streams])
@pytest.mark.parametrize("ending", TLS_ENDINGS)
@pytest.mark.parametrize("turns", range(4))
def test_tls_read_through_a_small_stream_reader(tls, make_protocol, ending, turns):
    reader = asyncio.StreamReader(limit=500, loop=tls.loop)
    connection = tls.open("client", make_protocol(reader, loop=tls.loop), kind="tcp")
    data = numbered(20_000)
    for part in (data[:5000], data[5000:]):
        connection.send(part)
        run_once(tls.loop, 3)
    end_tls(connection, ending)
    # The first read resumes the transport, in the turn in which the end comes.
    reading = tls.loop.create_task(read_all(reader, turns))
    run_until(tls.loop, reading.done)
    assert reading.result() == data
    connection.transport.close()
    run_until(tls.loop, lambda: connection.is_gone)


# -- plain -------------------------------------------------------------------------------------------------------------


@every_kind
@every_protocol
@pytest.mark.parametrize("ending", ["half-closed", "closed"])
@pytest.mark.parametrize("turns", range(4))
def test_a_stream_is_resumed_some_turns_from_the_end(loop, connections, kind, make_protocol, ending, turns):
    connection = connections.open(kind, make_protocol())
    connection.transport.pause_reading()
    connection.send(numbered(50_000))
    run_once(loop, 3)
    if turns < 3:
        loop.call_soon(connection.transport.resume_reading)
        run_once(loop, turns)
    if ending == "half-closed":
        connection.end()
    else:
        connection.peer.close()
        wait_for(connection.socket, select.POLLIN)
    if turns == 3:
        loop.call_soon(connection.transport.resume_reading)
    connection.run_until_lost()
    assert connection.protocol.received == numbered(50_000)
    assert connection.protocol.calls == WHOLE_LIFE
    assert connection.protocol.error is None


@every_protocol
@pytest.mark.parametrize("turns", [0, 3])
def test_a_stream_is_resumed_in_the_turn_of_a_reset(loop, connections, make_protocol, turns):
    """The kernel keeps the data that came before the reset."""
    connection = connections.open("tcp", make_protocol())
    connection.transport.pause_reading()
    connection.send(numbered(50_000))
    run_once(loop, 3)
    connection.reset()
    run_once(loop, turns)
    loop.call_soon(connection.transport.resume_reading)
    connection.run_until_lost()
    assert connection.protocol.received == numbered(50_000)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert isinstance(connection.protocol.error, ConnectionResetError)


@every_kind
@every_protocol
def test_a_stream_is_paused_by_each_piece(loop, connections, kind, make_protocol):
    protocol = make_protocol(1000) if make_protocol is ViewRecorder else make_protocol()
    connection = connections.open(kind, protocol)

    def pause():
        connection.transport.pause_reading()
        loop.call_soon(connection.transport.resume_reading)

    protocol.hooks.update(data_received=pause, buffer_updated=pause)
    connection.send(numbered(50_000))
    connection.end()
    connection.run_until_lost()
    assert protocol.received == numbered(50_000)
    assert protocol.calls == WHOLE_LIFE


@every_kind
@pytest.mark.parametrize("turns", range(3))
def test_a_stream_read_through_a_small_stream_reader(loop, connections, kind, turns):
    reader = asyncio.StreamReader(limit=500, loop=loop)
    connection = connections.open(kind, asyncio.StreamReaderProtocol(reader, loop=loop))
    connection.send(numbered(10_000))
    run_once(loop, 3)
    connection.send(numbered(5000))
    connection.end()
    reading = loop.create_task(read_all(reader, turns))
    run_until(loop, reading.done)
    assert reading.result() == numbered(10_000) + numbered(5000)
    connection.transport.close()
    run_until(loop, lambda: connection.socket.fileno() == -1)


@pytest.mark.parametrize("turns", range(4))
def test_a_pipe_is_resumed_some_turns_from_the_end(loop, turns):
    reading, writing = os.pipe()
    protocol = Recorder()
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(os.fdopen(writing, "wb", 0))
        pipe = stack.enter_context(os.fdopen(reading, "rb", 0))
        transport, _ = loop.run_until_complete(loop.connect_read_pipe(lambda: protocol, pipe))
        transport.pause_reading()
        assert writer.write(numbered(50_000)) == 50_000
        run_once(loop, 3)
        if turns < 3:
            loop.call_soon(transport.resume_reading)
            run_once(loop, turns)
        writer.close()
        if turns == 3:
            loop.call_soon(transport.resume_reading)
        run_until(loop, lambda: protocol.lost)
    assert protocol.received == numbered(50_000)
    assert protocol.calls == WHOLE_LIFE
