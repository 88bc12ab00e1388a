"""TLS: callbacks that raise, and where the exception goes: the caller, the protocol, the exception handler, or the
program that runs the loop."""

import asyncio
import contextlib
import contextvars
import ssl

import pytest
from support.certificates import TLS_1_3
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.tls_connections import ANY_KIND, ViewRecorder, every_protocol, every_side, run_until_or_error

REPORT = {"message", "exception", "transport", "protocol"}


def raising(*_):
    raise ZeroDivisionError("from inside a callback")


def run_through(error, loop, condition):
    """Run the loop until `condition`, again after each `error` that ends the run."""
    while not condition():
        with contextlib.suppress(error):
            run_once(loop)


def test_connection_made_that_fails_when_data_has_come(tls):
    """The protocol does not get the data that has come with the end of the handshake."""
    making, peer, protocol = tls.begin("server", Recorder(connection_made=raising))

    def end_handshake_with_data():
        ssl.SSLObject.do_handshake(peer.tls)
        peer.tls.write(b"data")

    peer.tls.do_handshake = end_handshake_with_data
    assert isinstance(tls.failure(making, peer), ZeroDivisionError)
    (report,) = tls.take_reports()
    assert isinstance(report["exception"], ZeroDivisionError)
    run_until(tls.loop, lambda: protocol.lost)
    assert protocol.calls == ["connection_made", "connection_lost"]


@every_side
@every_protocol
def test_data_received_that_fails(tls, side, make_protocol):
    """The exception ends the connection; the exception handler and connection_lost() get it."""
    protocol = make_protocol()
    when_data_comes(protocol, raising)
    connection = tls.open(side, protocol)
    connection.peer.write(b"data")
    connection.run_until_lost()
    (report,) = tls.take_reports()
    assert report["message"] == "Fatal error on SSL protocol"
    assert isinstance(report["exception"], ZeroDivisionError) and report.keys() == REPORT
    assert isinstance(report["protocol"], asyncio.sslproto.SSLProtocol)
    assert protocol.error is report["exception"]
    assert protocol.calls == ["connection_made", "data", "connection_lost"]


def test_get_buffer_that_fails(tls):
    connection = tls.open("server", ViewRecorder(get_buffer=raising))
    connection.peer.write(b"data")
    connection.run_until_lost()
    reports = tls.take_reports()
    assert reports and {report["message"] for report in reports} == {"Fatal error on SSL protocol"}
    assert isinstance(connection.protocol.error, ZeroDivisionError)
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@every_side
def test_an_os_error_from_data_received_is_not_reported(tls, side):
    """Like asyncio, the transport takes it for the connection's own error: connection_lost() gets it, the debug log has
    it."""
    protocol = Recorder()

    def fail():
        raise OSError("a file's, say")

    protocol.hooks["data_received"] = fail
    connection = tls.open(side, protocol)
    connection.peer.write(b"data")
    connection.run_until_lost()
    assert type(protocol.error) is OSError


@every_side
@pytest.mark.parametrize("ending", ["close_notify", "end alone"])
def test_eof_received_that_fails(tls, side, ending):
    connection = tls.open(side, Recorder(eof_received=raising))
    connection.peer.notify_close() if ending == "close_notify" else connection.end()
    connection.run_until_lost()
    (report,) = tls.take_reports()
    assert report["message"] == "Error calling eof_received()"
    assert isinstance(report["exception"], ZeroDivisionError) and report.keys() == REPORT
    assert connection.protocol.error is report["exception"]
    assert connection.protocol.calls == ["connection_made", "eof_received", "connection_lost"]


@every_side
def test_connection_made_that_fails(tls, side):
    making, peer, protocol = tls.begin(side, Recorder(connection_made=raising))
    run_until_or_error(tls.loop, lambda: (peer.handshake() or True) and making.done())
    run_until(tls.loop, lambda: protocol.lost)
    assert isinstance(making.exception(), ZeroDivisionError)
    assert protocol.error is making.exception()
    assert protocol.calls == ["connection_made", "connection_lost"]
    (report,) = tls.take_reports()
    assert isinstance(report["exception"], ZeroDivisionError) and report.keys() >= {"message", "exception", "transport"}
    peer.socket.close()


@every_side
@pytest.mark.parametrize("callback", ["connection_made", "data_received", "eof_received"])
def test_what_a_callback_has_written_before_it_fails(tls, side, callback):
    """It leaves before the connection is closed: for a server, say, the answer that names the error."""

    def answer_and_fail():
        protocol.transport.write(b"an answer")
        raise ZeroDivisionError

    protocol = Recorder(**{callback: answer_and_fail})
    making, peer, _ = tls.begin(side, protocol)
    peer.opposite = None  # the program gives its socket up, so the writes of a turn are gathered
    peer_ends = {"connection_made": int, "data_received": lambda: peer.write(b"x"), "eof_received": peer.notify_close}
    ended = []

    def lost():
        if peer.handshake() and making.done() and not ended:
            ended.append(peer_ends[callback]())
        peer.read()
        return protocol.lost and peer.saw_end

    run_until_or_error(tls.loop, lost)
    assert peer.received == b"an answer"
    assert (callback == "connection_made") == isinstance(making.exception(), ZeroDivisionError)
    assert type(protocol.error) is ZeroDivisionError
    assert [type(report["exception"]) for report in tls.take_reports()] == [ZeroDivisionError]
    peer.socket.close()


def test_connection_lost_that_fails(tls):
    connection = tls.open("client", Recorder(connection_lost=raising))
    connection.transport.abort()
    connection.run_until_lost()
    run_once(tls.loop, 3)
    (report,) = tls.take_reports()
    assert isinstance(report["exception"], ZeroDivisionError)
    assert connection.socket.fileno() == -1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@every_protocol
def test_what_ends_the_program_ends_run_forever(tls, make_protocol, error):
    protocol = make_protocol()
    connection = tls.open("server", protocol)

    def fail():
        del protocol.hooks["data_received" if isinstance(protocol, asyncio.Protocol) else "buffer_updated"]
        raise error

    when_data_comes(protocol, fail)
    connection.send(b"data")
    finished = []
    with pytest.raises(error):
        run_until(tls.loop, lambda: finished)
    assert not protocol.lost
    finished.append(True)
    tls.loop.run_forever()  # until the check that run_until() left behind stops it


@pytest.mark.only("c", reason="asyncio's connection stays without its result")
@every_side
@every_protocol
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_connection_made_that_ends_run_forever(tls, side, make_protocol, error):
    """When the loop runs again the connection is made, and what came with the handshake is delivered."""

    def stop():
        protocol.transport.write(b"written")
        raise error

    protocol = make_protocol(connection_made=stop)
    making, peer, _ = tls.begin(side, protocol)

    def made():
        if peer.handshake() and not sent:
            sent.append(peer.write(b"data"))
        return "connection_made" in protocol.calls

    sent = []
    run_through(error, tls.loop, made)
    run_until(tls.loop, lambda: made() and making.done() and protocol.received)
    connection = tls.adopt(making.result()[0], protocol, peer)
    assert protocol.received == b"data" and connection.receive(7) == b"written"


@pytest.mark.parametrize("callback", ["data_received", "eof_received"])
def test_what_a_failing_callback_has_written_finds_that_the_peer_has_left(tls, callback):
    """The write came first, so connection_lost() gets its error."""

    def write_and_fail():
        connection.transport.write(b"too late")
        raise ZeroDivisionError

    connection = tls.open("server", Recorder(**{callback: write_and_fail}), kind=ANY_KIND, version=TLS_1_3)
    connection.peer.opposite = None  # the program gives its socket up, so the writes of a turn are gathered
    connection.peer.write(b"data") if callback == "data_received" else connection.peer.notify_close()
    connection.peer.socket.close()
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert isinstance(connection.protocol.error, ConnectionError)
    assert [type(report["exception"]) for report in tls.take_reports()] == [ZeroDivisionError]


@every_side
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("then", ["", "write", "write and close"])
def test_the_loop_ends_before_an_invalid_record_is_handled(tls, side, error, then):
    """When the loop runs again, the connection ends all the same."""

    def stop():
        raise error

    connection = tls.open(side, Recorder(data_received=stop), kind=ANY_KIND)
    connection.peer.send_raw(connection.peer.encrypted(b"data") + b"garbage" * 10)
    # asyncio finds the invalid record first, and delivers nothing.
    with contextlib.suppress(error):
        connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    if then:
        connection.transport.write(b"more")
    if then == "write and close":
        connection.transport.close()
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert isinstance(connection.protocol.error, ssl.SSLError)


@pytest.mark.only("c", reason="under asyncio the peer waits until the timeout of its shutdown")
@every_side
@every_protocol
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("callback", ["data", "eof_received"])
def test_the_loop_ends_before_close_notify_is_answered(tls, side, make_protocol, error, callback):
    """When the loop runs again, it answers, and the connection ends."""

    def stop():
        if not stopped:
            stopped.append(True)
            raise error

    stopped = []
    protocol = make_protocol(**({} if callback == "data" else {callback: stop}))
    if callback == "data":
        when_data_comes(protocol, stop)
    connection = tls.open(side, protocol)
    connection.peer.tls.write(b"data")
    connection.peer.notify_close()
    run_through(error, tls.loop, lambda: stopped)
    run_once(tls.loop, 5)
    connection.peer.read()
    assert connection.peer.saw_close_notify
    connection.run_until_lost()
    assert protocol.received == b"data" and protocol.error is None
    assert protocol.calls.count("eof_received") == protocol.calls.count("connection_lost") == 1


@pytest.mark.only("c", reason="under asyncio the connection ends when the timeout of its shutdown is over")
@every_side
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_loop_ends_in_eof_received_after_close(tls, side, error):
    """When the loop runs again, the connection ends."""

    def stop():
        raise error

    connection = tls.open(side, Recorder(eof_received=stop))
    connection.transport.close()
    run_once(tls.loop, 3)
    connection.peer.read()
    connection.peer.notify_close()
    run_through(error, tls.loop, lambda: "eof_received" in connection.protocol.calls)
    run_once(tls.loop, 5)
    assert connection.protocol.lost and connection.protocol.error is None


@every_side
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("then", ["", "write", "abort"])
def test_the_loop_ends_while_the_rest_is_delivered_of_a_broken_connection(tls, side, error, then):
    """When the loop runs again, connection_lost() comes all the same, and once."""

    class SmallBuffers(ViewRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            raise error

    connection = tls.open(side, SmallBuffers(10), kind="tcp")
    connection.send(b"data" * 50)
    run_through(error, tls.loop, lambda: connection.protocol.received)
    connection.reset()
    if then == "write":
        connection.transport.write(b"more")
    elif then:
        getattr(connection.transport, then)()
    run_through(error, tls.loop, lambda: connection.protocol.lost)
    run_once(tls.loop, 3)
    assert connection.protocol.calls.count("connection_lost") == 1
    connection.protocol.check_life_cycle()


@pytest.mark.only("c", reason="asyncio's sslproto gives each further piece a copy of the context")
@every_side
def test_the_context_of_the_rest_that_is_delivered_of_a_broken_connection(tls, side):
    """Each callback finds what the one before has set, although the loop has ended in between."""
    pieces = contextvars.ContextVar("pieces", default=0)

    class SmallBuffers(ViewRecorder):
        def buffer_updated(self, nbytes):
            found.append(pieces.get())
            pieces.set(len(found))
            super().buffer_updated(nbytes)
            raise KeyboardInterrupt

    found = []
    connection = tls.open(side, SmallBuffers(10), kind="tcp")
    connection.send(b"data" * 50)
    run_through(KeyboardInterrupt, tls.loop, lambda: connection.protocol.received)
    connection.reset()
    run_through(KeyboardInterrupt, tls.loop, lambda: connection.protocol.lost)
    assert len(found) > 1 and found == list(range(len(found)))


@every_side
def test_buffer_updated_that_is_always_cancelled(tls, side):
    """connection_lost() is called, although the rest of the data, which comes before it, fails as well. Each error is
    reported."""
    calls = []
    raised = []

    class Cancelled(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint):
            return bytearray(10)

        def buffer_updated(self, nbytes):
            raised.append(asyncio.CancelledError())
            raise raised[-1]

        def connection_lost(self, exc):
            calls.append("lost")

    connection = tls.open(side, Cancelled())
    connection.peer.write(b"x" * 35)
    run_until(tls.loop, lambda: "lost" in calls)
    assert calls == ["lost"]
    assert [report["exception"] for report in tls.take_reports()] == raised
