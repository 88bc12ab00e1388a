"""run_forever(), run_until_complete() and stop()."""

import asyncio

import pytest
from support.stepping import run_once


def test_stop_lets_the_batch_finish_and_leaves_the_rest_queued(loop):
    seen = []

    def stopping():
        seen.append("stopping")
        loop.call_soon(seen.append, "next turn")
        loop.stop()
        loop.call_soon(seen.append, "next turn too")

    loop.call_soon(stopping)
    loop.call_soon(seen.append, "same batch")
    loop.run_forever()
    assert seen == ["stopping", "same batch"]
    assert not loop.is_running()
    run_once(loop)
    assert seen == ["stopping", "same batch", "next turn", "next turn too"]


def test_stop_before_running_allows_exactly_one_iteration(loop):
    seen = []

    def chain(count):
        seen.append(count)
        loop.call_soon(chain, count + 1)

    loop.call_soon(chain, 0)
    for expected in range(1, 5):
        loop.stop()
        loop.run_forever()
        assert len(seen) == expected
    loop._ready.clear()


def test_stop_before_running_does_not_wait(loop):
    handle = loop.call_later(3600, pytest.fail, "an hour has not passed")
    loop.stop()
    loop.run_forever()
    handle.cancel()


def test_stop_is_forgotten_after_the_run(loop):
    loop.stop()
    loop.run_forever()
    turns = []
    loop.call_soon(turns.append, 1)
    loop.call_soon(loop.call_soon, loop.call_soon, loop.stop)
    loop.run_forever()
    assert turns == [1]


def test_stop_twice_is_the_same_as_once(loop):
    seen = []
    loop.call_soon(loop.stop)
    loop.call_soon(loop.stop)
    loop.call_soon(loop.call_soon, seen.append, "later")
    loop.run_forever()
    assert seen == []
    run_once(loop)
    assert seen == ["later"]


def test_stop_from_a_timer(loop):
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert not loop.is_running()


def test_stop_from_another_thread(loop):
    import threading

    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()


def test_is_running(loop):
    seen = []
    assert loop.is_running() is False
    loop.call_soon(lambda: seen.append(loop.is_running()))
    run_once(loop)
    assert seen == [True]  # True itself: asyncio's C code compares by identity
    assert loop.is_running() is False


def test_the_running_loop_is_known_inside_and_only_there(loop):
    seen = []
    loop.call_soon(lambda: seen.append(asyncio.get_running_loop()))
    run_once(loop)
    assert seen == [loop]
    assert asyncio._get_running_loop() is None


def test_run_until_complete_returns_the_result(impl, loop):
    async def main():
        await asyncio.sleep(0)
        return "result"

    assert loop.run_until_complete(main()) == "result"
    future = loop.create_future()
    loop.call_soon(future.set_result, "future's")
    assert loop.run_until_complete(future) == "future's"
    assert loop.run_until_complete(future) == "future's"
    task = loop.create_task(main())
    assert loop.run_until_complete(task) == "result"


def test_run_until_complete_accepts_any_awaitable(loop):
    class Awaitable:
        def __await__(self):
            yield
            return "awaited"

    assert loop.run_until_complete(Awaitable()) == "awaited"


def test_run_until_complete_raises_the_exception(loop):
    async def main():
        raise ZeroDivisionError("from main")

    with pytest.raises(ZeroDivisionError, match="from main"):
        loop.run_until_complete(main())
    assert not loop.is_running()


def test_run_until_complete_stopped_early(loop):
    future = loop.create_future()
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="Event loop stopped before Future completed"):
        loop.run_until_complete(future)
    loop.call_soon(future.set_result, "later")
    assert loop.run_until_complete(future) == "later"


def test_run_until_complete_uses_asyncios_own_callback(loop):
    """anyio finds the root task by this very function among a task's callbacks."""
    seen = []

    async def main():
        seen.extend(callback for callback, _ in asyncio.current_task()._callbacks)

    loop.run_until_complete(main())
    assert seen == [asyncio.base_events._run_until_complete_cb]


def test_a_loop_runs_many_times(loop):
    async def number(value):
        await asyncio.sleep(0)
        return value

    assert [loop.run_until_complete(number(value)) for value in range(200)] == list(range(200))
