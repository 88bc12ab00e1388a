"""hotloop.testing.pipe_network(): hosts, names and connections, and how long things take.

The oracle is asyncio's own loop with the same clock on top: real transports, which know nothing of the network.
"""

import asyncio
import contextlib
import functools
import socket

import pytest
from certificates import HOST
from virtual import run_virtual

from hotloop import testing
from hotloop.testing import Delivery, pipe_network


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


def now():
    return asyncio.get_running_loop().time()


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def connected(host="server.test", port=80, **options):
    reader, writer = await asyncio.open_connection(host, port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Notes(asyncio.Protocol):
    """Writes down what it is called with, and when."""

    def __init__(self):
        self.notes = []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.notes.append((now(), "made"))

    def data_received(self, data):
        self.notes.append((now(), data))

    def eof_received(self):
        self.notes.append((now(), "eof"))

    def connection_lost(self, exc):
        self.notes.append((now(), "lost", type(exc)))
        self.lost.set_result(None)


# -- connecting --------------------------------------------------------------------------------------------------------


def test_streams(run):
    async def main():
        with pipe_network():
            server = await asyncio.start_server(echo, "server.test", 80)
            async with server, connected() as (reader, writer):
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.write_eof()
                assert await reader.read() == b""
        assert now() == 0

    run(main())


def test_addresses(run):
    async def main():
        seen = []

        def accepted(reader, writer):
            seen.append((writer.get_extra_info("peername"), writer.get_extra_info("sockname")))
            writer.close()

        with pipe_network() as network:
            assert network.host("client.test") == ("10.0.0.1",)
            assert network.host("six.test", "2001:DB8::0:1") == ("2001:db8::1",)
            server = await asyncio.start_server(accepted, ["four.test", "six.test"], 80)
            assert [each.getsockname() for each in server.sockets] == [("10.0.0.2", 80), ("2001:db8::1", 80, 0, 0)]
            assert [each.family for each in server.sockets] == [socket.AF_INET, socket.AF_INET6]
            async with server:
                for host in ("four.test", "six.test"):
                    async with connected(host) as (reader, writer):
                        ends = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
                        assert await reader.read() == b""
                        assert seen.pop() == ends
                        assert ends[1][:2] == (network.host(host)[0], 80)
                        assert ends[0][0] == ("127.0.0.1" if host == "four.test" else "::1")
                with network.at("client.test"):
                    async with connected("four.test") as (_, writer):
                        assert writer.get_extra_info("sockname")[0] == "10.0.0.1"
                async with connected("four.test", local_addr=("client.test", 1234)) as (_, writer):
                    assert writer.get_extra_info("sockname") == ("10.0.0.1", 1234)

    run(main())


def test_names(run):
    async def main():
        loop = asyncio.get_running_loop()
        with pipe_network() as network:
            network.host("two.test", "192.0.2.1", "192.0.2.2", "2001:db8::1")
            stream = {"type": socket.SOCK_STREAM}
            found = await loop.getaddrinfo("Two.Test.", "http", **stream, flags=socket.AI_ADDRCONFIG)
            assert [info[4][:2] for info in found] == [("192.0.2.1", 80), ("192.0.2.2", 80), ("2001:db8::1", 80)]
            found = await loop.getaddrinfo(b"two.test", 80, family=socket.AF_INET6, **stream)
            assert found == [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("2001:db8::1", 80, 0, 0))]
            assert [info[4][0] for info in await loop.getaddrinfo(None, 80, **stream)] == ["127.0.0.1", "::1"]
            assert await loop.getnameinfo(("192.0.2.2", 80), socket.NI_NUMERICSERV) == ("two.test", "80")
            assert await loop.getnameinfo(("192.0.2.3", 80), socket.NI_NUMERICSERV) == ("192.0.2.3", "80")
            with pytest.raises(socket.gaierror):
                await loop.getnameinfo(("192.0.2.3", 80), socket.NI_NAMEREQD)
            for name in ("one.test", "python.org"):
                with pytest.raises(socket.gaierror) as caught:
                    await loop.getaddrinfo(name, 80)
                assert caught.value.errno == socket.EAI_NONAME
            with pytest.raises(socket.gaierror):
                await asyncio.open_connection("one.test", 80)

    run(main())


def test_without_a_network_names_are_the_systems(run):
    async def main():
        loop = asyncio.get_running_loop()
        with pipe_network() as network:
            network.host("127.0.0.9")
        infos = await loop.getaddrinfo("127.0.0.9", 80, type=socket.SOCK_STREAM)
        assert await loop.getnameinfo(infos[0][4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == ("127.0.0.9", "80")
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, connected(*server.sockets[0].getsockname()) as (_, writer):
            assert writer.get_extra_info("socket").family == socket.AF_INET

    run(main())


def test_nobody_listens(run):
    async def main():
        with pipe_network(latency=0.25) as network:
            server = await asyncio.start_server(echo, "server.test", 80, start_serving=False)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("server.test", 80)
            await server.start_serving()
            async with connected():
                server.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("server.test", 80)
            # There and back, three times.
            assert now() == 1.5
            with pytest.raises(OSError, match=r"no host of this network has the address 10\.0\.0\.99"):
                await asyncio.open_connection("10.0.0.99", 80)
            network.host("four.test")
            with network.at("four.test"), pytest.raises(OSError, match="no address of this family"):
                await asyncio.open_connection("::1", 80)

    run(main())


def test_a_server_on_all_addresses(run):
    """On those of its host, or of all hosts if it is on none."""

    async def answer(reader, writer, text):
        writer.write(text)
        writer.close()

    async def main():
        with pipe_network() as network:
            for name in ("one.test", "two.test"):
                network.host(name)
            async with contextlib.AsyncExitStack() as servers:

                async def serve(text, host):
                    handler = functools.partial(answer, text=text)
                    return await servers.enter_async_context(await asyncio.start_server(handler, host, 80))

                await serve(b"everywhere", "0.0.0.0")
                with network.at("one.test"):
                    server = await serve(b"one", None)
                assert {each.getsockname()[0] for each in server.sockets} == {"0.0.0.0", "::"}
                await serve(b"address", "10.0.0.3")
                network.host("three.test", "10.0.0.4")
                for host, text in {
                    "one.test": b"one",
                    "two.test": b"everywhere",
                    "10.0.0.3": b"address",
                    "three.test": b"everywhere",
                    "localhost": b"everywhere",
                }.items():
                    async with connected(host) as (reader, _):
                        assert await reader.read() == text
                for host, place in (("0.0.0.0", "localhost"), ("10.0.0.3", "one.test")):
                    with pytest.raises(OSError, match="address already in use"):
                        await serve(b"again", host)
                    with network.at(place):
                        await serve(b"elsewhere", None) if host == "0.0.0.0" else None

    run(main())


def test_a_free_port(run):
    async def main():
        with pipe_network():
            servers = [await asyncio.start_server(echo, "server.test", 0) for _ in range(3)]
            ports = [server.sockets[0].getsockname()[1] for server in servers]
            assert ports == [49152, 49153, 49154]
            async with connected(port=ports[1]) as (_, writer):
                assert writer.get_extra_info("sockname")[1] == 49155

    run(main())


def test_sockets_by_hand(run):
    """As libraries connect that race addresses themselves: the socket object stays the same."""

    async def main():
        loop = asyncio.get_running_loop()
        with pipe_network(latency=1) as network:
            server = await asyncio.start_server(echo, "server.test", 80)
            with socket.socket() as sock:
                sock.setblocking(False)
                fd = sock.fileno()
                await loop.sock_connect(sock, ("server.test", 80))
                assert (sock.fileno(), sock.gettimeout(), sock.get_inheritable()) == (fd, 0, False)
                await loop.sock_sendall(sock, b"hello")
                assert await loop.sock_recv(sock, 100) == b"hello"
                assert now() == 4
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("10.0.0.1", 80))
            _, writer = await asyncio.open_connection(sock=sock)
            assert writer.get_extra_info("peername") == ("10.0.0.1", 80)
            assert writer.get_extra_info("sockname") == network.connections[-1].client
            writer.close()
            server.close()

    run(main())


def test_other_sockets_are_as_ever(run, tmp_path):
    async def main():
        with pipe_network():
            server = await asyncio.start_unix_server(echo, tmp_path / "socket")
            reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            server.close()

    run(main())


def test_tls(run, certificates):
    async def main():
        with pipe_network(latency=0.25, fragment=(1, 100)) as network:
            network.host(HOST)
            server = await asyncio.start_server(echo, HOST, 443, ssl=certificates.server_context())
            async with server, connected(HOST, 443, ssl=certificates.client_context()) as (reader, writer):
                names = [writer.get_extra_info(name) for name in ("sockname", "peername")]
                assert names == [network.connections[0].client, ("127.0.0.1", 443)]
                before = now()
                writer.write(b"x" * 5000)
                assert await reader.readexactly(5000) == b"x" * 5000
                assert now() == before + 0.5

    run(main())


def test_starting_tls(run, certificates):
    async def serve(reader, writer):
        await writer.start_tls(certificates.server_context())
        assert writer.get_extra_info("peername") is not None
        await echo(reader, writer)

    async def main():
        with pipe_network(latency=0.25, fragment=7):
            server = await asyncio.start_server(serve, HOST, 443)
            async with server, connected(HOST, 443) as (reader, writer):
                await writer.start_tls(certificates.client_context(), server_hostname=HOST)
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert writer.get_extra_info("peername") == ("127.0.0.1", 443)

    run(main())


# -- time and pieces ---------------------------------------------------------------------------------------------------


def test_latency(run):
    """A connection takes there and back, for the client; then everything takes its time in each direction."""

    async def main():
        loop = asyncio.get_running_loop()
        protocols = []

        def factory():
            protocols.append(Notes())
            return protocols[-1]

        with pipe_network(latency=0.25) as network:
            await loop.create_server(factory, "server.test", 80)
            _, client = await loop.create_connection(Notes, "server.test", 80)
            network.link("localhost", "server.test", latency=4, one_way=True)
            client.transport.write(b"hello")
            await asyncio.sleep(5)
            server = protocols[0]
            server.transport.write(b"hello")
            server.transport.close()
            await client.lost
            assert server.notes == [(0.75, "made"), (4.5, b"hello"), (5.5, "lost", type(None))]
            assert client.notes == [(0.5, "made"), (5.75, b"hello"), (5.75, "eof"), (5.75, "lost", type(None))]

    run(main())


def test_latency_is_of_the_hosts_and_the_latest_decides(run):
    async def main():
        with pipe_network(latency=1) as network:
            for name in ("a", "b", "c"):
                network.host(name)
            network.host("c2", "192.0.2.1", "192.0.2.2")
            for name in ("a", "b", "c", "c2"):
                await asyncio.start_server(echo, name, 80)

            async def seconds(client, server):
                before = now()
                with network.at(client):
                    async with connected(server):
                        return now() - before

            assert await seconds("a", "b") == 2
            network.link("a", latency=2)
            assert [await seconds(*ends) for ends in ("ab", "ba", "bc")] == [4, 4, 2]
            network.link("a", "b", latency=3, one_way=True)
            assert [await seconds(*ends) for ends in ("ab", "ba", "ac")] == [5, 5, 4]
            network.link("192.0.2.2", latency=5)
            assert [await seconds("a", server) for server in ("192.0.2.1", "192.0.2.2")] == [4, 10]
            network.link("a", latency=0)
            assert [await seconds("a", server) for server in ("b", "192.0.2.2")] == [0, 0]
            network.link(latency=0.5)
            assert [await seconds(*ends) for ends in ("ab", "bc")] == [1, 1]

    run(main())


def test_latency_by_chance_keeps_the_order(run):
    async def main(latency):
        deliveries = []
        with pipe_network(latency=latency, fragment=10, trace=deliveries.append) as network:
            await asyncio.start_server(echo, "server.test", 80)
            async with connected() as (reader, writer):
                sent = now()
                writer.write(bytes(range(200)))
                assert await reader.readexactly(200) == bytes(range(200))
                arrived = [each.time - sent for each in deliveries if each.to == "server" and each.data]
                assert len(arrived) == 20 and arrived == sorted(arrived)
                assert len(set(arrived)) > 3 and arrived[0] >= 1 and arrived[-1] <= 3
            assert network.seed == 0
        return deliveries

    between = run(main((1, 3)))
    assert run(main((1, 3))) == between
    assert run(main(lambda rng: rng.uniform(1, 3))) == between


def test_bandwidth(run):
    async def main():
        deliveries = []
        with pipe_network(latency=10, bandwidth=100, trace=deliveries.append):
            server = await asyncio.start_server(echo, "server.test", 80)
            async with server, connected() as (reader, writer):
                start = now()
                writer.write(b"x" * 50)
                await asyncio.sleep(0.25)
                writer.write(b"x" * 25)
                assert await reader.readexactly(75) == b"x" * 75
                # The second waits for the first to leave; the way back has a bandwidth of its own.
                times = [(each.to, each.time - start) for each in deliveries]
                assert times == [("server", 10.5), ("server", 10.75), ("client", 21.0), ("client", 21.25)]

    run(main())


@pytest.mark.parametrize("fragment", [3, (3, 3), lambda rng: 3])
def test_pieces_are_received_one_by_one(run, fragment):
    async def main():
        loop = asyncio.get_running_loop()
        server = None

        def factory():
            nonlocal server
            server = Notes()
            return server

        with pipe_network(fragment=fragment) as network:
            await loop.create_server(factory, "server.test", 80)
            _, client = await loop.create_connection(Notes, "server.test", 80)
            client.transport.write(b"hello!!")
            client.transport.close()
            await client.lost
            await asyncio.sleep(1)
            assert [note[1] for note in server.notes] == ["made", b"hel", b"lo!", b"!", "eof", "lost"]
            network.link(fragment=None)
            _, client = await loop.create_connection(Notes, "server.test", 80)
            client.transport.write(b"hello!!")
            await asyncio.sleep(1)
            assert server.notes[1:] == [(1, b"hello!!")]
            client.transport.close()

    run(main())
    run(main(), shuffle=1)


def test_a_frozen_clock_freezes_the_network(run):
    async def main():
        clock = asyncio.get_running_loop().clock
        with pipe_network(latency=1):
            await asyncio.start_server(echo, "server.test", 80)
            async with connected() as (reader, writer):
                clock.freeze()
                writer.write(b"hello")
                answer = asyncio.ensure_future(reader.readexactly(5))
                await clock.advance(1.75)
                assert not answer.done()
                await clock.advance(0.5)
                assert answer.done()
                clock.resume()

    run(main())


# -- flow control ------------------------------------------------------------------------------------------------------


class Writer(Notes):
    def pause_writing(self):
        self.notes.append((now(), "pause"))

    def resume_writing(self):
        self.notes.append((now(), "resume"))
        self.resumed.set_result(None)


@pytest.mark.parametrize(("buffer", "size"), [(1000, 100_000), (100_000, 1_000_000)])
def test_who_does_not_read_makes_the_sender_pause(run, buffer, size):
    async def main():
        loop = asyncio.get_running_loop()
        accepted = loop.create_future()
        with pipe_network(latency=1, buffer=buffer, fragment=(1, 5000)) as network:
            await asyncio.start_server(lambda *streams: accepted.set_result(streams), "server.test", 80, limit=1000)
            _, client = await loop.create_connection(Writer, "server.test", 80)
            client.resumed = loop.create_future()
            client.transport.write(b"x" * size)
            await asyncio.sleep(100)
            assert client.notes[1:] == [(2, "pause")]
            reader, writer = await accepted
            assert 0 < network.connections[0]._to_server.on_the_way <= buffer
            begin = now()
            assert await reader.readexactly(size) == b"x" * size
            await client.resumed
            if buffer == 1000:
                # That much at a time, and each takes a second. What the sockets hold is not that little.
                assert now() - begin > 50
            client.transport.close()
            writer.close()

    run(main())


# -- what is not there -------------------------------------------------------------------------------------------------


def test_happy_eyeballs(run):
    """A dead address and a slow one: the next is tried after a quarter of a second, and the first that answers wins."""

    async def main():
        with pipe_network() as network:
            network.host("server.test", "192.0.2.1", "192.0.2.2", "192.0.2.3")
            server = await asyncio.start_server(echo, "server.test", 80)
            network.partition("192.0.2.1")
            network.link("192.0.2.2", latency=0.5)
            network.link("192.0.2.3", latency=0.125)
            async with server:
                async with connected(happy_eyeballs_delay=0.25) as (_, writer):
                    assert (writer.get_extra_info("peername")[0], now()) == ("192.0.2.3", 0.75)
                # One after the other: until the system gives up on the dead one.
                async with connected() as (_, writer):
                    assert (writer.get_extra_info("peername")[0], now()) == ("192.0.2.2", 0.75 + 127 + 1)

    run(main())


# -- repeatable --------------------------------------------------------------------------------------------------------


async def traffic():
    """Several clients at once; returns the trace."""
    deliveries = []
    with pipe_network(latency=(0.01, 0.1), bandwidth=1e5, fragment=(1, 50), trace=deliveries.append):
        server = await asyncio.start_server(echo, "server.test", 80)

        async def client(number):
            await asyncio.sleep(number % 2)
            async with connected() as (reader, writer):
                for _ in range(3):
                    writer.write(bytes([number]) * 100)
                    await reader.readexactly(100)

        await asyncio.gather(*(client(number) for number in range(4)))
        server.close()
    return deliveries


@pytest.mark.parametrize("shuffle", [None, 1, "two"])
def test_the_same_seed_gives_the_same_trace(run, shuffle):
    options = {} if shuffle is None else {"shuffle": shuffle}
    trace = run(traffic(), **options)
    assert all(isinstance(each, Delivery) for each in trace)
    assert {(each.connection, each.to) for each in trace} == {(n, to) for n in range(4) for to in ("client", "server")}
    assert run(traffic(), **options) == trace
    assert run(traffic(), shuffle=3) != trace


@pytest.mark.only("c", "python", reason="run_seeds() makes hotloop's own loops")
def test_under_many_seeds(impl):
    traces = testing.run_seeds(traffic, seeds=10)
    assert len({tuple(trace) for trace in traces}) == 10


def test_the_seed_of_the_network_is_its_own(run):
    async def main(**options):
        deliveries = []
        with pipe_network(latency=(0, 1), trace=deliveries.append, **options) as network:
            await asyncio.start_server(echo, "server.test", 80)
            async with connected() as (reader, writer):
                writer.write(b"hello")
                await reader.readexactly(5)
        return network.seed, deliveries

    first = run(main(seed=1))
    assert first[0] == 1
    assert run(main(seed=1), shuffle=7) == first
    assert run(main(seed=2))[1] != first[1]
    assert run(main(), shuffle=7)[0] == 7
