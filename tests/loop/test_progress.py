"""loop._progress(), which a thread reads to see whether the loop makes progress."""

import asyncio
import threading

import pytest
from support.nesting import nested
from support.stepping import run_once, run_until

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loop has no such method")


def test_it_is_another_number_in_each_callback_and_task_step(loop):
    seen = []

    async def steps():
        for _ in range(3):
            seen.append(loop._progress())
            await asyncio.sleep(0)

    task = loop.create_task(steps())
    for _ in range(3):
        loop.call_soon(lambda: seen.append(loop._progress()))
    loop.run_until_complete(task)
    assert len(set(seen)) == 6
    assert -1 not in seen


def test_it_stays_the_same_number_within_a_callback(loop):
    seen = []

    def callback():
        loop.call_soon(int)
        seen.extend(loop._progress() for _ in range(3))

    loop.call_soon(callback)
    run_once(loop)
    assert len(set(seen)) == 1


@pytest.mark.parametrize("debug", [False, True])
def test_it_goes_on_after_a_callback_that_fails(loop, debug):
    loop.set_debug(debug)
    seen, contexts = [], []
    loop.set_exception_handler(lambda _, context: contexts.append(context))

    def fail():
        seen.append(loop._progress())
        raise ValueError

    for _ in range(3):
        loop.call_soon(fail)
    run_once(loop)
    assert len(set(seen)) == len(contexts) == 3


def test_it_is_minus_one_while_the_loop_does_not_run(loop):
    assert loop._progress() == -1
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert loop._progress() == -1
    loop.call_soon(exit)
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert loop._progress() == -1


def test_it_is_minus_one_while_the_loop_waits(loop):
    """Another thread waits until it reads -1, and then wakes the loop."""
    loop.call_soon(int)
    run_once(loop)
    done, seen = threading.Event(), []

    def watch():
        while loop._progress() != -1:
            pass
        seen.append(-1)
        loop.call_soon_threadsafe(done.set)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=watch)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert seen == [-1]
    assert done.is_set()


def test_another_thread_sees_which_callback_runs(loop):
    seen, asked, answered = [], threading.Semaphore(0), threading.Semaphore(0)

    def watch():
        for _ in range(4):
            asked.acquire()
            seen.append(loop._progress())
            answered.release()

    def ask():
        asked.release()
        answered.acquire()

    def ask_twice():
        ask()
        ask()

    thread = threading.Thread(target=watch)
    thread.start()
    for callback in (ask, ask_twice, ask):
        loop.call_soon(callback)
    run_once(loop)
    thread.join()
    first, second, still_second, third = seen
    assert second == still_second
    assert len({first, second, third, -1}) == 4


def test_a_loop_that_is_run_inside_a_callback_gets_on(loop):
    seen = []

    async def inner():
        for _ in range(2):
            seen.append(loop._progress())
            await asyncio.sleep(0)

    def callback():
        seen.append(loop._progress())
        nested(loop, inner())
        seen.append(loop._progress())

    loop.call_soon(callback)
    loop.call_soon(lambda: seen.append(loop._progress()))
    run_until(loop, lambda: len(seen) == 5)
    assert -1 not in seen
    # callback(), the last one in the inner batch, inner() twice, and callback() again, after its nested run
    assert len(set(seen)) == 5
