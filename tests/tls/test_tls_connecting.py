"""TLS: every way to make a connection, on both ends, and the arguments that are refused before anything is sent."""

import asyncio
import contextlib
import socket
import ssl

import pytest
from support.certificates import HOST, every_version
from support.endpoints import settle, until
from support.recording import Recorder
from support.stream_connections import HAS_UNIX, connected_sockets
from support.tls_connections import every_protocol, every_side

HOSTS = ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here"))]
unix_sockets = pytest.mark.skipif(not HAS_UNIX, reason="this system has no Unix sockets")


class Echo(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.transport.write(data)


@contextlib.asynccontextmanager
async def serving(create, *arguments, **keywords):
    """The server that `create` makes of an echoing protocol, and the list of its protocols."""
    protocols = []

    def factory():
        protocols.append(Echo())
        return protocols[-1]

    server = await create(factory, *arguments, **keywords)
    try:
        yield server, protocols
        await until(lambda: all(protocol.lost for protocol in protocols))
    finally:
        server.close()
        for protocol in protocols:
            if protocol.transport is not None and not protocol.lost:
                protocol.transport.abort()
        await settle()


async def exchange(transport, protocol, data=b"some data"):
    """Data goes there and back, then this end closes: the peer's answer to its close_notify counts as a normal end."""
    transport.write(data)
    await until(lambda: bytes(protocol.received) == data)
    transport.close()
    await until(lambda: protocol.lost)
    assert protocol.error is None
    assert protocol.calls == ["connection_made", "data", "eof_received", "connection_lost"]
    protocol.check_life_cycle()


@pytest.mark.parametrize("host", HOSTS)
@every_version
def test_server_and_connection(loop, certificates, host, version):
    async def main():
        context = certificates.server_context()
        async with serving(loop.create_server, host, 0, ssl=context) as (server, accepted):
            address = server.sockets[0].getsockname()[:2]
            transport, protocol = await loop.create_connection(
                Recorder, *address, ssl=certificates.client_context(version)
            )
            assert protocol.calls == ["connection_made"] and protocol.transport is transport
            assert transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
            await exchange(transport, protocol)
        assert accepted[0].calls == ["connection_made", "data", "eof_received", "connection_lost"]
        assert accepted[0].error is None

    loop.run_until_complete(main())


@every_protocol
def test_many_at_once(loop, certificates, make_protocol):
    async def main():
        async with serving(loop.create_server, "127.0.0.1", 0, ssl=certificates.server_context()) as (server, accepted):
            context = certificates.client_context()

            async def client(number):
                address = server.sockets[0].getsockname()
                transport, protocol = await loop.create_connection(make_protocol, *address, ssl=context)
                await exchange(transport, protocol, b"%d" % number * (1 + number * 500))

            await asyncio.gather(*(client(number) for number in range(20)))
        assert len(accepted) == 20

    loop.run_until_complete(main())


@unix_sockets
def test_unix_server_and_connection(loop, certificates, tmp_path):
    async def main():
        path = str(tmp_path / "socket")
        async with serving(loop.create_unix_server, path, ssl=certificates.server_context()) as (_, accepted):
            transport, protocol = await loop.create_unix_connection(
                Recorder, path, ssl=certificates.client_context(), server_hostname=HOST
            )
            assert transport.get_extra_info("peername") == path
            await until(lambda: accepted[0].transport)
            assert accepted[0].transport.get_extra_info("sockname") == path
            await exchange(transport, protocol)

    loop.run_until_complete(main())


@unix_sockets
def test_unix_without_a_hostname(loop, certificates, tmp_path):
    async def main():
        path = str(tmp_path / "socket")
        with pytest.raises(ValueError, match="server_hostname"):
            await loop.create_unix_connection(Recorder, path, ssl=certificates.client_context())
        context = certificates.client_context()
        context.check_hostname = False
        async with serving(loop.create_unix_server, path, ssl=certificates.server_context()):
            transport, protocol = await loop.create_unix_connection(Recorder, path, ssl=context, server_hostname="")
            await exchange(transport, protocol)

    loop.run_until_complete(main())


def test_over_a_socket_that_is_connected_already(loop, certificates):
    async def main():
        ours, theirs = connected_sockets("tcp")
        protocols = [Recorder(), Echo()]
        (transport, _), _ = await asyncio.gather(
            loop.create_connection(
                lambda: protocols[0], sock=ours, ssl=certificates.client_context(), server_hostname=HOST
            ),
            loop.connect_accepted_socket(lambda: protocols[1], theirs, ssl=certificates.server_context()),
        )
        await exchange(transport, protocols[0])
        await until(lambda: protocols[1].lost)

    loop.run_until_complete(main())


def test_an_accepted_socket_is_always_the_servers_side(loop, certificates):
    async def main():
        ours, theirs = connected_sockets("pair")
        with theirs, pytest.raises(ValueError, match="SSLContext"):
            await loop.connect_accepted_socket(Recorder, ours, ssl=True)
        ours.close()

    loop.run_until_complete(main())


def test_streams(loop, certificates):
    async def main():
        async def serve(reader, writer):
            writer.write(await reader.readline())
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

        served = asyncio.Event()

        async def serve_and_tell(reader, writer):
            await serve(reader, writer)
            served.set()

        server = await asyncio.start_server(serve_and_tell, "127.0.0.1", 0, ssl=certificates.server_context())
        async with server:
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=certificates.client_context()
            )
            assert not writer.can_write_eof()
            writer.writelines([b"a line", b"\n"])
            await writer.drain()
            assert await reader.readline() == b"a line\n"
            writer.close()
            await writer.wait_closed()
            await served.wait()
        await settle()

    loop.run_until_complete(main())


@unix_sockets
def test_unix_streams(loop, certificates, tmp_path):
    async def main():
        path = str(tmp_path / "socket")
        served = asyncio.Event()

        async def serve(reader, writer):
            writer.write(await reader.readexactly(100_000))
            writer.close()
            await writer.wait_closed()
            served.set()

        async with await asyncio.start_unix_server(serve, path, ssl=certificates.server_context()):
            reader, writer = await asyncio.open_unix_connection(
                path, ssl=certificates.client_context(), server_hostname=HOST
            )
            writer.write(b"x" * 100_000)
            assert await reader.read() == b"x" * 100_000
            writer.close()
            await writer.wait_closed()
            await served.wait()
        await settle()

    loop.run_until_complete(main())


def test_ssl_true_is_a_default_context(loop, certificates, monkeypatch, tmp_path):
    """The default context loads the authorities that OpenSSL's environment variables name."""
    monkeypatch.setenv("SSL_CERT_FILE", certificates.write_files(tmp_path).authority)

    async def main():
        async with serving(loop.create_server, "127.0.0.1", 0, ssl=certificates.server_context()) as (server, _):
            transport, protocol = await loop.create_connection(
                Recorder, *server.sockets[0].getsockname(), ssl=True, server_hostname=HOST
            )
            context = transport.get_extra_info("sslcontext")
            assert type(context) is ssl.SSLContext and context.verify_mode is ssl.CERT_REQUIRED
            await exchange(transport, protocol)

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", [HOST, "127.0.0.1", None])
def test_the_name_that_is_checked_is_the_host_unless_another_is_given(loop, certificates, name):
    async def main():
        async with serving(loop.create_server, "127.0.0.1", 0, ssl=certificates.server_context()) as (server, _):
            transport, protocol = await loop.create_connection(
                Recorder, *server.sockets[0].getsockname(), ssl=certificates.client_context(), server_hostname=name
            )
            assert transport.get_extra_info("ssl_object").server_hostname == (name or "127.0.0.1")
            await exchange(transport, protocol)

    loop.run_until_complete(main())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"server_hostname": HOST}, ValueError),
        ({"ssl_handshake_timeout": 1}, ValueError),
        ({"ssl_shutdown_timeout": 1}, ValueError),
        ({"ssl": True}, ValueError),  # no host name
        ({"ssl": "a string"}, TypeError),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_create_connection_refuses(loop, arguments, error):
    ours, theirs = connected_sockets("pair")
    with theirs, ours:
        if arguments.get("ssl") == "a string":
            arguments = arguments | {"server_hostname": HOST}
        making = loop.create_connection(Recorder, sock=ours, **arguments)
        with pytest.raises((error, AttributeError)):
            loop.run_until_complete(making)


@pytest.mark.parametrize("value", [True, False])
def test_a_server_needs_a_context(loop, value):
    with pytest.raises(TypeError, match="SSLContext"):
        loop.run_until_complete(loop.create_server(Recorder, "127.0.0.1", 0, ssl=value))


@pytest.mark.parametrize("option", ["ssl_handshake_timeout", "ssl_shutdown_timeout"])
def test_a_servers_timeouts_need_ssl(loop, option):
    with pytest.raises(ValueError, match=option):
        loop.run_until_complete(loop.create_server(Recorder, "127.0.0.1", 0, **{option: 1}))


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


@every_side
def test_the_wrong_kind_of_context(loop, certificates, side):
    """A server's context at the client's end, or a client's at the server's, fails before anything is sent."""
    ours, theirs = connected_sockets("pair")
    with theirs:
        if side == "client":
            making = loop.create_connection(
                Recorder, sock=ours, ssl=certificates.server_context(), server_hostname=HOST
            )
        else:
            making = loop.connect_accepted_socket(Recorder, ours, ssl=certificates.client_context())
        # Newer versions of the ssl module first ask for the host name that such a context is to check.
        with pytest.raises((ssl.SSLError, ValueError), match=r"Cannot create a|check_hostname requires"):
            loop.run_until_complete(making)
        ours.close()
        assert theirs.recv(1) == b""


def test_a_protocol_factory_that_fails(loop, certificates):
    ours, theirs = connected_sockets("pair")

    def factory():
        raise ZeroDivisionError

    with theirs, ours, pytest.raises(ZeroDivisionError):
        loop.run_until_complete(
            loop.create_connection(factory, sock=ours, ssl=certificates.client_context(), server_hostname=HOST)
        )
