"""Dispatching the events of a poll: an event that cannot be delivered comes again, and the other events are
delivered."""

import asyncio
import collections
import os
import selectors
import socket
import sys

import pytest
from support.endpoints import pipe_files, settle, until
from support.interpreter import limits_memory
from support.recording import DatagramRecorder, Recorder
from support.stream_connections import HAS_UNIX, KINDS, connected_sockets


@pytest.mark.promise("P34")
@limits_memory
@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="CPython 3.12 itself crashes without memory to make a function"
)
def test_no_memory_while_many_descriptors_become_ready(impl):
    """Whichever allocation fails: afterwards all data has arrived, and the loop can sleep."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        """if True:
        import asyncio, gc, socket, _testcapi
        gc.disable()  # it needs memory, too

        class Counter(asyncio.Protocol):
            count = 0
            lost = False

            def data_received(self, data):
                self.count += len(data)

            def connection_lost(self, error):
                self.lost = True  # asyncio's, where there was no memory to receive

            def has(self, count):
                return self.lost or self.count == count

        def run(loop, happened):
            def look():
                loop.stop() if happened() else loop.call_later(0.001, look)
            loop.call_soon(look)
            loop.run_forever()

        def trial(allocation, connected):
            loop = impl.new_event_loop()
            loop.set_exception_handler(lambda loop, context: None)
            protocols, pairs = [], [connected() for _ in range(70)]

            async def setup():
                for one, other in pairs:
                    protocols.append((await loop.connect_accepted_socket(Counter, one))[1])

            loop.run_until_complete(setup())

            def begin():
                for one, other in pairs:
                    other.send(b"x")
                loop.call_later(0.001, loop.stop)
                _testcapi.set_nomemory(allocation, allocation + 1)

            loop.call_soon(begin)
            try:
                loop.run_forever()
            except MemoryError:
                pass
            finally:
                _testcapi.remove_mem_hooks()
                asyncio._set_running_loop(None)  # for which there may have been no memory
            run(loop, lambda: all(protocol.has(1) for protocol in protocols))
            for protocol, (one, other) in zip(protocols, pairs):
                if not protocol.lost:
                    other.send(b"y")
            run(loop, lambda: all(protocol.has(2) for protocol in protocols))
            sockets = {one.fileno() for one, other in pairs}
            assert not [key for key, _ in loop._selector.select(0) if key.fd in sockets], "the loop would be busy"
            for one, other in pairs:
                one.close()
                other.close()
            loop._transports.clear()
            loop.close()

        def tcp():
            other = socket.create_connection(listener.getsockname())
            one = listener.accept()[0]
            return one, other

        with socket.create_server(("127.0.0.1", 0)) as listener:
            for allocation in range(30):
                for connected in (socket.socketpair, tcp):
                    trial(allocation, connected)
        """,
        "-W",
        "ignore::ResourceWarning",
    )


def test_a_socket_closed_behind_a_transports_back_does_not_end_the_loop(loop):
    """Its duplicate is ready: a failure to deliver that affects no other descriptor."""
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context))
    one, other = socket.socketpair()
    one.setblocking(False)

    async def main():
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        transport.write(b"x" * 3_000_000)  # registers it for writing
        assert transport.get_write_buffer_size()
        duplicate = os.dup(one.fileno())
        transport.pause_reading()
        reading, writing = os.pipe()
        data = loop.create_future()
        loop.add_reader(reading, lambda: data.done() or data.set_result(os.read(reading, 1)))
        # After this, no registration of this loop can report the number.
        os.close(one.fileno())
        other.send(b"hello")
        os.write(writing, b"y")
        assert await data == b"y"
        for _ in range(5):
            await asyncio.sleep(0.001)  # the loop polls meanwhile
        loop.remove_reader(reading)
        os.dup2(duplicate, one.fileno())
        os.close(duplicate)
        transport.abort()
        await asyncio.sleep(0)
        os.close(reading)
        os.close(writing)

    with other:
        loop.run_until_complete(main())


def test_a_finalizer_that_takes_the_descriptor_of_the_next_event(loop):
    """The loop may hold the last reference to what the event before was for."""
    pipes = [os.pipe() for _ in range(2)]
    (first, first_end), (second, second_end) = pipes
    called = []

    class File:
        def fileno(self):
            return first

        def __del__(self):
            loop._selector.unregister(second)
            loop.add_reader(second, called.append, "second")

    async def main():
        file = File()
        loop.add_reader(file, print)
        loop._selector.get_map()[first].data[0].cancel()  # not by remove_reader(): the next event finds it
        loop._selector.register(second, 1, (None, None))
        del file
        os.write(first_end, b"x")
        os.write(second_end, b"x")
        await asyncio.sleep(0.01)
        loop.remove_reader(second)

    try:
        loop.run_until_complete(main())
    finally:
        loop.remove_reader(first)
        loop.remove_reader(second)
        for fd in (first, first_end, second, second_end):
            os.close(fd)
    assert set(called) <= {"second"}


def test_a_finalizer_that_closes_the_selector_while_its_tables_grow(impl):
    """Up to CPython 3.11 the garbage collector may run wherever an object is made."""
    impl.run_script("""
import gc

class Garbage:
    def __init__(self, selector):
        self.selector, self.itself = selector, self

    def __del__(self):
        self.selector.close()

reading, writing = os.pipe()
for first in 256, 512:
    for threshold in range(1, 15):
        selector = impl.DefaultSelector()
        for fd in first - 1, first:
            os.dup2(reading, fd)
        selector.register(first - 1, 1)
        gc.collect()
        Garbage(selector)
        gc.set_threshold(threshold)
        try:
            selector.register(first, 1)
        except ValueError:
            assert "closed" in str(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1])
        finally:
            gc.set_threshold(700)
        selector.close()
        for fd in first - 1, first:
            os.close(fd)
""")


def test_a_finalizer_that_replaces_the_selector_while_a_transport_takes_the_number(impl):
    impl.run_script("""
import asyncio, selectors, socket

class Reader:
    def __call__(self):
        raise AssertionError("the socket is closed")

    def __del__(self):
        loop._selector = selectors.DefaultSelector()

async def main():
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    transport.abort()
    await asyncio.sleep(0)

loop = impl.new_event_loop()
closed = socket.socket()
number = closed.fileno()
loop.add_reader(closed, Reader())
closed.close()
ours, theirs = socket.socketpair()
if theirs.fileno() == number:
    ours, theirs = theirs, ours
assert ours.fileno() == number
ours.setblocking(False)
loop.run_until_complete(main())
theirs.close()
loop.close()
""")


async def stream(loop, kind):
    ours, theirs = connected_sockets(kind)
    transport, protocol = await loop.create_connection(Recorder, sock=ours)
    return transport.abort, theirs, lambda: bytes(protocol.received)


async def pipe(loop, kind):
    reading, writing = pipe_files()
    transport, protocol = await loop.connect_read_pipe(Recorder, reading)
    return transport.close, writing, lambda: bytes(protocol.received)


async def datagrams(loop, kind):
    transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, local_addr=("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(transport.get_extra_info("sockname"))
    return transport.abort, sender, lambda: b"".join(protocol.received)


async def socket_method(loop, kind):
    ours, theirs = connected_sockets("tcp")
    receiving = loop.create_task(loop.sock_recv(ours, 100))
    return ours.close, theirs, lambda: receiving.result() if receiving.done() else b""


CHANNELS = [(stream, kind) for kind in KINDS] + [(each, "") for each in (pipe, datagrams, socket_method)]
# How a program empties the ready queue.
WAYS = {
    "clear": lambda loop: loop._ready.clear(),
    "popleft": lambda loop: [loop._ready.popleft() for _ in range(len(loop._ready))],
    "set": lambda loop: setattr(loop, "_ready", collections.deque()),
    "delete": lambda loop: [loop._ready.pop() for _ in range(len(loop._ready))],
    "run": lambda loop: [loop._ready.popleft()._run() for _ in range(len(loop._ready))],
}


@pytest.mark.skipif(not HAS_UNIX, reason="a proactor has no ready descriptors")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("channel", "kind"), CHANNELS)
def test_an_event_whose_turn_the_program_drops_comes_again(loop, channel, kind, way):
    """An interrupt ends the run before the turn of what is ready. The program then empties the ready queue."""

    async def opened():
        channel_opened = await channel(loop, kind)
        await settle()
        return channel_opened

    def interrupt():
        raise KeyboardInterrupt

    close, peer, received = loop.run_until_complete(opened())
    with peer:
        os.write(peer.fileno(), b"data")
        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert len(loop._ready) == 1
        WAYS[way](loop)
        assert not received() or way == "run"
        loop.run_until_complete(until(lambda: received() == b"data"))
        if channel is not socket_method:
            os.write(peer.fileno(), b"more")
            loop.run_until_complete(until(lambda: received() == b"datamore"))
        close()
        loop.run_until_complete(settle())


def test_a_key_whose_data_changes(loop):
    """A program that runs the loop itself passes _process_events() any objects for keys."""

    class Key:
        fd = fileobj = 0

        @property
        def data(self):
            return next(answers, (None, None))

    async def main():
        ours, theirs = connected_sockets(KINDS[0])
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        nonlocal answers
        answers = iter([loop._selector.get_key(ours.fileno()).data])
        loop._process_events([(Key(), selectors.EVENT_READ)])
        transport.close()
        theirs.close()

    answers = iter(())
    loop.run_until_complete(main())


@pytest.mark.parametrize("debug", [False, True])
def test_a_finalizer_that_closes_the_loop_while_a_reader_is_added(impl, debug):
    """Up to CPython 3.11 the garbage collector may run wherever an object is made; in debug mode in any version."""
    impl.run_script(f"""
import contextlib, gc, socket

class Garbage:
    def __init__(self, loop):
        self.loop, self.itself = loop, self

    def __del__(self):
        self.loop.close()

ours, theirs = socket.socketpair()
with ours, theirs:
    for threshold in range(1, 40):
        loop = impl.new_event_loop()
        loop.set_debug({debug})
        gc.collect()
        Garbage(loop)
        gc.set_threshold(threshold)
        with contextlib.suppress(AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            loop.add_reader(ours.fileno(), print)
        gc.set_threshold(700)
        loop.close()
        gc.collect()
""")


@pytest.mark.only("c", reason="the others have no selector of their own")
def test_a_metaclass_that_replaces_the_selector_when_it_is_asked_for_select(impl):
    """In development mode, whose allocator overwrites what is freed."""
    impl.run_script(
        """
import gc

class Meta(type(impl.DefaultSelector)):
    def __getattribute__(cls, name):
        if name == "select" and replacements:
            loop._selector = replacements.pop()
            gc.collect()
        return super().__getattribute__(name)

class Selector(impl.DefaultSelector, metaclass=Meta):
    pass

replacements = []
loop = impl.new_event_loop()
loop._selector.close()
loop._selector = Selector()
replacements.append(impl.DefaultSelector())
for _ in range(2):
    loop.call_soon(loop.stop)
    loop.run_forever()
loop.close()
""",
        "-X",
        "dev",
    )


@pytest.mark.parametrize("kind", [*KINDS, "datagram"])
def test_events_of_a_transport_that_was_closed_meanwhile(loop, kind):
    """A program that runs the loop itself may pass them to _process_events() late, and again."""

    async def main():
        if kind == "datagram":
            ours, theirs = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
            ours.bind(("127.0.0.1", 0))
            theirs.connect(ours.getsockname())
            transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=ours)
        else:
            ours, theirs = connected_sockets(kind)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        theirs.send(b"data")
        events = loop._selector.select(1)
        assert events
        transport.abort()
        await settle()
        loop._process_events(events)
        await settle()
        theirs.close()

    loop.run_until_complete(main())
