"""Stream transports and servers among bad peers, signals and cancelled tasks. Beside each test's assertions, the
fixtures check that no descriptor, callback or report is left behind."""

import asyncio
import contextlib
import random
import select
import signal
import socket
import sys
import threading
import time

import pytest
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import (
    KINDS,
    MORE_THAN_FITS,
    connected_sockets,
    connections_on,
    reset,
    sockets_of,
    wait_for,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


class Serving:
    """An echo server on the loop under test; it keeps every connection that it ever had."""

    def __init__(self, loop):
        self.loop = loop
        self.accepted = []
        self.server = loop.run_until_complete(loop.create_server(self.make, "127.0.0.1", 0))
        self.address = self.server.sockets[0].getsockname()

    def make(self):
        protocol = Recorder()

        def echo():
            protocol.transport.write(bytes(protocol.received))
            protocol.received.clear()

        when_data_comes(protocol, echo)
        self.accepted.append(protocol)
        return protocol

    def check_serves(self):
        with socket.create_connection(self.address) as client:
            client.send(b"are you there?")
            client.setblocking(False)
            run_until(self.loop, lambda: select.select([client], [], [], 0)[0])
            assert client.recv(100) == b"are you there?"

    def ended(self):
        return all(protocol.lost for protocol in self.accepted)


@pytest.fixture
def serving(loop):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    serving = Serving(loop)
    yield serving
    run_until(loop, serving.ended)
    for protocol in serving.accepted:
        protocol.check_life_cycle()
    serving.server.close()
    loop.run_until_complete(serving.server.wait_closed())
    run_once(loop, 2)
    assert reports == []


def test_peers_that_vanish_before_they_are_accepted(loop, serving):
    for number in range(60):
        client = socket.create_connection(serving.address)
        if number % 3:
            client.send(b"nobody reads this answer" * number)
        client.close() if number % 2 else reset(client)
    serving.check_serves()
    run_until(loop, serving.ended)
    assert 1 <= len(serving.accepted) <= 61


def test_peers_that_reset_and_leave_amid_traffic(loop, serving):
    pick = random.Random(1)
    clients = []
    for _ in range(200):
        client = socket.create_connection(serving.address)
        client.setblocking(False)
        client.send(b"x" * pick.choice([1, 1000, 60_000]))
        clients.append(client)
        run_once(loop)
        victim = clients.pop(pick.randrange(len(clients)))
        pick.choice([reset, socket.socket.close, clients.append])(victim)
    for client in clients:
        client.close()
    run_until(loop, serving.ended)
    serving.check_serves()
    kinds = {type(protocol.error) for protocol in serving.accepted}
    assert kinds <= {type(None), ConnectionResetError, BrokenPipeError}


@every_kind
def test_a_peer_that_trickles_single_bytes_both_ways(loop, connections, kind):
    connection = connections.open(kind)
    when_data_comes(connection.protocol, lambda: connection.transport.write(connection.protocol.received[-1:]))
    text = b"a byte at a time, please"
    for byte in text:
        connection.send(bytes([byte]))
        assert connection.receive(1) == bytes([byte])
    assert connection.protocol.received == text


@every_kind
def test_a_peer_that_reads_single_bytes(loop, connections, kind):
    connection = connections.open(kind)
    text = bytes(range(256))
    for number in range(256):
        connection.transport.write(text[number : number + 1])
    assert b"".join(connection.receive(1) for _ in text) == text


def test_a_peer_that_never_reads(loop, connections):
    """Such a client stops only its own connection; the server notices when it leaves."""
    stuck = [connections.open("tcp") for _ in range(5)]
    for connection in stuck:
        connection.fill()
    alive = connections.open("tcp")
    for number in range(20):
        alive.transport.write(b"%02d" % number)
        assert alive.receive(2) == b"%02d" % number
    assert all("pause_writing" in connection.protocol.calls for connection in stuck)
    for connection in stuck:
        reset(connection.peer)
    run_until(loop, lambda: all(connection.protocol.lost for connection in stuck))
    assert {type(connection.protocol.error) for connection in stuck} <= {ConnectionResetError, BrokenPipeError}


@every_kind
def test_a_full_socket_buffer_that_drains_a_little(loop, connections, kind):
    connection = connections.open(kind)
    written = connection.fill()
    pick = random.Random(2)
    received = 0
    while received < written:
        data = connection.peer_read(pick.choice([1, 100, 5000, 70_000]))
        received += len(data or b"")
        run_once(loop)
    assert received == written
    run_until(loop, lambda: "resume_writing" in connection.protocol.calls)


def test_a_half_closing_peer_gets_its_answer(loop, serving):
    """The server sends everything, then closes at the peer's end of file."""
    data = bytes(range(256)) * 200
    with socket.create_connection(serving.address) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        client.setblocking(False)
        received = bytearray()

        def ended():
            with contextlib.suppress(BlockingIOError):
                while piece := client.recv(65536):
                    received.extend(piece)
                return True
            return False

        run_until(loop, ended)
    assert received == data


def test_a_fast_peer_does_not_starve_the_others(loop, connections):
    """One connection's kernel buffer is never empty; the others, and callbacks, still run within a bounded number of
    its reads."""
    fast = connections.open("pair")
    slow = connections.open("pair")
    flood = bytes(1 << 20)

    def refill():
        with contextlib.suppress(BlockingIOError):
            fast.peer.send(flood)

    reads_before = []

    def counted():
        refill()
        fast.protocol.received.clear()
        counts[0] += 1

    counts = [0]
    when_data_comes(fast.protocol, counted)
    when_data_comes(slow.protocol, lambda: reads_before.append(counts[0]))
    refill()
    run_until(loop, lambda: counts[0] > 5)
    for _ in range(20):
        counts[0] = 0
        seen = len(reads_before)
        slow.send(b"x")
        run_until(loop, lambda seen=seen: len(reads_before) > seen)
    # asyncio needs one or two turns, each with one read of the flood; a turn with more of them has some bound, too.
    assert max(reads_before) <= 64
    fast.transport.pause_reading()


@every_kind
def test_a_slow_protocol_is_called_once_in_a_turn(loop, connections, kind):
    """However much is waiting: another connection waits as long for it as on asyncio."""
    slow = connections.open(kind)
    other = connections.open(kind)
    slow.transport.max_size = 100
    calls = 0

    def work():
        nonlocal calls
        calls += 1
        if calls == 1:
            other.peer.send(b"x")
            wait_for(other.socket, select.POLLIN)
        time.sleep(0.002)

    when_data_comes(slow.protocol, work)
    when_data_comes(other.protocol, loop.stop)
    slow.peer.send(bytes(2000))
    loop.run_forever()
    # The turn in which the other peer sends, and the next, in which both connections are read.
    assert calls <= 2
    slow.transport.pause_reading()


@pytest.mark.skipif(sys.platform == "win32", reason="uses setitimer() to send signals to itself")
def test_signals_amid_traffic(loop, connections):
    """EINTR: signals interrupt system calls all the time, and Python handlers run in between."""
    connection = connections.open("tcp")
    interruptions = 0

    def handler(number, frame):
        nonlocal interruptions
        interruptions += 1

    data = bytes(range(256)) * 4096
    sent = received = 0
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:

        def pump():
            nonlocal sent, received
            with contextlib.suppress(BlockingIOError):
                sent += connection.peer.send(memoryview(data)[sent:]) if sent < len(data) else 0
            received += len(connection.peer_read(1 << 20) or b"")
            return len(connection.protocol.received) == len(data) and received == len(data) and interruptions > 20

        connection.transport.write(data)
        run_until(loop, pump)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert connection.protocol.received == data


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers on its loops")
def test_signal_handlers_of_the_loop_amid_traffic(loop, connections):
    connection = connections.open("tcp")
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
    for number in range(50):
        connection.send(b"x")
        signal.raise_signal(signal.SIGUSR1)
        run_until(loop, lambda number=number: len(connection.protocol.received) > number and len(seen) > number)
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_descriptors_are_reused_at_once(loop):
    """Each connection reuses the descriptor of the previous one, and none gets data meant for another."""
    for number in range(200):
        ours, peer = connected_sockets("pair")
        transport, protocol = loop.run_until_complete(loop.create_connection(Recorder, sock=ours))
        peer.send(b"%d" % number)
        if number % 2:
            run_until(loop, lambda protocol=protocol: protocol.received)
            assert protocol.received == b"%d" % number
        transport.abort() if number % 3 else transport.close()
        run_until(loop, lambda protocol=protocol: protocol.lost)
        assert protocol.received in (b"", b"%d" % number)
        peer.close()


def test_a_closed_transport_leaves_the_next_user_of_its_descriptor_alone(loop):
    """The test calls every method of transports that have ended, while other files have their descriptor numbers."""
    gone = []
    for _ in range(10):
        ours, peer = connected_sockets("pair")
        transport, protocol = loop.run_until_complete(loop.create_connection(Recorder, sock=ours))
        transport.close()
        run_until(loop, lambda protocol=protocol: protocol.lost)
        peer.close()
        gone.append(transport)
    with connections_on(loop) as connections:
        opened = [connections.open("pair") for _ in range(10)]
        for transport in gone:
            for method in ("pause_reading", "resume_reading", "write_eof", "close", "abort"):
                getattr(transport, method)()
            transport.write(b"not to be sent")
        for connection in opened:
            connection.send(b"ping")
            run_until(loop, lambda connection=connection: connection.protocol.received == b"ping")
            connection.transport.write(b"pong")
            assert connection.receive(4) == b"pong"


def test_an_error_that_another_thread_causes(loop, connections):
    """A thread closes the peer while the loop sleeps in its poll."""
    connection = connections.open("tcp")
    thread = threading.Timer(0.01, reset, [connection.peer])
    thread.start()
    connection.run_until_lost()
    thread.join()
    assert isinstance(connection.protocol.error, ConnectionResetError)


async def cancelled_after(turns, coroutine):
    """Run a coroutine and cancel it after so many turns; return whether it was cancelled, and its result if not."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return False, await task
    except asyncio.CancelledError:
        return True, None


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("turns", range(8))
def test_cancelling_open_connection(impl, turns):
    """Cancelled after each number of turns, so at each of its awaits; the server may or may not have had a
    connection."""
    ended = []

    async def serve(reader, writer):
        await reader.read()
        writer.close()
        ended.append(True)

    async def main():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            for _ in range(5):
                opening = asyncio.open_connection(*server.sockets[0].getsockname())
                cancelled, streams = await cancelled_after(turns, opening)
                if not cancelled:
                    streams[1].close()
                    await streams[1].wait_closed()
                del streams
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            await writer.wait_closed()
            while not ended:
                await asyncio.sleep(0.001)
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)

    impl.run(main())


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("call", ["read", "readline", "readexactly", "readuntil"])
def test_cancelling_a_read_loses_nothing(impl, call, turns):
    async def main():
        ours, peer = connected_sockets("tcp")
        reader, writer = await asyncio.open_connection(sock=ours)
        arguments = {"read": [100], "readexactly": [4]}.get(call, [])
        cancelled, _ = await cancelled_after(turns, getattr(reader, call)(*arguments))
        assert cancelled
        peer.send(b"abc\n")
        assert await getattr(reader, call)(*arguments) == b"abc\n"
        writer.close()
        await writer.wait_closed()
        peer.close()

    impl.run(main())


@pytest.mark.parametrize("turns", range(5))
def test_cancelling_drain(impl, turns):
    async def main():
        ours, peer = connected_sockets("tcp")
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MORE_THAN_FITS))
        cancelled, _ = await cancelled_after(turns, writer.drain())
        assert cancelled
        writer.write(b"end")
        draining = asyncio.ensure_future(writer.drain())
        received = bytearray()
        while len(received) < MORE_THAN_FITS + 3:
            with contextlib.suppress(BlockingIOError):
                received += peer.recv(1 << 20)
            await asyncio.sleep(0)
        await draining
        assert received.endswith(b"end")
        writer.close()
        await writer.wait_closed()
        peer.close()

    impl.run(main())


def test_cancelling_wait_closed(impl):
    async def main():
        ours, peer = connected_sockets("tcp")
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MORE_THAN_FITS))
        writer.close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.shield(writer.wait_closed())
        writer.transport.abort()
        await writer.wait_closed()
        peer.close()

    impl.run(main())


@every_kind
def test_room_to_write_that_is_reported_with_data_that_interrupts_the_loop(loop, connections, kind):
    """An interrupted run of the loop loses no event: the next run sends the waiting data."""

    def interrupt():
        raise KeyboardInterrupt

    protocol = Recorder()
    connection = connections.over(*(sockets_of(loop) if kind == "tcp" else connected_sockets(kind)), protocol)
    written = connection.fill()
    when_data_comes(protocol, interrupt)
    received = 0
    while data := connection.peer_read(1 << 20):
        received += len(data)
    wait_for(connection.socket, select.POLLOUT)
    connection.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    protocol.hooks.clear()
    assert received + len(connection.receive(written - received)) == written


@pytest.mark.promise("P04")
@pytest.mark.only("c", reason="asyncio leaves the descriptor with the selector")
@every_kind
def test_a_program_that_calls_what_the_loop_calls(loop, connections, kind):
    """After any of these calls has ended a transport, its methods do nothing."""
    connection = connections.open(kind)
    transport = connection.transport
    loop.call_soon(transport._call_connection_lost, None)
    run_until(loop, lambda: connection.protocol.lost)
    for call in (
        lambda: transport.write(b"late"),
        lambda: transport.writelines([b"la", b"te"]),
        transport.write_eof,
        transport.pause_reading,
        transport.resume_reading,
        transport.get_write_buffer_size,
        transport.close,
        transport.abort,
    ):
        call()
