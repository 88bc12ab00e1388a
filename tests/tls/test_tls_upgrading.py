"""start_tls(): upgrading a connection to TLS, in both directions, with bytes received already, and TLS inside TLS.

P13: a PROXY header and the ClientHello in one segment; start_tls() while writing is paused.
"""

import _socket
import asyncio
import contextlib
import errno
import os
import select
import socket
import ssl
import sys

import pytest
from support.certificates import HOST, TLS_1_3, every_version
from support.endpoints import settle, until
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, connected_sockets, is_asyncio_transport, reset, skip_on_asyncio, wait_for
from support.tls_connections import ANY_KIND, PIECE, Peer, UpgradableConnection, every_protocol, every_side, other

STALE = "python/cpython#142352, which moves the bytes a StreamReader holds, came in 3.14.4"


def talk_and_close(plain, connection):
    """Data goes both ways through the upgraded connection, which then ends as it should."""
    connection.deliver(b"hello")
    connection.transport.write(b"and back")
    assert connection.receive(8) == b"and back"
    connection.transport.close()
    connection.run_until_lost()
    assert plain.protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    assert plain.protocol.error is None


@pytest.mark.parametrize("kind", KINDS)
@every_side
@every_version
@every_protocol
def test_upgrading(tls, kind, side, version, make_protocol):
    plain = UpgradableConnection(tls, side, make_protocol(), kind, version)
    connection = plain.upgrade()
    assert connection.transport is not plain.transport
    assert isinstance(connection.transport, asyncio.Transport)
    assert connection.transport.get_protocol() is plain.protocol
    talk_and_close(plain, connection)
    assert plain.protocol.transport is plain.transport, "connection_made() came once, for the plain one"


class OwnTransport(asyncio.Transport):
    """A program's transport on top of another one. Of the private names it has only those that asyncio's TLS needs."""

    _start_tls_compatible = True

    def __init__(self, carrier):
        super().__init__()
        for name in ("close", "is_closing", "pause_reading", "resume_reading", "set_protocol", "write"):
            setattr(self, name, getattr(carrier, name))
        self.get_extra_info = carrier.get_extra_info
        self._force_close = carrier._force_close


@every_side
def test_upgrading_a_programs_own_transport(tls, side):
    plain = UpgradableConnection(tls, side, kind=ANY_KIND)
    plain.transport = OwnTransport(plain.transport)
    connection = plain.upgrade()
    talk_and_close(plain, connection)


@every_side
def test_what_the_upgraded_transport_knows(tls, side):
    plain = UpgradableConnection(tls, side)
    names = {name: plain.transport.get_extra_info(name) for name in ("peername", "sockname")}
    assert plain.transport.get_extra_info("ssl_object") is None
    connection = plain.upgrade()
    assert {name: connection.transport.get_extra_info(name) for name in names} == names
    assert connection.transport.get_extra_info("socket").fileno() == connection.socket.fileno()
    assert isinstance(connection.transport.get_extra_info("ssl_object"), ssl.SSLObject)
    assert isinstance(connection.transport.get_extra_info("sslcontext"), ssl.SSLContext)


@every_side
def test_the_plain_transport_after_the_end(tls, side):
    """A program that has kept the plain transport may still ask for its information and its socket."""
    plain = UpgradableConnection(tls, side)
    info = plain.transport.get_extra_info("socket")
    connection = plain.upgrade()
    connection.transport.abort()
    connection.run_until_lost()
    run_once(tls.loop, 2)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        info.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    assert info.fileno() == -1
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        info.shutdown(socket.SHUT_WR)
    assert plain.transport.get_extra_info("socket") is info
    assert plain.transport.is_closing() and not plain.transport.is_reading()
    assert plain.transport.get_write_buffer_size() == 0


@every_side
def test_after_data_both_ways(tls, side):
    plain = UpgradableConnection(tls, side)
    plain.transport.write(b"STARTTLS\n")
    plain.socket.send(b"go ahead\n")
    run_until(tls.loop, lambda: plain.protocol.received == b"go ahead\n")
    wait_for(plain.socket, select.POLLIN)
    assert plain.socket.recv(100) == b"STARTTLS\n"
    plain.protocol.received.clear()
    connection = plain.upgrade()
    connection.deliver(b"secret")


@every_side
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_what_was_written_before_arrives_in_plain_text(tls, side, size):
    """All data written before arrives before the first byte of the handshake, even if the peer reads slowly."""
    plain = UpgradableConnection(tls, side, kind="pair")
    if size > 10:
        skip_on_asyncios_protocol(tls, plain)
    plain.transport.write(b"p" * size)
    upgrading, peer = plain.begin()
    run_once(tls.loop, 5)
    received = bytearray()

    def read():
        with contextlib.suppress(BlockingIOError):
            received.extend(plain.socket.recv(size - len(received)))
        return len(received) == size

    run_until(tls.loop, read)
    assert received == b"p" * size
    run_until(tls.loop, lambda: peer.handshake() and upgrading.done())
    connection = tls.adopt(upgrading.result(), plain.protocol, peer)
    connection.deliver(b"secret")


def skip_on_asyncios_protocol(tls, plain):
    """Skip if the loop's TLS is asyncio's: its protocol fails on an upgrade while writing is paused."""
    probe = UpgradableConnection(tls, "server", kind="pair").upgrade()
    if is_asyncio_transport(probe.transport):
        plain.transport.abort()
        plain.run_until_lost()
    skip_on_asyncio(probe.transport, "resume_writing() of its SSLProtocol asserts that it was told to pause")


@pytest.mark.promise("P13")
@every_side
@every_version
def test_upgrading_while_writing_is_paused(tls, side, version):
    plain = UpgradableConnection(tls, side, kind="pair", version=version)
    skip_on_asyncios_protocol(tls, plain)
    written = 0
    while "pause_writing" not in plain.protocol.calls:
        plain.transport.write(b"p" * PIECE)
        written += PIECE
    upgrading, peer = plain.begin()
    run_once(tls.loop, 5)
    received = bytearray()

    def read():
        with contextlib.suppress(BlockingIOError):
            received.extend(plain.socket.recv(written - len(received)))
        return len(received) == written

    run_until(tls.loop, read)
    run_until(tls.loop, lambda: peer.handshake() and upgrading.done())
    connection = tls.adopt(upgrading.result(), plain.protocol, peer)
    connection.deliver(b"secret")
    connection.transport.write(b"and back")
    assert connection.receive(8) == b"and back"
    filled = connection.fill()
    assert connection.receive(filled) == b"f" * filled


@every_version
def test_the_handshake_does_not_wait_for_what_is_unsent(tls, version):
    """As under asyncio it comes right behind that, where application data would wait for room."""
    plain = UpgradableConnection(tls, "client", kind="pair", version=version)
    while "pause_writing" not in plain.protocol.calls:
        plain.transport.write(b"p" * PIECE)
    unsent = plain.transport.get_write_buffer_size()
    upgrading, _ = plain.begin()
    run_once(tls.loop, 5)
    assert plain.transport.get_write_buffer_size() > unsent
    plain.transport.abort()
    run_until(tls.loop, upgrading.done)
    upgrading.exception()  # so that none is reported as never retrieved
    run_once(tls.loop, 3)
    plain.socket.close()


@every_protocol
def test_while_reading_is_paused(tls, make_protocol):
    """The handshake is read despite the pause, and so is the data after it."""
    plain = UpgradableConnection(tls, "server", make_protocol())
    plain.transport.pause_reading()
    connection = plain.upgrade()
    assert connection.transport.is_reading()
    connection.deliver(b"data")


@every_side
@every_version
def test_what_the_peer_sends_before_our_end_is_upgraded(tls, side, version):
    """The first flight waits in the kernel, if the peer is the client."""
    plain = UpgradableConnection(tls, side, version=version)
    plain.transport.pause_reading()
    run_once(tls.loop, 2)
    peer = Peer(plain.socket, tls.certificates.context(other(side), version), other(side))
    peer.handshake()
    if side == "server":
        wait_for(plain.transport.get_extra_info("socket"), select.POLLIN)
    upgrading, _ = plain.begin()
    run_until(tls.loop, lambda: peer.handshake() and upgrading.done())
    tls.adopt(upgrading.result(), plain.protocol, peer).deliver(b"data")


def hello_of(peer):
    """The first flight of a client, not sent."""
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    return peer.outgoing.read()


@pytest.mark.promise("P13")
@every_version
@pytest.mark.parametrize("hello_cut", [None, 1, 100])
def test_a_proxy_header_and_the_clienthello_in_one_segment(impl, certificates, version, hello_cut):
    """The segment may have only the first bytes of the ClientHello. The server reads a line, then upgrades."""
    header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n"

    async def main():
        loop = asyncio.get_running_loop()
        served = loop.create_future()
        gone = asyncio.Event()

        async def serve(reader, writer):
            try:
                line = await reader.readline()
                await until(lambda: reader._buffer)
                await writer.start_tls(certificates.server_context())
                writer.write(line + await reader.readexactly(4))
                await writer.drain()
                served.set_result(await reader.read())
            except BaseException as error:
                served.set_exception(error)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                gone.set()

        ours, theirs = connected_sockets("tcp")
        peer = Peer(theirs, certificates.client_context(version), "client")
        hello = hello_of(peer)
        peer.send_raw(header + hello[:hello_cut])
        reader = asyncio.StreamReader()
        await loop.connect_accepted_socket(lambda: asyncio.StreamReaderProtocol(reader, serve), ours)
        if hello_cut is not None:
            await settle()
            peer.send_raw(hello[hello_cut:])
        await until(lambda: peer.handshake() or served.done())
        if not served.done():
            peer.write(b"data")
            await until(lambda: peer.read() or len(peer.received) == len(header) + 4)
            peer.notify_close()
            await until(lambda: peer.read() or peer.saw_end)
        theirs.close()
        assert await served == b""
        await gone.wait()
        assert bytes(peer.received) == header + b"data"

    if impl.name != "c" and sys.version_info < (3, 14, 4):
        pytest.skip(f"asyncio's own start_tls(): {STALE}")
    impl.run(main())


@every_version
def test_streams_upgrade_on_both_ends(impl, certificates, version):
    async def main():
        served = asyncio.get_running_loop().create_future()

        async def serve(reader, writer):
            assert await reader.readline() == b"STARTTLS\n"
            writer.write(b"go ahead\n")
            await writer.start_tls(certificates.server_context())
            writer.write(await reader.readexactly(100_000))
            await writer.drain()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            served.set_result(None)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"go ahead\n"
            await writer.start_tls(certificates.client_context(version), server_hostname=HOST)
            writer.write(b"s" * 100_000)
            assert await reader.readexactly(100_000) == b"s" * 100_000
            writer.close()
            await writer.wait_closed()
            await served
        await settle()

    impl.run(main())


@every_version
@pytest.mark.parametrize("size", [5, 2_000_000])
def test_tls_inside_tls(impl, certificates, version, size):
    """The outer handshake is over; the inner one and all data go through it, in both directions."""

    async def main():
        loop = asyncio.get_running_loop()
        ours, theirs = connected_sockets("tcp")
        client, server = Recorder(), Recorder()
        client_context, server_context = certificates.client_context(version), certificates.server_context()
        (outer, _), (outer_server, _) = await asyncio.gather(
            loop.create_connection(lambda: client, sock=ours, ssl=client_context, server_hostname=HOST),
            loop.connect_accepted_socket(lambda: server, theirs, ssl=server_context),
        )
        inner, inner_server = await asyncio.gather(
            loop.start_tls(outer, client, client_context, server_hostname=HOST),
            loop.start_tls(outer_server, server, server_context, server_side=True),
        )
        assert inner.get_extra_info("ssl_object") is not outer.get_extra_info("ssl_object")
        assert inner.get_extra_info("peername") == outer.get_extra_info("peername")
        inner.write(b"u" * size)
        inner_server.writelines([b"d" * size])
        await until(lambda: len(server.received) == len(client.received) == size)
        assert (server.received, client.received) == (b"u" * size, b"d" * size)
        inner.close()
        await until(lambda: server.lost and client.lost)
        assert (client.error, server.error) == (None, None)
        assert outer.is_closing() and outer_server.is_closing()
        for protocol in (client, server):
            protocol.check_life_cycle()
            assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
        await settle()

    impl.run(main())


async def tunnels(certificates, depth, kind="tcp"):
    """The transports of both ends of a connection with `depth` layers of TLS, the outermost first, and what the client
    and the server have recorded."""
    loop = asyncio.get_running_loop()
    ours, theirs = connected_sockets(kind)
    client, server = Recorder(), Recorder()
    client_context, server_context = certificates.client_context(), certificates.server_context()
    (outer, _), (outer_server, _) = await asyncio.gather(
        loop.create_connection(lambda: client, sock=ours, ssl=client_context, server_hostname=HOST),
        loop.connect_accepted_socket(lambda: server, theirs, ssl=server_context),
    )
    layers, server_layers = [outer], [outer_server]
    while len(layers) < depth:
        inner, inner_server = await asyncio.gather(
            loop.start_tls(layers[-1], client, client_context, server_hostname=HOST),
            loop.start_tls(server_layers[-1], server, server_context, server_side=True),
        )
        layers.append(inner)
        server_layers.append(inner_server)
    await settle()
    return layers, server_layers, client, server


def test_abort_of_tls_inside_asyncios_own_tls(impl, certificates, monkeypatch):
    """Which a loop has while the program has patched the socket class. Up to Python 3.12 that TLS transport raises a
    TypeError in its _force_close()."""

    async def main():
        monkeypatch.setattr(socket.socket, "shutdown", lambda self, how: _socket.socket.shutdown(self, how))
        layers, _, client, server = await tunnels(certificates, 2)
        assert isinstance(layers[0], asyncio.sslproto._SSLProtocolTransport)
        layers[-1].abort()
        await until(lambda: client.lost and server.lost)
        assert client.error is None
        await settle()

    impl.run(main())


# What is done in the same turn with the layers, outermost first, of which the last one was written to.
AFTER_A_WRITE = {
    "close": lambda layers: layers[-1].close(),
    "abort": lambda layers: layers[-1].abort(),
    "close outer": lambda layers: layers[-2].close(),
    "abort outer": lambda layers: layers[-2].abort(),
    "close stream": lambda layers: layers[0]._ssl_protocol._transport.close(),
    "abort stream": lambda layers: layers[0]._ssl_protocol._transport.abort(),
    # A program may do what only the transport below does.
    "end": lambda layers: (layers[-1]._ssl_protocol.connection_lost(None), layers[-2].close()),
    "shut down": lambda layers: layers[-1].get_extra_info("socket").shutdown(socket.SHUT_WR),
}


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("then", AFTER_A_WRITE)
def test_a_write_to_the_inner_of_several_layers_leaves_before_what_follows(impl, certificates, depth, then):
    async def main():
        layers, _, client, server = await tunnels(certificates, depth)

        def write():
            layers[-1].write(b"in time")
            AFTER_A_WRITE[then](layers)

        asyncio.get_running_loop().call_soon(write)
        await until(lambda: client.lost and server.lost)
        assert server.received == b"in time"
        assert (client.error, server.error) == (None, None)
        await settle()

    impl.run(main())


@pytest.mark.parametrize("depth", [2, 3])
def test_a_write_to_the_inner_of_several_layers_comes_before_the_end_of_the_connection(impl, certificates, depth):
    """The write comes first, though the end has arrived. It finds the peer gone, so the connection is broken: the
    protocol is not told of an end."""

    async def main():
        layers, server_layers, client, _ = await tunnels(certificates, depth, "pair")
        loop = asyncio.get_running_loop()

        def leave():
            server_layers[0]._ssl_protocol._transport.abort()
            # The socket is closed in the next iteration; the one after it writes first, and then reads the end.
            loop.call_soon(loop.call_soon, layers[-1].write, b"too late")

        loop.call_soon(leave)
        await until(lambda: client.lost)
        assert client.events == ["connection_made", ("connection_lost", "BrokenPipeError")]
        await settle()

    impl.run(main())


@every_side
def test_a_handshake_that_fails_closes_the_connection(tls, side):
    plain = UpgradableConnection(tls, side)
    upgrading, _ = plain.begin()
    plain.socket.send(b"this is no handshake\n" * 3)
    run_until(tls.loop, upgrading.done)
    plain.run_until_lost()
    assert isinstance(upgrading.exception(), ssl.SSLError)
    assert plain.protocol.calls == ["connection_made", "connection_lost"]
    assert plain.protocol.error is upgrading.exception()
    assert plain.transport.is_closing()


@every_side
@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_peer_that_leaves_in_the_middle(tls, side, how):
    plain = UpgradableConnection(tls, side)
    sock = plain.transport.get_extra_info("socket")
    upgrading, peer = plain.begin()
    peer.handshake()
    run_once(tls.loop, 5)
    if how == "end":
        plain.socket.shutdown(socket.SHUT_WR)
    else:
        reset(plain.socket)
    run_until(tls.loop, lambda: upgrading.done() and sock.fileno() == -1)
    run_once(tls.loop, 3)
    assert isinstance(upgrading.exception(), ConnectionResetError)
    # asyncio's TLS protocol calls connection_lost() if TLS failed, but not if the connection below it was lost.
    assert plain.protocol.calls == ["connection_made", "connection_lost"][: 2 if how == "end" else 1]
    assert plain.transport.is_closing()
    plain.socket.close()


def upgrading_while_the_peer_leaves(tls, **options):
    """A client's upgrade whose peer has sent all of its handshake, and is gone before this end can answer."""
    plain = UpgradableConnection(tls, "client", kind=ANY_KIND, version=TLS_1_3)
    plain.transport.get_extra_info("socket").fileno()  # a transport whose descriptor is known sends at once
    upgrading, peer = plain.begin(**options)
    run_once(tls.loop, 3)
    peer.handshake()
    peer.socket.close()
    run_until(tls.loop, upgrading.done)
    plain.run_until_lost()
    return plain, upgrading


def test_a_peer_that_leaves_after_its_handshake(tls):
    plain, upgrading = upgrading_while_the_peer_leaves(tls)
    assert isinstance(upgrading.result(), asyncio.Transport)
    assert isinstance(plain.protocol.error, ConnectionError)


def test_a_wrong_certificate_of_a_peer_that_has_left(tls):
    """The alert that tells the peer the reason meets a broken connection, which is not the error."""
    plain, upgrading = upgrading_while_the_peer_leaves(tls, server_hostname="other.example")
    assert isinstance(upgrading.exception(), ssl.SSLCertVerificationError)
    assert plain.protocol.error is upgrading.exception()


@every_side
@pytest.mark.parametrize("close", ["close", "abort"])
def test_a_connection_that_was_closed(tls, side, close):
    """The program closes the transport in the same turn: start_tls() returns None and raises no error."""
    plain = UpgradableConnection(tls, side)
    context = tls.certificates.context(side)
    host = {"server_side": True} if side == "server" else {"server_hostname": HOST}

    async def main():
        getattr(plain.transport, close)()
        assert await tls.loop.start_tls(plain.transport, plain.protocol, context, **host) is None
        if is_asyncio_transport(plain.transport):
            # asyncio begins the handshake nevertheless.
            await asyncio.sleep(0.02)

    host["ssl_handshake_timeout"] = 0.01
    tls.loop.run_until_complete(main())
    plain.run_until_lost()
    assert plain.protocol.calls == ["connection_made", "connection_lost"]


@every_side
@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_cancelling(tls, side, turns):
    """Cancelling closes the connection. The protocol's connection_lost() is not required: the handshake is not over."""
    plain = UpgradableConnection(tls, side)
    sock = plain.transport.get_extra_info("socket")
    upgrading, _ = plain.begin()
    run_once(tls.loop, turns)
    upgrading.cancel()
    run_until(tls.loop, upgrading.done)
    assert upgrading.cancelled()
    if not turns:  # it had not begun
        assert not plain.transport.is_closing()
        plain.transport.abort()
    run_until(tls.loop, lambda: sock.fileno() == -1)
    run_once(tls.loop, 3)
    assert plain.protocol.calls == ["connection_made", "connection_lost"][: 2 if not turns else 1]
    plain.socket.close()


def test_what_cannot_be_upgraded(tls):
    loop, context = tls.loop, tls.certificates.client_context()
    plain = UpgradableConnection(tls, "client")
    for wrong in (None, True, "context"):
        with pytest.raises(TypeError, match="SSLContext"):
            loop.run_until_complete(loop.start_tls(plain.transport, plain.protocol, wrong))
    with pytest.raises(TypeError, match="not supported by start_tls"):
        loop.run_until_complete(loop.start_tls(asyncio.Transport(), plain.protocol, context))
    for name in ("ssl_handshake_timeout", "ssl_shutdown_timeout"):
        with pytest.raises(ValueError, match=f"{name} should be a positive number"):
            loop.run_until_complete(loop.start_tls(plain.transport, plain.protocol, context, **{name: -1}))
    plain.transport.write(b"still plain")
    wait_for(plain.socket, select.POLLIN)
    assert plain.socket.recv(100) == b"still plain"
    plain.transport.abort()
    plain.run_until_lost()


def test_the_kind_of_protocol_may_change(tls):
    """The given protocol takes over from any protocol that the transport had before."""
    plain = UpgradableConnection(tls, "server")
    first, plain.protocol = plain.protocol, Recorder()
    connection = plain.upgrade()
    connection.deliver(b"data")
    connection.transport.abort()
    run_until(tls.loop, lambda: plain.protocol.lost)
    assert first.calls == ["connection_made"] and plain.protocol.calls == ["data", "connection_lost"]
    connection.protocol = first
