"""In how many iterations I/O is delivered: as many as with asyncio, unless a loop has long been polling without a
result.

The tests count iterations and never measure time; each count is compared with asyncio's.
"""

import asyncio
import os
import selectors
import socket
import sys
import threading
import time

import pytest
from support.stepping import Clock

from hotloop._pure.loop import metrics as pure_metrics

TURNS_IN_VAIN = 3000  # many more than a loop polls without a result before it skips polls
ROUNDS = 100


class Receiver(asyncio.Protocol):
    def __init__(self):
        self.seen = ""

    def connection_made(self, transport):
        self.seen = ""

    def data_received(self, data):
        self.seen = "data"

    def datagram_received(self, data, addr):
        self.seen = "datagram"

    def eof_received(self):
        self.seen = "eof"
        return True

    def connection_lost(self, exc):
        self.seen = "lost"


class Closing(Receiver):
    def eof_received(self):
        return False


async def turns_until(happened):
    turns = 0
    while not happened():
        await asyncio.sleep(0)
        turns += 1
        assert turns < 10**6
    return turns


async def spin(turns):
    for _ in range(turns):
        await asyncio.sleep(0)


async def connected(loop, one, other, protocol=Receiver):
    """Transports of both ends, and the protocol of the second."""
    first, _ = await loop.create_connection(Receiver, sock=one)
    second, receiver = await loop.create_connection(protocol, sock=other)
    await spin(5)
    return first, second, receiver


def turns_under(make_loop, scenario):
    """The results of the scenario on asyncio's loop and on the other one."""
    counts = []
    for make in (asyncio.SelectorEventLoop, make_loop):
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        loop = make()
        try:
            with one, other:
                counts.append(loop.run_until_complete(scenario(loop, one, other)))
        finally:
            loop.close()
    return counts


@pytest.mark.promise("P33")
def test_what_a_transport_writes_is_delivered_in_asyncios_turn(impl):
    async def scenario(loop, one, other):
        first, second, receiver = await connected(loop, one, other)
        turns = set()
        for _ in range(ROUNDS):
            receiver.seen = ""
            first.write(b"x")
            turns.add(await turns_until(lambda: receiver.seen))
        first.close()
        second.close()
        await turns_until(lambda: receiver.seen == "lost")
        return turns

    expected, turns = turns_under(impl.new_event_loop, scenario)
    assert turns == expected


@pytest.mark.promise("P33")
@pytest.mark.parametrize("selector", [None, selectors.SelectSelector], ids=["its own", "select"])
@pytest.mark.parametrize("before", [0, 10, 50])
def test_what_a_program_sends_itself_is_delivered_after_two_turns(impl, selector, before):
    async def scenario(loop, one, other):
        received = []
        missed = 0
        loop.add_reader(other, lambda: received.append(other.recv(99)))
        for _ in range(ROUNDS):
            await spin(before)
            one.send(b"x")
            await spin(2)
            missed += not received
            await turns_until(lambda: received)
            received.clear()
        loop.remove_reader(other)
        return missed

    expected, missed = turns_under(lambda: impl.EventLoop(selector and selector()), scenario)
    assert expected == missed == 0


async def writing(loop, one, other):
    first, second, receiver = await connected(loop, one, other)
    await spin(TURNS_IN_VAIN)
    first.write(b"x")
    turns = await turns_until(lambda: receiver.seen)
    first.close()
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    return turns


async def ending_the_writing(loop, one, other):
    first, second, receiver = await connected(loop, one, other)
    await spin(TURNS_IN_VAIN)
    first.write_eof()
    turns = await turns_until(lambda: receiver.seen)
    first.close()
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    return turns


async def closing(loop, one, other):
    first, _, receiver = await connected(loop, one, other, Closing)
    await spin(TURNS_IN_VAIN)
    first.close()
    return await turns_until(lambda: receiver.seen == "lost")


async def sock_sending(loop, one, other):
    second, receiver = await loop.create_connection(Receiver, sock=other)
    await spin(TURNS_IN_VAIN)
    await loop.sock_sendall(one, b"x")
    turns = await turns_until(lambda: receiver.seen)
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    return turns


async def watching(loop, one, other):
    received = []
    one.send(b"x")
    await spin(TURNS_IN_VAIN)
    loop.add_reader(other, lambda: received.append(other.recv(99)))
    turns = await turns_until(lambda: received)
    loop.remove_reader(other)
    return turns


async def sock_receiving(loop, one, other):
    await spin(TURNS_IN_VAIN)
    receiving = loop.create_task(loop.sock_recv(other, 99))
    await spin(1)
    one.send(b"x")
    return await turns_until(receiving.done)


async def sending_a_datagram(loop, one, other):
    first, _ = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    second, receiver = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    await spin(TURNS_IN_VAIN)
    receiver.seen = ""
    first.sendto(b"x", second.get_extra_info("sockname"))
    turns = await turns_until(lambda: receiver.seen)
    first.close()
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    return turns


async def writing_to_a_pipe(loop, one, other):
    reading, written = os.pipe()
    first, receiver = await loop.connect_read_pipe(Receiver, os.fdopen(reading, "rb", 0))
    second, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(written, "wb", 0))
    await spin(TURNS_IN_VAIN)
    second.write(b"x")
    turns = await turns_until(lambda: receiver.seen)
    first.close()
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    await spin(5)
    return turns


async def resuming(loop, one, other):
    second, receiver = await loop.create_connection(Receiver, sock=other)
    second.pause_reading()
    await spin(5)
    one.send(b"x")
    await spin(TURNS_IN_VAIN)
    second.resume_reading()
    turns = await turns_until(lambda: receiver.seen)
    second.close()
    await turns_until(lambda: receiver.seen == "lost")
    return turns


async def waiting(loop, one, other):
    """A loop that has slept behaves like one that has just begun to run."""
    received = []
    loop.add_reader(other, lambda: received.append(other.recv(99)))
    await spin(TURNS_IN_VAIN)
    await asyncio.sleep(0.001)
    one.send(b"x")
    turns = await turns_until(lambda: received)
    loop.remove_reader(other)
    return turns


@pytest.mark.promise("P33")
@pytest.mark.skipif(sys.platform == "win32", reason="datagrams and pipes are different there")
@pytest.mark.parametrize(
    "scenario",
    [
        *(writing, ending_the_writing, closing, sock_sending, watching, sock_receiving, sending_a_datagram),
        *(writing_to_a_pipe, resuming, waiting),
    ],
)
def test_what_a_busy_loop_does_itself_makes_it_poll(impl, scenario):
    expected, turns = turns_under(impl.new_event_loop, scenario)
    assert turns <= expected


@pytest.mark.only("c", "python", reason="asyncio polls in every iteration")
@pytest.mark.parametrize("timer", [False, True], ids=["no timer", "a timer"])
def test_a_loop_with_nothing_but_queued_work_skips_polls(loop, timer, monkeypatch):
    # pytest may have threads of its own.
    monkeypatch.setattr(pure_metrics, "threads_beside_the_first", lambda: 0)
    handle = loop.call_later(3600, print) if timer else None
    before = loop.metrics().polls
    loop.run_until_complete(spin(5 * TURNS_IN_VAIN))
    if handle:
        handle.cancel()
    assert loop.metrics().polls - before < TURNS_IN_VAIN


@pytest.mark.only("python", reason="the compiled loop hands the GIL over without polls; asyncio counts none")
def test_the_pure_loop_polls_in_every_turn_while_there_is_a_thread(loop):
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    before = loop.metrics().polls
    loop.run_until_complete(spin(5 * TURNS_IN_VAIN))
    end.set()
    thread.join()
    assert loop.metrics().polls - before >= 5 * TURNS_IN_VAIN


@pytest.mark.only("c", reason="the pure loop does not skip polls while it watches a descriptor, asyncio never does")
def test_a_loop_whose_polls_found_nothing_skips_polls(loop, pair):
    loop.add_reader(pair[0], print)
    before = loop.metrics().polls
    loop.run_until_complete(spin(5 * TURNS_IN_VAIN))
    loop.remove_reader(pair[0])
    assert loop.metrics().polls - before < TURNS_IN_VAIN


async def fire(loop, timers):
    """Set that many timers, one after the other, that are due when they are set."""
    fired = loop.create_future()

    def fire_next():
        nonlocal timers
        timers -= 1
        if timers:
            loop.call_later(0, fire_next)
        else:
            fired.set_result(None)

    fire_next()
    await fired


@pytest.mark.only("c", reason="the pure loop polls when nothing is queued, asyncio in every iteration")
def test_a_loop_with_nothing_but_due_timers_skips_polls(loop, pair):
    loop.add_reader(pair[0], print)
    before = loop.metrics()
    loop.run_until_complete(fire(loop, 5 * TURNS_IN_VAIN))
    loop.remove_reader(pair[0])
    happened = loop.metrics() - before
    assert happened.polls < TURNS_IN_VAIN
    # Only a poll that finds timers says how late they are.
    assert happened.timer_lateness.count <= happened.polls


def test_beside_timers_that_are_due_a_loop_sees_io(loop, pair):
    """However many come: each sets the next one."""

    async def main():
        received = loop.create_future()

        def fire_until_received():
            if not received.done():
                loop.call_later(0, fire_until_received)

        loop.add_reader(pair[0], lambda: received.set_result(pair[0].recv(99)))
        await fire(loop, 5 * TURNS_IN_VAIN)
        pair[1].send(b"x")
        fire_until_received()
        assert await received == b"x"
        loop.remove_reader(pair[0])

    loop.run_until_complete(main())


@pytest.mark.parametrize("of", ["the loop", "its class"])
def test_a_replaced_clock_that_agrees_with_the_usual_one_is_noticed(impl, of):
    """Such a clock may move at any moment, and timers are then due."""
    clock = Clock(0)

    def now(*_):
        return time.monotonic() + clock.now

    class WithClock(impl.EventLoop):
        time = now

    async def main():
        due = []
        loop.call_later(3600, due.append, True)
        await spin(TURNS_IN_VAIN)
        clock.advance(7200)
        return await turns_until(lambda: due)

    loop = WithClock() if of == "its class" else impl.new_event_loop()
    try:
        if of == "the loop":
            loop.time = now
        assert loop.run_until_complete(main()) <= 2
    finally:
        loop.close()
