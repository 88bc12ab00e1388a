"""hotloop.testing.pipe_network(): hosts, names and connections.

The oracle is asyncio's own loop with the same clock on top: real transports that know nothing of the network.
"""

import asyncio
import contextlib
import errno
import functools
import socket
import sys

import pytest
from support.certificates import HOST
from support.memory_network import connected, echo, now
from support.virtual_time import run_virtual

from hotloop.testing import network as network_module
from hotloop.testing import pipe_network, ports


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


def test_streams(run):
    async def main():
        async with pipe_network():
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

        async with pipe_network() as network:
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


def test_the_socket_of_a_transport(run):
    """Frameworks ask it for addresses, and set TCP's options."""

    async def main():
        async with pipe_network() as network:
            network.host("six.test", "2001:db8::1")
            server = await asyncio.start_server(echo, ["server.test", "six.test"], 80)
            async with server:
                for host, family in (("server.test", socket.AF_INET), ("six.test", socket.AF_INET6)):
                    async with connected(host) as (_, writer):
                        sock = writer.get_extra_info("socket")
                        names = sock.getsockname(), sock.getpeername()
                        assert names == tuple(writer.get_extra_info(name) for name in ("sockname", "peername"))
                        assert (sock.family, sock.type, sock.proto) == (family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
                        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
                        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 16
                        assert not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
                        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                        assert str(names[0]) in repr(sock)

    run(main())


def test_names(run, monkeypatch):
    def getaddrinfo(host, port, family, type, proto, flags):
        assert flags & socket.AI_NUMERICHOST, "no resolver is asked"
        return system(host, port, family, type, proto, flags)

    system = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main():
        loop = asyncio.get_running_loop()
        async with pipe_network() as network:
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
            # Datagrams would go to a host outside with that address.
            with pytest.raises(socket.gaierror):
                await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("two.test", 80))
            assert await loop.getaddrinfo("localhost", 80, type=socket.SOCK_DGRAM)

    run(main())


def test_a_name_that_ends_with_a_dot_is_the_same(run):
    async def main():
        async with pipe_network(latency=1) as network:
            address = network.host("One.Test.")
            assert network.host("one.test") == address
            server = await asyncio.start_server(echo, ["one.test.", "Two.Test."], 80)
            assert [sock.getsockname() for sock in server.sockets] == [(*address, 80), (*network.host("two.test"), 80)]
            network.link("one.test.", latency=3)
            with network.at("one.test."):
                for name in ("two.test", "two.test."):
                    begin = now()
                    async with connected(name) as (_, writer):
                        assert writer.get_extra_info("sockname")[0] == address[0]
                        assert now() == begin + 6
            network.partition("one.test.", "two.test")
            network.heal("one.test", "two.test.")
            with pytest.raises(UnicodeError):
                await asyncio.open_connection("one.test..", 80)

    run(main())


def test_without_a_network_names_are_the_systems(run):
    async def main():
        loop = asyncio.get_running_loop()
        async with pipe_network() as network:
            network.host("127.0.0.9")
        infos = await loop.getaddrinfo("127.0.0.9", 80, type=socket.SOCK_STREAM)
        assert await loop.getnameinfo(infos[0][4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == ("127.0.0.9", "80")
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, connected(*server.sockets[0].getsockname()) as (_, writer):
            assert writer.get_extra_info("socket").family == socket.AF_INET

    run(main())


def test_connecting_where_no_server_listens(run):
    async def main():
        async with pipe_network(latency=0.25) as network:
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
    """It listens on the addresses of its host, or of all hosts if it is on none."""

    async def answer(reader, writer, text):
        writer.write(text)
        writer.close()

    async def main():
        async with pipe_network() as network:
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
                        if host == "0.0.0.0":
                            await serve(b"elsewhere", None)

    run(main())


@pytest.mark.parametrize(("everywhere", "own"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_a_client_reaches_its_own_host_at_the_address_of_all(run, everywhere, own):
    """As in the kernel: programs connect to what a server's getsockname() returns."""

    async def answer(reader, writer):
        writer.write(writer.get_extra_info("sockname")[0].encode())
        writer.close()

    async def main():
        async with pipe_network() as network:
            network.host("one.test", "192.0.2.1", "2001:db8::1")
            async with await asyncio.start_server(answer, everywhere, 0) as server:
                host, port = server.sockets[0].getsockname()[:2]
                for place, address in (("localhost", own), ("one.test", network.host("one.test")[":" in own])):
                    with network.at(place):
                        async with connected(host, port) as (reader, writer):
                            assert (await reader.read()).decode() == address
                            assert writer.get_extra_info("peername")[:2] == (address, port)
                            assert writer.get_extra_info("sockname")[0] == address

    run(main())


def test_a_server_on_no_hosts_is_as_without_a_network(run):
    """Up to CPython 3.12 one without sockets; since then an error."""

    async def outcome():
        try:
            server = await asyncio.start_server(echo, iter([]), 80)
        except OSError as error:
            return str(error), None
        async with server:
            return server.sockets, server.is_serving()

    async def main():
        async with pipe_network():
            inside = await outcome()
        assert inside == await outcome()

    run(main())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="since CPython 3.13 there is no server on no hosts")
def test_a_server_on_no_hosts_ends_with_the_network(run):
    async def main():
        async with pipe_network():
            server = await asyncio.start_server(echo, [], 80)
            assert server.is_serving()
        assert not server.is_serving()

    run(main())


def test_a_free_port(run):
    async def main():
        async with pipe_network():
            servers = [await asyncio.start_server(echo, "server.test", 0) for _ in range(3)]
            ports = [server.sockets[0].getsockname()[1] for server in servers]
            assert ports == [49152, 49153, 49154]
            await asyncio.start_server(echo, "server.test", 49155)
            async with connected(port=ports[1]) as (_, writer):
                assert writer.get_extra_info("sockname")[1] == 49156

    run(main())


def test_all_ports_are_in_use(run, monkeypatch):
    monkeypatch.setattr(ports, "LAST", ports.FIRST + 1)

    async def main():
        async with pipe_network() as network:
            server = await asyncio.start_server(echo, "server.test", 80)
            first = await asyncio.start_server(echo, "server.test", 0)
            async with connected():
                with pytest.raises(OSError, match="all ports from 49152 to 49153 are in use") as caught:
                    await asyncio.start_server(echo, "server.test", 0)
                assert caught.value.errno == errno.EADDRINUSE
                with pytest.raises(OSError, match="all ports from 49152 to 49153 are in use") as caught:
                    await asyncio.open_connection("server.test", 80)
                assert caught.value.errno == errno.EADDRNOTAVAIL
                first.close()
                async with connected() as (_, writer):
                    assert writer.get_extra_info("sockname")[1] == ports.FIRST
            while network.connections:
                await asyncio.sleep(1)
            async with connected() as (_, writer):
                assert writer.get_extra_info("sockname")[1] == ports.LAST
            server.close()

    run(main())


def test_sockets_by_hand(run):
    """Libraries that race addresses themselves connect like this: the socket object stays the same."""

    async def main():
        loop = asyncio.get_running_loop()
        async with pipe_network(latency=1) as network:
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
        async with pipe_network():
            server = await asyncio.start_unix_server(echo, tmp_path / "socket")
            reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
            server.close()

    run(main())


def test_tls(run, certificates):
    async def main():
        async with pipe_network(latency=0.25, fragment=(1, 100)) as network:
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
        async with pipe_network(latency=0.25, fragment=7):
            server = await asyncio.start_server(serve, HOST, 443)
            async with server, connected(HOST, 443) as (reader, writer):
                await writer.start_tls(certificates.client_context(), server_hostname=HOST)
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert writer.get_extra_info("peername") == ("127.0.0.1", 443)

    run(main())


# -- sockets that a program has bound ----------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_server_with_a_socket_that_is_bound_already(run, family, listens):
    """The network uses the address it is bound to, and keeps the socket until the server is closed."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"

    async def main():
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.bind((host, 0))
        except OSError:
            bound.close()
            pytest.skip("this machine has no IPv6")
        if listens:
            bound.listen()
        address = bound.getsockname()
        async with pipe_network(latency=0.5):
            server = await asyncio.start_server(echo, sock=bound)
            assert [each.getsockname() for each in server.sockets] == [address]
            async with server, connected(host, address[1]) as (reader, writer):
                assert now() == 1.0 and bound.getsockname() == address
                assert writer.get_extra_info("peername") == address
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                with pytest.raises(OSError) as raised:
                    await asyncio.start_server(echo, host, address[1])
                assert raised.value.errno == errno.EADDRINUSE
            await server.wait_closed()
            assert bound.fileno() == -1

    run(main())


def test_a_server_that_cannot_be_made_leaves_the_socket(run):
    async def main():
        async with pipe_network() as network:
            with socket.socket() as bound:
                bound.bind(("127.0.0.1", 0))
                with pytest.raises(TypeError):
                    await asyncio.get_running_loop().create_server(asyncio.Protocol, sock=bound, ssl=True)
                assert bound.fileno() >= 0 and not network._listeners and not network._listening
                with pytest.raises(ValueError, match="can not be specified at the same time"):
                    await asyncio.start_server(echo, "127.0.0.1", 0, sock=bound)

    run(main())


def test_accepting_by_hand_is_refused(run):
    """anyio's listeners accept in this way; no client of the network would ever reach them."""

    async def main():
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            async with pipe_network():
                with pytest.raises(OSError, match=r"pipe_network\(\).*: use create_server\(\)") as raised:
                    await loop.sock_accept(listener)
                assert raised.value.errno == errno.EOPNOTSUPP

    run(main())


# -- cost --------------------------------------------------------------------------------------------------------------


def test_a_connection_costs_the_same_however_many_there_are(run):
    """The test measures the cost by counting calls of the network's own functions."""
    package = network_module.__file__.removesuffix("network.py")

    def calls_for(count):
        calls = 0

        def profile(frame, event, _):
            nonlocal calls
            calls += event == "call" and frame.f_code.co_filename.startswith(package)

        async def main():
            async with pipe_network():
                loop = asyncio.get_running_loop()
                await loop.create_server(asyncio.Protocol, "server.test", 80)
                sys.setprofile(profile)
                try:
                    made = [await loop.create_connection(asyncio.Protocol, "server.test", 80) for _ in range(count)]
                finally:
                    sys.setprofile(None)
                for transport, _ in made:
                    transport.close()

        run(main())
        return calls

    few, many = calls_for(20), calls_for(120)
    assert many < 6.5 * few
