"""aiofastnet's transports in place of the loop's, and how a library recognises a loop with transports of its own."""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from asyncio.subprocess import PIPE

import pytest
from support.certificates import HOST
from support.documents import ROOT, blocks
from support.endpoints import reports_of, settle

BODY = bytes(range(256)) * 4096  # more than the kernel takes at once


@pytest.fixture
def aiofastnet():
    return pytest.importorskip("aiofastnet", reason="aiofastnet is not installed")


@pytest.fixture
def run(impl, aiofastnet):
    """run(main): run the coroutine function on a loop whose transports aiofastnet has replaced."""

    def run(main):
        try:
            with asyncio.Runner(loop_factory=aiofastnet.loop_factory(impl.new_event_loop)) as runner:
                assert isinstance(runner.get_loop(), impl.EventLoop)
                runner.run(main())
        finally:
            asyncio.set_event_loop(None)  # the factory has made it the current one

    return run


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Client(asyncio.Protocol):
    """`whole` gets all of BODY when it has come, `gone` the error at the connection's end."""

    def __init__(self):
        self.received = bytearray()
        self.whole, self.gone = (asyncio.get_running_loop().create_future() for _ in range(2))

    def data_received(self, data):
        self.received += data
        if len(self.received) >= len(BODY):
            self.whole.set_result(bytes(self.received))

    def connection_lost(self, error):
        self.gone.set_result(error)


def is_aiofastnets(thing):
    return type(thing).__module__.startswith("aiofastnet.")


@contextlib.asynccontextmanager
async def serving(factory=Echo, place=None, **options):
    """The address of a server at this path of a Unix socket, or else over TCP."""
    loop = asyncio.get_running_loop()
    if place is None:
        server = await loop.create_server(factory, "127.0.0.1", 0, **options)
    else:
        server = await loop.create_unix_server(factory, place, **options)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        await server.wait_closed()
        await settle()


async def connected(address, **options):
    """(transport, its Client)"""
    loop = asyncio.get_running_loop()
    if isinstance(address, str):
        return await loop.create_unix_connection(Client, address, **options)
    return await loop.create_connection(Client, *address, **options)


async def exchange(transport, client):
    """Have all of BODY echoed and close the connection."""
    for begin in range(0, len(BODY), 100_000):
        transport.write(BODY[begin : begin + 100_000])
    assert await client.whole == BODY
    transport.close()
    assert await client.gone is None


@pytest.mark.parametrize("network", ["tcp", "tls", "unix"])
def test_protocols_echo(run, certificates, tmp_path, network):
    at_the_server = []

    def factory():
        at_the_server.append(Echo())
        return at_the_server[-1]

    secured = network == "tls"

    async def main():
        path = os.fspath(tmp_path / "socket") if network == "unix" else None
        options = {"ssl": certificates.server_context()} if secured else {}
        async with serving(factory, path, **options) as address:
            options = {"ssl": certificates.client_context(), "server_hostname": HOST} if secured else {}
            transport, client = await connected(address, **options)
            await exchange(transport, client)
        assert is_aiofastnets(transport)
        assert [is_aiofastnets(protocol.transport) for protocol in at_the_server] == [True]

    run(main)


@pytest.mark.parametrize("network", ["tcp", "tls"])
def test_streams_echo(run, certificates, network):
    at_the_server = []

    async def echo(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        at_the_server.append(writer.transport)

    secured = network == "tls"

    async def main():
        context = certificates.server_context() if secured else None
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
        options = {"ssl": certificates.client_context(), "server_hostname": HOST} if secured else {}
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), **options)
        writer.write(BODY)
        assert await reader.readexactly(len(BODY)) == BODY
        if secured:
            assert writer.get_extra_info("ssl_object").version().startswith("TLSv1.")
            assert ("DNS", HOST) in writer.get_extra_info("peercert")["subjectAltName"]
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await settle()
        assert [is_aiofastnets(transport) for transport in (*at_the_server, writer.transport)] == [True, True]

    run(main)


def test_a_certificate_that_is_refused(run, certificates):
    async def main():
        context = certificates.client_context(trusts=False)
        with reports_of(asyncio.get_running_loop()):  # the server's, of a handshake that failed
            async with serving(ssl=certificates.server_context()) as address:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await connected(address, ssl=context, server_hostname=HOST)

    run(main)


def test_start_tls(run, certificates):
    async def upgrade(reader, writer):
        assert await reader.readline() == b"upgrade\n"
        writer.write(b"go on\n")
        await writer.start_tls(certificates.server_context())
        writer.write(await reader.readline())
        await writer.drain()
        await reader.read()
        writer.close()

    async def main():
        server = await asyncio.start_server(upgrade, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"upgrade\n")
        assert await reader.readline() == b"go on\n"
        await writer.start_tls(certificates.client_context(), server_hostname=HOST)
        writer.write(b"in private\n")
        assert await reader.readline() == b"in private\n"
        assert is_aiofastnets(writer.transport)
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await settle()

    run(main)


def test_sendfile(run, tmp_path):
    (tmp_path / "file").write_bytes(BODY)

    async def main():
        async with serving() as address:
            transport, client = await connected(address)
            with open(tmp_path / "file", "rb") as file:
                await asyncio.get_running_loop().sendfile(transport, file)
            assert await client.whole == BODY
            transport.close()
            await client.gone

    run(main)


def test_datagrams_and_sockets(run):
    class Datagrams(asyncio.DatagramProtocol):
        def __init__(self):
            self.first = asyncio.get_running_loop().create_future()

        def datagram_received(self, data, address):
            self.first.set_result((data, address))

    async def main():
        loop = asyncio.get_running_loop()
        transports = []
        for _ in range(2):
            transports.append(await loop.create_datagram_endpoint(Datagrams, local_addr=("127.0.0.1", 0)))
        (one, _), (other, received) = transports
        assert is_aiofastnets(one)
        one.sendto(b"hello", other.get_extra_info("sockname"))
        assert await received.first == (b"hello", one.get_extra_info("sockname"))
        one.close()
        other.close()
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            receiving = asyncio.ensure_future(loop.sock_recv(right, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(left, b"through a socket")
            assert await receiving == b"through a socket"
        await settle()

    run(main)


def test_a_subprocess(run):
    async def main():
        child = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert await child.communicate(BODY) == (BODY, None)

    run(main)


@pytest.mark.only("c", reason="only the compiled loop has transports of its own")
def test_connections_that_are_open_keep_the_loops_own_transports(impl, aiofastnet):
    async def main():
        loop = asyncio.get_running_loop()
        async with serving() as address:
            own, client = await connected(address)
            assert aiofastnet.patch_loop() is loop
            later, other = await connected(address)
            assert type(own).__module__.startswith("hotloop.")
            assert is_aiofastnets(later)
            await exchange(own, client)
            await exchange(later, other)

    impl.run(main())


@pytest.mark.only("c", "python", reason="asyncio's loop has no metrics()")
def test_the_metrics_do_not_count_its_bytes(run):
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.metrics()
        async with serving() as address:
            await exchange(*await connected(address))
        between = loop.metrics() - before
        assert (between.bytes_received, between.bytes_sent) == (0, 0)
        assert between.callbacks > 0

    run(main)


def test_aiohttp_here_leaves_the_loops_transports_alone(impl):
    """Where this fails, the tests with aiohttp test aiofastnet's transports, not the loop's."""
    web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed")

    async def main():
        runner = web.ServerRunner(web.Server(print))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            assert not is_aiofastnets(site._server)
        finally:
            await runner.cleanup()
            await settle()

    impl.run(main())


# -- recognising -------------------------------------------------------------------------------------------------------


def recipe():
    [code] = [block.code for block in blocks(ROOT / "docs" / "ecosystem.md") if block.title == "native.py"]
    return code


ASKING = """
import asyncio
import hotloop
import hotloop.testing

for new_event_loop in hotloop.new_event_loop, hotloop.testing.EventLoop, asyncio.SelectorEventLoop:
    loop = new_event_loop()
    print(has_native_transports(loop))
    loop.close()
"""


@pytest.mark.only("c", "python", reason="asyncio's loop has no transports in C")
def test_a_library_recognises_the_loop_that_has_transports_in_c(impl):
    compiled = str(impl.name == "c")
    assert impl.run_script(recipe() + ASKING).stdout.split() == [compiled, compiled, "False"]


def test_a_library_that_asks_does_not_import_hotloop(monkeypatch):
    monkeypatch.delitem(sys.modules, "hotloop", raising=False)
    exec(recipe(), library := {})
    assert library["has_native_transports"](object()) is False
    assert "hotloop" not in sys.modules
