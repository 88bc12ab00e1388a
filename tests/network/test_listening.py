"""Listening: backlogs, addresses, names of Unix sockets, and sockets that a program gives to a server or connection."""

import errno
import os
import socket
import sys

import pytest
from support.endpoints import settle, until
from support.recording import Recorder
from support.serving import Made, clients_of, serving, stop

UNIX = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how systems count a backlog differs")
def test_the_backlog_is_handed_on(loop):
    """A server that does not accept (its loop is not running) takes as many connections as its backlog and one more."""

    async def main():
        return await serving(loop, backlog=3)

    server, address = loop.run_until_complete(main())
    clients = [socket.socket() for _ in range(12)]
    connected = 0
    for client in clients:
        client.setblocking(False)
        client.connect_ex(address)
    for client in clients:
        # Connections on loopback are complete when connect() returns, or their first packet was dropped.
        connected += client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and is_established(client)
    assert connected == 4
    for client in clients:
        client.close()
    server.close()
    loop.run_until_complete(settle())
    loop.run_until_complete(until(lambda: not clients_of(server)))


def is_established(sock):
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def test_no_connection_is_accepted_before_start_serving(loop):
    async def main():
        made = Made()
        server, address = await serving(loop, made, start_serving=False)
        assert not server.is_serving() and len(server.sockets) == 1
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        await server.start_serving()
        with socket.create_connection(address):
            await until(lambda: made.protocols)
        await made.gone()
        await stop(server)
        with pytest.raises((RuntimeError, TypeError)):
            await server.start_serving()

    loop.run_until_complete(main())


def test_several_addresses(loop):
    async def main():
        made = Made()
        server = await loop.create_server(made, ["127.0.0.1", "127.0.0.2", "127.0.0.1"], 0)
        addresses = [sock.getsockname() for sock in server.sockets]
        assert [host for host, _ in sorted(addresses)] == ["127.0.0.1", "127.0.0.2"]
        clients = [socket.create_connection(address) for address in addresses]
        await until(lambda: len(made.protocols) == 2 and all(protocol.transport for protocol in made.protocols))
        names = {protocol.transport.get_extra_info("sockname") for protocol in made.protocols}
        assert names == set(addresses)
        for client in clients:
            client.close()
        await made.gone()
        await stop(server)
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)

    loop.run_until_complete(main())


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this platform has no SO_REUSEPORT")
def test_reuse_port(loop):
    async def main():
        made = Made()
        first, address = await serving(loop, made, reuse_port=True)
        second = await loop.create_server(made, *address, reuse_port=True)
        with pytest.raises(OSError) as caught:
            await loop.create_server(made, *address)
        assert caught.value.errno == errno.EADDRINUSE
        clients = [socket.create_connection(address) for _ in range(30)]
        await until(lambda: len(made.protocols) == 30)
        for client in clients:
            client.close()
        await made.gone()
        await stop(first)
        with socket.create_connection(address):
            await until(lambda: len(made.protocols) == 31)
        await made.gone()
        await stop(second)

    loop.run_until_complete(main())


def test_an_address_in_use(loop):
    async def main():
        server, address = await serving(loop)
        with pytest.raises(OSError) as caught:
            await loop.create_server(Recorder, *address)
        assert caught.value.errno == errno.EADDRINUSE
        assert str(address) in str(caught.value)
        await stop(server)

    loop.run_until_complete(main())


BAD_SERVERS = {
    "a port out of range": (("127.0.0.1", 70_000), {}, OverflowError),
    "a negative port": (("127.0.0.1", -1), {}, OverflowError),
    "a port that is text": (("127.0.0.1", "no port"), {}, OSError),
    "nothing": ((), {}, ValueError),
    "a host and a socket": (("127.0.0.1", 0), {"sock": "tcp"}, ValueError),
    "a datagram socket": ((), {"sock": "udp"}, ValueError),
    "a context that is true": (("127.0.0.1", 0), {"ssl": True}, TypeError),
    "a timeout without tls": (("127.0.0.1", 0), {"ssl_handshake_timeout": 5}, ValueError),
    "a backlog that is text": (("127.0.0.1", 0), {"backlog": "5"}, TypeError),
    "a host elsewhere": (("192.0.2.1", 0), {}, OSError),
}


@pytest.mark.parametrize("case", BAD_SERVERS)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_servers_that_cannot_be(loop, case):
    """asyncio's exception is raised; an implementation may close at once the sockets that asyncio leaves to the garbage
    collector."""
    arguments, keywords, error = BAD_SERVERS[case]
    kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}.get(keywords.get("sock"))
    sock = socket.socket(socket.AF_INET, kind) if kind else None

    async def main():
        with pytest.raises(error):
            await loop.create_server(Recorder, *arguments, **{**keywords, **({"sock": sock} if sock else {})})
        await settle()
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())
    if sock:
        assert sock.fileno() >= 0, "it is still its owner's"
        sock.close()


def test_a_blocking_socket_is_made_non_blocking(loop):
    async def main():
        sock = socket.create_server(("127.0.0.1", 0))
        sock.settimeout(5)
        made = Made()
        server = await loop.create_server(made, sock=sock)
        assert sock.gettimeout() == 0
        with socket.create_connection(sock.getsockname()):
            await until(lambda: made.protocols)
        await made.gone()
        await stop(server)
        assert sock.fileno() == -1

    loop.run_until_complete(main())


def test_a_closed_socket(loop):
    async def main():
        sock = socket.socket()
        sock.close()
        with pytest.raises(OSError) as caught:
            await loop.create_server(Recorder, sock=sock)
        assert caught.value.errno == errno.EBADF

    loop.run_until_complete(main())


def accepted_pair():
    """(the server's end, the client) of a TCP connection, made without a loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return listener.accept()[0], client


def test_connect_accepted_socket(loop):
    async def main():
        sock, client = accepted_pair()
        with client:
            transport, protocol = await loop.connect_accepted_socket(Recorder, sock)
            assert protocol.events == ["connection_made"] and protocol.transport is transport
            assert transport.get_extra_info("peername") == client.getsockname()
            assert sock.gettimeout() == 0
            client.send(b"in")
            await until(lambda: protocol.received == b"in")
            transport.write(b"out")
            transport.close()
            await until(lambda: protocol.lost)
            assert client.recv(10) == b"out" and client.recv(10) == b""
        assert sock.fileno() == -1

    loop.run_until_complete(main())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_connect_accepted_socket_refuses(loop):
    async def main():
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            pytest.raises(ValueError, match="Stream Socket"),
        ):
            await loop.connect_accepted_socket(Recorder, datagrams)
        sock, client = accepted_pair()
        with sock, client:
            with pytest.raises(ValueError, match="only meaningful with ssl"):
                await loop.connect_accepted_socket(Recorder, sock, ssl_handshake_timeout=5)
            with pytest.raises(ZeroDivisionError):
                await loop.connect_accepted_socket(lambda: 1 / 0, sock)

    loop.run_until_complete(main())


@UNIX
def test_a_unix_server(loop, tmp_path):
    """The server creates the name and replaces an old socket there; from 3.13 on it removes the name at the end."""
    path = str(tmp_path / "socket")

    async def main():
        for _ in range(2):
            made = Made()
            server = await loop.create_unix_server(made, path)
            assert server.sockets[0].getsockname() == path
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.send(b"x")
                await until(lambda made=made: made.protocols and made.protocols[0].received == b"x")
                transport = made.protocols[0].transport
                assert transport.get_extra_info("sockname") == path and transport.get_extra_info("peername") == ""
            await made.gone()
            await stop(server)
            assert os.path.exists(path) is (sys.version_info < (3, 13))

    loop.run_until_complete(main())


@pytest.mark.promise("P26")
@UNIX
@pytest.mark.skipif(sys.version_info < (3, 13), reason="cleanup_socket came with CPython 3.13")
@pytest.mark.parametrize("case", ["kept", "replaced", "gone", "given"])
def test_what_becomes_of_the_name_of_a_unix_server(loop, tmp_path, case):
    path = tmp_path / "socket"

    async def main():
        if case == "given":
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(str(path))
            server = await loop.create_unix_server(Recorder, sock=sock)
        else:
            server = await loop.create_unix_server(Recorder, str(path), cleanup_socket=case != "kept")
        if case in ("replaced", "gone"):
            # The file stays until the end, so that the file in its place cannot have the same inode number.
            path.rename(tmp_path / "elsewhere")
        if case == "replaced":
            path.write_text("somebody else's")
        await stop(server)
        assert path.exists() is (case in ("kept", "replaced"))

    loop.run_until_complete(main())


@UNIX
def test_unix_names_that_cannot_be(loop, tmp_path):
    async def main():
        with pytest.raises(OSError, match="too long"):
            await loop.create_unix_server(Recorder, str(tmp_path / ("x" * 200)))
        with pytest.raises(FileNotFoundError):
            await loop.create_unix_server(Recorder, str(tmp_path / "missing" / "socket"))
        (tmp_path / "file").write_text("no socket")
        with pytest.raises(OSError, match="already in use"):
            await loop.create_unix_server(Recorder, str(tmp_path / "file"))
        assert (tmp_path / "file").read_text() == "no socket"
        with pytest.raises(ValueError, match="path was not specified"):
            await loop.create_unix_server(Recorder)
        with socket.socket() as sock, pytest.raises(ValueError, match="UNIX Domain Stream Socket was expected"):
            await loop.create_unix_server(Recorder, sock=sock)

    loop.run_until_complete(main())


@UNIX
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract names are Linux's")
@pytest.mark.parametrize("as_bytes", [True, False])
def test_an_abstract_unix_server(loop, as_bytes):
    async def main():
        name = f"\0hotloop accepting {os.getpid()}"
        made = Made()
        server = await loop.create_unix_server(made, name.encode() if as_bytes else name)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
            await until(lambda: made.protocols)
        await made.gone()
        await stop(server)

    loop.run_until_complete(main())
