"""Streams over networks that are slow, cut data into pieces and break, with independent events in many orders.

P28: pause_writing() and resume_writing() strictly alternate. Beyond that: the data that was written arrives, in its
order; each protocol has the life that asyncio's documentation of Protocol gives it; and no task waits forever, which
would be a DeadlockError of the loop. The seed decides the network's behaviour, too.
"""

import asyncio
import random

import pytest
from support.recording import BufferedRecorder, Recorder

from hotloop import testing

pytestmark = pytest.mark.hotloop(seeds=50)

PORT = 80
HIGH, LOW = 5000, 1000  # bytes


@pytest.fixture
def chance(hotloop_loop):
    """Random choices of a test, which the seed decides."""
    return random.Random(f"chance {hotloop_loop._shuffler.seed}")


@pytest.fixture
def hotloop_network(hotloop_loop):
    """A network that holds little, so that few writes pause the writers."""
    with testing.pipe_network(loop=hotloop_loop, buffer=4096) as network:
        yield network


@pytest.fixture
def network(hotloop_network, chance):
    """A network whose latency and pieces differ from one moment to the next."""
    hotloop_network.host("server.test")
    hotloop_network.link(
        latency=(0.0, chance.choice([0.0, 0.001, 0.1])),
        bandwidth=chance.choice([None, 10_000, 1_000_000]),
        fragment=(1, chance.choice([2000, 20_000])),
    )
    return hotloop_network


class Ending:
    """A protocol with a future for its end."""

    def __init__(self):
        super().__init__()
        self.ended = asyncio.get_running_loop().create_future()
        self.hooks["connection_lost"] = lambda: self.ended.set_result(None)


class EndingRecorder(Ending, Recorder):
    pass


class EndingBufferedRecorder(Ending, BufferedRecorder):
    pass


async def connected(network, chance):
    """The protocols of the two sides of a connection, each of either kind."""
    loop = asyncio.get_running_loop()
    accepted = loop.create_future()

    def accept():
        protocol = chance.choice([EndingRecorder, EndingBufferedRecorder])()
        protocol.hooks["connection_made"] = lambda: accepted.set_result(protocol)
        return protocol

    with network.at("server.test"):
        server = await loop.create_server(accept, "server.test", PORT)
    make = chance.choice([EndingRecorder, EndingBufferedRecorder])
    _, client = await loop.create_connection(make, "server.test", PORT)
    served = await accepted
    server.close()
    return client, served


async def ended(*protocols):
    for protocol in protocols:
        await protocol.ended
        protocol.check_life_cycle()


def numbered(size, first=0):
    """Bytes that identify each position."""
    return b"".join(number.to_bytes(4) for number in range(first, first + size // 4))


@pytest.mark.promise("P28")
async def test_pausing_and_resuming_alternate_whichever_task_writes(network, chance):
    """Several tasks write at the same moments and ignore the pauses; the reader pauses, too."""
    writer, reader = await connected(network, chance)
    transport = writer.transport
    transport.set_write_buffer_limits(high=HIGH, low=LOW)
    written = bytearray()
    sizes = []
    writer.hooks["pause_writing"] = lambda: sizes.append((transport.get_write_buffer_size() > HIGH, "pause"))
    writer.hooks["resume_writing"] = lambda: sizes.append((transport.get_write_buffer_size() <= LOW, "resume"))

    async def write():
        for _ in range(3):
            await asyncio.sleep(chance.randrange(4) / 4)
            data = numbered(chance.choice([40, 4000, 12_000]), len(written) // 4)
            written.extend(data)
            if chance.random() < 0.5:
                transport.write(data)
            else:
                transport.writelines([data[:20], data[20:]])  # no empty one: asyncio would try forever to send it

    async def pause_now_and_then():
        for _ in range(4):
            await asyncio.sleep(chance.randrange(4) / 4)
            reader.transport.pause_reading()
            await asyncio.sleep(chance.randrange(3) / 4)
            reader.transport.resume_reading()

    await asyncio.gather(write(), write(), write(), pause_now_and_then())
    transport.close()
    await ended(writer, reader)
    assert reader.received == written
    assert all(right for right, _ in sizes)
    assert [name for _, name in sizes] == (["pause", "resume"] * len(sizes))[: len(sizes)]
    assert writer.error is reader.error is None


@pytest.mark.promise("P28")
async def test_drain_holds_many_writers_of_one_stream(network, chance):
    """Beyond the limit, the buffer has at most the last write of each writer, and all writers go on."""
    done = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        received = bytearray()
        while data := await reader.read(chance.randrange(1000, 50_000)):
            received += data
            await asyncio.sleep(chance.randrange(2) / 100)
        writer.close()
        done.set_result(received)

    with network.at("server.test"):
        server = await asyncio.start_server(serve, "server.test", PORT, limit=10_000)
    reader, writer = await asyncio.open_connection("server.test", PORT)
    writer.transport.set_write_buffer_limits(high=HIGH, low=LOW)
    size, written = 4000, []

    async def write(name):
        for _ in range(3):
            assert writer.transport.get_write_buffer_size() <= HIGH + 3 * size
            written.append(data := bytes([name]) * size)
            writer.write(data)
            await writer.drain()

    await asyncio.gather(*map(write, range(4)))
    writer.write_eof()
    assert await done == b"".join(written)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    server.close()


async def test_whatever_ends_a_connection_ends_it_once(network, chance, hotloop_clock):
    """Both sides act at the same few moments: they write, end, close and abort, and the network breaks."""
    client, server = await connected(network, chance)
    (connection,) = network.connections
    sent = {client: bytearray(), server: bytearray()}

    def write(protocol):
        if not protocol.transport.is_closing() and protocol not in finished:
            data = numbered(chance.choice([40, 4000]), len(sent[protocol]) // 4)
            sent[protocol].extend(data)
            protocol.transport.write(data)

    finished = set()

    def write_eof(protocol):
        if not protocol.transport.is_closing():
            finished.add(protocol)
            protocol.transport.write_eof()

    def close(protocol):
        protocol.transport.close()

    def abort(protocol):
        protocol.transport.abort()

    def reset(protocol):
        connection.reset()

    async def act(protocol):
        for _ in range(6):
            await asyncio.sleep(chance.randrange(3) / 10)
            if protocol.lost:
                return
            chance.choices([write, write_eof, close, abort, reset], [12, 2, 1, 1, 1])[0](protocol)
        protocol.transport.close()

    began = hotloop_clock.time()
    await asyncio.gather(act(client), act(server))
    await ended(client, server)
    for one, other in ((client, server), (server, client)):
        assert sent[one].startswith(other.received), "something else has arrived than what was sent"
        assert isinstance(one.error, (type(None), ConnectionResetError, BrokenPipeError))
        assert one.calls.count("eof_received") <= 1
    assert hotloop_clock.time() - began < 60


async def test_clients_of_a_server_that_closes(network, chance):
    """Accepted clients are served to the end, others are refused, and none is left in between."""
    outcomes = []

    async def serve(reader, writer):
        writer.write(await reader.readline())
        await asyncio.sleep(0.1)
        writer.write(b"end\n")
        writer.close()

    async def client(number):
        await asyncio.sleep(chance.randrange(4) / 10)
        try:
            reader, writer = await asyncio.open_connection("server.test", PORT)
            writer.write(b"%d\n" % number)
            data = await reader.read()
        except ConnectionError:
            outcomes.append("refused")
            return
        # A client still queued when the listener was closed gets no answer.
        outcomes.append("served" if data == b"%d\nend\n" % number else f"cut off after {data}")
        writer.close()

    with network.at("server.test"):
        server = await asyncio.start_server(serve, "server.test", PORT)
    clients = [asyncio.create_task(client(number)) for number in range(6)]
    await asyncio.sleep(chance.randrange(5) / 10)
    server.close()
    await asyncio.gather(*clients)
    assert len(outcomes) == 6
    assert set(outcomes) <= {"served", "refused", "cut off after b''"}
