"""TLS: close(), abort() and the peer's ways to leave: which data is still sent or delivered, and how the connection
ends.

P03: after close() no more data is delivered, and the socket is closed within `ssl_shutdown_timeout`, whatever the peer
does; test_tls_timeouts.py has more tests of this promise.
"""

import asyncio
import functools
import os
import socket
import ssl

import pytest
from support.certificates import TLS_1_2, TLS_1_3, every_version
from support.recording import when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import skip_on_asyncio
from support.tls_connections import PIECE, ViewRecorder, every_protocol, every_side, tls_connections_on

SOON = 0.05  # seconds; a timeout that the test waits for
ENDED = ["connection_made", "eof_received", "connection_lost"]
CUT_OFF = "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"


@every_side
@every_version
@every_protocol
def test_close(tls, side, version, make_protocol):
    """Written data goes first, then close_notify; the peer's answer to it counts as a normal end."""
    connection = tls.open(side, make_protocol(), version=version)
    connection.transport.write(b"last words")
    assert not connection.transport.is_closing()
    assert connection.transport.close() is None
    assert connection.transport.is_closing()
    connection.run_until(lambda: connection.peer.saw_close_notify)
    assert connection.peer.received == b"last words"
    assert connection.socket.fileno() != -1 and not connection.protocol.lost, "it waits for the peer's close_notify"
    connection.run_until_lost()
    assert connection.protocol.calls == ENDED and connection.protocol.error is None
    assert connection.socket.fileno() == -1
    connection.run_until(lambda: connection.peer.saw_end)


@every_side
def test_close_sends_much(tls, side):
    connection = tls.open(side, kind="tcp")
    data = os.urandom(3_000_000)
    connection.transport.write(data)
    connection.transport.close()
    connection.run_until_lost()
    assert connection.peer.received == data and connection.peer.saw_close_notify
    assert connection.protocol.error is None


@every_side
@every_version
def test_close_from_inside_a_write_that_pauses(tls, side, version):
    connection = tls.open(side, version=version)
    connection.protocol.hooks["pause_writing"] = lambda: connection.transport.close()
    written = 0
    while not connection.transport.is_closing():
        connection.transport.write(b"p" * PIECE)
        written += PIECE
    connection.run_until_lost()
    assert connection.peer.received == b"p" * written
    assert connection.protocol.error is None


def test_closing_once_more_changes_nothing(tls):
    connection = tls.open()
    for _ in range(3):
        connection.transport.close()
        assert connection.transport.is_closing()
    connection.run_until_lost()
    connection.transport.close()
    assert connection.protocol.calls == ENDED


@every_side
@every_version
def test_abort(tls, side, version):
    """Nothing more is sent, and connection_lost() is the only callback; it comes after the call has returned."""
    connection = tls.open(side, version=version, kind="tcp")
    connection.fill()
    connection.send(b"unread")
    assert connection.transport.abort() is None
    assert connection.transport.is_closing() and not connection.protocol.lost
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert connection.protocol.calls == ["connection_made", "pause_writing", "connection_lost"]
    assert connection.protocol.error is None
    assert connection.socket.fileno() == -1
    connection.peer.read()
    assert not connection.peer.saw_close_notify


def test_aborting_once_more_changes_nothing(tls):
    connection = tls.open()
    connection.transport.abort()
    connection.transport.abort()
    connection.run_until_lost()
    connection.transport.abort()
    run_once(tls.loop, 3)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
def test_abort_after_close(tls, side):
    connection = tls.open(side, kind="tcp")
    connection.fill()
    connection.transport.close()
    connection.transport.abort()
    connection.run_until_lost(peer_reads=False)
    assert connection.protocol.error is None


def test_abort_after_two_closes(tls):
    connection = tls.open()
    skip_on_asyncio(connection.transport, "the second close() makes it forget its connection")
    connection.transport.close()
    connection.transport.close()
    connection.transport.abort()
    connection.run_until_lost(peer_reads=False)
    assert connection.protocol.error is None
    for call in ("is_reading", "get_write_buffer_size", "get_write_buffer_limits", "pause_reading", "resume_reading"):
        getattr(connection.transport, call)()


@pytest.mark.promise("P09")
@every_side
@pytest.mark.parametrize("how", ["close", "abort", "lost"])
def test_writing_after_the_end_is_no_error(tls, asyncio_log, side, how):
    """The data is dropped, whichever method writes it and however often. Only asyncio's logger may report it."""
    connection = tls.open(side, kind="tcp")
    if how == "lost":
        connection.reset()
        connection.run_until_lost(peer_reads=False)
    else:
        getattr(connection.transport, how)()
    for _ in range(7):
        connection.transport.write(b"dropped")
        connection.transport.writelines([b"dropped", b"", b"too"])
    connection.transport.write(b"")
    connection.transport.writelines([])
    with pytest.raises(TypeError):
        connection.transport.write("text")
    if how != "lost":
        connection.run_until_lost()
    for _ in range(7):
        connection.transport.write(b"dropped")
        connection.transport.writelines([b"dropped"])
    run_once(tls.loop, 3)
    assert connection.peer.received == b""
    assert connection.protocol.calls.count("connection_lost") == 1
    assert set(asyncio_log.take()) <= {"SSL connection is closed", "socket.send() raised exception."}


@pytest.mark.parametrize("first", ["close", "abort"])
def test_close_after_the_end(tls, first):
    connection = tls.open()
    getattr(connection.transport, first)()
    connection.run_until_lost()
    connection.transport.close()
    connection.transport.abort()
    run_once(tls.loop, 3)
    assert connection.protocol.calls[-1] == "connection_lost"


HOOKS = ["connection_made", "data", "eof_received", "pause_writing", "connection_lost"]


@every_side
@every_protocol
@pytest.mark.parametrize("call", ["close", "abort"])
@pytest.mark.parametrize("hook", HOOKS)
def test_ending_from_every_callback(load_implementation, impl, certificates, side, make_protocol, call, hook):
    """The same callbacks follow as on asyncio, but where a peer's data ends its connection before all was sent."""

    def played(implementation):
        loop = implementation.new_event_loop()
        try:
            with tls_connections_on(loop, certificates) as connections:
                protocol = make_protocol()
                end = lambda: getattr(protocol.transport, call)()  # noqa: E731
                when_data_comes(protocol, end) if hook == "data" else protocol.hooks.update({hook: end})
                connection = connections.open(side, protocol, kind="pair")
                if connection.peer.handshake_complete:
                    connection.peer.write(b"some data")
                while not connection.writing_paused and not connection.transport.is_closing():
                    connection.transport.write(b"x" * PIECE)
                connection.run_until(lambda: protocol.received or protocol.lost or connection.peer.saw_close_notify)
                connection.peer.notify_close()
                connection.run_until_lost()
                error = protocol.error and (type(protocol.error), getattr(protocol.error, "reason", None))
                return protocol.calls, bytes(protocol.received), error
        finally:
            loop.close()

    expected = played(load_implementation("asyncio"))
    assert expected[0][-1] == "connection_lost"
    if impl.name == "c" and (hook, call) == ("pause_writing", "close"):
        assert expected == (["connection_made", "pause_writing", "connection_lost"], b"", (ssl.SSLError, CUT_OFF))
        expected = ["connection_made", "pause_writing", "resume_writing", "eof_received", "connection_lost"], b"", None
    assert played(impl) == expected


@every_side
@every_version
@pytest.mark.parametrize("ending", ["close_notify", "close_notify and end", "end alone"])
def test_the_peer_leaves(tls, side, version, ending):
    """However the peer leaves, connection_lost() is called once and without an error; close_notify is answered."""
    connection = tls.open(side, version=version)
    if "notify" in ending:
        connection.peer.notify_close()
    if "end" in ending:
        connection.end()
    connection.run_until_lost()
    assert connection.protocol.calls == ENDED and connection.protocol.error is None
    assert connection.transport.is_closing()
    connection.run_until(lambda: connection.peer.saw_end)
    if ending == "close_notify":
        assert connection.peer.saw_close_notify


@every_side
def test_what_eof_received_writes_is_sent(tls, side):
    connection = tls.open(side)
    connection.protocol.hooks["eof_received"] = lambda: connection.transport.write(b"farewell")
    connection.peer.notify_close()
    connection.run_until_lost()
    assert connection.protocol.error is None
    connection.run_until(lambda: connection.peer.saw_end)
    assert connection.peer.received == b"farewell"


def test_a_reset(tls):
    connection = tls.open(kind="tcp")
    connection.reset()
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, ConnectionResetError)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
def test_a_reset_while_we_close(tls, side):
    connection = tls.open(side, kind="tcp")
    connection.transport.close()
    connection.reset()
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, ConnectionResetError)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
def test_both_close_at_once(tls, side):
    connection = tls.open(side)
    connection.peer.notify_close()
    connection.transport.close()
    connection.run_until_lost()
    assert connection.protocol.calls == ENDED and connection.protocol.error is None


@every_side
def test_a_peer_that_leaves_upon_our_close_notify_without_its_own(tls, side):
    connection = tls.open(side)
    connection.transport.close()
    connection.run_until(lambda: connection.peer.saw_close_notify)
    connection.end()
    connection.run_until(lambda: connection.protocol.lost)
    assert connection.protocol.calls == ENDED and connection.protocol.error is None


# P03


@pytest.mark.promise("P03")
@every_side
@every_version
@every_protocol
def test_data_that_waits_in_the_kernel_when_we_close_is_not_delivered(tls, side, version, make_protocol):
    connection = tls.open(side, make_protocol(), version=version)
    connection.deliver(b"before")
    connection.send(b"after")
    connection.transport.close()
    connection.run_until_lost()
    assert connection.protocol.received == b"before"
    assert connection.socket.fileno() == -1


@every_side
@every_version
def test_what_a_connection_ends_with_whose_peer_sends_after_our_close_notify(tls, side, version):
    connection = tls.open(side, version=version)
    connection.transport.close()
    connection.peer.write(b"after")
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert isinstance(connection.protocol.error, ssl.SSLError)
    assert connection.protocol.error.reason == CUT_OFF
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
@every_version
def test_what_was_written_is_not_lost_to_a_peer_that_sends_after_our_close_notify(tls, side, version):
    connection = tls.open(side, version=version, kind="tcp")
    skip_on_asyncio(connection.transport, "the peer's data ends the connection, and what was not sent yet is lost")
    data = os.urandom(6_000_000)
    connection.transport.write(data)
    connection.transport.close()
    for _ in range(3):
        connection.peer.write(b"answer")
        run_once(connection.loop, 5)
    assert not connection.protocol.lost
    connection.run_until_lost()
    assert connection.peer.received == data
    assert connection.protocol.error is None and connection.protocol.calls == ENDED
    assert connection.protocol.received == b""


@pytest.mark.promise("P03")
@every_side
@every_protocol
@pytest.mark.parametrize("then", ["resume", "stay paused"])
def test_closing_while_reading_is_paused(tls, side, make_protocol, then):
    """Held data stays undelivered, even if reading is resumed after close()."""
    connection = tls.open(side, make_protocol(), ssl_shutdown_timeout=SOON)
    connection.transport.pause_reading()
    connection.send(b"held back")
    run_once(tls.loop, 5)
    connection.transport.close()
    if then == "resume":
        connection.transport.resume_reading()
    connection.run_until_lost()
    assert not connection.protocol.received
    assert "data" not in connection.protocol.calls


@every_side
@every_protocol
@pytest.mark.parametrize("first", ["resume", "stay paused"])
def test_closing_after_the_peer_has_left_while_reading_is_paused(tls, side, make_protocol, first):
    """The protocol hears of the end in a turn of its own, never inside close()."""
    connection = tls.open(side, make_protocol())
    connection.transport.pause_reading()
    connection.peer.socket.shutdown(socket.SHUT_WR)
    run_once(tls.loop, 5)
    assert "eof_received" not in connection.protocol.calls
    if first == "resume":
        connection.transport.resume_reading()
    else:
        skip_on_asyncio(connection.transport, "nothing ends its connection before reading is resumed")
    connection.transport.close()
    assert connection.protocol.calls == ["connection_made"]
    run_once(tls.loop)
    assert connection.protocol.calls == ["connection_made", "eof_received"]
    connection.run_until_lost()
    assert connection.protocol.calls == ENDED and connection.protocol.error is None


@pytest.mark.promise("P03")
def test_closing_from_inside_buffer_updated(tls):
    """There is more decrypted data than the buffer holds."""
    protocol = ViewRecorder(10)
    connection = tls.open("server", protocol)
    skip_on_asyncio(connection.transport, "its close() fills the buffer once more")
    protocol.hooks["buffer_updated"] = lambda: connection.transport.close()
    connection.peer.write(b"0123456789and more than that")
    connection.run_until_lost()
    assert protocol.received == b"0123456789"


@pytest.mark.promise("P03")
@every_side
@every_protocol
def test_closing_from_inside_a_callback(tls, side, make_protocol):
    protocol = make_protocol()
    connection = tls.open(side, protocol)
    when_data_comes(protocol, lambda: connection.transport.close())
    connection.deliver(b"first")
    connection.peer.write(b"second")
    connection.run_until_lost()
    assert protocol.received == b"first"


@pytest.mark.promise("P03")
@every_side
@every_version
def test_a_peer_that_says_nothing(tls, side, version):
    connection = tls.open(side, version=version, ssl_shutdown_timeout=SOON)
    connection.transport.close()
    connection.run_until(lambda: connection.protocol.lost)
    assert isinstance(connection.protocol.error, TimeoutError)
    assert str(connection.protocol.error) == "SSL shutdown timed out"
    assert connection.protocol.calls == ["connection_made", "connection_lost"]
    assert connection.socket.fileno() == -1


@pytest.mark.promise("P03")
@pytest.mark.only("c", reason="asyncio raises ValueError for a timeout of 0")
@every_side
@every_version
def test_a_shutdown_timeout_of_nothing_is_an_abort(tls, side, version):
    connection = tls.open(side, version=version, ssl_shutdown_timeout=0)
    connection.deliver(b"data")
    connection.transport.close()
    run_once(tls.loop, 3)
    assert connection.protocol.calls == ["connection_made", "data", "connection_lost"]
    assert connection.protocol.error is None
    assert connection.socket.fileno() == -1


def test_the_timer_is_gone_with_the_connection(tls):
    connection = tls.open(ssl_shutdown_timeout=1000)
    connection.transport.close()
    connection.run_until_lost()
    run_once(tls.loop, 3)
    assert [handle for handle in tls.loop._scheduled if not handle.cancelled()] == []


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_streams_wait_until_it_is_closed(impl, certificates, version):
    async def main():
        errors = []
        served = asyncio.Event()

        async def serve(reader, writer):
            assert await reader.read() == b"data"
            writer.close()
            await writer.wait_closed()
            served.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.server_context()) as server:
            _, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=certificates.client_context(version)
            )
            writer.write(b"data")
            writer.close()
            assert writer.is_closing()
            await writer.wait_closed()
            await served.wait()
        assert not errors

    impl.run(main())


@every_side
@every_version
def test_a_write_fails_before_the_end_of_the_connection_is_read(tls, side, version):
    """The write comes first, though the end has arrived. It finds the peer gone, so the connection is broken: the
    protocol is not told of an end."""
    connection = tls.open(side, version=version, kind="pair")
    connection.peer.read()  # unread data, session tickets, would make the end a reset
    connection.peer.socket.close()
    connection.peer.opposite = None  # the program gives its socket up, so the writes of a turn are gathered
    tls.loop.call_soon(connection.transport.write, b"x")
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert connection.protocol.events == ["connection_made", ("connection_lost", "BrokenPipeError")]


def test_a_transport_that_was_not_closed(impl, certificates):
    """The transport's finalizer warns, like asyncio's, and closes the socket."""
    impl.run_script(
        """
import gc, socket, warnings
from support.certificates import issued
from support.tls_connections import tls_connections_on
loop = impl.new_event_loop()
connections = tls_connections_on(loop, issued())
connections = connections.__enter__()
connection = connections.open("server", kind="pair")
peer = connection.peer.socket
loop.close()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    del connection, connections, loop
    gc.collect()
messages = [str(warning.message) for warning in caught if warning.category is ResourceWarning]
assert any("unclosed transport" in message for message in messages), messages
peer.close()
"""
    )


@every_side
def test_methods_that_a_program_replaces_to_hear_of_the_end(tls, side):
    """The way in which programs wait until aiohttp's TLS connections are closed: aio-libs/aiohttp#1925."""
    connection = tls.open(side)
    calls = []
    tls_protocol = connection.transport._ssl_protocol

    def noted(own, *arguments):
        calls.append(own.__name__)
        return own(*arguments)

    for own in (tls_protocol.eof_received, tls_protocol.connection_lost):
        setattr(tls_protocol, own.__name__, functools.partial(noted, own))
    connection.transport.abort()
    connection.run_until_lost()
    assert connection.protocol.lost and calls == ["connection_lost"]
    del tls_protocol.connection_lost
    assert set(vars(tls_protocol)) >= {"eof_received"}


@every_side
def test_a_replaced_method_at_the_peers_end(tls, side):
    connection = tls.open(side)
    calls = []
    tls_protocol = connection.transport._ssl_protocol
    own = tls_protocol.eof_received

    def eof_received():
        calls.append("eof_received")
        return own()

    tls_protocol.eof_received = eof_received
    connection.peer.socket.shutdown(socket.SHUT_WR)
    connection.run_until_lost()
    assert calls == ["eof_received"]
