"""hotloop.testing raises a clear error where nothing can happen any more, and for wrong arguments."""

import asyncio
import contextlib
import functools
import gc
import inspect
import socket
import sys
import threading
import warnings
from math import inf, nan

import pytest
from support.virtual_time import _loop, _run, virtual_class  # noqa: F401

from hotloop import testing
from hotloop.testing import DeadlockError

# -- deadlocks ---------------------------------------------------------------------------------------------------------


async def waiting_for_nothing():
    await asyncio.get_running_loop().create_future()


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks(run):
    async def main():
        tasks = [asyncio.create_task(waiting_for_nothing(), name=f"waiting {number}") for number in range(2)]
        await asyncio.wait(tasks)

    with pytest.raises(DeadlockError, match="no timer is pending") as raised:
        run(main())
    text = str(raised.value)
    line = inspect.getsourcelines(waiting_for_nothing)[1] + 1
    for number in range(2):
        assert f"waiting {number}: waiting_for_nothing(), at {__file__}:{line} in waiting_for_nothing()" in text


def test_a_timer_that_is_never_due_is_none(run):
    async def main():
        await asyncio.sleep(inf)

    with pytest.raises(DeadlockError):
        run(main())


def test_a_frozen_clock_that_nothing_moves_is_a_deadlock(run):
    async def main():
        asyncio.get_running_loop().clock.freeze()
        await asyncio.sleep(5)

    with pytest.raises(DeadlockError, match="the clock is frozen at 0 and the next timer is due at 5"):
        run(main())


def test_the_loop_can_be_used_after_a_deadlock(loop):
    with pytest.raises(DeadlockError):
        loop.run_forever()
    assert loop.run_until_complete(asyncio.sleep(1, "slept")) == "slept"


def test_a_thread_that_may_wake_the_loop_is_waited_for(run):
    """Once the thread has ended, nothing can wake the loop."""

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        thread = threading.Timer(0.02, loop.call_soon_threadsafe, [future.set_result, "woken"])
        thread.start()
        assert await future == "woken"
        thread.join()
        thread = threading.Timer(0.02, str)
        thread.start()
        await loop.create_future()

    with pytest.raises(DeadlockError):
        run(main())


def test_a_worker_without_work_does_not_wake_the_loop(run):
    async def main():
        await asyncio.to_thread(str)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        run(main())


def test_patience_ends_a_wait_that_cannot_be_decided(run, pair):
    async def main():
        await asyncio.get_running_loop().sock_recv(pair[0], 1)

    with pytest.raises(DeadlockError, match=r"nothing has woken the loop for 0\.02 s"):
        run(main(), patience=0.02)


def test_patience_ends_a_hold(run):
    async def main():
        with asyncio.get_running_loop().clock.hold():
            await asyncio.sleep(1)

    with pytest.raises(DeadlockError, match="the clock is held at 0 and the next timer is due at 1"):
        run(main(), patience=0.02)


@pytest.mark.parametrize("seconds", [3e6, 1e300])
def test_a_wait_may_be_longer_than_the_longest_poll(run, pair, seconds):
    """Polling for longer than 24.8 days is an OverflowError."""

    async def main():
        with asyncio.get_running_loop().clock.hold():
            sender = threading.Timer(0.02, pair[1].send, [b"x"])
            sender.start()
            assert await asyncio.get_running_loop().sock_recv(pair[0], 1) == b"x"
            sender.join()

    run(main(), patience=seconds)


@pytest.mark.parametrize("seconds", [3e6, 1e300])
def test_the_grace_of_io_may_be_longer_than_the_longest_poll(run, seconds):
    async def main():
        loop = asyncio.get_running_loop()
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as client,
            listener.accept()[0] as accepted,
        ):
            client.setblocking(False)
            sender = threading.Timer(0.02, accepted.send, [b"x"])
            sender.start()
            assert await asyncio.wait_for(loop.sock_recv(client, 1), 1) == b"x"
            assert loop.time() == 0
            sender.join()

    run(main(), io_grace=seconds)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [nan, inf, -inf, 10**400])
def test_times_that_are_none(impl, loop, seconds):
    virtual = virtual_class(impl.EventLoop)
    with pytest.raises(ValueError, match="start must be finite"):
        virtual(start=seconds)
    with pytest.raises(ValueError, match="io_grace must be finite"):
        virtual(io_grace=seconds)
    with pytest.raises(ValueError, match="patience must be finite"):
        virtual(patience=seconds)
    with pytest.raises(ValueError, match="seconds must be finite"):
        loop.clock.advance(seconds)


def test_negative_times(impl, loop):
    with pytest.raises(ValueError, match="seconds must not be negative: -1"):
        loop.clock.advance(-1)
    with pytest.raises(ValueError, match="io_grace must not be negative"):
        virtual_class(impl.EventLoop)(io_grace=-1)
    with pytest.raises(ValueError, match="patience must be positive"):
        virtual_class(impl.EventLoop)(patience=0)


@pytest.mark.parametrize("seconds", ["1", None, True, object()])
def test_what_is_no_number(impl, loop, seconds):
    with pytest.raises(TypeError, match="start must be a number of seconds"):
        virtual_class(impl.EventLoop)(start=seconds)
    with pytest.raises(TypeError, match="seconds must be a number of seconds"):
        loop.clock.advance(seconds)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"io_grace": -1}, {"start": "1"}, {"relax": ["futures"]}])
def test_a_subclass_that_has_wrong_options(impl, options, monkeypatch):
    """Nothing is left of the loop that was to be made."""

    class Loop(virtual_class(impl.EventLoop)):
        def __init__(self):
            super().__init__(**options)

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append(raised.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            Loop()
        gc.collect()
    assert not unraisable


def test_timers_at_no_time(loop):
    with pytest.raises(ValueError, match="NaN"):
        loop.call_at(nan, print)
    with pytest.raises(ValueError, match="NaN"):
        loop.call_later(nan, print)
    for none in (loop.call_at, loop.call_later):
        with pytest.raises(TypeError):
            none(None, print)


def test_the_clock_in_another_thread(run):
    async def main():
        clock = asyncio.get_running_loop().clock
        for method in (clock.freeze, clock.resume, functools.partial(clock.advance, 1)):
            with pytest.raises(RuntimeError, match="another thread"):
                await asyncio.to_thread(method)
        assert await asyncio.to_thread(clock.time) == 0.0

    run(main())


def test_nested_use(run):
    async def main():
        coroutine = asyncio.sleep(0)
        with contextlib.closing(coroutine), pytest.raises(RuntimeError, match=r"testing\.run\(\) cannot be called"):
            testing.run(coroutine)
        with pytest.raises(RuntimeError, match=r"testing\.run_seeds\(\) cannot be called"):
            testing.run_seeds(main)
        other = testing.new_event_loop()
        with contextlib.closing(other), pytest.raises(RuntimeError, match="while another loop is running"):
            other.run_forever()

    run(main())
