"""hotloop.testing: a clock that jumps, ways to hold it, and ways to move it by hand.

The oracle is asyncio's own loop with the same clock on top: it must behave like hotloop's loops there.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.virtual_time import _loop, _run  # noqa: F401

from hotloop.testing import Clock


def now():
    return asyncio.get_running_loop().time()


async def asleep(seconds, seen):
    await asyncio.sleep(seconds)
    seen.append((seconds, now()))


async def ticking(seen):
    while True:
        await asyncio.sleep(1)
        seen.append(now())


# -- jumping -----------------------------------------------------------------------------------------------------------


@pytest.mark.only("c", "python", reason="asyncio's timers are never due where rounding swallows its clock's resolution")
def test_sleeping_takes_no_time(run):
    """The hang guard would notice a year of real time."""

    async def main():
        await asyncio.sleep(365 * 86400)
        return now()

    assert run(main(), start=5.0) == 5.0 + 365 * 86400


def test_sleepers_wake_at_their_times(run):
    async def main():
        seen = []
        await asyncio.gather(*(asleep(seconds, seen) for seconds in (30, 0.25, 7200, 0.5)))
        return seen

    assert run(main()) == [(0.25, 0.25), (0.5, 0.5), (30, 30.0), (7200, 7200.0)]


def test_timeouts_go_by_the_clock(run):
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(now() + 5):
                await asyncio.sleep(6)
        done, pending = await asyncio.wait([asyncio.ensure_future(asyncio.sleep(100))], timeout=1)
        assert not done
        pending.pop().cancel()
        assert await asyncio.wait_for(asyncio.sleep(3, "in time"), 4) == "in time"
        return now()

    assert run(main()) == 10 + 5 + 1 + 3


def test_a_cancelled_timer_does_not_move_the_clock(run):
    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(1000, print).cancel()
        timers = [loop.call_later(2000 + number, print) for number in range(500)]
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(1)
        return now()

    assert run(main()) == 1


def test_call_later_and_call_at(loop):
    seen = []
    loop.call_later(10, seen.append, "later")
    loop.call_at(5, seen.append, "at")
    loop.call_later(-1, seen.append, "at once")
    loop.call_at(20, loop.stop)
    loop.run_forever()
    assert (seen, loop.time()) == (["at once", "at", "later"], 20)


def test_a_timer_keeps_its_context_and_can_be_cancelled(loop):
    timer = loop.call_later(10, print, "never")
    assert timer.when() == 10
    timer.cancel()
    assert timer.cancelled()


def test_no_time_passes_while_callbacks_run(run):
    async def main():
        for _ in range(100):
            await asyncio.sleep(0)
        return now()

    assert run(main()) == 0.0


def test_many_timers(run):
    """The number of timers does not matter: each jump looks at the first one only."""

    async def main():
        await asyncio.gather(*(asyncio.sleep(number / 8) for number in range(5000)))
        return now()

    assert run(main()) == 4999 / 8


def test_debug_mode_tells_where_a_timer_was_set(loop):
    loop.set_debug(True)
    loop.slow_callback_duration = 3600
    handles = [loop.call_later(1, print), loop.call_at(1, print), loop.call_soon_threadsafe(print)]
    for handle in handles:
        assert handle._source_traceback[-1].filename == __file__
        handle.cancel()


# -- the network -------------------------------------------------------------------------------------------------------


async def echo_after(seconds, reader, writer):
    while line := await reader.readline():
        await asyncio.sleep(seconds)
        writer.write(line)
    writer.close()


@contextlib.asynccontextmanager
async def connected(serve):
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()
        await writer.wait_closed()


def test_a_server_and_its_client(run):
    async def main():
        async with connected(functools.partial(echo_after, 60)) as (reader, writer):
            for number in range(5):
                writer.write(b"%d\n" % number)
                assert await asyncio.wait_for(reader.readline(), 61) == b"%d\n" % number
                assert now() == 60 * (number + 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 1)
        return now()

    assert run(main()) == 301


def test_what_is_on_its_way_comes_before_a_timeout(run):
    """The data exceeds what the sockets hold, so both ends need many turns, while a timeout of almost no length
    waits."""

    async def flood(reader, writer):
        writer.write(bytes(2**22))
        await writer.drain()
        writer.close()

    async def main():
        async with connected(flood) as (reader, _):
            data = await asyncio.wait_for(reader.read(-1), 1e-9)
        return len(data), now()

    assert run(main()) == (2**22, 0.0)


def test_sock_methods(run, pair):
    async def main():
        loop = asyncio.get_running_loop()
        one, other = pair
        loop.call_later(10, other.send, b"x")
        return await loop.sock_recv(one, 1), now()

    assert run(main()) == (b"x", 10)


def test_a_test_suite_may_forbid_new_sockets(run, pair, monkeypatch):
    """By another class in place of socket.socket, as pytest-socket does."""

    async def main():
        reader, writer = await asyncio.open_unix_connection(sock=pair[0])
        asyncio.get_running_loop().call_later(10, pair[1].send, b"x")
        data = await reader.read(1)
        writer.close()
        await writer.wait_closed()
        return data, now()

    class NoNetwork(socket.socket):
        def __new__(cls, family=-1, *args, **kwargs):
            assert family == socket.AF_UNIX, "a test may not use the network"
            return super().__new__(cls, family, *args, **kwargs)

    monkeypatch.setattr(socket, "socket", NoNetwork)
    assert run(main()) == (b"x", 10)


def test_kinds_of_descriptors_that_may_be_late(pair):
    from hotloop.testing.loop import _may_be_late

    reading, writing = os.pipe()
    try:
        assert not _may_be_late(reading)
        os.fstat(reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert not _may_be_late(pair[0].fileno())
    with socket.socket() as tcp:
        assert _may_be_late(tcp.fileno())
        assert tcp.getsockname()


@pytest.mark.parametrize("blocks", [True, False])
def test_a_socket_that_is_watched_blocks_as_before(run, pair, blocks):
    """A new socket object on the same descriptor would set the default timeout's mode, on PyPy always."""

    async def main():
        loop = asyncio.get_running_loop()
        pair[0].setblocking(blocks)
        loop.add_reader(pair[0].fileno(), print)
        socket.setdefaulttimeout(5)
        try:
            await asyncio.sleep(1)
        finally:
            socket.setdefaulttimeout(None)
            loop.remove_reader(pair[0].fileno())
        assert os.get_blocking(pair[0].fileno()) == blocks

    run(main())


# -- what holds the clock ----------------------------------------------------------------------------------------------


def test_an_executor_holds_the_clock(run):
    """The thread waits until the loop is asleep, with a timer pending; if nothing held the clock, the timer would
    run."""

    async def main():
        loop = asyncio.get_running_loop()
        late = loop.call_later(1, print, "the clock was not held")
        assert await asyncio.to_thread(looked_at_from_a_thread, loop) == 0.0
        assert await loop.run_in_executor(None, looked_at_from_a_thread, loop) == 0.0
        late.cancel()
        assert not loop.clock.held
        await asyncio.sleep(5)
        return now()

    assert run(main()) == 5


def looked_at_from_a_thread(loop):
    assert loop.clock.held
    time.sleep(0.02)  # gives a mistake a chance to show; the result does not depend on it
    return loop.time()


def test_an_executor_of_ones_own(run):
    async def main():
        with concurrent.futures.ThreadPoolExecutor() as executor:
            await asyncio.get_running_loop().run_in_executor(executor, time.sleep, 0.01)
            await asyncio.sleep(5)
            return now()

    assert run(main()) == 5


def test_a_name_is_looked_up_in_real_time(run):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.get_running_loop().getaddrinfo("localhost", 80)
                assert now() == 0.0
                await asyncio.Event().wait()

    run(main())


def test_shutting_down_the_executor_takes_no_virtual_time(run):
    """asyncio gives the executor five minutes to end; the clock must not jump over them at once."""

    async def main():
        loop = asyncio.get_running_loop()
        may_end = threading.Event()
        job = loop.run_in_executor(None, may_end.wait)
        job.cancel()
        threading.Timer(0.05, may_end.set).start()
        await loop.shutdown_default_executor()
        return now()

    assert run(main()) == 0.0


def test_a_subprocess_holds_the_clock(run):
    async def main():
        loop = asyncio.get_running_loop()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print(input())", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert loop.clock.held
        out, _ = await asyncio.wait_for(child.communicate(b"said\n"), 1)
        assert (out.strip(), child.returncode, now()) == (b"said", 0, 0.0)
        await asyncio.sleep(10)
        assert not loop.clock.held
        return now()

    assert run(main()) == 10


def test_a_subprocess_that_is_not_there(run):
    async def main():
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nonexistent/program")
        assert not asyncio.get_running_loop().clock.held

    run(main())


def test_time_goes_on_past_a_hold_where_that_is_asked_for(run):
    """So a program can test its timeout for a child process that does not answer."""

    async def main():
        clock = asyncio.get_running_loop().clock
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=subprocess.PIPE)
        waiting = asyncio.ensure_future(asyncio.wait_for(child.wait(), 30))
        await clock.advance(30, ignore_holds=True)
        assert clock.held
        with pytest.raises(TimeoutError):
            await waiting
        child.kill()
        await child.wait()
        return now()

    assert run(main()) == 30


def test_a_thread_of_ones_own_holds_the_clock(run):
    async def main():
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        began = threading.Event()

        def hold():
            with loop.clock.hold():
                began.set()
                time.sleep(0.01)
                loop.call_soon_threadsafe(woken.set)

        thread = threading.Thread(target=hold)
        thread.start()
        began.wait()
        await asyncio.wait_for(woken.wait(), 1)
        thread.join()
        assert not loop.clock.held
        return now()

    assert run(main()) == 0.0


@pytest.mark.skipif(sys.platform == "win32", reason="add_signal_handler() is for Unix")
def test_a_signal_comes_before_a_timer(run):
    async def main():
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.wait_for(came.wait(), 1)
        # And a signal that comes while the loop sleeps because no other event can happen.
        came.clear()
        threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        await came.wait()
        loop.remove_signal_handler(signal.SIGUSR1)
        return now()

    assert run(main()) == 0.0


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_frozen_clock_moves_when_it_is_told_to(run):
    async def main():
        clock = asyncio.get_running_loop().clock
        clock.freeze()
        seen = []
        task = asyncio.ensure_future(ticking(seen))
        await asyncio.sleep(0)
        assert clock.frozen and seen == []
        await clock.advance(3.5)
        assert (seen, now()) == ([1, 2, 3], 3.5)
        await clock.advance(0.5)
        assert (seen, now()) == ([1, 2, 3, 4], 4)
        clock.resume()
        await asyncio.sleep(2.5)
        task.cancel()
        return seen, clock.time()

    assert run(main()) == ([1, 2, 3, 4, 5, 6], 6.5)


def test_advancing_leaves_nothing_half_done(run):
    """The callbacks due at the last moment have run, and so has all that they started, an executor and the network
    included."""

    async def main():
        clock = asyncio.get_running_loop().clock
        clock.freeze()
        done = []

        async def work(reader, writer):
            await asyncio.sleep(10)
            await asyncio.to_thread(time.sleep, 0.01)
            writer.write(b"line\n")
            done.append(await reader.readline())

        async with connected(functools.partial(echo_after, 0)) as (reader, writer):
            task = asyncio.ensure_future(work(reader, writer))
            await clock.advance(10)
            assert done == [b"line\n"]
            await task
        return now()

    assert run(main()) == 10


def test_advancing_from_outside(loop):
    seen = []
    loop.clock.freeze()
    loop.call_later(5, seen.append, "five")
    loop.call_later(7, seen.append, "seven")
    loop.run_until_complete(loop.clock.advance(5))
    assert (seen, loop.time()) == (["five"], 5)
    loop.run_until_complete(loop.clock.advance(1))
    assert (seen, loop.time()) == (["five"], 6)
    loop.run_until_complete(loop.clock.advance(1))
    assert seen == ["five", "seven"]


def test_two_tasks_that_advance(run):
    async def main():
        clock = asyncio.get_running_loop().clock
        clock.freeze()
        seen = []

        async def advance(seconds):
            await clock.advance(seconds)
            seen.append((seconds, now()))

        taken_back = clock.advance(1)
        taken_back.cancel()
        await asyncio.gather(advance(5), advance(2), advance(2))
        return seen

    assert run(main()) == [(2, 2), (2, 2), (5, 5)]


def test_advance_without_a_frozen_clock_is_a_sleep_that_runs_what_is_due(run):
    async def main():
        seen = []
        task = asyncio.ensure_future(asleep(4, seen))
        await asyncio.get_running_loop().clock.advance(4)
        task.cancel()
        return seen

    assert run(main()) == [(4, 4)]


def test_the_clocks_repr(loop):
    assert repr(loop.clock) == "<Clock time=0.0>"
    loop.clock.freeze()
    with loop.clock.hold():
        assert repr(loop.clock) == "<Clock time=0.0 frozen held>"


# -- the names ---------------------------------------------------------------------------------------------------------


@pytest.mark.only("c", "python", reason="hotloop.testing does not make asyncio's loop")
def test_the_public_loop(impl):
    impl.run_script(
        "from hotloop import testing\n"
        "import hotloop\n"
        "loop = testing.new_event_loop(start=7)\n"
        "assert isinstance(loop, testing.EventLoop) and isinstance(loop, hotloop.EventLoop)\n"
        "assert isinstance(loop.clock, testing.Clock)\n"
        "assert loop.run_until_complete(asyncio.sleep(3600, loop.time())) == 7\n"
        "assert loop.time() == 3607\n"
        "loop.close()\n"
        "assert testing.run(asyncio.sleep(3600, 1)) == 1\n"
    )


def test_nothing_of_it_is_imported_unasked():
    code = "import sys, hotloop; hotloop.run; assert 'hotloop.testing' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_clock_of_a_closed_loop(loop):
    hold = loop.clock.hold()
    hold.__enter__()
    loop.close()
    hold.__exit__(None, None, None)
    assert isinstance(loop.clock, Clock) and not loop.clock.held


@pytest.mark.only("c", "python", reason="asyncio's loop has no metrics")
def test_metrics_of_a_loop_with_virtual_time(run):
    async def main():
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            loop.add_reader(one, int)
            watched = loop.metrics().watched
            loop.remove_reader(one)
        return watched

    assert run(main()) == {"callback": 1}
