"""TLS: the timeouts of the handshake and of the shutdown, to the second, on loops with virtual time.

P03: after close() the socket is closed within `ssl_shutdown_timeout`, whatever the peer does. test_tls_closing.py tests
it on a real clock.
"""

import asyncio
import contextlib
import math
import socket
import ssl
import sys

import pytest
from support.certificates import every_version
from support.endpoints import settle
from support.leftovers import check_quiet
from support.recording import Recorder
from support.stream_connections import connected_sockets, skip_on_asyncio
from support.tls_connections import PIECE, Peer, every_side, other

DEFAULTS = {"handshake": 60, "shutdown": 30}  # seconds; asyncio's documentation of create_connection()
TINY = 2**-10  # seconds; exact

every_timeout = pytest.mark.parametrize("timeout", [None, 7.5], ids=["default", "7.5 s"])


@pytest.fixture
def loop(hotloop_loop):
    """The loop of the connections of `tls`."""
    yield hotloop_loop
    check_quiet(hotloop_loop)


def option(kind, timeout):
    return {} if timeout is None else {f"ssl_{kind}_timeout": timeout}


def seconds_of(kind, timeout):
    return DEFAULTS[kind] if timeout is None else timeout


def whole_second(loop):
    """Wait for the next whole second: times with few binary digits make exact differences."""
    whole = loop.create_future()
    loop.call_at(math.ceil(loop.time()), whole.set_result, None)
    loop.run_until_complete(whole)
    return loop.time()


def closed(connection, peer_acts=lambda: None):
    """Return for how many seconds a connection that is closed now stays open. The peer acts once a second."""
    loop, began = connection.loop, whole_second(connection.loop)
    gone = loop.create_future()
    connection.protocol.hooks["connection_lost"] = lambda: gone.set_result(loop.time())

    async def act():
        while True:
            await asyncio.sleep(1)
            peer_acts()

    async def main():
        acting = asyncio.create_task(act())
        connection.transport.close()
        await gone
        acting.cancel()
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert connection.socket.fileno() == -1
    return gone.result() - began


def timed_out(connection):
    error = connection.protocol.error
    return isinstance(error, TimeoutError) and str(error) == "SSL shutdown timed out"


# -- the shutdown ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P03")
@every_side
@every_version
@every_timeout
def test_a_peer_that_says_nothing_is_waited_for_that_long(tls, side, version, timeout):
    connection = tls.open(side, version=version, **option("shutdown", timeout))
    assert closed(connection, connection.peer.read) == seconds_of("shutdown", timeout)
    assert timed_out(connection) and connection.peer.saw_close_notify
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@pytest.mark.promise("P03")
@every_side
@every_version
@every_timeout
@pytest.mark.parametrize("reads", [True, False], ids=["reading", "not reading"])
def test_a_peer_that_keeps_sending(tls, side, version, timeout, reads):
    """The peer never answers this end's close_notify."""
    connection = tls.open(side, version=version, kind="tcp", **option("shutdown", timeout))
    connection.peer.write(b"s" * 10 * PIECE)
    tls.loop.run_until_complete(asyncio.sleep(0.01))
    before = len(connection.protocol.received)

    def act():
        if not connection.peer.unsent:
            connection.peer.write(b"s" * PIECE)
        connection.peer.read() if reads else connection.peer.push()

    assert closed(connection, act) <= seconds_of("shutdown", timeout)
    assert len(connection.protocol.received) == before


@pytest.mark.promise("P03")
@every_side
@every_timeout
def test_a_peer_that_does_not_read(tls, side, timeout):
    connection = tls.open(side, **option("shutdown", timeout))
    connection.fill()
    assert closed(connection) == seconds_of("shutdown", timeout)
    assert timed_out(connection)
    assert connection.protocol.calls == ["connection_made", "pause_writing", "connection_lost"]


@pytest.mark.promise("P03")
@every_side
@every_timeout
def test_a_peer_that_closes_but_does_not_read(tls, side, timeout):
    """The peer's close_notify has come, but the data to be sent stays queued."""
    connection = tls.open(side, kind="tcp", **option("shutdown", timeout))
    if sys.version_info < (3, 14, 10):
        skip_on_asyncio(
            connection.transport, "with the peer's close_notify its timer ends, before what it has is flushed"
        )
    connection.fill()
    whole_second(tls.loop)  # before the peer has something to read
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.peer.tls.unwrap()
    connection.peer.push()
    assert closed(connection) == seconds_of("shutdown", timeout)
    assert timed_out(connection)


@pytest.mark.promise("P03")
@every_side
@every_timeout
def test_with_reading_paused(tls, side, timeout):
    """The protocol has paused, so the peer's answer is not read: the timeout still ends the connection."""
    connection = tls.open(side, **option("shutdown", timeout))
    connection.transport.pause_reading()

    def act():
        connection.peer.read()
        if connection.peer.saw_close_notify:
            connection.peer.notify_close()

    assert closed(connection, act) <= seconds_of("shutdown", timeout)


@pytest.mark.promise("P03")
@every_side
@every_version
@every_timeout
def test_a_peer_that_answers_at_the_last_moment(tls, side, version, timeout):
    connection = tls.open(side, version=version, **option("shutdown", timeout))
    at = seconds_of("shutdown", timeout) - TINY

    def answer():
        connection.peer.read()
        connection.peer.notify_close()

    tls.loop.call_at(whole_second(tls.loop) + at, answer)
    assert closed(connection) == at
    assert connection.protocol.error is None
    assert connection.protocol.calls == ["connection_made", "eof_received", "connection_lost"]


@pytest.mark.promise("P03")
@every_side
@pytest.mark.hotloop(seeds=20)
def test_a_peer_that_answers_when_the_timeout_is_due(tls, side):
    """The answer or the timeout, whichever comes first, ends the connection, and only once."""
    connection = tls.open(side)

    def answer():
        connection.peer.read()
        connection.peer.notify_close()

    tls.loop.call_at(whole_second(tls.loop) + DEFAULTS["shutdown"], answer)
    assert closed(connection) == DEFAULTS["shutdown"]
    assert connection.protocol.error is None or timed_out(connection)
    assert connection.protocol.calls[-1] == "connection_lost"


# -- the handshake -----------------------------------------------------------------------------------------------------


def failed(loop, making):
    """Return after how many seconds a handshake has failed, and with which error."""
    began = whole_second(loop)
    loop.run_until_complete(asyncio.wait([making]))
    return loop.time() - began, making.exception()


@every_side
@every_timeout
@pytest.mark.parametrize("step", [0, 1])
def test_a_handshake_that_takes_too_long(tls, side, timeout, step):
    making, peer, protocol = tls.begin(side, **option("handshake", timeout))
    for _ in range(step):
        peer.handshake()
    waited, error = failed(tls.loop, making)
    assert waited == seconds_of("handshake", timeout)
    assert type(error) is ConnectionAbortedError
    assert str(error) == f"SSL handshake is taking longer than {float(waited)} seconds: aborting the connection"
    assert protocol.calls == []
    tls.loop.run_until_complete(settle())
    peer.pump()
    assert peer.saw_end
    peer.socket.close()


@every_side
@every_timeout
def test_a_handshake_that_is_complete_at_the_last_moment(tls, side, timeout):
    making, peer, protocol = tls.begin(side, **option("handshake", timeout))
    at = seconds_of("handshake", timeout) - TINY

    async def handshake():
        began = tls.loop.time()
        await asyncio.sleep(at)
        while not (peer.handshake() and making.done()):
            await asyncio.sleep(0)
        return tls.loop.time() - began

    assert tls.loop.run_until_complete(handshake()) == at
    connection = tls.adopt(making.result()[0], protocol, peer)
    connection.deliver(b"data")
    assert [handle for handle in tls.loop._scheduled if not handle.cancelled()] == []


@every_side
@every_timeout
def test_an_upgrade_that_takes_too_long(tls, side, timeout):
    loop, protocol = tls.loop, Recorder()
    ours, theirs = connected_sockets("tcp")
    transport, _ = loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    options = {"server_side": True} if side == "server" else {"server_hostname": "a.test"}
    context = tls.certificates.context(side)
    upgrading = loop.create_task(
        loop.start_tls(transport, protocol, context, **options, **option("handshake", timeout))
    )
    peer = Peer(theirs, tls.certificates.context(other(side)), other(side))
    waited, error = failed(loop, upgrading)
    assert waited == seconds_of("handshake", timeout)
    assert type(error) is ConnectionAbortedError and "taking longer than" in str(error)
    loop.run_until_complete(settle())
    assert ours.fileno() == -1
    peer.socket.close()


@every_timeout
def test_a_servers_clients_that_take_too_long(loop, certificates, timeout):
    async def main():
        protocol = Recorder()
        context = certificates.server_context()
        server = await loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=context, **option("handshake", timeout))
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.setblocking(False)
            began = loop.time()
            assert await loop.sock_recv(client, 100) == b""
            # The timeout starts when the connection is accepted.
            assert 0 <= loop.time() - began - seconds_of("handshake", timeout) < 0.01
        assert protocol.calls == []
        server.close()
        await settle()

    loop.run_until_complete(main())
