"""pipe_network(): latency, bandwidth, the pieces in which data comes, flow control, and that a seed repeats it all."""

import asyncio
import contextvars
import functools

import pytest
from support.memory_network import TimedRecorder, connected, echo, now, traffic
from support.virtual_time import run_virtual

from hotloop import testing
from hotloop.testing import Delivery, pipe_network


@pytest.fixture
def run(impl):
    return functools.partial(run_virtual, impl)


# -- time and pieces ---------------------------------------------------------------------------------------------------


def test_latency(run):
    """Connecting takes the client a round trip; then data takes the latency of its direction."""

    async def main():
        loop = asyncio.get_running_loop()
        protocols = []

        def factory():
            protocols.append(TimedRecorder())
            return protocols[-1]

        async with pipe_network(latency=0.25) as network:
            await loop.create_server(factory, "server.test", 80)
            _, client = await loop.create_connection(TimedRecorder, "server.test", 80)
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
        async with pipe_network(latency=1) as network:
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
        async with pipe_network(latency=latency, fragment=10, trace=deliveries.append) as network:
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


def test_a_latency_function_does_not_see_the_senders_context(run):
    """The network calls it in the context in which the network began."""
    variable = contextvars.ContextVar("variable", default="network's")
    seen = set()

    def latency(rng):
        seen.add(variable.get())
        return 0.0

    async def main():
        async with pipe_network(latency=latency):
            server = await asyncio.start_server(echo, "server.test", 80)
            variable.set("client's")
            async with server, connected() as (reader, writer):
                writer.write(b"hello")
                await reader.readexactly(5)

    run(main())
    assert seen == {"network's"}


def test_bandwidth(run):
    async def main():
        deliveries = []
        async with pipe_network(latency=10, bandwidth=100, trace=deliveries.append):
            server = await asyncio.start_server(echo, "server.test", 80)
            async with server, connected() as (reader, writer):
                start = now()
                writer.write(b"x" * 50)
                await asyncio.sleep(0.25)
                writer.write(b"x" * 25)
                assert await reader.readexactly(75) == b"x" * 75
                # The second write waits for the first to leave; the way back has its own bandwidth.
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
            server = TimedRecorder()
            return server

        async with pipe_network(fragment=fragment) as network:
            await loop.create_server(factory, "server.test", 80)
            _, client = await loop.create_connection(TimedRecorder, "server.test", 80)
            client.transport.write(b"hello!!")
            client.transport.close()
            await client.lost
            await asyncio.sleep(1)
            assert [note[1] for note in server.notes] == ["made", b"hel", b"lo!", b"!", "eof", "lost"]
            network.link(fragment=None)
            _, client = await loop.create_connection(TimedRecorder, "server.test", 80)
            client.transport.write(b"hello!!")
            await asyncio.sleep(1)
            assert server.notes[1:] == [(1, b"hello!!")]
            client.transport.close()

    run(main())
    run(main(), shuffle=1)


def test_a_frozen_clock_freezes_the_network(run):
    async def main():
        clock = asyncio.get_running_loop().clock
        async with pipe_network(latency=1):
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


class Writer(TimedRecorder):
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
        async with pipe_network(latency=1, buffer=buffer, fragment=(1, 5000)) as network:
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
                # The buffer passes on that much at a time, and each part takes a second. The sockets do not add to it.
                assert now() - begin > 50
            client.transport.close()
            writer.close()

    run(main())


# -- dead addresses ----------------------------------------------------------------------------------------------------


def test_happy_eyeballs(run):
    """A dead address and a slow one: the next is tried after a quarter of a second, and the first that answers wins."""

    async def main():
        async with pipe_network() as network:
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


@pytest.mark.parametrize("shuffle", [None, 1, "two"])
def test_the_same_seed_gives_the_same_trace(run, shuffle):
    options = {} if shuffle is None else {"shuffle": shuffle}
    trace = run(traffic(), **options)
    assert all(isinstance(each, Delivery) for each in trace)
    assert {(each.connection, each.to) for each in trace} == {(n, to) for n in range(4) for to in ("client", "server")}
    assert run(traffic(), **options) == trace
    assert run(traffic(), shuffle=3) != trace


def test_the_same_seed_gives_the_same_trace_in_another_process(impl):
    """Sets of strings have another order in another process."""
    source = (
        "from support import memory_network, virtual_time; "
        "print(virtual_time.run_virtual(impl, memory_network.traffic(), shuffle=1))"
    )
    first, second = (impl.run_script(source).stdout for _ in range(2))
    assert first == second and first.startswith("[Delivery(")


@pytest.mark.only("c", "python", reason="run_seeds() makes hotloop's own loops")
def test_under_many_seeds(impl):
    traces = testing.run_seeds(traffic, seeds=10)
    assert len({tuple(trace) for trace in traces}) == 10


def test_the_seed_of_the_network_is_its_own(run):
    async def main(**options):
        deliveries = []
        async with pipe_network(latency=(0, 1), trace=deliveries.append, **options) as network:
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
