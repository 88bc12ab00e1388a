"""Other threads get the GIL from a loop that always has work queued.

What counts is how long the loop's thread has been on a processor meanwhile: a loaded machine makes that no longer.
"""

import asyncio
import functools
import threading
import time

import pytest

pytestmark = pytest.mark.only("c", reason="elsewhere each poll releases the GIL, and a thread gets it by chance")

TIMES = 40
# A thread asks for the GIL after a switch interval, 5 ms, and gets it at once or in a poll within four of them.
SECONDS = TIMES * 0.1


def in_python(loop, sock):
    def work():
        loop.call_soon(work)

    return work


def in_c(loop, sock):
    """No Python code looks whether another thread asks for the GIL."""
    work = functools.partial(loop.call_soon)
    work.__setstate__((loop.call_soon, (work,), {}, None))
    return work


def with_polls(loop, sock):
    """Each iteration polls, because a descriptor is watched anew."""

    def work():
        loop.remove_reader(sock)
        loop.add_reader(sock, print)
        loop.call_soon(work)

    return work


def seconds_of_the_loop(loop, work):
    """On a processor, until a thread has had the GIL TIMES times."""

    def take_turns():
        for _ in range(TIMES):
            time.sleep(0)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=take_turns)
    loop.call_soon(work)
    began = time.thread_time()
    loop.call_soon(thread.start)
    loop.run_forever()
    passed = time.thread_time() - began
    thread.join()
    loop._ready.clear()
    return passed


@pytest.mark.parametrize("work", [in_python, in_c, with_polls])
def test_a_thread_has_its_turns_beside_a_busy_loop(loop, pair, work):
    assert seconds_of_the_loop(loop, work(loop, pair[0])) < SECONDS
    loop.remove_reader(pair[0])


def test_the_executor_works_beside_a_busy_loop(loop):
    async def busy():
        while True:
            await asyncio.sleep(0)

    async def jobs():
        task = loop.create_task(busy())
        began = time.thread_time()
        for number in range(TIMES):
            assert await loop.run_in_executor(None, abs, -number) == number
        passed = time.thread_time() - began
        task.cancel()
        return passed

    assert loop.run_until_complete(jobs()) < SECONDS
    loop.run_until_complete(loop.shutdown_default_executor())
