"""Several loops, each in a thread of its own, and objects of one of them that end in another's thread.

Without the GIL they really run side by side.
"""

import asyncio
import contextlib
import functools
import gc
import itertools
import socket
import sys
import threading

import pytest
from support.endpoints import until
from support.recording import DatagramRecorder, Recorder

LOOPS = 4


@contextlib.contextmanager
def running(loop):
    """Run the loop in another thread meanwhile."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def in_threads(impl, main):
    """Run main(number) on LOOPS loops at once; return the results in their order."""
    results = [None] * LOOPS
    together = threading.Barrier(LOOPS)

    def run(number):
        together.wait()
        results[number] = impl.run(main(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_tasks_of_all_loops_have_names_of_their_own(impl):
    async def main(number):
        async def step():
            await asyncio.sleep(0)

        tasks = [asyncio.create_task(step()) for _ in range(2000)]
        await asyncio.gather(*tasks)
        return [task.get_name() for task in tasks]

    names = [name for found in in_threads(impl, main) for name in found]
    assert len(set(names)) == len(names) == LOOPS * 2000


async def echo_over_streams(number):
    served = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        served.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for turn in range(300):
        text = b"%d of %d\n" % (turn, number)
        writer.write(text)
        assert await reader.readline() == text
    writer.close()
    await writer.wait_closed()
    # Up to 3.11 a server does not wait for its connections.
    await served
    server.close()
    await server.wait_closed()
    return number


async def echo_over_datagrams(number):
    class Echo(DatagramRecorder):
        def datagram_received(self, data, address):
            self.transport.sendto(data, address)

    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    address = server.get_extra_info("sockname")
    client, protocol = await loop.create_datagram_endpoint(DatagramRecorder, remote_addr=address)
    for turn in range(300):
        client.sendto(b"%d of %d" % (turn, number))
        while len(protocol.received) <= turn:
            await asyncio.sleep(0)
        assert protocol.received[-1] == b"%d of %d" % (turn, number)
    for transport in (server, client):
        transport.close()
        await until(lambda transport=transport: transport.get_protocol() is None or transport.get_protocol().lost)
    return number


async def echo_over_socket_methods(number):
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    with one, other:
        for end in (one, other):
            end.setblocking(False)
        for turn in range(300):
            waiting = asyncio.ensure_future(loop.sock_recv(other, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(one, b"%d of %d" % (turn, number))
            assert await waiting == b"%d of %d" % (turn, number)
    return number


async def subprocesses(number):
    for _ in range(5):
        child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        assert await child.communicate(b"%d" % number) == (b"%d" % number, None)
        assert child.returncode == 0
    return number


async def timers_and_timeouts(number):
    for _ in range(200):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(0.0005), 0.0001)
        await asyncio.wait_for(asyncio.sleep(0), 3600)
    return number


@pytest.mark.parametrize(
    "work", [echo_over_streams, echo_over_datagrams, echo_over_socket_methods, subprocesses, timers_and_timeouts]
)
@pytest.mark.filterwarnings("ignore:Child watchers:DeprecationWarning")
def test_loops_side_by_side(impl, work):
    assert in_threads(impl, work) == list(range(LOOPS))


class Numbered(Recorder):
    """Answers with the number of its loop and the data it got."""

    def __init__(self, number, opened):
        super().__init__()
        self.number = number
        opened.append(self)

    def data_received(self, data):
        self.transport.write(b"%d %s" % (self.number, data))


def ask(address, question):
    with socket.create_connection(address) as connection:
        connection.sendall(question)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(100), b""))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel need not distribute the connections")
def test_four_loops_serve_one_port(impl):
    """The clients ask until each has had an answer from each loop."""
    loops = [impl.new_event_loop() for _ in range(LOOPS)]
    opened = [[] for _ in loops]
    loops_seen = [set() for _ in range(LOOPS)]
    wrong = []

    def client(number):
        for turn in itertools.count():
            question = b"%d of %d" % (turn, number)
            served_by, _, text = ask(address, question).partition(b" ")
            loops_seen[number].add(served_by)
            if text != question:
                wrong.append((question, text))
            if wrong or (turn >= 50 and len(loops_seen[number]) == LOOPS):
                return

    port, servers = 0, []
    for number, loop in enumerate(loops):
        factory = functools.partial(Numbered, number, opened[number])
        servers.append(loop.run_until_complete(loop.create_server(factory, "127.0.0.1", port, reuse_port=True)))
        address = servers[0].sockets[0].getsockname()
        port = address[1]
    with contextlib.ExitStack() as stack:
        for loop in loops:
            stack.enter_context(running(loop))
        clients = [threading.Thread(target=client, args=(number,)) for number in range(LOOPS)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    assert wrong == []
    assert loops_seen == [{b"%d" % number for number in range(LOOPS)}] * LOOPS
    for loop, server, protocols in zip(loops, servers, opened, strict=True):
        loop.run_until_complete(until(lambda protocols=protocols: all(one.lost for one in protocols)))
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


@pytest.mark.parametrize("held", ["alone", "in a cycle"])
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_transport_that_is_dropped_in_another_thread(impl, held):
    """The transport is paused, so only the program refers to it. Its socket is closed in whichever thread drops it."""
    loop = impl.new_event_loop()

    async def make(one):
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        transport.pause_reading()
        if held == "alone":
            protocol.transport = None
        return transport

    with running(loop):
        for _ in range(20):
            one, other = socket.socketpair()
            with other:
                transport = asyncio.run_coroutine_threadsafe(make(one), loop).result()
                # After another call the loop no longer refers to the transport.
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
                del transport, one
                gc.collect()
                # Without the GIL the thread that has made the transport may have to drop the last reference; it does so
                # when it next runs Python code.
                loop.call_soon_threadsafe(lambda: None)
                assert other.recv(1) == b""
    loop.close()
