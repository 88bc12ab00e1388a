"""TLS with callbacks that end the connection, replace the protocol or pause reading while records wait to be
decrypted."""

import asyncio
import gc
import logging

import pytest
from support.certificates import HOST
from support.endpoints import settle, until
from support.garbage import Reference, collected
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import connected_sockets, is_asyncio_transport, skip_on_asyncio
from support.tls_connections import UpgradableConnection, ViewRecorder, every_side, numbered


def hold_records(connection, count=5):
    """Have the paused transport receive `count` records; return their data."""
    connection.transport.pause_reading()
    for number in range(count):
        connection.send(b"%d" % number * 1000)
    run_until(connection.loop, lambda: connection.transport.get_read_buffer_size() > 1000 * count)
    return b"".join(b"%d" % number * 1000 for number in range(count))


@every_side
@pytest.mark.parametrize("method", ["close", "abort"])
def test_get_buffer_ends_the_connection(tls, side, method):
    protocol = ViewRecorder()
    connection = tls.open(side, protocol)
    skip_on_asyncio(connection.transport, "it calls get_buffer() again from inside, and goes on reading afterwards")
    hold_records(connection)

    def get_buffer():
        getattr(connection.transport, method)()
        return protocol.buffer

    protocol.hooks["get_buffer"] = get_buffer
    connection.transport.resume_reading()
    connection.run_until_lost()
    assert protocol.error is None and not protocol.received
    assert [call for call in protocol.calls if call != "eof_received"] == ["connection_made", "connection_lost"]


@every_side
def test_get_buffer_pauses_reading(tls, side):
    """asyncio fills the buffer nevertheless."""
    protocol = ViewRecorder()
    connection = tls.open(side, protocol)
    expected = hold_records(connection)

    def get_buffer():
        connection.transport.pause_reading()
        tls.loop.call_soon(connection.transport.resume_reading)
        protocol.hooks.pop("get_buffer")
        return protocol.buffer

    protocol.hooks["get_buffer"] = get_buffer
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: protocol.received == expected)


@every_side
@pytest.mark.parametrize("make_second", [Recorder, ViewRecorder])
def test_get_buffer_replaces_the_protocol(tls, side, make_second):
    """The data may go into either protocol's buffer, but into one only."""
    first, second = ViewRecorder(), make_second()
    connection = tls.open(side, first)
    expected = hold_records(connection)

    def get_buffer():
        connection.transport.set_protocol(second)
        return first.buffer

    first.hooks["get_buffer"] = get_buffer
    if make_second is ViewRecorder:
        skip_on_asyncio(connection.transport, "it fills the first one's buffer and updates the second one")
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: bytes(first.received + second.received) == expected)
    connection.transport.set_protocol(first)


@every_side
@pytest.mark.parametrize("make_first", [Recorder, ViewRecorder])
@pytest.mark.parametrize("make_second", [Recorder, ViewRecorder])
def test_data_replaces_the_protocol(tls, side, make_first, make_second):
    """A protocol of another kind takes over between two parts of the held data."""
    first = make_first() if make_first is Recorder else ViewRecorder(1000)
    second = make_second()
    connection = tls.open(side, first)
    expected = hold_records(connection)
    when_data_comes(first, lambda: connection.transport.set_protocol(second))
    connection.transport.resume_reading()
    run_until(tls.loop, lambda: bytes(first.received + second.received) == expected)
    connection.transport.set_protocol(first)


@pytest.mark.parametrize("buffer", [b"bytes", [1], "text", memoryview(b"view"), memoryview(bytearray(9))[::2]])
def test_get_buffer_returns_what_cannot_be_filled(tls, buffer):
    protocol = ViewRecorder(get_buffer=lambda: buffer)
    connection = tls.open("server", protocol)
    connection.peer.write(b"data")
    connection.run_until(lambda: protocol.lost, peer_reads=False)
    (report,) = tls.take_reports()
    assert report["message"] == "Fatal error on SSL protocol"
    assert report["exception"] is protocol.error and type(protocol.error) is TypeError
    assert f"read-write bytes-like object, not {type(buffer).__name__}" in str(protocol.error)


def test_get_buffer_returns_an_empty_buffer(tls):
    protocol = ViewRecorder(get_buffer=bytearray)
    connection = tls.open("server", protocol)
    skip_on_asyncio(connection.transport, "it takes an empty buffer for the end of the peer's data")
    connection.peer.write(b"data")
    connection.run_until(lambda: protocol.lost, peer_reads=False)
    (report,) = tls.take_reports()
    assert report["exception"] is protocol.error and type(protocol.error) is RuntimeError
    assert str(protocol.error) == "get_buffer() returned an empty buffer"


@every_side
def test_what_arrives_before_the_handshake_begins(tls, side):
    """A program that resumes reading while start_tls() has it paused."""
    plain = UpgradableConnection(tls, side)
    upgrading, peer = plain.begin()
    peer.handshake()
    tls.loop.call_soon(plain.transport.resume_reading)
    run_once(tls.loop)
    run_until(tls.loop, lambda: peer.handshake() and upgrading.done())
    connection = tls.adopt(upgrading.result(), plain.protocol, peer)
    connection.deliver(numbered(1000))


@every_side
def test_a_connection_that_is_its_own_protocol(tls, side):
    """As for TLS inside TLS the transport asks its protocol for what waits there. That must end."""
    connection = tls.open(side)
    connection.peer.opposite = None  # the program gives its socket up, so the writes of a turn are gathered

    def write():
        connection.transport.set_protocol(connection.transport._ssl_protocol)
        connection.transport.write(b"sent")
        connection.transport.abort()

    tls.loop.call_soon(write)
    connection.run_until(lambda: connection.peer.saw_end)
    assert connection.peer.received == b"sent"


async def replaced_and_collected(certificates, depth):
    """The innermost of `depth` connections delivers data. The program sets another protocol on the transport below it,
    the only one that it has kept."""
    loop = asyncio.get_running_loop()
    ours, theirs = connected_sockets("tcp")
    client, server, after = Recorder(), Recorder(), Recorder()
    client_context, server_context = certificates.client_context(), certificates.server_context()
    inner, _ = await loop.create_connection(lambda: client, sock=ours)
    inner_server, _ = await loop.create_connection(lambda: server, sock=theirs)
    for _ in range(depth):
        below = inner
        inner, inner_server = await asyncio.gather(
            loop.start_tls(below, client, client_context, server_hostname=HOST),
            loop.start_tls(inner_server, server, server_context, server_side=True),
        )
    await settle()
    connection, kept = Reference(inner._ssl_protocol), []
    inner = client.transport = None

    def replace():
        below.set_protocol(after)
        gc.collect()
        kept.append(connection() is not None)

    when_data_comes(client, replace)
    inner_server.write(b"data")
    await until(lambda: kept)
    assert kept == [True] and client.received == b"data"
    if depth == 1 or not is_asyncio_transport(below):  # whose TLS keeps the methods of an earlier protocol
        await until(lambda: collected(connection))
    inner_server.write(b"more")
    await until(lambda: after.received)
    assert client.received == b"data"
    inner_server.abort()
    await until(lambda: after.lost)
    await settle()


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("depth", [1, 2])
def test_data_replaces_the_connection_which_is_garbage_then(impl, certificates, depth):
    impl.run(replaced_and_collected(certificates, depth))


@pytest.mark.only("c", reason="asyncio's transports keep the transport below while they write")
def test_the_transport_below_is_dropped_while_its_write_fails(loop, tls, caplog):
    """A handler of the log ends the connection, and drops the last reference."""
    protocol = Recorder()
    connection = tls.open("client", protocol, kind="tcp")
    caplog.set_level(logging.DEBUG, "asyncio")
    below = [connection.transport._ssl_protocol._transport]
    below[0].pause_reading()
    # Used by the program, so that a write is sent at once.
    below[0].get_extra_info("socket").fileno()
    connection.reset()
    # Not before: the records of other messages have the transport as well.
    loop.set_debug(True)

    class Handler(logging.Handler):
        def emit(self, record):
            if below and "Fatal write error" in record.getMessage():
                below.pop()._call_connection_lost(None)
                record.args = record.msg = None

    handler = Handler()
    logger = logging.getLogger("asyncio")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        for _ in range(3):
            connection.transport.write(b"data")
            run_once(loop)
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
    assert not below
    run_until(loop, lambda: protocol.lost)
