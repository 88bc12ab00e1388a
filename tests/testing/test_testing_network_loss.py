"""pipe_network(): connections that end, break or hang, and the end of the network itself."""

import asyncio
import contextlib
import functools
import gc
import socket
import weakref

import pytest
from support.certificates import HOST
from support.leftovers import open_descriptors
from support.memory_network import now, swallow
from support.virtual_time import run_virtual

from hotloop.testing import DeadlockError, pipe_network
from hotloop.testing import connection as connection_module


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


async def accept_one(**options):
    """A server, and a future of the streams of its first client."""
    streams = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *both: streams.set_result(both), "server.test", 80, **options)
    return server, streams


@contextlib.asynccontextmanager
async def both_sides(**options):
    """The streams of a client and those of its server."""
    server, accepted = await accept_one(**options)
    client = await asyncio.open_connection("server.test", 80)
    sides = client, await accepted
    server.close()
    try:
        yield sides
    finally:
        for _, writer in sides:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


# -- ends --------------------------------------------------------------------------------------------------------------


def test_each_direction_ends_by_itself(run):
    async def main():
        async with (
            pipe_network(latency=1) as network,
            both_sides() as ((reader, writer), (server_reader, server_writer)),
        ):
            begin = now()
            writer.write(b"question")
            writer.write_eof()
            assert await server_reader.read() == b"question"
            assert now() == begin + 1
            await asyncio.sleep(10)
            server_writer.write(b"answer")
            server_writer.write_eof()
            assert await reader.read() == b"answer"
            assert now() == begin + 12
            assert network.connections == ()

    run(main())


def test_data_for_a_closed_connection_is_answered_with_a_reset(run):
    async def main():
        async with (
            pipe_network(latency=1) as network,
            both_sides() as ((_, writer), (server_reader, server_writer)),
        ):
            writer.close()
            assert await server_reader.read() == b""
            assert len(network.connections) == 1
            begin = now()
            server_writer.write(b"too late")
            await asyncio.sleep(1.5)
            assert len(network.connections) == 1
            await asyncio.sleep(0.5)
            assert network.connections == ()
            # asyncio's streams detect it when they write: they do not read past the end.
            server_writer.write(b"too late")
            with pytest.raises(OSError):
                await server_writer.wait_closed()
            assert now() == begin + 2

    run(main())


def test_who_closes_before_he_has_read_all_resets(run):
    async def main():
        async with pipe_network(latency=1), both_sides() as ((_, writer), (server_reader, server_writer)):
            writer.transport.pause_reading()
            server_writer.write(b"unread")
            await asyncio.sleep(2)
            writer.transport.abort()
            with pytest.raises(ConnectionResetError):
                await server_reader.read()

    run(main())


def test_a_server_that_closes_before_it_has_accepted(run):
    async def main():
        deliveries = []
        async with pipe_network(latency=1, trace=deliveries.append) as network:
            server, _ = await accept_one()
            reader, writer = await asyncio.open_connection("server.test", 80)
            writer.write(b"hello")
            server.close()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            assert (now(), network.connections, deliveries) == (4, (), [])
            writer.close()
            # The other case: it listens, and does not accept.
            server, _ = await accept_one(backlog=1)
            asyncio.get_running_loop()._remove_reader(server.sockets[0].fileno())
            reader, writer = await asyncio.open_connection("server.test", 80)
            await asyncio.sleep(5)
            server.close()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            assert (now(), network.connections) == (12, ())
            writer.close()

    run(main())


def test_a_connection_that_its_client_no_longer_waits_for(run):
    async def main():
        async with pipe_network(latency=1) as network:
            server, accepted = await accept_one()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.open_connection("server.test", 80), 1.5)
            sock = socket.socket()
            sock.setblocking(False)
            connecting = asyncio.ensure_future(asyncio.get_running_loop().sock_connect(sock, ("server.test", 80)))
            await asyncio.sleep(1)
            sock.close()
            with pytest.raises(OSError, match="the socket was closed"):
                await connecting
            assert not accepted.done() and network.connections == ()
            server.close()

    run(main())


# -- breaking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half_closed", [False, True])
@pytest.mark.parametrize("system", ["this", "other"])
def test_a_reset_is_for_both_at_once(run, half_closed, system, monkeypatch):
    if system == "other":
        # A system on which closing one end of a pair does not tell the other of unread data.
        monkeypatch.setattr(connection_module, "_CLOSING_RESETS", False)
        monkeypatch.setattr(connection_module.Side, "_makes_unread", None)

    async def main():
        async with (
            pipe_network(latency=1) as network,
            both_sides() as ((reader, writer), (server_reader, server_writer)),
        ):
            writer.write(b"read")
            await asyncio.sleep(1)
            writer.write(b"lost")
            if half_closed:
                writer.write_eof()
            await asyncio.sleep(0.5)
            (connection,) = network.connections
            begin = now()
            connection.reset()
            for each in (reader, server_reader):
                with pytest.raises(ConnectionResetError):
                    assert await each.readexactly(4) == b"read"
                    await each.read()
            assert now() == begin
            assert connection.closed and network.connections == ()
            connection.reset()
            for each in (writer, server_writer):
                assert each.transport.is_closing()

    run(main())


def test_a_reset_below_tls(run, certificates):
    async def main():
        async with pipe_network(latency=1) as network:
            network.host(HOST)
            accepted = asyncio.get_running_loop().create_future()
            server = await asyncio.start_server(
                lambda *both: accepted.set_result(both), HOST, 443, ssl=certificates.server_context()
            )
            reader, writer = await asyncio.open_connection(HOST, 443, ssl=certificates.client_context())
            server_reader, server_writer = await accepted
            network.connections[0].reset()
            for each in (reader, server_reader):
                with pytest.raises(ConnectionResetError):
                    await each.read()
            for each in (writer, server_writer):
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            server.close()

    run(main())


def test_a_handshake_that_the_client_gives_up(run, certificates):
    """The server's answer resets the connection, when the client's transport has been closed twice."""

    async def main():
        async with pipe_network(latency=1) as network:
            server = await asyncio.start_server(swallow, HOST, 443, ssl=certificates.server_context())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.5):
                    await asyncio.open_connection(HOST, 443, ssl=certificates.client_context())
            await asyncio.sleep(100)
            assert network.connections == ()
            server.close()

    run(main())


def test_a_stall(run):
    async def main():
        async with pipe_network(latency=1) as network, both_sides() as ((_, writer), (server_reader, _)):
            (connection,) = network.connections
            writer.write(b"on its way,")
            await asyncio.sleep(0.5)
            connection.stall()
            writer.write(b" and sent meanwhile")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server_reader.read(1), 1000)
            assert "stalled" in repr(connection) and "30 and 0 bytes" in repr(connection)
            connection.resume()
            begin = now()
            assert await server_reader.readexactly(30) == b"on its way, and sent meanwhile"
            assert now() == begin + 1

    run(main())


def test_a_stall_holds_the_end_of_the_stream_and_a_short_one_nothing_else(run):
    async def main():
        async with pipe_network(latency=1) as network, both_sides() as ((_, writer), (server_reader, _)):
            (connection,) = network.connections
            writer.write_eof()
            await asyncio.sleep(0)
            connection.stall()
            connection.stall()
            await asyncio.sleep(5)
            assert not server_reader.at_eof()
            connection.resume()
            connection.resume()
            begin = now()
            assert await server_reader.read() == b""
            assert now() == begin + 1

    run(main())


def test_a_sender_pauses_in_a_stall(run):
    async def main():
        async with pipe_network() as network, both_sides() as ((_, writer), (server_reader, _)):
            network.connections[0].stall()
            writer.write(bytes(2_000_000))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.drain(), 3600)
            network.connections[0].resume()
            assert await server_reader.readexactly(2_000_000) == bytes(2_000_000)
            await writer.drain()

    run(main())


def test_a_stall_while_the_receiver_does_not_read(run):
    """Nothing comes, even when there is room again."""

    async def main():
        deliveries = []
        async with (
            pipe_network(trace=deliveries.append) as network,
            both_sides(limit=1000) as ((_, writer), (server_reader, _)),
        ):
            writer.write(bytes(2_000_000))
            await asyncio.sleep(1)
            (connection,) = network.connections
            connection.stall()
            delivered = len(deliveries)
            received = len(await server_reader.read(1_000_000))
            with pytest.raises(TimeoutError):
                while True:
                    received += len(await asyncio.wait_for(server_reader.read(1_000_000), 1))
            assert len(deliveries) == delivered > 0
            assert received == sum(len(each.data) for each in deliveries)
            connection.resume()
            await server_reader.readexactly(2_000_000 - received)

    run(main())


# -- partitions --------------------------------------------------------------------------------------------------------


def test_a_partition(run):
    """It cuts existing connections and new ones; a client notices its end as on Linux."""

    async def main():
        async with pipe_network(latency=0.25) as network:
            network.host("other.test")
            async with both_sides() as ((_, writer), (server_reader, _)):
                server = await asyncio.start_server(swallow, "server.test", 80)
                network.partition("server.test")
                network.partition("server.test", "other.test")
                writer.write(b"hello")
                begin = now()
                with pytest.raises(TimeoutError):
                    await asyncio.open_connection("server.test", 80)
                assert now() == begin + 127
                connecting = asyncio.ensure_future(asyncio.open_connection("server.test", 80))
                await asyncio.sleep(5)
                network.heal("server.test")
                begin = now()
                assert await server_reader.readexactly(5) == b"hello"
                assert now() == begin + 0.25
                _, second = await connecting
                # The next retry after those at 1, 3 and 7 seconds.
                assert now() == begin + 2.5
                with network.at("other.test"):
                    connecting = asyncio.ensure_future(asyncio.open_connection("server.test", 80))
                await asyncio.sleep(1.5)
                network.heal("other.test", "server.test")
                _, third = await connecting
                for each in (second, third):
                    each.transport.abort()
                await asyncio.sleep(1)
                server.close()

    run(main())


@pytest.mark.parametrize("first", ["writes and closes", "half-closes first"])
@pytest.mark.parametrize("how", ["partition", "stall"])
def test_a_connection_that_both_sides_have_closed_is_let_go(run, how, first):
    """Although data between them is held: neither side could notice its arrival."""

    async def main():
        before = len(open_descriptors())
        async with pipe_network() as network:
            async with both_sides() as ((_, writer), (_, server_writer)):
                [connection] = network.connections
                if how == "stall":
                    connection.stall()
                else:
                    network.partition("server.test")
                writer.write(b"hello")
                if first == "half-closes first":
                    writer.write_eof()
                await asyncio.sleep(1)
                for each in (writer, server_writer):
                    assert network.connections == (connection,) and not connection.closed
                    each.close()
                    await asyncio.sleep(1)
            assert network.connections == () and connection.closed
            assert len(open_descriptors()) == before
            network.heal()

    run(main())


def test_held_connections_do_not_pile_up(run):
    """Connections that were closed while the relay did not read, because it held enough already."""

    async def main():
        async with pipe_network(buffer=1000) as network:
            for _ in range(50):
                async with both_sides() as ((_, writer), _):
                    *_, connection = network._connections.values()
                    connection.stall()
                    writer.write(bytes(2000))
                    await asyncio.sleep(1)
            assert len(network._connections) <= 16
            assert network.connections == ()

    run(main())


def test_a_half_closed_connection_is_kept(run):
    """The side that has closed for writing reads on, whatever the network holds meanwhile."""

    async def main():
        async with pipe_network() as network, both_sides() as ((reader, writer), (_, server_writer)):
            network.partition("server.test")
            writer.write_eof()
            server_writer.write(b"answer")
            server_writer.close()
            await asyncio.sleep(1)
            assert len(network.connections) == 1
            network.heal()
            assert await reader.read() == b"answer"

    run(main())


def test_what_is_on_one_host_is_not_parted(run):
    async def main():
        async with pipe_network() as network:
            network.host("server.test")
            network.partition("server.test")
            with network.at("server.test"):
                async with both_sides():
                    pass

    run(main())


def test_a_partition_in_the_middle_of_connecting(run):
    async def main():
        async with pipe_network(latency=0.25) as network:
            server, accepted = await accept_one()
            connecting = asyncio.ensure_future(asyncio.open_connection("server.test", 80))
            for delay in (0.125, 0.25 + 0.875):
                # The first partition loses the packet to the server, the second the answer to the retry.
                await asyncio.sleep(delay)
                network.partition("localhost", "server.test")
                await asyncio.sleep(0.125)
                network.heal()
            _, writer = await connecting
            assert not accepted.done()
            assert now() == 3.5
            await accepted
            # A packet sent into a partition is lost, even if the partition ends before the packet would have arrived.
            network.partition("server.test")
            connecting = asyncio.ensure_future(asyncio.open_connection("server.test", 81))
            await asyncio.sleep(0.125)
            begin = now()
            network.heal()
            with pytest.raises(ConnectionRefusedError):
                await connecting
            assert now() == begin - 0.125 + 1.5
            server.close()
            writer.transport.abort()
            accepted.result()[1].transport.abort()

    run(main())


# -- deadlocks ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_never_comes_is_a_deadlock(run):
    """Nothing comes from outside in such a network, so the loop does not wait."""

    async def main():
        async with pipe_network(latency=1), both_sides() as ((reader, _), _):
            await reader.read()

    with pytest.raises(DeadlockError, match="no timer is pending"):
        run(main())


def test_a_deadlock_names_what_is_held(run):
    async def main():
        async with pipe_network(latency=1) as network, both_sides() as ((_, writer), (server_reader, _)):
            writer.write(b"hello")
            network.partition("server.test")
            await server_reader.read()

    with pytest.raises(DeadlockError, match=r"<Connection 0 cut localhost:49152 to server\.test:80, 5 and 0 bytes"):
        run(main())


def test_what_comes_from_elsewhere_is_waited_for(run, pair):
    async def main():
        loop = asyncio.get_running_loop()
        async with pipe_network(), both_sides():
            await asyncio.wait_for(loop.sock_recv(pair[0], 1), None)

    with pytest.raises(DeadlockError, match=r"nothing has woken the loop for 0\.02 s"):
        run(main(), patience=0.02)


# -- the end of the network --------------------------------------------------------------------------------------------


def test_at_the_end_of_the_network_its_connections_end(run):
    async def main():
        loop = asyncio.get_running_loop()
        before = open_descriptors()
        with pipe_network(latency=1) as network:
            server, accepted = await accept_one()
            reader, writer = await asyncio.open_connection("server.test", 80)
            server_reader, server_writer = await accepted
            writer.write(b"on its way")
            await asyncio.sleep(0.5)
            server_writer.write(b"not even that")
            connecting = asyncio.ensure_future(asyncio.open_connection("server.test", 80))
            await asyncio.sleep(0)
        assert await server_reader.read() == b"on its way"
        assert await reader.read() == b"not even that"
        assert not server.is_serving() and network.connections == ()
        with pytest.raises(OSError, match="the network was closed"):
            await connecting
        for each in (writer, server_writer):
            each.close()
            await each.wait_closed()
        network.close()
        assert open_descriptors().keys() == before.keys()
        assert loop._network is None

    run(main())


def test_all_connections_see_the_end_of_the_network(run):
    """Both sides get it before the `async with` ends, even a server whose connection has not yet got the client's
    end."""

    async def main():
        ended = []

        async def serve(reader, writer):
            with contextlib.closing(writer):
                ended.append(await reader.read())
                await asyncio.sleep(0)
                ended.append(now())

        async with pipe_network(latency=1):
            await asyncio.start_server(serve, "server.test", 80)
            _, writer = await asyncio.open_connection("server.test", 80)
            await asyncio.sleep(2)
            writer.write(b"hello")
            writer.close()
            await asyncio.sleep(0.5)
        assert ended == [b"hello", 4.5]

    run(main())


def test_the_loop_closes_its_network(impl):
    async def main(network):
        network.__enter__()
        await accept_one()

    network = pipe_network()
    with contextlib.suppress(RuntimeError):
        run_virtual(impl, main(network))
    with pytest.raises(RuntimeError, match="the network is closed"):
        network.host("server.test")


def test_a_network_is_not_kept(run):
    async def main():
        async with pipe_network() as network, both_sides():
            pass
        return weakref.ref(network)

    kept = run(main())
    gc.collect()
    assert kept() is None
