"""TLS: a transport's extra information, class and attributes, and the context of its callbacks (P27)."""

import asyncio
import contextvars
import gc
import socket
import ssl
import sys
import weakref

import pytest
from support.certificates import CLIENT, HOST, TLS_1_2, every_version
from support.recording import when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import HAS_UNIX, is_asyncio_transport, skip_on_asyncio
from support.tls_connections import PIECE, every_protocol, every_side

KINDS = ["tcp", *(["unix"] if HAS_UNIX else [])]


@every_side
@every_version
def test_the_keys_of_tls(tls, certificates, side, version):
    context = certificates.context(side, version)
    connection = tls.open(side, context=context, version=version)
    get = connection.transport.get_extra_info
    assert get("sslcontext") is context
    tls_object = get("ssl_object")
    assert type(tls_object) is ssl.SSLObject and tls_object.context is context
    assert tls_object.server_side is (side == "server")
    assert get("cipher") == tls_object.cipher() and get("cipher")[1].startswith("TLS")
    assert get("compression") is None
    if side == "client":
        assert ("DNS", HOST) in get("peercert")["subjectAltName"]
        assert tls_object.getpeercert(binary_form=True) == secured_certificate(certificates)
    else:
        assert get("peercert") is None, "a client that was not asked shows none"
    assert get("no such key") is None and get("no such key", "default") == "default"


def secured_certificate(certificates):
    return ssl.PEM_cert_to_DER_cert(certificates.server.cert_chain_pems[0].bytes().decode())


@every_version
def test_a_certificate_that_is_not_checked_is_empty(tls, certificates, version):
    context = certificates.client_context(version)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = tls.open("client", context=context, version=version)
    assert connection.transport.get_extra_info("peercert") == {}


@every_version
def test_the_clients_certificate(tls, certificates, version):
    connection = tls.open(
        "server",
        context=certificates.server_context(version, asks_for_certificate=True),
        peer_context=certificates.client_context(version, has_certificate=True),
    )
    assert connection.transport.get_extra_info("peercert")["subjectAltName"] == (("email", CLIENT),)


@pytest.mark.parametrize("kind", KINDS)
@every_side
def test_the_keys_of_the_connection_below(tls, kind, side):
    """`sockname`, `peername` and `socket` are those of the plain connection."""
    connection = tls.open(side, kind=kind)
    get = connection.transport.get_extra_info
    assert get("sockname") == connection.peer.socket.getpeername()
    if get("peername") or kind == "tcp":
        assert get("peername") == connection.peer.socket.getsockname()
    sock = get("socket")
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert sock.fileno() >= 0 and sock.family == (socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
    with sock.dup() as duplicate:
        assert duplicate.getsockname() == get("sockname")
    if kind == "tcp":
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_is_known_when_the_protocol_is_told(tls):
    known = {}
    protocol_class = type(tls.open().protocol)
    protocol = protocol_class()

    def look():
        for name in ("ssl_object", "cipher", "peercert", "sslcontext", "peername", "socket", "compression"):
            known[name] = protocol.transport.get_extra_info(name)

    protocol.hooks["connection_made"] = look
    connection = tls.open("client", protocol, kind="tcp")
    assert known == {name: connection.transport.get_extra_info(name) for name in known}
    assert known["peercert"]


@every_side
@pytest.mark.parametrize("ending", ["close", "abort"])
def test_what_is_known_when_it_has_ended(tls, side, ending):
    connection = tls.open(side, kind="tcp")
    get = connection.transport.get_extra_info
    before = {name: get(name) for name in ("sslcontext", "ssl_object", "cipher", "peercert", "compression")}
    getattr(connection.transport, ending)()
    connection.run_until_lost()
    assert {name: get(name) for name in before} == before
    assert connection.socket.fileno() == -1


def test_the_certificate_of_another_version_of_the_context(tls, certificates):
    """The context is the caller's own object; the caller may change it for later connections."""
    context = certificates.client_context()
    first = tls.open("client", context=context)
    context.maximum_version = TLS_1_2
    second = tls.open("client", context=context)
    versions = [one.transport.get_extra_info("ssl_object").version() for one in (first, second)]
    assert versions == ["TLSv1.3", "TLSv1.2"]
    assert first.transport.get_extra_info("sslcontext") is second.transport.get_extra_info("sslcontext") is context


@every_side
def test_what_it_is(tls, side):
    transport = tls.open(side).transport
    assert isinstance(transport, asyncio.Transport) and isinstance(transport, asyncio.BaseTransport)
    assert isinstance(transport, asyncio.ReadTransport) and isinstance(transport, asyncio.WriteTransport)
    assert "SSL" in type(transport).__name__  # programs ask for this to tell TLS from TCP, on asyncio and uvloop
    assert hash(transport) == hash(transport) and {transport: 1}[transport] == 1
    reference = weakref.ref(transport)
    assert reference() is transport
    assert repr(transport)


@pytest.mark.only("c", reason="the other implementations use asyncio's TLS, with which this one is compared")
def test_it_is_the_loops_own(tls):
    assert not is_asyncio_transport(tls.open("server").transport)
    assert not is_asyncio_transport(tls.open("client").transport)


def test_its_repr_tells_its_state(tls):
    connection = tls.open(kind="tcp")
    skip_on_asyncio(connection.transport, "its repr() is object's")
    assert "closed" not in repr(connection.transport)
    connection.transport.close()
    assert "closing" in repr(connection.transport)
    connection.run_until_lost()
    assert "closed" in repr(connection.transport)


@every_side
def test_the_attributes_that_others_look_at(tls, certificates, side):
    """asyncio reads these private names, and so do libraries that look for the SSLContext."""
    context = certificates.context(side)
    connection = tls.open(side, context=context)
    transport = connection.transport
    assert transport._start_tls_compatible is True
    assert transport._sendfile_compatible.name == "FALLBACK"
    assert transport._loop is tls.loop
    assert transport._protocol_paused is False
    assert getattr(transport, "_ssl_protocol", transport)._sslcontext is context


@every_side
@pytest.mark.parametrize("again", ["while it closes", "after the end"])
def test_a_transport_that_is_kept_and_closed_again_lets_go_of_its_context(tls, certificates, side, again):
    context = certificates.context(side)
    connection = tls.open(side, context=context)
    transport = connection.transport
    kept = weakref.ref(context)
    del context
    transport.close()
    if again == "while it closes":
        transport.close()
    connection.run_until_lost()
    if again == "after the end":
        transport.close()
    gc.collect()
    assert kept() is None
    assert transport.is_closing()
    skip_on_asyncio(transport, "it raises an AttributeError")
    for name in ("sslcontext", "ssl_object", "cipher", "compression"):
        assert transport.get_extra_info(name, "nothing") == "nothing"
    assert transport._ssl_protocol._sslobj is None
    transport.write(b"nothing")
    transport.abort()
    transport.close()


@every_side
def test_a_transport_that_is_written_to_and_closed_again_while_it_closes_ends_in_order(tls, side):
    connection = tls.open(side)
    connection.transport.write(b"last")
    connection.transport.close()
    connection.transport.write(b"nothing")
    connection.transport.close()
    assert connection.receive(4) == b"last"
    assert connection.run_until_lost() is None
    assert tls.reports == []


def test_protocol_paused_follows_the_protocol(tls):
    connection = tls.open()
    written = connection.fill()
    assert connection.transport._protocol_paused is True
    connection.receive(written)
    connection.run_until(lambda: not connection.writing_paused)
    assert connection.transport._protocol_paused is False


def test_what_asyncio_has_nothing_else_lacks(tls):
    """The transport has every public method and attribute of asyncio's."""
    transport = tls.open().transport
    oracle = asyncio.sslproto._SSLProtocolTransport
    assert [name for name in dir(oracle) if not name.startswith("_") and not hasattr(transport, name)] == []


@every_side
def test_set_and_get_protocol(tls, side):
    connection = tls.open(side)
    assert connection.transport.get_protocol() is connection.protocol
    another = type(connection.protocol)()
    connection.transport.set_protocol(another)
    assert connection.transport.get_protocol() is another
    connection.transport.set_protocol(connection.protocol)


# P27: the context of the callbacks

origin = contextvars.ContextVar("origin", default="unset")
NOT_KEPT = "its callbacks run in the context of the last resume_reading() or write()"


class Watched:
    """A TLS connection made by a task in whose context `origin` is "maker", and the value that its callbacks found
    there."""

    def __init__(self, tls, side, make_protocol):
        self.found = {}
        protocol = make_protocol()
        for name in ("connection_made", "eof_received", "connection_lost", "pause_writing", "resume_writing"):
            protocol.hooks[name] = lambda name=name: self.look(name)
        when_data_comes(protocol, lambda: self.look("data"))
        protocol.hooks["get_buffer"] = lambda: self.look("get_buffer") or protocol.buffer
        context = contextvars.copy_context()
        context.run(origin.set, "maker")
        making, peer, _ = context.run(tls.begin, side, protocol, kind="tcp")
        run_until(tls.loop, lambda: peer.handshake() and making.done())
        self.connection = tls.adopt(making.result()[0], protocol, peer)

    def look(self, name):
        self.found.setdefault(name, []).append(origin.get())

    def everything_found(self):
        return {name for found in self.found.values() for name in found}


def run_as(loop, name, function, *arguments):
    async def call():
        origin.set(name)
        function(*arguments)

    loop.run_until_complete(call())


@pytest.mark.promise("P27")
@every_side
@every_protocol
@pytest.mark.parametrize("ending", ["the peer's", "ours", "abort"])
def test_the_context_in_which_the_transport_was_made(tls, side, make_protocol, ending):
    watched = Watched(tls, side, make_protocol)
    connection = watched.connection
    for _ in range(3):
        connection.deliver(b"data")
    if ending == "the peer's":
        connection.peer.notify_close()
    else:
        run_as(tls.loop, "another", connection.transport.close if ending == "ours" else connection.transport.abort)
    connection.run_until_lost()
    if ending == "the peer's":
        assert watched.everything_found() == {"maker"}
    else:
        skip_on_asyncio(connection.transport, "connection_lost() runs in the context of the close() call")
        assert watched.everything_found() == {"maker"}


@pytest.mark.promise("P27")
@every_side
@every_protocol
def test_after_pause_and_resume_from_a_task(tls, side, make_protocol):
    watched = Watched(tls, side, make_protocol)
    connection = watched.connection
    skip_on_asyncio(connection.transport, NOT_KEPT)
    run_as(tls.loop, "pauser", connection.transport.pause_reading)
    connection.send(b"data")
    run_once(tls.loop, 5)
    run_as(tls.loop, "another", connection.transport.resume_reading)
    run_until(tls.loop, lambda: connection.protocol.received == b"data")
    connection.deliver(b"more")
    connection.peer.notify_close()
    connection.run_until_lost()
    assert watched.everything_found() == {"maker"}


@pytest.mark.promise("P27")
@every_side
def test_resume_writing(tls, side):
    """write() calls pause_writing(), so it runs in the writer's context; resume_writing() runs in the maker's."""
    watched = Watched(tls, side, type(tls.open().protocol))
    connection = watched.connection
    if sys.version_info < (3, 15):
        skip_on_asyncio(connection.transport, NOT_KEPT)
    written = []

    def fill():
        while not connection.writing_paused:
            connection.transport.write(b"x" * PIECE)
            written.append(PIECE)

    run_as(tls.loop, "another", fill)
    connection.receive(sum(written))
    connection.run_until(lambda: not connection.writing_paused)
    assert set(watched.found["pause_writing"]) == {"another"}
    assert set(watched.found["resume_writing"]) == {"maker"}


def test_a_connection_that_ended_is_not_kept(tls):
    connection = tls.open("client")
    connection.transport.close()
    connection.run_until_lost()
    run_once(tls.loop, 5)
    connection.peer.socket.close()
    references = [weakref.ref(connection.transport), weakref.ref(connection.protocol)]
    tls.opened.clear()
    del connection
    gc.collect()
    assert [reference() for reference in references] == [None, None]
