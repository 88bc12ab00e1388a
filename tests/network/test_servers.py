"""Servers, streams, TLS, Unix sockets and datagrams: the standard library's own code on the loop (P26, and smoke
tests)."""

import asyncio
import socket
import ssl
import sys
import types

import pytest
from support.certificates import WITHOUT_TRUSTME


@pytest.fixture(scope="module")
def tls():
    """Contexts for a server called localhost and for its client."""
    authority = pytest.importorskip("trustme", reason=WITHOUT_TRUSTME).CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def settle():
    """Let the loop make pending calls such as connection_lost()."""
    for _ in range(5):
        await asyncio.sleep(0)


async def exchange(reader, writer, data):
    writer.write(data)
    if writer.can_write_eof():
        writer.write_eof()
    received = await reader.readexactly(len(data))
    writer.close()
    await writer.wait_closed()
    return received


def test_streams(impl):
    async def main():
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()

            async def client(number):
                reader, writer = await asyncio.open_connection(*address)
                data = bytes([number]) * (number * 10_000 + 1)
                assert await exchange(reader, writer, data) == data

            await asyncio.gather(*(client(number) for number in range(20)))
        await settle()

    impl.run(main())


def test_tls(impl, tls):
    async def main():
        server_context, client_context = tls
        async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context) as server:
            address = server.sockets[0].getsockname()

            async def client(number):
                reader, writer = await asyncio.open_connection(
                    *address, ssl=client_context, server_hostname="localhost"
                )
                assert writer.get_extra_info("cipher")
                data = bytes([number]) * 50_000
                assert await exchange(reader, writer, data) == data

            await asyncio.gather(*(client(number) for number in range(5)))
        await settle()

    impl.run(main())


def test_start_tls(impl, tls):
    async def main():
        server_context, client_context = tls
        upgraded = asyncio.Event()

        async def serve(reader, writer):
            assert await reader.readline() == b"STARTTLS\n"
            writer.write(b"go ahead\n")
            await writer.drain()
            await writer.start_tls(server_context)
            upgraded.set()
            await echo(reader, writer)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"go ahead\n"
            await writer.start_tls(client_context, server_hostname="localhost")
            assert await exchange(reader, writer, b"secret") == b"secret"
            await upgraded.wait()
        await settle()

    impl.run(main())


def test_a_refused_certificate(impl, tls):
    async def main():
        server_context, _ = tls
        async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context) as server:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(
                    *server.sockets[0].getsockname(), ssl=ssl.create_default_context(), server_hostname="localhost"
                )
            await settle()
        await settle()

    impl.run(main())


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")
def test_unix_sockets(impl, tmp_path):
    async def main():
        path = str(tmp_path / "socket")
        async with await asyncio.start_unix_server(echo, path):
            reader, writer = await asyncio.open_unix_connection(path)
            assert await exchange(reader, writer, b"unix") == b"unix"
        await settle()

    impl.run(main())


def test_datagrams(impl):
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, address):
            self.transport.sendto(data, address)

    class Client(asyncio.DatagramProtocol):
        def __init__(self):
            self.received = asyncio.Queue()

        def datagram_received(self, data, address):
            self.received.put_nowait(data)

    async def main():
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        address = server.get_extra_info("sockname")
        client, protocol = await loop.create_datagram_endpoint(Client, remote_addr=address)
        for number in range(50):
            client.sendto(b"%d" % number)
            assert await protocol.received.get() == b"%d" % number
        client.close()
        server.close()
        await settle()

    impl.run(main())


def test_pipes(impl):
    import os

    async def main():
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        reader = asyncio.StreamReader()
        read_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
        )
        write_transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb"))
        write_transport.write(b"through a pipe")
        write_transport.close()
        assert await reader.read() == b"through a pipe"
        read_transport.close()
        await settle()

    impl.run(main())


def test_names_are_resolved(impl):
    async def main():
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        assert found == socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
        name = await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
        assert name == ("127.0.0.1", "80")
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("127.0.0.1", 80, family=socket.AF_INET6, flags=socket.AI_NUMERICHOST)

    impl.run(main())


def test_connecting_without_a_listener(impl):
    async def main():
        with socket.socket() as placeholder:
            placeholder.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*placeholder.getsockname())

    impl.run(main())


class Counting(asyncio.Protocol):
    """Counts the connections it is made for."""

    def __init__(self, connections):
        self.connections = connections

    def connection_made(self, transport):
        self.connections.append(transport)

    def connection_lost(self, error):
        self.connections.append("lost")


async def serving_one_client():
    """A server with one connected client: (server, connections, client transport)."""
    loop = asyncio.get_running_loop()
    connections = []
    server = await loop.create_server(lambda: Counting(connections), "127.0.0.1", 0)
    client, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    while not connections:
        await asyncio.sleep(0.001)
    return server, connections, client


async def finish(server, client):
    client.close()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.001)
    await settle()


@pytest.mark.promise("P26")
def test_close_stops_listening_and_leaves_the_clients_alone(impl):
    async def main():
        server, connections, client = await serving_one_client()
        address = server.sockets[0].getsockname()
        assert server.is_serving()
        server.close()
        server.close()
        assert not server.is_serving() and server.sockets == ()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address)
        assert "lost" not in connections
        await finish(server, client)
        while "lost" not in connections:
            await asyncio.sleep(0.001)

    impl.run(main())


@pytest.mark.promise("P26")
@pytest.mark.skipif(
    sys.version_info < (3, 12, 1), reason="before CPython 3.12.1 wait_closed() does not wait for the clients"
)
def test_wait_closed_waits_for_the_clients(impl):
    async def main():
        server, connections, client = await serving_one_client()
        server.close()
        waiting = asyncio.ensure_future(server.wait_closed())
        await settle()
        assert not waiting.done()
        client.close()
        await waiting
        await settle()
        assert "lost" in connections

    impl.run(main())


@pytest.mark.promise("P26")
@pytest.mark.skipif(sys.version_info < (3, 13), reason="Server.close_clients() came with CPython 3.13")
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
def test_closing_and_aborting_the_clients(impl, how):
    async def main():
        server, connections, client = await serving_one_client()
        getattr(server, how)()
        while "lost" not in connections:
            await asyncio.sleep(0.001)
        assert server.is_serving()
        await finish(server, client)

    impl.run(main())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="servers know their transports since CPython 3.13")
def test_the_clients_that_a_server_knows(impl):
    """`_clients` holds weak references to the open connections, each until its end."""

    async def main():
        server, connections, client = await serving_one_client()
        (transport,) = server._clients
        assert transport.get_extra_info("peername") == client.get_extra_info("sockname")
        others = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(10)]
        while len(server._clients) < 11:
            await asyncio.sleep(0.001)
        for _, writer in others:
            writer.close()
        while len(server._clients) > 1:
            await asyncio.sleep(0.001)
        assert list(server._clients) == [transport]
        transport.close()
        while "lost" not in connections:
            await asyncio.sleep(0.001)
        await settle()
        assert not server._clients
        await finish(server, client)

    impl.run(main())


@pytest.mark.parametrize("of", ["the class", "the object"])
def test_a_servers_methods_may_be_replaced(impl, monkeypatch, of):
    """A program may replace them to count connections: _attach() is called when one begins, _detach() when it ends."""
    calls = []
    methods = {name: getattr(asyncio.base_events.Server, name) for name in ("_attach", "_detach")}

    def telling(name):
        def method(self, *arguments):
            calls.append(name)
            return methods[name](self, *arguments)

        return method

    async def main():
        server, connections, client = await serving_one_client()
        client.close()
        while "lost" not in connections:
            await asyncio.sleep(0.001)
        await settle()
        if of == "the object":
            for name in methods:
                setattr(server, name, types.MethodType(telling(name), server))
        another, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *server.sockets[0].getsockname()
        )
        while len(connections) < 3:
            await asyncio.sleep(0.001)
        another.close()
        while connections.count("lost") < 2:
            await asyncio.sleep(0.001)
        await settle()
        await finish(server, client)

    if of == "the class":
        for name in methods:
            monkeypatch.setattr(asyncio.base_events.Server, name, telling(name))
    impl.run(main())
    assert calls == ["_attach", "_detach"] * (2 if of == "the class" else 1)


@pytest.mark.promise("P26")
def test_serve_forever(impl):
    async def main():
        server, _, client = await serving_one_client()
        serving = asyncio.ensure_future(server.serve_forever())
        await settle()
        with pytest.raises(RuntimeError, match="is already being awaited on serve_forever"):
            await server.serve_forever()
        client.close()
        await asyncio.sleep(0.001)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not server.is_serving()
        with pytest.raises(RuntimeError, match="is closed"):
            await server.serve_forever()
        await finish(server, client)

    impl.run(main())


@pytest.mark.promise("P26")
def test_start_serving_later(impl):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, start_serving=False)
        assert not server.is_serving()
        await server.start_serving()
        await server.start_serving()
        assert server.is_serving() and len(server.sockets) == 1
        server.close()
        await server.wait_closed()
        await settle()

    impl.run(main())


@pytest.mark.promise("P26")
def test_the_context_manager(impl):
    async def main():
        loop = asyncio.get_running_loop()
        async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server:
            assert server.is_serving()
        assert not server.is_serving()
        await settle()

    impl.run(main())


def test_sendfile(impl, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 10_000)

    async def main():
        loop = asyncio.get_running_loop()
        received = bytearray()
        done = asyncio.Event()

        async def collect(reader, writer):
            while data := await reader.read(65536):
                received.extend(data)
            writer.close()
            done.set()

        async with await asyncio.start_server(collect, "127.0.0.1", 0) as server:
            transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
            with open(path, "rb") as file:
                assert await loop.sendfile(transport, file) == 100_000
            transport.close()
            await done.wait()
        assert received == path.read_bytes()
        await settle()

    impl.run(main())


def test_urgent_data_does_not_hide_what_follows(impl):
    """A read stops before urgent data, so a short read does not mean that nothing is left."""

    async def main():
        loop = asyncio.get_running_loop()
        connected, complete = loop.create_future(), loop.create_future()
        received = bytearray()

        class Collector(asyncio.Protocol):
            def connection_made(self, transport):
                connected.set_result(transport)

            def data_received(self, data):
                received.extend(data)
                if len(received) >= 4:
                    complete.set_result(None)

        server = await loop.create_server(Collector, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as sock:
            transport = await connected
            await settle()
            sock.send(b"ab")
            sock.send(b"!", socket.MSG_OOB)
            sock.send(b"cd")
            await complete
            transport.abort()
        server.close()
        await settle()
        return bytes(received)

    assert impl.run(main()) == b"abcd"
