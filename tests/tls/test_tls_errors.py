"""TLS: handshakes that fail, peers that break the protocol, and where each error goes: the caller, the protocol, the
exception handler or the debug log. test_tls_failing_callbacks.py has the exceptions of the program's own callbacks."""

import asyncio
import logging
import re
import socket
import ssl

import pytest
from support.certificates import OTHER_HOST, TLS_1_2, TLS_1_3, every_version
from support.endpoints import settle, until
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, reset
from support.tls_connections import UpgradableConnection, every_side, run_until_or_error


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


def test_the_name_of_another_host_is_named_in_the_error(tls):
    making, peer, _ = tls.begin("client", server_hostname=OTHER_HOST)
    error = tls.failure(making, peer)
    assert isinstance(error, ssl.SSLCertVerificationError) and OTHER_HOST in error.verify_message


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


@pytest.mark.parametrize("lacking", ["is_closing", "write"])
def test_a_handshake_fails_on_a_programs_own_transport(tls, lacking):
    class Carrier(asyncio.Transport):
        _start_tls_compatible = True

        def __init__(self, transport):
            self._transport = transport

        def __getattribute__(self, name):
            if name in ("_transport", "_start_tls_compatible", lacking):
                return super().__getattribute__(name)
            return getattr(self._transport, name)

    plain = UpgradableConnection(tls, "server")
    plain.transport = Carrier(plain.transport)
    upgrading, peer = plain.begin()
    peer.send_raw(b"\x16\x03\x01\x00\x05wrong")  # OpenSSL answers it by an alert
    run_until(tls.loop, upgrading.done)
    plain.run_until_lost()
    assert isinstance(upgrading.exception(), ssl.SSLError)
    assert plain.protocol.error is upgrading.exception()
    assert not tls.take_reports()


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


# Connections that break after the handshake


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
