"""P25: watching a descriptor changes nothing about it, ends on removal, and never reports events of its predecessor."""

import asyncio
import os
import random
import socket
import sys

import pytest
from support.endpoints import assert_free, cancelled, started, until
from support.stepping import run_once, run_until

# Cycles of adding and removing; the promise speaks of 10^5. This many take about a second on asyncio;
# HOTLOOP_READER_CYCLES=100000 makes it 10^5.
CYCLES = int(os.environ.get("HOTLOOP_READER_CYCLES", "10000"))


def socket_ends():
    return tuple(end.detach() for end in socket.socketpair())


def event_ends():
    return os.eventfd(0, 0), os.eventfd(0, 0)


# Makers of (a descriptor to read, one to write).
KINDS = {"socket": socket_ends, "pipe": os.pipe, "terminal": os.openpty}
if hasattr(os, "eventfd"):
    KINDS["eventfd"] = event_ends


@pytest.mark.promise("P25")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocking", [True, False])
def test_the_blocking_mode_stays(loop, kind, blocking):
    """The mode stays throughout adding, replacing, an event, removing, and closing the loop; for readers and
    writers."""
    ways = ((loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer))
    for (add, remove), ends, mine in zip(ways, (KINDS[kind](), KINDS[kind]()), (0, 1), strict=True):
        fd = ends[mine]
        os.set_blocking(fd, blocking)
        for step in (
            lambda add=add, fd=fd: add(fd, int),
            lambda add=add, fd=fd: add(fd, str),
            lambda: run_once(loop, 2),
            lambda remove=remove, fd=fd: remove(fd),
            lambda remove=remove, fd=fd: remove(fd),
            lambda: run_once(loop),
        ):
            step()
            assert os.get_blocking(fd) is blocking
        for end in ends:
            os.close(end)


@pytest.mark.promise("P25")
def test_the_blocking_mode_stays_through_the_other_direction(loop, pair):
    one, _ = pair
    one.setblocking(True)
    loop.add_reader(one, int)
    loop.add_writer(one, int)
    run_once(loop, 2)
    loop.remove_reader(one)
    run_once(loop, 2)
    loop.remove_writer(one)
    assert os.get_blocking(one.fileno())


def ready_both_ways():
    """Two sockets that are readable and writable."""
    pairs = [socket.socketpair() for _ in range(2)]
    for one, other in pairs:
        other.send(b"x")
        one.setblocking(False)
    return pairs


@pytest.mark.promise("P25")
@pytest.mark.parametrize(
    ("first", "victim", "same"),
    [
        pytest.param("reader", "writer", True, id="the writer of its own"),  # the reader runs first
        *((first, victim, False) for first in ("reader", "writer") for victim in ("reader", "writer")),
    ],
)
def test_removal_takes_effect_before_it_returns(loop, first, victim, same):
    """The callback of one descriptor removes another callback that is ready as well: another descriptor's, or its own
    other direction's."""
    pairs = ready_both_ways()
    one, two = pairs[0][0], pairs[0 if same else 1][0]
    add = {"reader": loop.add_reader, "writer": loop.add_writer}
    remove = {"reader": loop.remove_reader, "writer": loop.remove_writer}
    seen = []

    def act(me, my_kind, you, your_kind):
        seen.append(my_kind)
        assert remove[your_kind](you) is True
        assert remove[your_kind](you) is False
        remove[my_kind](me)

    add[first](one, act, one, first, two, victim)
    add[victim](two, act, two, victim, one, first)
    run_once(loop, 3)
    assert len(seen) == 1
    for pair in pairs:
        assert_free(loop, pair[0])
        for end in pair:
            end.close()


@pytest.mark.promise("P25")
def test_removal_from_a_callback_queued_before_the_event(loop, pair):
    one, other = pair
    seen = []
    other.send(b"x")
    loop.add_reader(one, seen.append, "reader")
    loop.add_writer(one, seen.append, "writer")
    loop.call_soon(loop.remove_reader, one)
    loop.call_soon(loop.remove_writer, one)
    run_once(loop, 3)
    assert seen == []


@pytest.mark.promise("P25")
def test_replaced_while_its_event_is_pending(loop):
    """The old callback is not called any more; the new one is, because the descriptor is still ready."""
    pairs = ready_both_ways()
    (one, _), (two, _) = pairs
    seen = []

    def act(you):
        loop.remove_reader(one)
        loop.remove_reader(two)
        loop.add_reader(you, seen.append, "new")

    loop.add_reader(one, act, two)
    loop.add_reader(two, act, one)
    run_until(loop, lambda: seen)
    assert set(seen) == {"new"}
    for pair in pairs:
        loop.remove_reader(pair[0])
        for end in pair:
            end.close()


@pytest.mark.promise("P25")
def test_removed_and_added_again_within_a_callback(loop, pair):
    one, other = pair
    seen = []

    def readable(count):
        seen.append(one.recv(1))
        loop.remove_reader(one)
        loop.add_reader(one, readable, count + 1)

    loop.add_reader(one, readable, 0)
    for count in range(1, 6):
        other.send(b"%d" % count)
        run_until(loop, lambda count=count: len(seen) == count)
    assert seen == [b"1", b"2", b"3", b"4", b"5"]
    loop.remove_reader(one)


@pytest.mark.promise("P25")
def test_a_reader_goes_while_the_writer_stays(loop, pair):
    one, other = pair
    seen = []
    for _ in range(5):
        loop.add_reader(one, seen.append, "reader")
        loop.add_writer(one, seen.append, "writer")
        other.send(b"x")
        loop.remove_reader(one)
        del seen[:]
        run_once(loop, 2)
        assert set(seen) == {"writer"}
        loop.add_reader(one, seen.append, "reader")
        loop.remove_writer(one)
        del seen[:]
        run_once(loop, 2)
        assert set(seen) == {"reader"}
        loop.remove_reader(one)


class Cycles:
    """Descriptors that come and go under a loop that watches them. Each callback knows the data of its descriptor."""

    def __init__(self, loop, seed):
        self.loop = loop
        self.random = random.Random(seed)
        self.stale = []
        self.events = 0
        self.watched = {}  # one end -> (other end, data sent through it)

    def open(self, number):
        one, other = socket.socketpair()
        one.setblocking(False)
        self.watched[one] = other, b"%d" % number
        self.loop.add_reader(one, self.readable, one, number)
        if self.random.random() < 0.3:
            self.loop.add_writer(one, self.writable, one, number)
        if self.random.random() < 0.7:
            other.send(b"%d" % number)

    def close(self, one):
        other, _ = self.watched.pop(one)
        self.loop.remove_reader(one)
        self.loop.remove_writer(one)
        one.close()
        other.close()

    def readable(self, one, number):
        self.events += 1
        if one not in self.watched or self.watched[one][1] != b"%d" % number:
            self.stale.append(("reader", number))
            return
        try:
            if one.recv(100) != b"%d" % number:
                self.stale.append(("data", number))
        except BlockingIOError:
            self.stale.append(("nothing to read", number))
        self.churn()

    def writable(self, one, number):
        self.events += 1
        if one not in self.watched or self.watched[one][1] != b"%d" % number:
            self.stale.append(("writer", number))
        else:
            self.loop.remove_writer(one)

    def churn(self):
        """Close some that may be ready in this very turn, which frees their numbers for the next ones."""
        for one in self.random.sample(list(self.watched), min(len(self.watched), self.random.randrange(4))):
            self.close(one)

    def run(self):
        for number in range(CYCLES):
            self.open(number)
            if self.random.random() < 0.2:
                run_once(self.loop)
            while len(self.watched) > 50:
                self.churn()
        while self.watched:
            run_once(self.loop)
            self.churn()


@pytest.mark.promise("P25")
def test_no_stale_event_is_ever_delivered(loop):
    cycles = Cycles(loop, seed=25)
    cycles.run()
    assert cycles.stale == []
    assert cycles.events > CYCLES / 4, "too little happened"


@pytest.mark.promise("P25")
def test_add_and_remove_again_and_again(loop, pair):
    """The descriptor is ready all the time, but no event comes between removing and adding."""
    one, other = pair
    other.send(b"x")
    seen = []
    for number in range(CYCLES):
        add, remove = (loop.add_reader, loop.remove_reader) if number % 3 else (loop.add_writer, loop.remove_writer)
        add(one, seen.append, number)
        assert remove(one) is True
        if number % 100 == 0:
            run_once(loop)
    assert seen == []
    loop.add_reader(one, seen.append, "at last")
    run_until(loop, lambda: seen)
    loop.remove_reader(one)


@pytest.mark.promise("P25")
def test_closed_after_removal_the_number_serves_anew(loop):
    """In one turn: removed, closed, opened again with the same number and watched; data sent to the old one must not
    show."""
    seen = []
    for number in range(200):
        one, other = socket.socketpair()
        other.send(b"for the old one")
        loop.add_reader(one, seen.append, "old")
        if number % 2:
            loop.add_writer(one, seen.append, "old")
            loop.remove_writer(one)
        fd = one.fileno()
        loop.remove_reader(one)
        one.close()
        other.close()
        new, peer = socket.socketpair()
        assert fd in (new.fileno(), peer.fileno())
        loop.add_reader(new, seen.append, "new")
        run_once(loop, 2)
        assert seen == []
        peer.send(b"x")
        run_until(loop, lambda: seen)
        assert set(seen) == {"new"}
        loop.remove_reader(new)
        del seen[:]
        new.close()
        peer.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll forgets a closed file, others differ")
def test_a_descriptor_closed_without_removal(loop):
    """The kernel drops the registration of a closed descriptor. The loop goes on, and remove_reader() works as well."""
    one, other = socket.socketpair()
    seen = []
    loop.add_reader(one, seen.append, "old")
    fd = one.fileno()
    one.close()
    other.close()
    run_once(loop, 3)
    assert seen == []
    loop.remove_reader(fd)
    run_once(loop)
    new, peer = socket.socketpair()
    with new, peer:
        assert fd in (new.fileno(), peer.fileno())
        peer.send(b"x")
        loop.add_reader(new, seen.append, "new")
        run_until(loop, lambda: seen)
        assert set(seen) == {"new"}
        loop.remove_reader(new)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll forgets a closed file, others differ")
def test_a_descriptor_closed_without_removal_and_removed_when_it_is_another(loop):
    one, other = socket.socketpair()
    seen = []
    fd = one.fileno()
    loop.add_reader(fd, seen.append, "old")
    one.close()
    new, peer = socket.socketpair()
    with other, new, peer:
        assert new.fileno() == fd
        peer.send(b"x")
        run_once(loop, 2)
        assert seen == []
        assert loop.remove_reader(fd) is True
        loop.add_reader(fd, seen.append, "new")
        run_until(loop, lambda: seen)
        assert set(seen) == {"new"}
        loop.remove_reader(fd)


def test_a_duplicate_keeps_the_file_alive(loop, pair):
    """After the watched descriptor was removed and closed, events of the file reach no callback."""
    one, other = pair
    seen = []
    watched = os.dup(one.fileno())
    loop.add_reader(watched, seen.append, "watched")
    loop.remove_reader(watched)
    os.close(watched)
    other.send(b"x")
    run_once(loop, 3)
    assert seen == []
    loop.add_reader(one, seen.append, "the original")
    run_until(loop, lambda: seen)
    assert set(seen) == {"the original"}
    loop.remove_reader(one)


def test_two_descriptors_of_one_file(loop, pair):
    """Each has its own reader; removing one leaves the other alone."""
    one, other = pair
    copy = os.dup(one.fileno())
    seen = []
    loop.add_reader(one, seen.append, "one")
    loop.add_reader(copy, seen.append, "copy")
    other.send(b"x")
    run_until(loop, lambda: set(seen) == {"one", "copy"})
    loop.remove_reader(one)
    del seen[:]
    run_until(loop, lambda: seen)
    assert set(seen) == {"copy"}
    loop.remove_reader(copy)
    os.close(copy)


def test_a_reader_in_one_direction_and_a_sock_method_in_the_other(loop, pair):
    one, other = pair

    async def main():
        seen = []
        loop.add_reader(one, lambda: seen.append(one.recv(100)))
        sending = await started(loop.sock_sendall(one, bytes(3_000_000)))
        other.send(b"meanwhile")
        await until(lambda: seen)
        assert seen == [b"meanwhile"]
        await cancelled(sending)
        other.send(b"afterwards")
        await until(lambda: len(seen) == 2)
        assert seen == [b"meanwhile", b"afterwards"]
        assert loop.remove_reader(one) is True

    loop.run_until_complete(main())


def test_the_end_of_the_other_side_is_both_readable_and_writable(loop, pair):
    one, other = pair
    other.close()
    seen = []
    loop.add_reader(one, seen.append, "reader")
    loop.add_writer(one, seen.append, "writer")
    run_once(loop, 2)
    assert seen[:2] == ["reader", "writer"]
    loop.remove_writer(one)
    loop.remove_reader(one)


def test_a_hang_up_reaches_the_only_watcher(loop):
    """The reader of the pipe has gone: its write end reports an error condition, which the watcher did not ask for."""
    for add, remove, mine in ((loop.add_writer, loop.remove_writer, 1), (loop.add_reader, loop.remove_reader, 0)):
        ends = os.pipe()
        seen = []
        os.close(ends[1 - mine])
        add(ends[mine], seen.append, "event")
        run_until(loop, lambda seen=seen: seen)
        assert remove(ends[mine]) is True
        os.close(ends[mine])


def test_exceptions_of_readers_are_reported_and_they_stay(loop, pair):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
    one, other = pair
    other.send(b"x")
    loop.add_reader(one, lambda: 1 / 0)
    run_until(loop, lambda: len(reports) >= 3)
    assert {type(report) for report in reports} == {ZeroDivisionError}
    assert loop.remove_reader(one) is True


def test_descriptors_are_numbers_sockets_or_anything_with_a_fileno(loop, pair):
    class Wrapper:
        def fileno(self):
            return one.fileno()

    one, other = pair
    other.send(b"x")
    seen = []
    for add_with in (one, one.fileno(), Wrapper()):
        for remove_with in (one, one.fileno(), Wrapper()):
            loop.add_reader(add_with, seen.append, 1)
            run_until(loop, lambda: seen)
            assert loop.remove_reader(remove_with) is True
            del seen[:]


@pytest.mark.parametrize("direction", ["reader", "writer"])
def test_a_socket_that_was_closed_is_removed(loop, direction):
    """A closed socket object has no number any more, so the loop finds the registration by the object itself."""
    add, remove = getattr(loop, f"add_{direction}"), getattr(loop, f"remove_{direction}")
    one, other = socket.socketpair()
    one.setblocking(False)
    fd = one.fileno()
    with other:
        add(one, print)
        key = loop._selector.get_key(one)
        assert key.fileobj is one and key.fd == fd
        one.close()
        assert loop._selector.get_key(one) == key
        assert remove(one) is True
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            remove(one)
        assert remove(fd) is False


def test_a_socket_that_was_closed_is_removed_from_one_of_two_directions(loop):
    """The kernel refuses the direction that is left, and neither direction stays registered."""
    one, other = socket.socketpair()
    one.setblocking(False)
    with other:
        loop.add_reader(one, print)
        loop.add_writer(one.fileno(), print)
        one.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            loop.remove_reader(one)
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            loop.remove_writer(one)


@pytest.mark.promise("P37")
@pytest.mark.only("c", reason="the standard library's selector finds the closed one, and removes the other")
def test_a_closed_socket_does_not_remove_the_next_owner_of_its_number(loop, pair):
    one, other = pair
    closed = socket.socket(fileno=os.dup(one.fileno()))
    loop.add_reader(closed, print)
    number = closed.fileno()
    closed.close()
    os.dup2(one.fileno(), number)
    following = socket.socket(fileno=number)
    seen = []
    loop.add_reader(following, lambda: seen.append(following.recv(1)))
    with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
        loop.remove_reader(closed)
    other.send(b"x")
    run_until(loop, lambda: seen)
    assert loop.remove_reader(following) is True
    following.close()


def test_many_descriptors_at_once(loop):
    """More descriptors than one poll can report are ready: each is served, and none twice before all were once."""
    count = 300
    pairs = [socket.socketpair() for _ in range(count)]
    seen = []

    def readable(number, one):
        seen.append((number, one.recv(10)))
        loop.remove_reader(one)

    for number, (one, other) in enumerate(pairs):
        loop.add_reader(one, readable, number, one)
        other.send(b"%d" % number)
    run_until(loop, lambda: len(seen) == count)
    assert sorted(seen) == [(number, b"%d" % number) for number in range(count)]
    for one, other in pairs:
        one.close()
        other.close()


def test_asyncio_sees_what_is_watched(loop, pair):
    """asyncio.run() and tools look into the selector, a public attribute: it must have the watched descriptors."""
    one, _ = pair
    assert one.fileno() not in loop._selector.get_map()
    loop.add_reader(one, int)
    assert loop._selector.get_map()[one.fileno()].fd == one.fileno()
    loop.remove_reader(one)
    assert one.fileno() not in loop._selector.get_map()
    assert isinstance(loop, asyncio.SelectorEventLoop)
