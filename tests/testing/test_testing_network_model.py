"""pipe_network() with any parameters: all data arrives, in order and not before its time."""

import asyncio
import contextlib
import functools

import hypothesis
from hypothesis import strategies
from support.virtual_time import run_virtual

from hotloop.testing import pipe_network

milliseconds = strategies.integers(0, 5000).map(lambda number: number / 1024)  # exact, so that sums are exact


def between(numbers):
    return strategies.tuples(numbers, numbers).map(lambda pair: tuple(sorted(pair)))


sizes = strategies.integers(1, 300)
networks = strategies.fixed_dictionaries(
    {
        "latency": milliseconds | between(milliseconds),
        "bandwidth": strategies.none() | strategies.sampled_from([1000.0, 2.0**20]),
        "fragment": strategies.none() | sizes | between(sizes),
        "buffer": strategies.sampled_from([1, 700, 65536]),
        "seed": strategies.integers(0, 5),
    }
)
# Each client's writes: after how long, and how much.
writes = strategies.lists(strategies.tuples(milliseconds, strategies.integers(0, 120)), max_size=3)
clients = strategies.lists(writes, min_size=1, max_size=3)
# Events of the network meanwhile: after how long, and which.
events = strategies.lists(
    strategies.tuples(milliseconds, strategies.sampled_from(["part", "heal", "link"])), max_size=3
)


class Run:
    """One run: the data that was written and that has arrived, with the times, by connection and direction."""

    def __init__(self, options, clients, events):
        self.options, self.clients, self.events = options, clients, events
        self.written = {}
        self.arrived = {}

    async def main(self):
        self.loop = asyncio.get_running_loop()
        async with pipe_network(**self.options, trace=self.note) as network:
            server = await asyncio.start_server(self.serve, "server.test", 80)
            await asyncio.gather(self.disturb(network), *(self.connect(*each) for each in enumerate(self.clients)))
            server.close()
            assert network.connections == ()
        return self

    def note(self, delivery):
        self.arrived.setdefault((delivery.connection, delivery.to), []).append((delivery.time, delivery.data))

    def write(self, number, to, writer, data):
        self.written.setdefault((number, to), []).append((self.loop.time(), data))
        writer.write(data)

    async def disturb(self, network):
        for delay, what in self.events:
            await asyncio.sleep(delay)
            if what == "part":
                network.partition("server.test")
            elif what == "heal":
                network.heal()
            else:
                network.link("server.test", latency=5, fragment=1)
        network.heal()

    async def connect(self, number, writes):
        # One after the other, so that each connection has its client's number.
        await asyncio.sleep(number * 1000)
        reader, writer = await asyncio.open_connection("server.test", 80)
        with contextlib.closing(writer):
            for delay, size in writes:
                await asyncio.sleep(delay)
                self.write(number, "server", writer, bytes([number]) * size)
                await writer.drain()
            writer.write_eof()
            self.answer = await reader.read()
            expected = b"".join(data[::-1] for _, data in self.written.get((number, "server"), ()))
            assert len(self.answer) == len(expected)
        # Gives the other side time to see the end, too.
        await asyncio.sleep(100)

    async def serve(self, reader, writer):
        number = None
        with contextlib.closing(writer):
            while data := await reader.read(1000):
                number = data[0]
                self.write(number, "client", writer, data)
                await writer.drain()

    @staticmethod
    def timed(parts):
        """The time of each byte, and the bytes."""
        return [time for time, data in parts for _ in data], b"".join(data for _, data in parts)


def lowest(latency):
    return latency[0] if isinstance(latency, tuple) else latency


def check_run(run):
    least = lowest(run.options["latency"])
    for number in range(len(run.clients)):
        for to in ("client", "server"):
            sent, data = run.timed(run.written.get((number, to), ()))
            came, arrived = run.timed(run.arrived[number, to])
            assert arrived == data
            assert came == sorted(came)
            if not run.events:
                bandwidth = run.options["bandwidth"]
                for index, (begin, end) in enumerate(zip(sent, came, strict=True)):
                    assert end >= begin + least
                    if bandwidth is not None:
                        assert end >= sent[0] + least + (index + 1) / bandwidth - 1e-6
            assert run.arrived[number, to][-1][1] == b"", "the end of the stream comes last"


@hypothesis.settings(max_examples=12)
@hypothesis.given(networks, clients, events)
def check(run, options, clients, events):
    first = run(Run(options, clients, events).main())
    check_run(first)
    assert run(Run(options, clients, events).main()).arrived == first.arrived


def test_what_goes_in_comes_out(impl):
    check(functools.partial(run_virtual, impl))


def test_what_goes_in_comes_out_in_any_order(impl):
    check(functools.partial(run_virtual, impl, shuffle=1, relax=["callbacks", "futures"]))
