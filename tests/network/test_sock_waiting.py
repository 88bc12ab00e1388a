"""How the sock_* methods wait beside other watchers of the socket, and as coroutines."""

import asyncio
import gc
import os
import warnings
import weakref

import pytest
from support.endpoints import assert_free, cancelled, ping, settle, started, turns
from support.stepping import run_once

# Debug mode reports callbacks that take longer, as they may on a busy machine.
NEVER_SLOW = 3600


def registered(loop, sock):
    return loop._selector.get_map().get(sock)


# -- together with others ----------------------------------------------------------------------------------------------


def test_the_map_shows_what_is_waited_for_and_nothing_else(loop, pair):
    one, other = pair

    async def main():
        before = len(loop._selector.get_map())
        await ping(loop, one, other)
        assert registered(loop, one) is None
        assert one.fileno() not in list(loop._selector.get_map())
        assert len(loop._selector.get_map()) == before
        with pytest.raises(KeyError):
            loop._selector.unregister(one)
        waiting = await started(loop.sock_recv(one, 100))
        assert registered(loop, one).fd == one.fileno()
        assert len(loop._selector.get_map()) == before + 1
        await cancelled(waiting)
        assert registered(loop, one) is None
        loop._selector.register(one, 1, (None, None))
        loop._selector.unregister(one)

    loop.run_until_complete(main())


def test_a_reader_in_place_of_a_receiver(loop, pair):
    """The receiver waits on until it is cancelled; then the reader stays."""
    one, other = pair

    async def main():
        seen = []
        receiving = await started(loop.sock_recv(one, 100))
        loop.add_reader(one, lambda: seen.append(one.recv(100)))
        other.send(b"for the reader")
        await settle()
        assert seen == [b"for the reader"] and not receiving.done()
        await cancelled(receiving)
        other.send(b"again")
        await settle()
        assert seen == [b"for the reader", b"again"]
        assert loop.remove_reader(one) is True

    loop.run_until_complete(main())


def test_who_receives_in_place_of_a_reader(loop, pair):
    one, other = pair

    async def main():
        loop.add_reader(one, pytest.fail, "it was replaced")
        await ping(loop, one, other)
        assert loop.remove_reader(one) is False
        await ping(loop, one, other)

    loop.run_until_complete(main())


def test_removing_a_reader_that_is_a_receiver(loop, pair):
    one, other = pair

    async def main():
        receiving = await started(loop.sock_recv(one, 100))
        assert loop.remove_reader(one) is True
        assert loop.remove_reader(one) is False
        other.send(b"x")
        await settle()
        assert not receiving.done()
        await cancelled(receiving)
        assert one.recv(100) == b"x"

    loop.run_until_complete(main())


@pytest.mark.parametrize("first", ["operation", "callback"])
def test_a_callback_for_the_other_direction(loop, pair, first):
    one, other = pair

    async def main():
        room = []

        def writable():
            room.append(True)
            loop.remove_writer(one)

        for _ in range(3):
            if first == "callback":
                loop.add_writer(one, writable)
            receiving = await started(loop.sock_recv(one, 100))
            if first == "operation":
                loop.add_writer(one, writable)
            await settle()
            assert len(room) == 1 and not receiving.done()
            other.send(b"x")
            assert await receiving == b"x"
            assert_free(loop, one)
            del room[:]

    loop.run_until_complete(main())


def test_a_callback_in_the_turn_of_an_event_does_not_delay_it(loop, pair):
    """The callback is for the other direction."""
    one, other = pair
    receiving = loop.create_task(loop.sock_recv(one, 100))
    run_once(loop, 2)
    other.send(b"x")
    loop.call_soon(loop.add_writer, one, int)
    run_once(loop, 2)  # the event, then the task
    assert receiving.result() == b"x"
    assert loop.remove_writer(one)


def test_a_callback_in_the_turn_of_an_event_takes_the_place_of_the_operation(loop, pair):
    """The callback is for the same direction."""
    one, other = pair
    receiving = loop.create_task(loop.sock_recv(one, 100))
    run_once(loop, 2)
    other.send(b"x")
    seen = []
    loop.call_soon(loop.add_reader, one, lambda: seen.append(one.recv(100)))
    run_once(loop, 3)
    assert seen == [b"x"] and not receiving.done()
    assert loop.remove_reader(one)
    receiving.cancel()
    run_once(loop, 3)


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="asyncio sends files with os.sendfile() only")
def test_an_event_of_the_turn_is_for_the_operation_that_waited_then(loop, pair, tmp_path):
    """asyncio cancels its callback; the next operation waits for an event of its own, in the next turn."""
    one, _ = pair
    (tmp_path / "file").write_bytes(b"x" * 100)
    with open(tmp_path / "file", "rb") as file:
        displaced = loop.create_task(loop.sock_sendfile(one, file))
        run_once(loop)
        sending = loop.create_task(loop.sock_sendfile(one, file))
        run_once(loop, 2)
        assert not sending.done()
        run_once(loop)
        assert sending.result() == 100
        assert not displaced.done()
        displaced.cancel()
        run_once(loop, 3)


def test_a_transport_for_a_socket_that_was_waited_on(loop, pair):
    one, other = pair

    async def main():
        await ping(loop, one, other)
        reader, writer = await asyncio.open_connection(sock=one)
        other.send(b"line\n")
        assert await reader.readline() == b"line\n"
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.sock_recv(one, 100)
        writer.close()
        await writer.wait_closed()

    loop.run_until_complete(main())


def test_two_directions_wait_and_end_in_turns(loop, pair):
    """Neither disturbs the other, even if both are reported at once."""
    one, other = pair

    async def main():
        for _ in range(3):
            sending = await started(loop.sock_sendall(one, bytes(3_000_000)))
            receiving = await started(loop.sock_recv(one, 100))
            other.send(b"answer")
            received = 0
            while received < 3_000_000:
                received += len(await loop.sock_recv(other, 100_000))
            assert await receiving == b"answer"
            await sending
            assert_free(loop, one)

    loop.run_until_complete(main())


# -- coroutines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["throw", "close"])
def test_ended_by_hand(loop, pair, method):
    one, other = pair

    async def main():
        coroutine = loop.sock_recv(one, 100)
        future = coroutine.send(None)
        assert asyncio.isfuture(future) and registered(loop, one) is not None
        future.cancel()  # otherwise asyncio's method leaves its reader registered
        if method == "close":
            coroutine.close()
        else:
            with pytest.raises(ZeroDivisionError):
                coroutine.throw(ZeroDivisionError())
        await turns(2)
        assert_free(loop, one)
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            coroutine.send(None)
        coroutine.close()
        other.send(b"still there")
        assert one.recv(100) == b"still there"

    loop.run_until_complete(main())


@pytest.mark.parametrize(
    "arguments",
    [
        [ZeroDivisionError()],
        ["nonsense"],
        [ValueError, "two arguments"],
        [ValueError("instance"), "and value"],
        [ValueError, None, "no traceback"],
    ],
    ids=str,
)
def test_throw_into_an_ended_coroutine(loop, pair, arguments):
    """CPython 3.15 does not look at what is thrown, earlier versions do."""

    async def ends():
        pass

    def refusal(coroutine):
        coroutine.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(Exception) as refused:
                coroutine.throw(*arguments)
        return refused.type, [(warning.category, str(warning.message)) for warning in caught]

    assert refusal(loop.sock_recv(pair[0], 100)) == refusal(ends())


def test_driven_by_hand(loop, pair):
    one, other = pair

    async def main():
        coroutine = loop.sock_recv(one, 100)
        with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
            coroutine.send("something")
        other.send(b"x")
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        assert stopped.value.value == b"x"
        coroutine = loop.sock_recv(one, 100)
        coroutine.send(None)
        with pytest.raises(RuntimeError, match="await wasn't used with future"):
            coroutine.send(None)
        coroutine.close()
        with pytest.raises(ZeroDivisionError):
            loop.sock_recv(one, 100).throw(ZeroDivisionError())
        await turns(2)
        loop.remove_reader(one)  # asyncio's method leaves its reader registered until its future is done

    loop.run_until_complete(main())


def test_awaited_by_two(loop, pair):
    one, other = pair

    async def main():
        coroutine = loop.sock_recv(one, 100)

        async def wait():
            return await coroutine

        first = await started(wait())
        with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
            await wait()
        other.send(b"for the first")
        assert await first == b"for the first"

    loop.run_until_complete(main())


def test_tasks_of_asyncio(loop, pair):
    """asyncio's own tasks, in C and in Python, may await these coroutines."""
    one, other = pair

    async def main():
        for kind in (asyncio.tasks._CTask, asyncio.tasks._PyTask):
            task = kind(loop.sock_recv(one, 100), loop=loop)
            await turns(2)
            assert not task.done() and "sock_recv" in repr(task)
            other.send(b"x")
            assert await task == b"x"
            task = kind(loop.sock_recv(one, 100), loop=loop)
            await turns(2)
            await cancelled(task)
            assert_free(loop, one)

    loop.run_until_complete(main())


def test_where_it_was_made_is_told_in_debug_mode(loop, pair):
    async def main():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop.sock_recv(pair[0], 100)
        text = str(caught[0].message)
        assert "sock_recv' was never awaited" in text
        assert "Coroutine created at" in text and "test_sock_waiting.py" in text

    loop.set_debug(True)
    loop.slow_callback_duration = NEVER_SLOW
    loop.run_until_complete(main())


def test_debug_mode(loop, pair):
    one, other = pair

    async def main():
        for _ in range(3):
            await ping(loop, one, other)
            await cancelled(await started(loop.sock_recv(one, 100)))
            assert_free(loop, one)

    loop.set_debug(True)
    loop.slow_callback_duration = NEVER_SLOW
    loop.run_until_complete(main())


def test_a_replaced_call_soon(loop, pair):
    one, other = pair
    called = []
    call_soon = loop.call_soon

    def counting(callback, *args, **keywords):
        called.append(callback)
        return call_soon(callback, *args, **keywords)

    async def main():
        await ping(loop, one, other)
        loop.call_soon = counting
        await ping(loop, one, other)
        del loop.call_soon
        await ping(loop, one, other)
        assert called

    loop.run_until_complete(main())


def test_others_have_their_turn_while_much_is_sent(loop, pair):
    """The peer reads as fast as the loop sends; other tasks must still run."""
    one, other = pair
    size = 20_000_000

    async def drain():
        received = 0
        while received < size:
            received += len(await loop.sock_recv(other, 1_000_000))
            await asyncio.sleep(0)
        return received

    async def main():
        ticks = []

        async def tick():
            while True:
                ticks.append(None)
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        draining = asyncio.ensure_future(drain())
        await loop.sock_sendall(one, bytes(size))
        assert len(ticks) > 5
        assert await draining == size
        await cancelled(ticking)

    loop.run_until_complete(main())


def test_the_loop_is_closed_meanwhile(impl, pair):
    loop = impl.new_event_loop()
    coroutine = loop.sock_recv(pair[0], 100)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        coroutine.send(None)


def test_garbage(impl, pair):
    """A loop is dropped while a coroutine waits on it."""
    loop = impl.new_event_loop()
    coroutine = loop.sock_recv(pair[0], 100)
    future = coroutine.send(None)
    dropped = weakref.ref(loop)
    loop.close()
    del loop, coroutine, future
    gc.collect()
    assert dropped() is None


@pytest.mark.only("c", reason="asyncio's methods wait by callbacks from the beginning")
def test_an_add_reader_that_closes_the_coroutine_and_fails(loop, pair):
    one, _ = pair
    receiving = loop.sock_recv(one, 100)

    def add_reader(fd, callback, *args):
        receiving.close()
        raise ValueError

    async def main():
        receiving.send(None)
        loop._add_reader = add_reader
        try:
            loop.add_writer(one, int)
        finally:
            del loop._add_reader
        loop.remove_writer(one)
        await turns(2)

    loop.run_until_complete(main())
