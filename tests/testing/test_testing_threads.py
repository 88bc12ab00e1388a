"""Loops of hotloop.testing beside threads: which threads hold the clock, and which could end an apparent deadlock."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import math
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker

import pytest
from support.virtual_time import _loop, _run  # noqa: F401

from hotloop import allow_inspection, testing, watch_stalls
from hotloop.testing import DeadlockError, threads


def now():
    return asyncio.get_running_loop().time()


def looked_at_from_a_thread(loop):
    """Return the clock's time when the loop has gone to sleep, having found nothing else to do."""
    time.sleep(0.05)
    return loop.time()


@contextlib.asynccontextmanager
async def timer_pending():
    """A timer that is due at once unless something holds the clock."""
    timer = asyncio.get_running_loop().call_later(1, print, "the clock was not held")
    try:
        yield
    finally:
        timer.cancel()


# -- what holds the clock ----------------------------------------------------------------------------------------------


def test_work_that_was_given_to_an_executor(run):
    """Work that waits for a thread holds the clock as well, even if it came through the executor's own submit()."""

    async def main():
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            async with timer_pending():
                jobs = [executor.submit(looked_at_from_a_thread, loop) for _ in range(3)]
                assert await asyncio.gather(*map(asyncio.wrap_future, reversed(jobs))) == [0.0, 0.0, 0.0]
            assert not loop.clock.held
            await asyncio.sleep(5)
        return now()

    assert run(main()) == 5


def test_what_wraps_no_executors_work_holds_nothing(run):
    """No thread works on a coroutine of the loop's own, or on a future that a timer of the loop sets."""

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(str)  # makes executors exist
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(5), loop))
        future = concurrent.futures.Future()
        loop.call_later(5, future.set_result, "set")
        assert await asyncio.wrap_future(future) == "set"
        return now()

    assert run(main()) == 10


def test_a_worker_thread_of_anyio(run):
    to_thread = pytest.importorskip("anyio.to_thread", reason="anyio is not installed")

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(2):  # by a new thread, and by one that was idle
            async with timer_pending():
                assert await to_thread.run_sync(looked_at_from_a_thread, loop) == now()
            assert not loop.clock.held
            await asyncio.sleep(5)
        return now()

    assert run(main()) == 10


def test_another_thread_is_given_the_grace_of_io(run):
    """Some libraries keep a thread for each connection: the loop cannot know whether such a thread is at work."""

    async def main():
        loop = asyncio.get_running_loop()
        jobs = queue.SimpleQueue()

        def work():
            while (future := jobs.get()) is not None:
                loop.call_soon_threadsafe(future.set_result, looked_at_from_a_thread(loop))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            async with timer_pending():
                future = loop.create_future()
                jobs.put(future)
                assert await future == 0.0
        finally:
            jobs.put(None)
            thread.join()

    run(main(), io_grace=60)


# -- deadlocks ---------------------------------------------------------------------------------------------------------


async def deadlock():
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("when", ["before the loop is made", "while it runs"])
def test_a_timeout_of_pytest_timeout_does_not_wake_the_loop(run, when):
    """Its timer may last for the whole test or, with `func_only`, for the test function alone. It is no daemon."""

    def end_the_test():
        raise AssertionError

    end_the_test.__module__ = "pytest_timeout"
    timer = threading.Timer(60, end_the_test)

    async def main():
        if when == "while it runs":
            timer.start()
        await deadlock()

    if when == "before the loop is made":
        timer.start()
    try:
        with pytest.raises(DeadlockError, match="nothing is there that could wake"):
            run(main(), patience=10)
    finally:
        timer.cancel()
        timer.join()


@pytest.fixture(scope="module")
def process_context():
    """multiprocessing keeps a descriptor for its resource tracker; it is not the test that leaves it behind."""
    resource_tracker.ensure_running()
    return multiprocessing.get_context("spawn")


def test_idle_processes_do_not_wake_the_loop(run, process_context):
    """The executor has two threads of its own, which stay as long as the processes. Only one that has work counts."""

    async def main(executor):
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        job = executor.submit(time.sleep, 0.1)
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set_result, "done"))
        assert await done == "done"
        await loop.run_in_executor(executor, str)
        await deadlock()

    executor = concurrent.futures.ProcessPoolExecutor(1, process_context)
    with executor, pytest.raises(DeadlockError, match="nothing is there that could wake"):
        run(main(executor), patience=20)


def test_a_process_that_ends_its_work_while_the_loop_looks_at_the_executor(run, process_context, monkeypatch):
    """Its thread then has no more work, but has not told the loop when its stack is looked at, or has just done so."""
    working, looks = threading.Event(), threading.Event()
    current_frames = threads.current_frames

    def slow_current_frames():
        found = current_frames()
        looks.set()
        working.wait()
        return found

    async def main(executor):
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell(job):
            working.set()
            looks.wait(5)
            time.sleep(0.01)
            loop.call_soon_threadsafe(done.set_result, "done")

        executor.submit(time.sleep, 0.1).add_done_callback(tell)
        return await done

    executor = concurrent.futures.ProcessPoolExecutor(1, process_context)
    with executor:
        executor.submit(str).result()
        monkeypatch.setattr(threads, "current_frames", slow_current_frames)
        assert run(main(executor), patience=20) == "done"


@pytest.mark.parametrize("timeout", [None, 10])
def test_a_thread_that_calls_and_ends_while_the_loop_looks_for_threads(run, timeout, monkeypatch):
    """There is no deadlock, and the time does not move."""
    looks = threading.Event()
    could_wake = threads.Threads.could_wake

    def slow_could_wake(self, **options):
        looks.set()
        for thread in started:
            thread.join()
        return could_wake(self, **options)

    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell():
            looks.wait()
            loop.call_soon_threadsafe(done.set_result, "done")

        started.append(threading.Thread(target=tell))
        started[0].start()
        return await asyncio.wait_for(done, timeout), loop.time()

    started = []
    monkeypatch.setattr(threads.Threads, "could_wake", slow_could_wake)
    assert run(main(), start=7) == ("done", 7)


@pytest.mark.only("c", "python", reason="asyncio's loops have no instruments")
def test_the_instruments_do_not_wake_the_loop(run, socket_path):
    async def main():
        loop = asyncio.get_running_loop()
        with watch_stalls(loop, 60), allow_inspection(loop, socket_path):
            await deadlock()

    with pytest.raises(DeadlockError):
        run(main())


def test_idle_workers_do_not_wake_the_loop(run):
    to_thread = pytest.importorskip("anyio.to_thread", reason="anyio is not installed")

    async def main():
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            await asyncio.wrap_future(executor.submit(str))
            await to_thread.run_sync(str)
            await deadlock()

    with pytest.raises(DeadlockError):
        run(main())


def test_a_worker_that_works_may_wake_the_loop(run):
    """The thread works for no future of the loop, but may wake it."""

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def work():
            asleep.wait()
            loop.call_soon_threadsafe(future.set_result, "woken")

        asleep = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            executor.submit(work)
            threading.Timer(0.05, asleep.set).start()
            return await future

    assert run(main()) == "woken"


# -- beside something periodic -----------------------------------------------------------------------------------------


async def tick(every=1.0):
    while True:
        await asyncio.sleep(every)


@pytest.mark.parametrize("every", [1e-3, 1.0, 86400.0])
def test_a_deadlock_beside_a_periodic_task(run, every):
    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(tick(every), name="ticking")
            group.create_task(deadlock(), name="waiting")

    with pytest.raises(DeadlockError, match="the clock has jumped 100 times in this run, to") as raised:
        run(main(), max_jumps=100)
    assert "waiting: deadlock(), at" in str(raised.value)


def test_a_jump_may_be_long_and_each_run_counts_anew(loop):
    loop._max_jumps = 3
    for _ in range(3):
        for _ in range(3):
            loop.run_until_complete(asyncio.sleep(1e5))
    assert loop.time() == 9e5
    loop.clock.freeze()

    async def advance(times):
        for _ in range(times):
            await loop.clock.advance(1)

    loop.run_until_complete(advance(3))
    task = loop.create_task(advance(4))
    with pytest.raises(DeadlockError):
        loop.run_until_complete(task)
    loop.run_until_complete(task)


def test_without_a_limit(run):
    async def main():
        task = asyncio.create_task(tick())
        await asyncio.sleep(1000.5)
        task.cancel()
        return now()

    assert run(main(), max_jumps=None) == 1000.5
    with pytest.raises(DeadlockError):
        run(main(), max_jumps=1000)


@pytest.mark.parametrize("call", [testing.run, testing.run_seeds, testing.new_event_loop])
def test_there_is_a_limit_unless_a_program_says_otherwise(call):
    assert inspect.signature(call).parameters["max_jumps"].default == 1_000_000


@pytest.mark.parametrize("jumps", [0, -1, 1.5, math.inf, True, "many"])
def test_limits_that_are_none(jumps):
    error = ValueError if jumps in (0, -1) and jumps is not True else TypeError
    with pytest.raises(error, match="max_jumps must be"):
        testing.new_event_loop(max_jumps=jumps)


# -- real time ---------------------------------------------------------------------------------------------------------

FROZEN = """
import sys
import time
{early}

real = time.monotonic
for module in list(sys.modules.values()):
    for name in [name for name, value in vars(module).items() if value is real and module.__name__ != "threading"]:
        setattr(module, name, lambda: 1000.0)

import asyncio
import concurrent.futures
from hotloop import testing

async def is_held():
    with asyncio.get_running_loop().clock.hold():
        await asyncio.sleep(5)

async def waits_for_a_timer():
    await asyncio.to_thread(str)  # makes an executor exist
    future = concurrent.futures.Future()
    asyncio.get_running_loop().call_later(5, future.set_result, "set")
    return await asyncio.wrap_future(future)

try:
    testing.run(is_held(), patience=0.01)
except testing.DeadlockError:
    pass
else:
    raise AssertionError
assert testing.run(waits_for_a_timer()) == "set"
"""


@pytest.mark.only("c", "python", reason="it is about the import of hotloop")
@pytest.mark.parametrize("early", ["", "import hotloop.testing"])
def test_a_program_that_freezes_time_does_not_freeze_patience(impl, early):
    """freezegun, for example, which replaces time.monotonic() in every module that has it."""
    environment = os.environ | {"HOTLOOP_IMPL": impl.name}
    command = [sys.executable, "-W", "error", "-c", FROZEN.format(early=early)]
    subprocess.run(command, env=environment, check=True, timeout=20)
