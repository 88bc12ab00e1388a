"""Stream transports: exceptions from protocol callbacks, reports to the exception handler, and garbage collection."""

import asyncio
import contextlib
import gc
import re
import socket
import sys
import warnings
import weakref

import pytest
from support.recording import BufferedRecorder, Recorder
from support.stepping import run_once, run_until
from support.stream_connections import (
    MORE_THAN_FITS,
    connected_sockets,
    connections_on,
    is_asyncio_transport,
    skip_on_asyncio,
)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


class Failure(Exception):
    pass


def raising(error):
    def hook():
        raise error

    return hook


def trigger(connection, where):
    """Make the loop call the callback `where`."""
    loop = connection.loop
    if where in ("data_received", "get_buffer", "buffer_updated"):
        connection.send(b"data")
    elif where == "eof_received":
        connection.end()
    elif where == "connection_lost":
        connection.transport.close()
    elif where == "pause_writing":
        loop.call_soon(connection.transport.write, bytes(MORE_THAN_FITS))
    elif where == "resume_writing":
        missing = connection.fill()
        while missing:
            missing -= len(connection.peer_read(missing) or b"")
            run_once(loop)
    run_once(loop, 3)


PLACES = {
    "connection_made": Recorder,
    "data_received": Recorder,
    "get_buffer": BufferedRecorder,
    "buffer_updated": BufferedRecorder,
    "eof_received": Recorder,
    "pause_writing": Recorder,
    "resume_writing": Recorder,
    "connection_lost": Recorder,
}
FATAL = ["data_received", "get_buffer", "buffer_updated", "eof_received"]


def happening(implementation, where, error, debug=False):
    """The report and the callbacks after the callback `where` has raised `error`, in a form that can be compared."""
    loop = implementation.new_event_loop()
    loop.set_debug(debug)
    loop.slow_callback_duration = 3600
    try:
        with connections_on(loop) as connections:
            protocol = PLACES[where]()
            protocol.hooks[where] = raising(error)
            connection = connections.open("tcp", protocol)
            if where != "connection_made":
                trigger(connection, where)
            run_once(loop, 2)
            reports = connections.take_reports()
            for report in reports:
                assert report["exception"] is error
                assert report.get("transport", connection.transport) is connection.transport
                assert report.get("protocol", protocol) is protocol
            protocol.hooks.clear()
            alive = not protocol.lost
            if alive:
                connection.transport.abort()
                connection.run_until_lost()
            assert connection.socket.fileno() == -1
            texts = [(re.sub(r"callback .*", "callback", report["message"]), sorted(report)) for report in reports]
            return texts, protocol.calls, alive, protocol.error is error
    finally:
        loop.close()
        gc.collect()


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("debug", [False, True])
def test_an_exception(load_implementation, impl, asyncio_log, where, debug):
    expected = happening(load_implementation("asyncio"), where, Failure("oops"), debug)
    texts, _, alive, is_passed_on = expected
    assert len(texts) == 1
    assert (alive, is_passed_on) == (where not in (*FATAL, "connection_lost"), where in FATAL)
    assert happening(impl, where, Failure("oops"), debug) == expected


@pytest.mark.parametrize("where", FATAL)
def test_the_words_of_the_report(loop, connections, where):
    protocol = PLACES[where]()
    error = Failure("oops")
    protocol.hooks[where] = raising(error)
    connection = connections.open("tcp", protocol)
    trigger(connection, where)
    connection.run_until_lost()
    assert connections.take_reports() == [
        {
            "message": f"Fatal error: protocol.{where}() call failed.",
            "exception": error,
            "transport": connection.transport,
            "protocol": protocol,
        }
    ]


@pytest.mark.parametrize("where", ["pause_writing", "resume_writing"])
def test_the_words_of_the_report_on_flow_control(loop, connections, where):
    protocol = Recorder()
    error = Failure("oops")
    protocol.hooks[where] = raising(error)
    connection = connections.open("tcp", protocol)
    written = connection.fill()
    assert len(connection.receive(written)) == written, "the bytes are sent all the same"
    assert connections.take_reports() == [
        {
            "message": f"protocol.{where}() failed",
            "exception": error,
            "transport": connection.transport,
            "protocol": protocol,
        }
    ]
    assert protocol.calls == ["connection_made", "pause_writing", "resume_writing"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kind", [ConnectionAbortedError, OSError])
def test_an_oserror(load_implementation, impl, where, kind):
    """An exception in a FATAL callback ends the connection without a report."""
    expected = happening(load_implementation("asyncio"), where, kind("oops"))
    assert bool(expected[0]) == (where not in FATAL)
    assert happening(impl, where, kind("oops")) == expected


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, BaseException, StopIteration])
def test_exceptions_that_are_special_elsewhere(load_implementation, impl, where, kind):
    expected = happening(load_implementation("asyncio"), where, kind("oops"))
    assert len(expected[0]) == 1
    assert happening(impl, where, kind("oops")) == expected


@pytest.mark.parametrize("where", [place for place in PLACES if place != "connection_made"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_leaves_run_forever(loop, connections, where, kind):
    """The next run continues the turn; the connection lives, unless the callback was its connection_lost()."""
    protocol = PLACES[where]()
    connection = connections.open("tcp", protocol)
    if where == "resume_writing":
        skip_on_asyncio(connection.transport, "it goes on waiting for room with nothing to send (AssertionError)")
    protocol.hooks[where] = raising(kind)
    other = connections.open("tcp")
    seen = []
    with pytest.raises(kind):
        loop.call_soon(seen.append, "queued")
        trigger(connection, where)
    protocol.hooks.clear()
    run_once(loop, 2)
    assert seen == ["queued"]
    other.send(b"goes on")
    run_until(loop, lambda: other.protocol.received == b"goes on")
    if where == "connection_lost":
        assert connection.socket.fileno() == -1
    elif where == "eof_received":
        connection.run_until_lost()
        assert protocol.calls == ["connection_made", "eof_received", "eof_received", "connection_lost"]
    else:
        connection.send(b"more")
        run_until(loop, lambda: protocol.received.endswith(b"more"))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_of_connection_made(loop, connections, kind):
    ours, peer = connected_sockets("tcp")
    protocol = Recorder(connection_made=raising(kind))
    connecting = loop.create_task(loop.create_connection(lambda: protocol, sock=ours))
    with pytest.raises(kind):
        loop.run_until_complete(connecting)
    transport, _ = loop.run_until_complete(connecting)
    peer.send(b"data")
    run_until(loop, lambda: protocol.received == b"data")
    transport.abort()
    peer.close()
    run_until(loop, lambda: protocol.lost)


@pytest.mark.parametrize(
    ("buffer", "kind"),
    [(bytearray(), RuntimeError), (memoryview(b""), RuntimeError), (None, TypeError), (5, TypeError)],
)
def test_buffers_of_no_use(loop, connections, buffer, kind):
    protocol = BufferedRecorder(get_buffer=lambda: buffer)
    connection = connections.open("tcp", protocol)
    connection.send(b"data")
    connection.run_until_lost()
    (report,) = connections.take_reports()
    assert report["message"] == "Fatal error: protocol.get_buffer() call failed."
    assert type(report["exception"]) is kind and protocol.error is report["exception"]
    if kind is RuntimeError:
        assert str(protocol.error) == "get_buffer() returned an empty buffer"


@pytest.mark.parametrize(
    "buffer", [b"constant", memoryview(b"constant"), "text", memoryview(bytearray(8))[::2], [1, 2]]
)
def test_buffers_that_cannot_be_written_into(loop, connections, pair, buffer):
    with pytest.raises(Exception) as caught:
        pair[0].recv_into(buffer)
    protocol = BufferedRecorder(get_buffer=lambda: buffer)
    connection = connections.open("tcp", protocol)
    connection.send(b"data")
    connection.run_until_lost()
    (report,) = connections.take_reports()
    assert report["message"] == "Fatal read error on socket transport"
    assert protocol.error is report["exception"]
    assert (type(protocol.error), str(protocol.error)) == (caught.type, str(caught.value))


def test_an_accepted_connections_buffer_that_cannot_be_written_into(loop, pair):
    """An accepted connection has no Python socket before the error."""
    with pytest.raises(TypeError) as caught:
        pair[0].recv_into(b"constant")
    protocols, reports = [], []
    loop.set_exception_handler(lambda loop, context: reports.append(context))

    def factory():
        protocols.append(BufferedRecorder(get_buffer=lambda: b"constant"))
        return protocols[-1]

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.send(b"data")
        run_until(loop, lambda: protocols and protocols[0].lost)
    server.close()
    run_once(loop, 2)
    (report,) = reports
    assert report["message"] == "Fatal read error on socket transport"
    assert (type(report["exception"]), str(report["exception"])) == (TypeError, str(caught.value))


def test_an_error_after_closing_inside_the_callback(loop, connections):
    """The error is reported, and connection_lost() gets None, as after close()."""
    protocol = Recorder()
    connection = connections.open("tcp", protocol)

    def hook():
        connection.transport.close()
        raise Failure

    protocol.hooks["data_received"] = hook
    connection.send(b"data")
    connection.run_until_lost()
    (report,) = connections.take_reports()
    assert isinstance(report["exception"], Failure)
    assert protocol.error is None
    run_once(loop, 2)
    assert protocol.calls == ["connection_made", "data", "connection_lost"]


@pytest.mark.parametrize("flushed", [False, True])
def test_the_socket_is_closed_whatever_connection_lost_raises(loop, connections, flushed):
    protocol = Recorder(connection_lost=raising(Failure("oops")))
    connection = connections.open("tcp", protocol)
    if flushed:
        written = connection.fill()
    connection.transport.close()
    if flushed:
        assert len(connection.receive(written)) == written
    run_until(loop, lambda: protocol.lost)
    assert connection.socket.fileno() == -1
    (report,) = connections.take_reports()
    assert isinstance(report["exception"], Failure) and report["message"].startswith("Exception in callback ")


def test_a_handler_that_fails(loop, connections, asyncio_log):
    """asyncio's default handler takes over, and the loop goes on."""
    connection = connections.open("tcp", Recorder(data_received=raising(Failure("oops"))))

    def handler(loop, context):
        raise ZeroDivisionError

    loop.set_exception_handler(handler)
    connection.send(b"data")
    connection.run_until_lost()
    (message,) = asyncio_log.take()
    assert message.startswith("Unhandled error in exception handler")


@contextlib.contextmanager
def unclosed_transport():
    """Expect the warning. The collector may finalize the socket of a cycle first; then that one warns as well."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert {warning.category for warning in caught} == {ResourceWarning}
    assert [str(warning.message) for warning in caught if re.match("unclosed transport <.*fd=", str(warning.message))]


def open_and_paused(loop):
    """A transport, its protocol and its peer; only the caller refers to them."""
    ours, peer = connected_sockets("pair")
    transport, protocol = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
    transport.pause_reading()
    return transport, protocol, peer


def test_an_unclosed_transport_that_is_dropped(loop):
    """No poller knows a paused transport: it is garbage, warns and closes its socket."""
    transport, protocol, peer = open_and_paused(loop)
    dies = weakref.ref(transport)
    with unclosed_transport():
        del transport, protocol
        gc.collect()
    gc.collect()  # the recorded warning has kept it
    assert dies() is None
    peer.setblocking(True)
    assert peer.recv(1) == b""
    peer.close()


def test_an_unclosed_transport_of_a_closed_loop(impl):
    loop = impl.new_event_loop()
    ours, peer = connected_sockets("pair")
    transport, protocol = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=ours))
    loop.close()
    assert repr(transport)
    with unclosed_transport():
        del transport, protocol
        gc.collect()
    peer.setblocking(True)
    assert peer.recv(1) == b""
    peer.close()


@pytest.mark.filterwarnings("error:unclosed transport:ResourceWarning", "ignore:unclosed <socket:ResourceWarning")
def test_an_unclosed_transport_that_is_dropped_if_warnings_are_errors(loop, monkeypatch):
    """__del__() cannot raise the warning, but it closes the socket, and an accepted one leaves its server."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append(str(raised.exc_value)))

    class Paused(asyncio.Protocol):
        def connection_made(self, transport):
            transport.pause_reading()
            made.append(weakref.ref(transport))

    made = []
    server = loop.run_until_complete(loop.create_server(Paused, "127.0.0.1", 0))
    with socket.create_connection(server.sockets[0].getsockname(), timeout=10) as peer:
        run_until(loop, lambda: made)
        run_once(loop, 2)
        gc.collect()
        assert made[0]() is None
        assert peer.recv(1) == b""
    assert any(message.startswith("unclosed transport") for message in unraisable)
    server.close()


def test_a_transport_that_is_read_stays_alive(loop, connections):
    """Only the loop refers to the transport."""
    ours, peer = connected_sockets("pair")
    protocol = Recorder()
    loop.run_until_complete(loop.create_connection(lambda: protocol, sock=ours))
    protocol.transport = None
    gc.collect()
    peer.send(b"data")
    run_until(loop, lambda: protocol.received == b"data")
    peer.close()
    run_until(loop, lambda: protocol.lost)


@pytest.mark.parametrize("how", ["close", "abort", "eof", "reset"])
@pytest.mark.parametrize("make_protocol", [Recorder, BufferedRecorder])
def test_what_is_closed_dies_without_the_collector(loop, how, make_protocol):
    ours, peer = connected_sockets("tcp")
    with connections_on(loop) as connections:
        connection = connections.over(ours, peer, make_protocol())
        connection.send(b"data")
        run_once(loop, 3)
        assert connection.protocol.received
        written = connection.fill()
        connection.receive(written)
        if how == "eof":
            peer.close()
        elif how == "reset":
            connection.reset()
        else:
            getattr(connection.transport, how)()
        connection.run_until_lost()
    loop.set_exception_handler(None)  # the helper's handler refers to the connection
    run_once(loop, 2)
    protocol, transport = weakref.ref(connection.protocol), weakref.ref(connection.transport)
    asyncios = is_asyncio_transport(connection.transport)
    connection.protocol.error = None  # the frames of its traceback refer to this frame
    gc.collect()
    gc.disable()
    try:
        del connection, connections, ours
        assert protocol() is None
        if asyncios and sys.version_info < (3, 14, 10):
            pytest.skip("asyncio's own transport: it may keep bound methods of its own, which is a cycle")
        assert transport() is None
    finally:
        gc.enable()
        peer.close()


def test_a_pending_write_does_not_outlive_its_connection(loop, connections):
    connection = connections.open("tcp")
    connection.fill()
    data = b"d" * 1000
    count = sys.getrefcount(data)
    connection.transport.write(data)
    connection.transport.abort()
    connection.run_until_lost()
    assert sys.getrefcount(data) == count


def test_sent_data_is_let_go(loop, connections):
    connection = connections.open("tcp")
    small, big = b"s" * 1000, bytes(MORE_THAN_FITS)
    counts = sys.getrefcount(small), sys.getrefcount(big)
    connection.transport.write(small)
    connection.transport.writelines([small, small])
    connection.transport.write(big)
    connection.receive(3000 + len(big))
    run_once(loop, 2)
    assert (sys.getrefcount(small), sys.getrefcount(big)) == counts


def states(implementation):
    """The representation of a transport in all its states, without the parts that differ by class and number."""
    loop = implementation.new_event_loop()
    seen = []

    def look(transport):
        text = re.sub(r"fd=\d+", "fd=N", repr(transport))
        text = re.sub(r"bufsize=[1-9]\d*", "bufsize=SOME", text)
        seen.append(re.sub(r"^<\S+ ", "<", text))

    try:
        with connections_on(loop) as connections:
            protocol = Recorder(connection_made=lambda: look(protocol.transport))
            protocol.hooks["connection_lost"] = lambda: look(protocol.transport)
            connection = connections.open("tcp", protocol)
            transport = connection.transport
            look(transport)
            transport.pause_reading()
            look(transport)
            written = connection.fill()
            look(transport)
            transport.resume_reading()
            look(transport)
            connection.receive(written)
            look(transport)
            transport.close()
            look(transport)
            connection.run_until_lost()
            look(transport)
    finally:
        loop.close()
    look(transport)
    return seen


def test_the_representation(load_implementation, impl):
    expected = states(load_implementation("asyncio"))
    assert expected[1] == "<fd=N read=polling write=<idle, bufsize=0>>"
    assert states(impl) == expected


def test_no_references_leak(loop, connections):
    """Ten thousand round trips leave no object behind."""
    connection = connections.open("pair")

    def round_trips(count):
        for number in range(count):
            connection.transport.write(b"question")
            connection.peer.recv(100)
            connection.peer.send(b"answer")
            if number % 10 == 0:
                connection.transport.pause_reading()
            run_once(loop)
            connection.transport.resume_reading()
            connection.protocol.received.clear()
        run_once(loop, 3)
        gc.collect()
        return sys.getallocatedblocks()

    before = round_trips(500)
    assert round_trips(5000) - before < 500
