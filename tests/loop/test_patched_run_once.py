"""nest_asyncio and similar packages drive the loop from inside a callback: they call, nest and replace
`_run_once()`."""

import asyncio
import heapq
import threading
import time

import pytest
from support.nesting import nested
from support.stepping import run_once, run_until


async def inner(value):
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return value


@pytest.mark.only(
    "c", "python", reason="asyncio's iteration fails on the emptied queue, so nest_asyncio brings its own"
)
def test_a_nested_run_from_a_callback(loop):
    seen = []

    def callback():
        seen.append("before")
        seen.append(nested(loop, inner("inner")))
        seen.append("after")

    loop.call_soon(callback)
    loop.call_soon(seen.append, "rest of the batch")
    loop.call_later(0, seen.append, "a due timer")
    run_until(loop, lambda: "after" in seen)
    assert seen == ["before", "rest of the batch", "a due timer", "inner", "after"]


def test_a_nested_run_from_a_task(loop):
    async def main():
        return nested(loop, inner("inner"))

    assert loop.run_until_complete(main()) == "inner"


def test_no_current_task_after_an_iteration_by_hand(loop):
    seen = []

    def callback():
        task = loop.create_task(asyncio.sleep(0))
        while not task.done():
            loop._run_once()
            seen.append(asyncio.current_task(loop))

    loop.call_soon(callback)
    run_once(loop)
    assert set(seen) == {None}


def test_nested_runs_in_nested_runs(loop):
    async def deeper(depth):
        await asyncio.sleep(0)
        return depth and nested(loop, deeper(depth - 1)) + 1

    assert loop.run_until_complete(deeper(10)) == 10


def test_a_nested_run_in_debug_mode(loop):
    loop.set_debug(True)
    loop.slow_callback_duration = 3600

    async def main():
        return nested(loop, inner("inner"))

    assert loop.run_until_complete(main()) == "inner"


def test_run_once_waits_for_a_thread(loop):
    """An iteration run by hand sleeps until another thread wakes it, also inside a callback."""
    seen = []

    def callback():
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(seen.append, "woken"))
        thread.start()
        while not seen:
            loop._run_once()
        thread.join()

    loop.call_soon(callback)
    run_once(loop)
    assert seen == ["woken"]


class Patched:
    """A `_run_once()` in Python, modelled on nest_asyncio's, on the loop's semi-public attributes."""

    def __init__(self, loop):
        self.loop = loop
        self.turns = 0

    def __call__(self):
        loop = self.loop
        self.turns += 1
        ready, scheduled = loop._ready, loop._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)
        timeout = (
            0
            if ready or loop._stopping
            else min(max(scheduled[0]._when - loop.time(), 0), 86400)
            if scheduled
            else None
        )
        event_list = loop._selector.select(timeout)
        loop._process_events(event_list)
        end_time = loop.time() + loop._clock_resolution
        while scheduled and scheduled[0]._when < end_time:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            if not ready:
                break
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()


def test_a_foreign_run_once_on_the_semi_public_attributes(loop):
    loop._run_once = patched = Patched(loop)
    try:
        assert loop.run_until_complete(inner("patched")) == "patched"
    finally:
        del loop._run_once
    assert patched.turns > 2


def test_a_thread_wakes_a_foreign_run_once(loop):
    """The replaced method sleeps in the selector's own select(), without a timer: only a wake-up ends that."""
    loop._run_once = Patched(loop)

    async def main():
        future = loop.create_future()

        def post():
            running.wait()
            time.sleep(0.02)  # most likely the loop is asleep by then; if not, it must not fall asleep
            loop.call_soon_threadsafe(future.set_result, "woken")

        running = threading.Event()
        thread = threading.Thread(target=post)
        thread.start()
        loop.call_soon(running.set)
        try:
            return await future
        finally:
            thread.join()

    try:
        assert loop.run_until_complete(main()) == "woken"
    finally:
        del loop._run_once


def test_a_replaced_run_once_is_used(loop):
    calls = []
    original = loop._run_once

    def counting():
        calls.append(1)
        original()

    loop._run_once = counting
    assert loop.run_until_complete(inner("counted")) == "counted"
    assert len(calls) >= 3
    del loop._run_once


def test_a_run_forever_of_ones_own(loop):
    """nest_asyncio's run_forever(): the set-up by hand and `_run_once()` in a loop."""

    def run_forever():
        loop._check_closed()
        loop._set_coroutine_origin_tracking(loop._debug)
        previous_thread, previous_loop = loop._thread_id, asyncio._get_running_loop()
        try:
            loop._thread_id = threading.get_ident()
            asyncio._set_running_loop(None)
            asyncio._set_running_loop(loop)
            while True:
                loop._run_once()
                if loop._stopping:
                    break
            loop._stopping = False
        finally:
            loop._thread_id = previous_thread
            asyncio._set_running_loop(previous_loop)
            loop._set_coroutine_origin_tracking(False)

    loop.run_forever = run_forever
    assert loop.run_until_complete(inner("own")) == "own"

    async def outer():
        task = loop.create_task(inner("nested in own"))
        me = asyncio.current_task()
        asyncio.tasks._leave_task(loop, me)
        task.add_done_callback(lambda _: loop.stop())
        run_forever()
        asyncio.tasks._enter_task(loop, me)
        return task.result()

    assert loop.run_until_complete(outer()) == "nested in own"
    del loop.run_forever


def test_process_events_may_be_wrapped(loop):
    """Tracers wrap `_process_events()` to see I/O."""
    import socket

    seen = []
    original = loop._process_events

    def wrapped(event_list):
        seen.extend(event_list)
        original(event_list)

    loop._process_events = wrapped
    one, other = socket.socketpair()
    with one, other:
        loop.add_reader(one, loop.stop)
        other.send(b"x")
        loop.run_forever()
        loop.remove_reader(one)
    assert any(key.fileobj is one or key.fd == one.fileno() for key, _ in seen) or one.fileno() == -1
    del loop._process_events
