"""Stream transports: the ways in which a connection ends, from either side, and the calls that are still allowed
afterwards."""

import asyncio
import errno
import select
import sys

import pytest
from support.recording import RECORDERS, Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import (
    KINDS,
    MORE_THAN_FITS,
    connected_sockets,
    connections_on,
    reset,
    skip_on_asyncio,
    wait_for,
)

every_kind = pytest.mark.parametrize("kind", KINDS)
every_protocol = pytest.mark.parametrize("make_protocol", RECORDERS)
every_way = pytest.mark.parametrize("how", ["close", "abort"])

BROKEN = (BrokenPipeError, ConnectionResetError)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


@every_kind
@every_way
def test_closing(loop, connections, kind, how):
    connection = connections.open(kind)
    transport = connection.transport
    assert not transport.is_closing()
    assert getattr(transport, how)() is None
    assert transport.is_closing()
    assert not connection.protocol.lost, "connection_lost() comes from the loop, never from inside the call"
    getattr(transport, how)()
    assert connection.receive_all() == b""
    connection.run_until_lost()
    getattr(transport, how)()
    run_once(loop, 3)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert connection.protocol.error is None
    assert transport.is_closing()


@pytest.mark.parametrize("first", ["close", "abort"])
@pytest.mark.parametrize("second", ["close", "abort"])
@pytest.mark.parametrize("pending", [False, True])
def test_closing_twice(loop, connections, first, second, pending):
    connection = connections.open("tcp")
    if pending:
        connection.fill()
    getattr(connection.transport, first)()
    getattr(connection.transport, second)()
    if pending and first == second == "close":
        connection.receive_all()
    connection.run_until_lost()
    run_once(loop, 3)
    assert connection.protocol.calls.count("connection_lost") == 1
    assert connection.protocol.error is None


@every_kind
def test_close_sends_what_is_pending(loop, connections, kind):
    connection = connections.open(kind)
    written = connection.fill()
    connection.transport.close()
    assert connection.transport.is_closing() and not connection.transport.is_reading()
    run_once(loop, 3)
    assert not connection.protocol.lost
    assert len(connection.receive_all()) == written
    connection.run_until_lost()
    assert connection.protocol.error is None


@every_kind
def test_abort_drops_what_is_pending(loop, connections, kind):
    connection = connections.open(kind)
    written = connection.fill()
    connection.transport.abort()
    connection.run_until_lost()
    assert connection.protocol.error is None
    assert len(connection.receive_all()) < written


@every_way
@every_protocol
def test_nothing_is_received_after_closing(loop, connections, how, make_protocol):
    connection = connections.open("tcp", make_protocol())
    connection.fill()
    connection.transport.close()
    connection.send(b"late")
    run_once(loop, 3)
    getattr(connection.transport, how)()
    if how == "close":
        connection.receive_all()
    connection.run_until_lost()
    assert not connection.protocol.received


@every_way
@pytest.mark.parametrize("where", ["connection_made", "data", "eof_received", "connection_lost"])
def test_closing_inside_a_callback(loop, connections, how, where):
    protocol = Recorder()
    hook = lambda: getattr(protocol.transport, how)()  # noqa: E731
    if where == "data":
        when_data_comes(protocol, hook)
    else:
        protocol.hooks[where] = hook
    connection = connections.open("tcp", protocol)
    if where != "connection_made":
        connection.send(b"data")
        connection.peer.close()
    connection.run_until_lost()
    run_once(loop, 3)
    expected = ["connection_made", "data", "eof_received", "connection_lost"]
    if where in ("connection_made", "data"):
        expected[expected.index(where) + 1 : -1] = []
    assert protocol.calls == expected
    assert protocol.error is None


@every_kind
@every_protocol
@pytest.mark.parametrize("keep_open", [False, None, 0, ""])
def test_the_peer_ends_and_so_do_we(loop, connections, kind, make_protocol, keep_open):
    connection = connections.open(kind, make_protocol(eof_received=lambda: keep_open))
    connection.end()
    assert connection.receive_all() == b""
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "eof_received", "connection_lost"]
    assert connection.protocol.error is None


@every_kind
@every_protocol
@pytest.mark.parametrize("keep_open", [True, 1, "yes"])
def test_the_peer_ends_and_we_go_on_writing(loop, connections, kind, make_protocol, keep_open):
    connection = connections.open(kind, make_protocol(eof_received=lambda: keep_open))
    connection.end()
    run_until(loop, lambda: "eof_received" in connection.protocol.calls)
    run_once(loop, 3)
    assert connection.protocol.calls == ["connection_made", "eof_received"], "the end is told once"
    assert not connection.transport.is_closing()
    connection.transport.write(b"still here")
    assert connection.receive(10) == b"still here"
    written = connection.fill()
    assert len(connection.receive(written)) == written
    connection.transport.close()
    assert connection.receive_all() == b""
    connection.run_until_lost()
    assert connection.protocol.error is None
    assert connection.protocol.calls.count("eof_received") == 1


@every_kind
@every_protocol
def test_we_end_and_go_on_reading(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    assert connection.transport.can_write_eof() is True
    connection.transport.write(b"last words")
    assert connection.transport.write_eof() is None
    connection.transport.write_eof()
    assert connection.receive_all() == b"last words"
    assert connection.transport.is_reading() and not connection.transport.is_closing()
    connection.send(b"heard")
    run_until(loop, lambda: connection.protocol.received == b"heard")
    connection.peer.close()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert connection.protocol.error is None


@every_kind
def test_write_eof_waits_for_what_is_pending(loop, connections, kind):
    connection = connections.open(kind)
    written = connection.fill()
    connection.transport.write(b"last words")
    connection.transport.write_eof()
    run_once(loop, 3)
    data = connection.receive_all()
    assert len(data) == written + 10 and data.endswith(b"last words")
    connection.send(b"heard")
    run_until(loop, lambda: connection.protocol.received == b"heard")
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "data"]


def test_write_eof_then_close_with_data_pending(loop, connections):
    connection = connections.open("tcp")
    written = connection.fill()
    connection.transport.write_eof()
    connection.transport.close()
    assert len(connection.receive_all()) == written
    connection.run_until_lost()
    assert connection.protocol.error is None


def test_write_eof_in_one_turn_with_writes(loop, connections):
    connection = connections.open("tcp")

    def burst():
        connection.transport.write(b"one")
        connection.transport.writelines([b"two", b"three"])
        connection.transport.write_eof()

    loop.call_soon(burst)
    assert connection.receive_all() == b"onetwothree"


def test_close_in_one_turn_with_writes(loop, connections):
    connection = connections.open("tcp")

    def burst():
        connection.transport.write(b"one")
        connection.transport.writelines([b"two", b"three"])
        connection.transport.close()

    loop.call_soon(burst)
    assert connection.receive_all() == b"onetwothree"
    connection.run_until_lost()


@pytest.mark.parametrize("method", ["write", "writelines"])
@pytest.mark.parametrize("data", [b"data", b""])
@pytest.mark.parametrize("pending", [False, True])
def test_writing_after_write_eof(loop, connections, method, data, pending):
    """write() raises, even with nothing to write, and sends nothing. CPython 3.11's writelines() calls itself write()
    in the message."""
    connection = connections.open("tcp")
    written = connection.fill() if pending else 0
    connection.transport.write_eof()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^Cannot call write(lines)?\(\) after write_eof\(\)$"):
            getattr(connection.transport, method)(data if method == "write" else [data])
        assert len(connection.receive_all()) == written
        written = 0


@pytest.mark.promise("P09")
@pytest.mark.parametrize("how", ["close", "abort", "lost"])
def test_writing_after_the_end_is_no_error(loop, connections, asyncio_log, how):
    """The data is dropped, and from the fifth write on asyncio's logger warns."""
    connection = connections.open("tcp")
    if how == "lost":
        connection.reset()
        connection.run_until_lost()
    else:
        getattr(connection.transport, how)()
    warnings = []
    for _ in range(7):
        connection.transport.write(b"dropped")
        warnings.append(asyncio_log.take())
    run_once(loop, 3)
    assert warnings == [[]] * 4 + [["socket.send() raised exception."]] * 3
    assert connection.transport.get_write_buffer_size() == 0
    if how != "lost":
        assert connection.receive_all() == b""
    connection.transport.write(b"")
    connection.transport.write_eof()
    with pytest.raises(TypeError):
        connection.transport.write("text")
    asyncio_log.take()


@pytest.mark.promise("P09")
@pytest.mark.parametrize("how", ["close", "abort", "lost"])
def test_writelines_after_the_end_is_no_error(loop, connections, how):
    connection = connections.open("tcp")
    if (3, 12) <= sys.version_info < (3, 14, 10):
        skip_on_asyncio(
            connection.transport, "its writelines() fails on a closed one (AttributeError, TypeError)", mended=True
        )
    if how == "lost":
        connection.reset()
        connection.run_until_lost()
    else:
        getattr(connection.transport, how)()
    connection.transport.writelines([b"dropped", b"too"])
    connection.transport.writelines([])
    run_once(loop, 3)
    connection.transport.writelines([b"dropped"])
    assert connection.transport.get_write_buffer_size() == 0
    if how != "lost":
        assert connection.receive_all() == b""


def test_writing_after_close_while_data_is_pending(loop, connections):
    """asyncio also sends the data."""
    connection = connections.open("tcp")
    written = connection.fill()
    connection.transport.close()
    connection.transport.write(b"postscript")
    data = connection.receive_all()
    assert len(data) == written + 10 and data.endswith(b"postscript")
    connection.run_until_lost()
    assert connection.protocol.error is None


@every_kind
@every_protocol
def test_the_peer_resets(loop, connections, kind, make_protocol):
    connection = connections.open(kind, make_protocol())
    connection.reset()
    connection.run_until_lost()
    run_once(loop, 3)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert type(connection.protocol.error) is ConnectionResetError
    assert connection.protocol.error.errno == errno.ECONNRESET


@every_kind
def test_the_peer_resets_while_data_is_pending(loop, connections, kind):
    connection = connections.open(kind)
    connection.fill()
    connection.reset()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "pause_writing", "connection_lost"]
    assert isinstance(connection.protocol.error, BROKEN)


@every_kind
def test_writing_to_a_peer_that_is_gone(loop, connections, kind):
    """Reading is paused, so the write is what detects the reset; the loop still calls connection_lost() later."""
    connection = connections.open(kind)
    connection.transport.pause_reading()
    connection.reset()
    connection.transport.write(b"to nobody")
    assert not connection.protocol.lost
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert isinstance(connection.protocol.error, BROKEN)


@every_kind
def test_write_eof_to_a_peer_that_is_gone(loop, connections, kind):
    """The write() before it has found the connection broken: the stream has not ended, and writing is no error."""
    connection = connections.open(kind)
    connection.transport.pause_reading()
    reset(connection.peer)
    written = []

    def burst():
        for _ in range(2):
            connection.transport.write(b"to nobody")
            connection.transport.write_eof()
            written.append(True)

    loop.call_soon(burst)
    connection.run_until_lost()
    assert written == [True, True]
    assert isinstance(connection.protocol.error, BROKEN)


@pytest.mark.skipif("pair" not in KINDS, reason="this platform has no Unix sockets")
@pytest.mark.parametrize("method", ["write", "writelines"])
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_a_broken_pipe(loop, connections, method, turn):
    connection = connections.open("pair")
    connection.transport.pause_reading()
    connection.peer.close()
    write = getattr(connection.transport, method)
    if turn == "inside":
        loop.call_soon(write, [b"data"] if method == "writelines" else b"data")
    else:
        write([b"data"] if method == "writelines" else b"data")
    connection.run_until_lost()
    assert type(connection.protocol.error) is BrokenPipeError


def test_a_broken_pipe_after_the_end_of_reading(loop, connections):
    connection = connections.open("tcp", Recorder(eof_received=lambda: True))
    connection.peer.close()
    run_until(loop, lambda: "eof_received" in connection.protocol.calls)
    connection.transport.write(b"answered with a reset")
    wait_for(connection.socket, select.POLLHUP)
    connection.transport.write(b"never sent")
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, BROKEN)


@every_way
def test_closing_after_the_peer_reset(loop, connections, how):
    """The transport closes before it notices the reset: connection_lost() gets None."""
    connection = connections.open("tcp")
    connection.reset()
    getattr(connection.transport, how)()
    connection.run_until_lost()
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert connection.protocol.error is None


def test_abort_after_close_with_data_pending(loop, connections):
    connection = connections.open("tcp")
    connection.fill()
    connection.transport.close()
    run_once(loop, 2)
    connection.transport.abort()
    connection.run_until_lost()
    assert connection.protocol.error is None
    assert connection.transport.get_write_buffer_size() == 0


def test_the_peer_resets_while_we_flush_before_closing(loop, connections):
    connection = connections.open("tcp")
    connection.fill()
    connection.transport.close()
    reset(connection.peer)
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, BROKEN)


@every_way
def test_everything_may_be_called_after_the_end(loop, connections, how):
    connection = connections.open("tcp")
    transport = connection.transport
    getattr(transport, how)()
    connection.run_until_lost()
    transport.close()
    transport.abort()
    transport.pause_reading()
    transport.resume_reading()
    transport.write_eof()
    transport.write(b"dropped")
    assert transport.is_closing() is True
    assert transport.is_reading() is False
    assert transport.can_write_eof() is True
    assert transport.get_write_buffer_size() == 0
    assert transport.get_protocol() is None
    assert "closed" in repr(transport)
    run_once(loop, 3)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


def test_the_socket_is_closed_with_the_connection(loop, connections):
    connection = connections.open("tcp")
    assert connection.socket.fileno() >= 0
    inside = []
    connection.protocol.hooks["connection_lost"] = lambda: inside.append(connection.socket.fileno())
    connection.transport.close()
    connection.run_until_lost()
    assert connection.socket.fileno() == -1
    assert inside[0] >= 0, "it is still open while connection_lost() runs"


def test_another_protocol_is_told_of_the_end(loop, connections):
    connection = connections.open("tcp")
    second = Recorder()
    connection.transport.close()
    connection.transport.set_protocol(second)
    run_until(loop, lambda: second.lost)
    assert (connection.protocol.calls, second.calls) == (["connection_made"], ["connection_lost"])


def test_many_connections_end_at_once(loop, connections):
    opened = [connections.open("pair") for _ in range(100)]
    for number, connection in enumerate(opened):
        if number % 4 == 0:
            connection.peer.close()
        elif number % 4 == 1:
            connection.transport.write(bytes(MORE_THAN_FITS // 100))
            connection.peer.close()
        elif number % 4 == 2:
            connection.transport.close()
        else:
            connection.transport.abort()
    run_until(loop, lambda: all(connection.protocol.lost for connection in opened))


@every_way
def test_the_end_takes_its_turn_when_it_is_asked_for(loop, connections, how):
    """A later event of the connection does not bring connection_lost() forward."""
    first, second = connections.open("tcp"), connections.open("tcp")
    order = []

    def end_the_other(other):
        # When the first of the two callbacks runs, the poll has reported the other connection's event already.
        if not order:
            order.append("end")
            loop.call_soon(order.append, "before")
            getattr(other.transport, how)()
            loop.call_soon(order.append, "behind")

    for one, other in ((first, second), (second, first)):
        one.protocol.hooks["data_received"] = lambda other=other: end_the_other(other)
        one.protocol.hooks["connection_lost"] = lambda: order.append("lost")
        one.send(b"data")
    run_until(loop, lambda: "behind" in order)
    assert order == ["end", "before", "lost", "behind"]
    assert sorted(bytes(one.protocol.received) for one in (first, second)) == [b"", b"data"]


@every_way
@pytest.mark.parametrize("debug", [False, True, "from then on"])
def test_the_end_in_connection_made(loop, how, debug):
    """The caller that waits for the connection gets it; the end comes behind the callbacks that connection_made()
    queued."""
    order = []

    class Ending(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            if debug == "from then on":
                loop.set_debug(True)
            loop.call_soon(order.append, "before")
            getattr(transport, how)()
            loop.call_soon(order.append, "behind")

        def connection_lost(self, error):
            order.append("lost")
            super().connection_lost(error)

    async def main():
        ours, peer = connected_sockets("tcp")
        with peer:
            peer.send(b"data")
            transport, protocol = await loop.create_connection(Ending, sock=ours)
            while not protocol.lost:
                await asyncio.sleep(0)
            return transport, protocol.calls

    loop.set_debug(debug is True)
    loop.slow_callback_duration = 3600
    transport, calls = loop.run_until_complete(main())
    run_once(loop, 2)
    assert transport.is_closing() and calls == ["connection_made", "connection_lost"]
    assert order == ["before", "lost", "behind"]
