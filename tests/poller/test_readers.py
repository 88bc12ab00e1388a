"""add_reader(), add_writer() and the sock_* methods."""

import asyncio
import os
import socket

import pytest
from support.stepping import run_once, run_until


def test_a_reader_is_called_while_there_is_something_to_read(loop, pair):
    one, other = pair
    seen = []

    def readable():
        seen.append(one.recv(1))
        if len(seen) == 3:
            loop.remove_reader(one)

    assert loop.add_reader(one, readable) is None
    other.send(b"abc")
    run_until(loop, lambda: len(seen) == 3)
    run_once(loop, 3)
    assert seen == [b"a", b"b", b"c"]


def test_a_writer_is_called_while_there_is_room(loop, pair):
    one, _ = pair
    calls = []
    assert loop.add_writer(one, calls.append, "argument") is None
    run_once(loop, 3)
    assert len(calls) >= 2 and set(calls) == {"argument"}
    assert loop.remove_writer(one) is True
    del calls[:]
    run_once(loop, 3)
    assert calls == []


def test_both_on_one_descriptor_reader_first(loop, pair):
    one, other = pair
    seen = []
    other.send(b"x")
    loop.add_writer(one, seen.append, "writer")
    loop.add_reader(one, seen.append, "reader")
    run_once(loop, 2)
    # kqueue reports reading and writing apart, in its own order.
    assert (sorted(seen[:2]) if type(loop._selector).__name__ == "KqueueSelector" else seen[:2]) == ["reader", "writer"]
    assert loop.remove_reader(one) is True
    del seen[:]
    run_once(loop, 2)
    assert set(seen) == {"writer"}
    assert loop.remove_writer(one) is True


def test_replacing_a_callback(loop, pair):
    one, other = pair
    seen = []
    other.send(b"x")
    loop.add_reader(one, seen.append, "first")
    loop.add_reader(one, seen.append, "second")
    run_once(loop, 2)
    assert "first" not in seen and "second" in seen
    loop.remove_reader(one)


def test_remove_takes_effect_at_once_even_for_an_event_already_seen(loop, pair):
    """Two descriptors are ready in one poll; the first callback removes the reader of the second."""
    third, fourth = socket.socketpair()
    one, other = pair
    seen = []

    def remove_other(mine, others):
        seen.append(mine)
        loop.remove_reader(mine)
        loop.remove_reader(others)

    with third, fourth:
        other.send(b"x")
        fourth.send(b"x")
        loop.add_reader(one, remove_other, one, third)
        loop.add_reader(third, remove_other, third, one)
        run_once(loop, 3)
        assert len(seen) == 1


def test_a_descriptor_closed_and_reused_in_a_callback(loop, pair):
    """A new socket gets the number of a closed one while an event for the old one is still in the batch."""
    one, other = pair
    seen = []
    victim, peer = socket.socketpair()
    peer.send(b"x")
    other.send(b"x")

    def first():
        loop.remove_reader(one)
        loop.remove_reader(victim)
        victim.close()
        replacement = socket.socketpair()
        opened.extend(replacement)
        for end in replacement:
            loop.add_reader(end, seen.append, "nothing was sent here")

    opened = []
    loop.add_reader(one, first)
    loop.add_reader(victim, lambda: (victim.recv(1), loop.remove_reader(victim)) if victim.fileno() >= 0 else None)
    run_until(loop, lambda: opened)
    run_once(loop, 3)
    assert seen == []
    for end in opened:
        loop.remove_reader(end)
        end.close()
    peer.close()


def test_add_reader_does_not_change_the_blocking_mode(loop, pair):
    one, _ = pair
    for blocking in (True, False):
        os.set_blocking(one.fileno(), blocking)
        loop.add_reader(one, int)
        run_once(loop)
        loop.remove_reader(one)
        assert os.get_blocking(one.fileno()) is blocking


def test_readers_run_in_the_context_they_were_added_in(loop, pair):
    import contextvars

    one, other = pair
    variable = contextvars.ContextVar("variable", default=0)
    seen = []

    def readable():
        one.recv(1)
        seen.append(variable.get())
        variable.set(variable.get() + 1)

    variable.set(10)
    loop.add_reader(one, readable)
    variable.set(99)
    for count in range(1, 4):
        other.send(b"x")
        run_until(loop, lambda count=count: len(seen) == count)
    assert seen == [10, 11, 12]  # one context, kept from event to event
    loop.remove_reader(one)


def test_pipes(loop):
    reading, writing = os.pipe()
    seen = []
    os.set_blocking(reading, False)
    loop.add_reader(reading, lambda: seen.append(os.read(reading, 10)))
    os.write(writing, b"pipe")
    run_until(loop, lambda: seen)
    os.close(writing)
    run_until(loop, lambda: b"" in seen)
    assert seen[0] == b"pipe"
    loop.remove_reader(reading)
    os.close(reading)


def test_sock_methods(loop, pair):
    one, other = pair

    async def main():
        await loop.sock_sendall(one, b"hello")
        assert await loop.sock_recv(other, 3) == b"hel"
        buffer = bytearray(10)
        assert await loop.sock_recv_into(other, buffer) == 2
        assert buffer[:2] == b"lo"
        waiting = asyncio.ensure_future(loop.sock_recv(one, 10))
        await asyncio.sleep(0)
        await loop.sock_sendall(other, b"later")
        assert await waiting == b"later"

    loop.run_until_complete(main())


def test_sock_connect_and_accept(loop):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
            server.setblocking(False)
            client.setblocking(False)
            accepting = asyncio.ensure_future(loop.sock_accept(server))
            await loop.sock_connect(client, server.getsockname())
            connection, address = await accepting
            with connection:
                assert address == client.getsockname()
                assert connection.gettimeout() == 0
                await loop.sock_sendall(client, b"x")
                assert await loop.sock_recv(connection, 10) == b"x"

    loop.run_until_complete(main())


def test_a_large_sendall(loop, pair):
    one, other = pair
    data = os.urandom(3_000_000)

    async def receive():
        received = bytearray()
        while len(received) < len(data):
            received += await loop.sock_recv(other, 100_000)
        return bytes(received)

    async def main():
        _, received = await asyncio.gather(loop.sock_sendall(one, data), receive())
        assert received == data

    loop.run_until_complete(main())


def test_a_cancelled_sock_recv_leaves_no_reader(loop, pair):
    one, other = pair

    async def main():
        task = asyncio.ensure_future(loop.sock_recv(one, 1))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.send(b"x")
        assert await loop.sock_recv(one, 1) == b"x"

    loop.run_until_complete(main())
