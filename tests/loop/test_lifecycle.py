"""Errors of closing, of running twice and of running inside another loop; after each the loop works as before."""

import asyncio
import sys
import threading

import pytest
from support.stepping import run_once

# In CPython 3.13.0 asyncio's own loop believes that it has stopped after a refused nested run.
NESTED_RUNS_BREAK_THE_ORACLE = sys.version_info[:3] == (3, 13, 0)


def nested_run(test):
    """Mark a test of a run that is refused because another one is under way."""
    return pytest.mark.only("c", "python", reason="asyncio 3.13.0")(test) if NESTED_RUNS_BREAK_THE_ORACLE else test


# asyncio's loop has _run_forever_setup() and _run_forever_cleanup() since CPython 3.13.
without_halves = pytest.mark.only(
    *("c", "python"), *(["asyncio"] if sys.version_info >= (3, 13) else []), reason="asyncio has them since 3.13"
)


async def nothing():
    pass


def test_a_closed_loop_refuses_everything_that_would_wait(impl):
    loop = impl.new_event_loop()
    loop.close()
    assert loop.is_closed()
    coroutine = nothing()
    calls = {
        "run_forever": loop.run_forever,
        "run_until_complete": lambda: loop.run_until_complete(impl.Future(loop=loop)),
        "call_soon": lambda: loop.call_soon(print),
        "call_later": lambda: loop.call_later(1, print),
        "call_later 0": lambda: loop.call_later(0, print),
        "call_at": lambda: loop.call_at(loop.time(), print),
        "call_soon_threadsafe": lambda: loop.call_soon_threadsafe(print),
        "create_task": lambda: loop.create_task(coroutine),
        "run_in_executor": lambda: loop.run_in_executor(None, print),
        "add_reader": lambda: loop.add_reader(0, print),
        "add_writer": lambda: loop.add_writer(0, print),
    }
    for name, call in calls.items():
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            call()
        assert name
    coroutine.close()


def test_a_closed_loop_still_answers(impl):
    loop = impl.new_event_loop()
    loop.close()
    loop.close()
    loop.stop()
    assert loop.time() > 0
    assert loop.is_running() is False
    assert loop.create_future().get_loop() is loop
    assert loop.remove_reader(0) is False
    assert loop.remove_writer(0) is False
    assert "closed=True" in repr(loop)
    assert asyncio.all_tasks(loop) == set()


def test_finishing_a_future_with_a_waiter_after_the_loop_closed(impl):
    """set_result() raises, because it can no longer schedule the callback."""
    loop = impl.new_event_loop()
    future = loop.create_future()
    future.add_done_callback(print)
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        future.set_result(None)


def test_cancelling_handles_after_the_loop_closed(impl):
    loop = impl.new_event_loop()
    handles = loop.call_soon(print), loop.call_later(3600, print), loop.call_soon_threadsafe(print)
    loop.close()
    for handle in handles:
        handle.cancel()
        assert handle.cancelled()


def test_closing_a_running_loop(loop):
    errors = []

    def close():
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()
        errors.append("refused")

    loop.call_soon(close)
    run_once(loop)
    assert errors == ["refused"] and not loop.is_closed()


@nested_run
def test_running_a_running_loop(loop):
    errors = []

    def nested():
        for call in (loop.run_forever, lambda: loop.run_until_complete(future)):
            with pytest.raises(RuntimeError, match="This event loop is already running"):
                call()
            errors.append(asyncio.get_running_loop())

    future = loop.create_future()
    loop.call_soon(nested)
    loop.call_soon(future.set_result, None)
    loop.run_until_complete(future)
    assert errors == [loop, loop]


@nested_run
def test_a_refused_nested_run_does_not_disturb_the_outer_one(loop):
    seen = []

    def nested():
        with pytest.raises(RuntimeError):
            loop.run_forever()
        assert loop.is_running() is True
        assert asyncio.get_running_loop() is loop
        loop.call_soon(seen.append, "went on")
        loop.call_soon(loop.stop)

    loop.call_soon(nested)
    loop.run_forever()
    assert seen == ["went on"]


@nested_run
def test_running_another_loop_inside_one(impl, loop):
    other = impl.new_event_loop()
    errors = []

    def nested():
        with pytest.raises(RuntimeError, match="Cannot run the event loop while another loop is running"):
            other.run_forever()
        errors.append(asyncio.get_running_loop())

    loop.call_soon(nested)
    run_once(loop)
    assert errors == [loop]
    run_once(other)
    other.close()


@nested_run
def test_running_a_loop_that_runs_in_another_thread(impl, loop):
    started, finish = threading.Event(), threading.Event()
    loop.call_soon(lambda: (started.set(), finish.wait(), loop.stop()))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started.wait()
    with pytest.raises(RuntimeError, match="This event loop is already running"):
        loop.run_forever()
    with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
        loop.close()
    finish.set()
    thread.join()


def test_loops_in_many_threads(impl):
    results = []

    async def main(number):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(20)))
        return number

    threads = [threading.Thread(target=lambda n=n: results.append(impl.run(main(n)))) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(10))


def test_repr(loop):
    assert "EventLoop running=False closed=False debug=False" in repr(loop)
    seen = []
    loop.call_soon(lambda: seen.append(repr(loop)))
    run_once(loop)
    assert "running=True" in seen[0]


def test_closing_while_work_is_queued(impl):
    loop = impl.new_event_loop()
    loop.call_soon(pytest.fail, "it is closed")
    loop.call_later(0, pytest.fail, "it is closed")
    loop.close()
    assert len(loop._ready) == 0
    assert len(loop._scheduled) == 0


def test_a_selector_of_the_users_own(impl):
    import selectors

    for selector in (selectors.SelectSelector(), selectors.DefaultSelector(), impl.DefaultSelector()):
        loop = impl.EventLoop(selector)
        assert loop._selector is selector
        assert loop.run_until_complete(asyncio.sleep(0.001, "slept")) == "slept"
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        loop.call_soon(thread.start)
        loop.run_forever()
        thread.join()
        loop.close()


def test_a_runner(impl):
    with asyncio.Runner(loop_factory=impl.new_event_loop) as runner:
        assert isinstance(runner.get_loop(), impl.EventLoop)
        assert runner.run(asyncio.sleep(0, 1)) == 1
        assert runner.run(asyncio.sleep(0, 2)) == 2
    with pytest.raises(RuntimeError, match="Runner is closed"):
        coroutine = nothing()
        try:
            runner.run(coroutine)
        finally:
            coroutine.close()


def test_a_runner_cancels_what_is_left(impl):
    seen = []

    async def left_behind():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    async def main():
        main.task = asyncio.create_task(left_behind())
        await asyncio.sleep(0)

    impl.run(main())
    assert seen == ["cleaned up"] and main.task.cancelled()


def test_attributes_can_be_set(loop):
    """Test suites and frameworks set and replace attributes of the loop."""
    loop.anything = 1
    assert loop.anything == 1 and loop.__dict__["anything"] == 1
    original = loop.call_soon
    calls = []
    loop.call_soon = lambda *args, **keywords: calls.append(args) or original(*args, **keywords)
    loop.run_until_complete(nothing())
    assert calls
    del loop.call_soon


def test_isinstance(impl, loop):
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert isinstance(loop, asyncio.base_events.BaseEventLoop)
    assert isinstance(loop, asyncio.AbstractEventLoop)


def test_subclasses_see_calls_to_their_overrides(impl):
    calls = []

    class Watching(impl.EventLoop):
        def call_soon(self, callback, *args, context=None):
            calls.append("call_soon")
            return super().call_soon(callback, *args, context=context)

        def call_at(self, when, callback, *args, context=None):
            calls.append("call_at")
            return super().call_at(when, callback, *args, context=context)

        def create_future(self):
            calls.append("create_future")
            return super().create_future()

        def create_task(self, coroutine, **keywords):
            calls.append("create_task")
            return super().create_task(coroutine, **keywords)

    loop = Watching()
    try:
        loop.run_until_complete(asyncio.sleep(0.001))
        assert {"create_future", "create_task", "call_soon"} <= set(calls)
    finally:
        loop.close()


@pytest.mark.only("c", "python", reason="asyncio's __del__() fails if __init__() has failed")
def test_a_loop_that_cannot_be_made_leaves_nothing_behind(impl):
    impl.run_script("""if True:
        import errno, gc, selectors
        class Full(selectors.SelectSelector):
            def register(self, *args):
                raise OSError(errno.ENOSPC, "no space")
        try:
            impl.EventLoop(Full())
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            raise AssertionError("a loop was made")
        gc.collect()
        """)


@without_halves
def test_the_two_halves_of_run_forever_are_overridden(impl):
    """asyncio has them since 3.13, for loops that integrate another event loop, such as a user interface's."""
    calls = []

    class Integrated(impl.EventLoop):
        def _run_forever_setup(self):
            calls.append("setup")
            super()._run_forever_setup()
            assert asyncio._get_running_loop() is self

        def _run_forever_cleanup(self):
            calls.append("cleanup")
            super()._run_forever_cleanup()
            assert asyncio._get_running_loop() is None

    loop = Integrated()
    hooks = sys.get_asyncgen_hooks()
    loop.call_soon(lambda: calls.append(sys.get_asyncgen_hooks() != hooks))
    loop.run_until_complete(nothing())
    assert calls == ["setup", True, "cleanup"]
    assert sys.get_asyncgen_hooks() == hooks
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()


@without_halves
def test_code_that_drives_the_loop_itself(impl):
    """Without run_forever(): what qasync and the like do with a toolkit's own loop."""
    loop = impl.new_event_loop()
    task = loop.create_task(asyncio.sleep(0.001, "done"))
    loop._run_forever_setup()
    try:
        assert loop.is_running()
        assert asyncio.get_running_loop() is loop
        while not task.done():
            loop._run_once()
    finally:
        loop._run_forever_cleanup()
    assert not loop.is_running()
    assert task.result() == "done"
    assert loop.run_until_complete(asyncio.sleep(0, "runs")) == "runs"
    loop.close()


@without_halves
def test_the_set_up_may_put_another_loop_aside(impl):
    """So it is called before anything is checked."""

    class Inner(impl.EventLoop):
        def _run_forever_setup(self):
            self.outer = asyncio._get_running_loop()
            asyncio._set_running_loop(None)
            super()._run_forever_setup()

        def _run_forever_cleanup(self):
            super()._run_forever_cleanup()
            asyncio._set_running_loop(self.outer)

    outer, inner = impl.new_event_loop(), Inner()

    async def main():
        inner.call_soon(inner.stop)
        inner.run_forever()
        return asyncio.get_running_loop() is outer

    assert outer.run_until_complete(main())
    outer.close()
    inner.close()


@pytest.mark.only(
    *("c", "python"), *(["asyncio"] if sys.version_info < (3, 13) else []), reason="asyncio forgets them since 3.13"
)
def test_a_nested_run_leaves_the_outer_hooks_of_asynchronous_generators(loop, monkeypatch):
    before = sys.get_asyncgen_hooks()

    def nested():
        loop.call_soon(loop.stop)
        loop.run_forever()
        asyncio._set_running_loop(loop)
        loop.stop()

    monkeypatch.setattr(loop, "_check_running", lambda: None)
    loop.call_soon(nested)
    sys.set_asyncgen_hooks(firstiter=print)
    try:
        loop.run_forever()
        assert sys.get_asyncgen_hooks().firstiter is print
    finally:
        sys.set_asyncgen_hooks(*before)
