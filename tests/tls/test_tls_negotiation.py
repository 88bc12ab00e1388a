"""TLS: negotiated parameters (SNI, client certificates, ALPN, sessions) and the messages after the handshake."""

import contextlib
import ssl

from support.certificates import CLIENT, HOST, OTHER_HOST, TLS_1_2, TLS_1_3, every_version
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import connected_sockets
from support.tls_connections import Peer, every_side, other


def object_of(connection):
    return connection.transport.get_extra_info("ssl_object")


@every_side
@every_version
def test_versions(tls, side, version):
    connection = tls.open(side, version=version)
    ours, theirs = object_of(connection), connection.peer.tls
    assert ours.version() == theirs.version() == version.name.replace("_", ".")
    assert connection.transport.get_extra_info("cipher") == ours.cipher() == theirs.cipher()


@every_side
def test_the_newest_version_that_both_know(tls, certificates, side):
    connection = tls.open(side, peer_context=certificates.context(other(side), TLS_1_2))
    assert object_of(connection).version() == "TLSv1.2"
    connection = tls.open(side)
    assert object_of(connection).version() == "TLSv1.3"


@every_side
def test_no_version_in_common(tls, certificates, side):
    context, theirs = certificates.context(side, TLS_1_2), certificates.context(other(side), TLS_1_3)
    making, peer, protocol = tls.begin(side, context=context, peer_context=theirs)
    assert isinstance(tls.failure(making, peer), ssl.SSLError)
    assert protocol.calls == []


@every_side
@every_version
def test_alpn(tls, certificates, side, version):
    context, theirs = certificates.context(side, version), certificates.context(other(side), version)
    context.set_alpn_protocols(["h2", "http/1.1"])
    theirs.set_alpn_protocols(["other", "http/1.1"])
    connection = tls.open(side, context=context, peer_context=theirs)
    assert object_of(connection).selected_alpn_protocol() == "http/1.1"
    assert connection.peer.tls.selected_alpn_protocol() == "http/1.1"


@every_side
def test_alpn_of_one_end_only(tls, certificates, side):
    context = certificates.context(side)
    context.set_alpn_protocols(["h2"])
    connection = tls.open(side, context=context)
    assert object_of(connection).selected_alpn_protocol() is None


def test_the_servers_sni_callback(tls, certificates):
    asked = []
    context = certificates.server_context()

    def choose(tls_object, name, asked_of):
        asked.append((type(tls_object), name, asked_of is context))
        tls_object.context = certificates.server_context(other=True)

    context.sni_callback = choose
    theirs = certificates.client_context()
    theirs.check_hostname = False
    connection = tls.open("server", context=context, peer_context=theirs)
    assert asked == [(ssl.SSLObject, HOST, True)]
    assert ("DNS", OTHER_HOST) in connection.peer.tls.getpeercert()["subjectAltName"]
    assert connection.transport.get_extra_info("sslcontext") is context


def test_an_sni_callback_that_refuses(tls, certificates):
    context = certificates.server_context()
    context.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    making, peer, protocol = tls.begin("server", context=context)
    error = tls.failure(making, peer)
    assert isinstance(error, ssl.SSLError) and "callback failed" in str(error).lower().replace("_", " ")
    assert protocol.calls == []


def test_sni_as_the_client(tls, certificates):
    asked = []
    theirs = certificates.server_context()
    theirs.sni_callback = lambda _, name, __: asked.append(name)
    connection = tls.open("client", peer_context=theirs)
    assert asked == [HOST] and object_of(connection).server_hostname == HOST


def test_no_sni_without_a_name(tls, certificates):
    asked = []
    theirs = certificates.server_context()
    theirs.sni_callback = lambda _, name, __: asked.append(name)
    context = certificates.client_context()
    context.check_hostname = False
    connection = tls.open("client", context=context, peer_context=theirs, server_hostname="")
    assert asked == [None] and object_of(connection).server_hostname is None


@every_version
def test_a_clients_certificate_that_the_server_asks_for(tls, certificates, version):
    context = certificates.server_context(version, asks_for_certificate=True)
    theirs = certificates.client_context(version, has_certificate=True)
    connection = tls.open("server", context=context, peer_context=theirs)
    subject = connection.transport.get_extra_info("peercert")["subjectAltName"]
    assert subject == (("email", CLIENT),)
    connection.deliver(b"data")


@every_version
def test_our_certificate_as_the_client(tls, certificates, version):
    context = certificates.client_context(version, has_certificate=True)
    theirs = certificates.server_context(version, asks_for_certificate=True)
    connection = tls.open("client", context=context, peer_context=theirs)
    assert connection.peer.tls.getpeercert()["subjectAltName"] == (("email", CLIENT),)
    connection.deliver(b"data")


@every_version
def test_a_client_without_the_certificate_that_the_server_asks_for(tls, certificates, version):
    context = certificates.server_context(version, asks_for_certificate=True)
    making, peer, protocol = tls.begin("server", context=context, version=version)
    error = tls.failure(making, peer)
    assert isinstance(error, ssl.SSLError) and error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert protocol.calls == []


def test_tls_1_3_tells_a_client_after_its_handshake_that_its_certificate_is_missing(tls, certificates):
    theirs = certificates.server_context(TLS_1_3, asks_for_certificate=True)
    making, peer, protocol = tls.begin("client", peer_context=theirs)

    def refused():
        with contextlib.suppress(ssl.SSLError):
            peer.handshake()
        return peer.handshake_failed and making.done()

    run_until(tls.loop, refused)
    making.result()
    run_until(tls.loop, lambda: protocol.lost)
    assert isinstance(protocol.error, ssl.SSLError) and protocol.error.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert protocol.calls == ["connection_made", "connection_lost"]
    peer.socket.close()


def test_a_certificate_asked_for_after_the_handshake(tls, certificates):
    """Only TLS 1.3 has this; our end, the server, asks while the client reads."""
    context = certificates.server_context(TLS_1_3)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.post_handshake_auth = True
    certificates.authority.configure_trust(context)
    theirs = certificates.client_context(TLS_1_3, has_certificate=True)
    theirs.post_handshake_auth = True
    connection = tls.open("server", context=context, peer_context=theirs)
    assert not object_of(connection).getpeercert()
    object_of(connection)._sslobj.verify_client_post_handshake()
    connection.transport.write(b"who are you?")
    assert connection.receive(12) == b"who are you?"
    connection.deliver(b"this is me")
    assert object_of(connection).getpeercert()["subjectAltName"] == (("email", CLIENT),)
    assert not connection.transport.get_extra_info("peercert"), "what the handshake brought"


def test_our_end_is_asked_for_its_certificate_after_the_handshake(tls, certificates):
    context = certificates.client_context(TLS_1_3, has_certificate=True)
    context.post_handshake_auth = True
    theirs = certificates.server_context(TLS_1_3)
    theirs.verify_mode = ssl.CERT_OPTIONAL
    theirs.post_handshake_auth = True
    certificates.authority.configure_trust(theirs)
    connection = tls.open("client", context=context, peer_context=theirs)
    connection.peer.tls._sslobj.verify_client_post_handshake()
    connection.peer.write(b"?")
    connection.run_until(lambda: connection.protocol.received == b"?" and connection.peer.tls.getpeercert())
    assert connection.peer.tls.getpeercert()["subjectAltName"] == (("email", CLIENT),)


@every_version
def test_a_client_resumes_a_session_of_our_server(tls, certificates, version):
    """In TLS 1.3 the server's tickets come after the handshake: with one, the second handshake needs no certificate."""
    context, theirs = certificates.server_context(version), certificates.client_context(version)
    connection = tls.open("server", context=context, peer_context=theirs)
    connection.transport.write(b"data")
    assert connection.receive(4) == b"data"
    session = connection.peer.tls.session
    assert session.has_ticket
    making, peer, protocol = tls.begin("server", context=context, peer_context=theirs)
    peer = Peer(peer.socket, theirs, "client", session)
    run_until(tls.loop, lambda: peer.handshake() and making.done())
    again = tls.adopt(making.result()[0], protocol, peer)
    assert peer.tls.session_reused and object_of(again).session_reused
    again.deliver(b"data")


@every_version
def test_the_session_of_our_client(tls, certificates, version):
    """`ssl_object` has the session; a session from the handshake or after it resumes in a connection of the peer's
    own."""
    context, theirs = certificates.client_context(version), certificates.server_context(version)
    connection = tls.open("client", context=context, peer_context=theirs)
    connection.deliver(b"data")
    session = object_of(connection).session
    assert session.has_ticket and not object_of(connection).session_reused
    one, other_end = connected_sockets("pair")
    client, server = Peer(one, context, "client", session), Peer(other_end, theirs, "server")
    with one, other_end:
        while not all([client.handshake(), server.handshake()]):
            pass
        assert client.tls.session_reused and server.tls.session_reused


@every_side
def test_what_follows_the_handshake_comes_with_data(tls, side):
    """In TLS 1.3 these are the server's session tickets: they are not data, and cause no callback."""
    connection = tls.open(side, version=TLS_1_3)
    run_once(tls.loop, 5)
    assert connection.protocol.calls == ["connection_made"]
    connection.transport.write(b"one")
    assert connection.receive(3) == b"one"
    connection.deliver(b"two")
    assert connection.protocol.calls == ["connection_made", "data"]


@every_side
@every_version
def test_data_in_the_same_segment_as_the_end_of_the_handshake(tls, side, version):
    """The side that finishes first may send at once; the other side reads that data together with the last handshake
    message."""
    making, peer, protocol = tls.begin(side, Recorder(), version=version)

    def finished():
        if peer.handshake_complete:
            return making.done()
        peer.pump()
        try:
            peer.tls.do_handshake()
            peer.handshake_complete = True
            peer.tls.write(b"early")
        except ssl.SSLWantReadError:
            pass
        peer.pump()
        return False

    run_until(tls.loop, finished)
    tls.adopt(making.result()[0], protocol, peer)
    run_until(tls.loop, lambda: protocol.received == b"early")
    assert protocol.calls == ["connection_made", "data"]
