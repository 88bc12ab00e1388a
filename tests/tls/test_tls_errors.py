"""TLS: handshakes that fail, timeouts and callbacks that raise, and where each error goes: the caller, the protocol,
the exception handler or the debug log."""

import asyncio
import contextlib
import contextvars
import logging
import re
import socket
import ssl

import pytest
from support.certificates import OTHER_HOST, TLS_1_2, TLS_1_3, every_version
from support.endpoints import settle, until
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connected_sockets, reset
from support.tls_connections import (
    ANY_KIND,
    UpgradableConnection,
    ViewRecorder,
    every_protocol,
    every_side,
    run_until_or_error,
)

REPORT = {"message", "exception", "transport", "protocol"}


@pytest.fixture
def debug_log():
    """The DEBUG records of asyncio's logger."""
    messages = []

    class Listening(logging.Handler):
        def emit(self, record):
            messages.append((record.getMessage(), record.exc_info and record.exc_info[0]))

    handler = Listening(logging.DEBUG)
    logger = logging.getLogger("asyncio")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield messages
    logger.setLevel(level)
    logger.removeHandler(handler)


# Handshakes that fail


def contexts_that_do_not_fit(certificates, why):
    """The client's context and the server's."""
    client, server = certificates.client_context(), certificates.server_context()
    if why == "unknown authority":
        client = certificates.client_context(trusts=False)
    elif why == "another host":
        server = certificates.server_context(other=True)
    elif why == "no version":
        client.maximum_version, server.minimum_version = TLS_1_2, TLS_1_3
    elif why == "no cipher":
        client, server = certificates.client_context(TLS_1_2), certificates.server_context(TLS_1_2)
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        server.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    return client, server


REASONS = {
    "unknown authority": ("CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT_UNKNOWN_CA"),
    "another host": ("CERTIFICATE_VERIFY_FAILED", "SSLV3_ALERT_BAD_CERTIFICATE"),
    "no version": ("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"),
    "no cipher": ("SSLV3_ALERT_HANDSHAKE_FAILURE", "NO_SHARED_CIPHER"),
}


@every_side
@pytest.mark.parametrize("why", REASONS)
def test_ends_that_do_not_agree(tls, side, why):
    """The caller gets OpenSSL's error; the protocol and the exception handler get nothing."""
    client, server = contexts_that_do_not_fit(tls.certificates, why)
    ours, theirs = (client, server) if side == "client" else (server, client)
    making, peer, protocol = tls.begin(side, context=ours, peer_context=theirs)
    error = tls.failure(making, peer)
    assert isinstance(error, ssl.SSLError)
    assert similar(error.reason) == similar(REASONS[why][0 if side == "client" else 1])
    if "VERIFY" in error.reason:
        assert type(error) is ssl.SSLCertVerificationError and isinstance(error, ssl.CertificateError)
        assert error.verify_code > 0 and error.verify_message
    assert protocol.calls == []


def similar(reason):
    """OpenSSL has renamed some alerts over time."""
    return re.sub("^(TLSV1|SSLV3|TLSV13)_", "", reason).replace("TLS_", "")


@every_side
def test_the_socket_is_closed_when_the_handshake_fails(tls, side):
    making, peer, _ = tls.begin(side)
    peer.send_raw(b"no TLS at all, whatever one may think of it\n")
    run_until(tls.loop, making.done)
    assert isinstance(making.exception(), ssl.SSLError)
    run_until(tls.loop, lambda: peer.pump() or peer.saw_end)
    peer.socket.close()


@every_side
@pytest.mark.parametrize(
    "garbage",
    [
        b"\n" * 50,
        b"GET / HTTP/1.0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff" + b"x" * 100,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x20" + b"d" * 32,
        bytes(range(256)),
    ],
    ids=["lines", "HTTP", "SSH", "bad handshake", "too long", "alert", "data", "bytes"],
)
def test_a_peer_that_speaks_something_else(tls, side, garbage):
    making, peer, protocol = tls.begin(side)
    peer.send_raw(garbage)
    run_until(tls.loop, making.done)
    assert isinstance(making.exception(), ssl.SSLError)
    assert protocol.calls == []
    peer.socket.close()


@every_side
@every_version
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("how", ["end", "close", "reset"])
def test_a_peer_that_leaves_in_the_handshake(tls, side, version, step, how):
    making, peer, protocol = tls.begin(side, version=version, kind="tcp")
    for _ in range(step):
        peer.handshake()
        run_once(tls.loop, 5)
    if how == "end":
        peer.push()
        peer.socket.shutdown(socket.SHUT_WR)
    elif how == "close":
        peer.pump()  # with unread data the kernel would send a reset
        peer.socket.close()
    else:
        reset(peer.socket)
    run_until(tls.loop, making.done)
    assert isinstance(making.exception(), ConnectionResetError)
    assert protocol.calls == []
    peer.socket.close()


@every_side
@every_version
def test_a_handshake_that_is_broken_in_the_middle(tls, side, version):
    making, peer, protocol = tls.begin(side, version=version)
    run_until_or_error(
        tls.loop, lambda: peer.handshake() or len(peer.received) or peer.incoming.pending or peer.pump() or 1
    )
    run_once(tls.loop, 5)
    peer.push()
    peer.send_raw(b"garbage in the middle" * 10)
    run_until(tls.loop, making.done)
    assert isinstance(making.exception(), ssl.SSLError)
    assert protocol.calls == []
    peer.socket.close()


@every_side
def test_a_failed_handshake_in_the_debug_log(tls, debug_log, side):
    """Only the debug log has the error, and only in debug mode."""
    for debug in (False, True):
        tls.loop.set_debug(debug)
        debug_log.clear()
        making, peer, _ = tls.begin(side)
        peer.send_raw(b"no TLS at all, whatever one may think of it\n")
        run_until(tls.loop, making.done)
        run_once(tls.loop, 3)
        peer.socket.close()
        assert isinstance(making.exception(), ssl.SSLError)
        failures = [one for one in debug_log if "SSL handshake failed" in one[0]]
        assert [kind for _, kind in failures] == ([ssl.SSLError] if debug else [])


def test_a_refused_certificate_in_the_debug_log(tls, debug_log):
    tls.loop.set_debug(True)
    context = tls.certificates.client_context(trusts=False)
    making, peer, _ = tls.begin("client", context=context)
    assert isinstance(tls.failure(making, peer), ssl.SSLCertVerificationError)
    assert [kind for text, kind in debug_log if "SSL handshake failed on verifying the certificate" in text] == [
        ssl.SSLCertVerificationError
    ]


@every_side
def test_a_handshake_in_the_debug_log(tls, debug_log, side):
    tls.loop.set_debug(True)
    connection = tls.open(side)
    texts = [text for text, _ in debug_log]
    assert sum("starts SSL handshake" in text for text in texts) == 1
    assert sum(bool(re.search(r"SSL handshake took \d+\.\d ms", text)) for text in texts) == 1
    debug_log.clear()
    connection.end()
    connection.run_until_lost()
    assert any("received EOF" in text for text, _ in debug_log)


def test_no_debug_log_without_debugging(tls, debug_log):
    connection = tls.open("client")
    connection.end()
    connection.run_until_lost()
    assert not [text for text, _ in debug_log if "SSL" in text or "EOF" in text]


# Timeouts


@every_side
@pytest.mark.parametrize("name", ["ssl_handshake_timeout", "ssl_shutdown_timeout"])
@pytest.mark.parametrize("value", [-1, -0.001])
def test_timeouts_that_cannot_be(tls, side, name, value):
    ours, theirs = connected_sockets("pair")
    context = tls.certificates.context(side)
    if side == "client":
        making = tls.loop.create_connection(Recorder, sock=ours, ssl=context, server_hostname="x", **{name: value})
    else:
        making = tls.loop.connect_accepted_socket(Recorder, ours, ssl=context, **{name: value})
    with ours, theirs, pytest.raises(ValueError, match=f"{name} should be a positive number, got {value}"):
        tls.loop.run_until_complete(making)


def test_a_handshake_timeout_of_nothing_cannot_be(tls):
    ours, theirs = connected_sockets("pair")
    context = tls.certificates.server_context()
    making = tls.loop.connect_accepted_socket(Recorder, ours, ssl=context, ssl_handshake_timeout=0)
    with ours, theirs, pytest.raises(ValueError, match="ssl_handshake_timeout should be a positive number, got 0"):
        tls.loop.run_until_complete(making)


# Callbacks that raise


def raising(*_):
    raise ZeroDivisionError("from inside a callback")


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


# What a server reports


def test_a_server_is_quiet_about_its_clients_failures(impl, certificates, asyncio_log):
    """A client that speaks another protocol or refuses the certificate is reported in debug mode only."""

    async def main():
        loop = asyncio.get_running_loop()
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(context))
        server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=certificates.server_context())
        address = server.sockets[0].getsockname()
        with socket.create_connection(address) as client:
            client.sendall(b"no TLS at all, whatever one may think of it\n")
            client.setblocking(False)
            while await loop.sock_recv(client, 1000):
                pass
        with pytest.raises(ssl.SSLCertVerificationError):
            await loop.create_connection(
                Recorder, *address, ssl=certificates.client_context(trusts=False), server_hostname="localhost"
            )
        await settle()
        if not loop.get_debug():
            assert reports == []
        else:
            assert {report["message"] for report in reports} == {"Error on transport creation for incoming connection"}
            assert all(report.keys() >= {"message", "exception"} for report in reports)
            # asyncio's client does not send the alert about the certificate: the server sees the connection end.
            first, second = (type(report["exception"]) for report in reports)
            assert first is ssl.SSLError and second in (ssl.SSLError, ConnectionResetError)
        transport, protocol = await loop.create_connection(
            Recorder, *address, ssl=certificates.client_context(), server_hostname="localhost"
        )
        transport.close()
        await until(lambda: protocol.lost)
        server.close()
        await settle()

    impl.run(main())
    impl.run(main(), debug=True)


def test_the_name_of_another_host_is_named_in_the_error(tls):
    making, peer, _ = tls.begin("client", server_hostname=OTHER_HOST)
    error = tls.failure(making, peer)
    assert isinstance(error, ssl.SSLCertVerificationError) and OTHER_HOST in error.verify_message


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
    while not connection.protocol.received:
        with contextlib.suppress(error):
            run_once(tls.loop)
    connection.reset()
    if then == "write":
        connection.transport.write(b"more")
    elif then:
        getattr(connection.transport, then)()
    while not connection.protocol.lost:
        with contextlib.suppress(error):
            run_once(tls.loop)
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
    while not connection.protocol.received:
        with contextlib.suppress(KeyboardInterrupt):
            run_once(tls.loop)
    connection.reset()
    while not connection.protocol.lost:
        with contextlib.suppress(KeyboardInterrupt):
            run_once(tls.loop)
    assert found == list(range(len(found)))


@every_side
@pytest.mark.parametrize("reaction", ["write", "close"])
def test_what_a_protocol_does_before_an_invalid_record_is_found(tls, side, reaction):
    """OpenSSL fails once more then: that is not what the connection ends of."""

    def react():
        connection.transport.write(bytes(1 << 20)) if reaction == "write" else connection.transport.close()

    connection = tls.open(side, Recorder(data_received=react))
    connection.peer.send_raw(connection.peer.encrypted(b"data") + b"garbage" * 10)
    connection.run_until(lambda: connection.protocol.lost, peer_reads=False)
    assert isinstance(connection.protocol.error, ssl.SSLError)
    assert not isinstance(connection.protocol.error, ssl.SSLEOFError)


@every_side
@pytest.mark.parametrize("upgrade", [False, True])
def test_a_certificate_that_the_ssl_module_cannot_show(tls, side, upgrade):
    class Unreadable(ssl.SSLObject):
        def getpeercert(self, binary_form=False):
            raise ValueError("a name in no known encoding")

    context = tls.certificates.context(side)
    context.sslobject_class = Unreadable
    if upgrade:
        plain = UpgradableConnection(tls, side)
        making, peer = plain.begin(context=context)
    else:
        making, peer, _ = tls.begin(side, context=context)
    assert isinstance(tls.failure(making, peer), ValueError)
    (report,) = tls.take_reports()
    assert report["message"] == "SSL handshake failed" and isinstance(report["exception"], ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_leaves_after_its_handshake(tls, kind):
    """The client's last records, which find that, are sent after connection_made()."""
    order = []
    protocol = Recorder(
        connection_made=lambda: order.append(protocol.transport.is_closing()),
        connection_lost=lambda: order.append("lost"),
    )
    making, peer, _ = tls.begin("client", protocol, kind=kind, version=TLS_1_3)
    making.add_done_callback(lambda making: order.append("connected"))
    run_once(tls.loop, 6)
    peer.handshake()
    (reset if kind == "tcp" else socket.socket.close)(peer.socket)
    run_until(tls.loop, lambda: protocol.lost)
    making.result()
    assert order == [False, "connected", "lost"]
    assert isinstance(protocol.error, ConnectionError)


def test_a_handshake_fails_on_a_transport_that_does_not_know_whether_it_is_closing(tls):
    class Carrier(asyncio.Transport):
        _start_tls_compatible = True

        def __init__(self, transport):
            self._transport = transport

        def __getattribute__(self, name):
            if name in ("_transport", "_start_tls_compatible", "is_closing"):
                return super().__getattribute__(name)
            return getattr(self._transport, name)

    plain = UpgradableConnection(tls, "server")
    plain.transport = Carrier(plain.transport)
    upgrading, peer = plain.begin()
    peer.send_raw(b"garbage" * 10)
    run_until(tls.loop, upgrading.done)
    plain.run_until_lost()
    assert isinstance(upgrading.exception(), ssl.SSLError)
    assert plain.protocol.error is upgrading.exception()
