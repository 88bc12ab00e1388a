"""Debug mode: slow callbacks, calls from the wrong thread, coroutine functions in place of callbacks."""

import asyncio
import contextlib
import signal
import sys
import threading

import pytest
from support.stepping import Clock, run_once, run_until


@pytest.fixture
def debug_loop(loop):
    loop.set_debug(True)
    loop.slow_callback_duration = 3600  # no reports of callbacks that are slow only on a busy machine
    return loop


@contextlib.contextmanager
def clock_of(loop, slow=0.1):
    """A clock that only callbacks move, so that nothing is slow but what the test makes slow."""
    clock = Clock.replacing_time_of(loop)
    loop.slow_callback_duration = slow
    yield clock
    del loop.time


@pytest.mark.promise("P10")
def test_a_slow_callback_is_reported_with_its_place(debug_loop, asyncio_log):
    with clock_of(debug_loop) as clock:

        def slow():
            clock.advance(0.2)

        debug_loop.call_soon(slow)
        run_once(debug_loop)
    (message,) = asyncio_log.take()
    line = slow.__code__.co_firstlineno
    assert message.startswith("Executing <Handle test_a_slow_callback_is_reported_with_its_place.<locals>.slow()")
    assert f"at {__file__}:{line}" in message
    assert message.endswith("took 0.200 seconds")


@pytest.mark.promise("P10")
def test_a_slow_task_step_is_reported_with_its_coroutine(debug_loop, asyncio_log):
    with clock_of(debug_loop) as clock:

        async def slow_coroutine():
            await asyncio.sleep(0)
            clock.advance(0.2)
            await asyncio.sleep(0)

        debug_loop.run_until_complete(debug_loop.create_task(slow_coroutine(), name="slow one"))
    (message,) = asyncio_log.take()
    assert (
        message.startswith("Executing <Task pending name='slow one' coro=<")
        and "slow_coroutine() running at" in message
    )
    assert __file__ in message
    assert message.endswith("took 0.200 seconds")


@pytest.mark.promise("P10")
def test_a_slow_wakeup_is_reported_with_its_coroutine(debug_loop, asyncio_log):
    """The future is done; the step that follows is slow."""
    with clock_of(debug_loop) as clock:
        future = debug_loop.create_future()

        async def slow_coroutine():
            await future
            clock.advance(0.2)
            await asyncio.sleep(0)

        task = debug_loop.create_task(slow_coroutine())
        run_once(debug_loop)
        future.set_result(None)
        debug_loop.run_until_complete(task)
    (message,) = asyncio_log.take()
    assert message.startswith("Executing <Task pending") and "slow_coroutine() running at" in message


@pytest.mark.promise("P10")
def test_a_slow_last_step_is_reported(debug_loop, asyncio_log):
    with clock_of(debug_loop) as clock:

        async def slow_coroutine():
            clock.advance(0.2)

        debug_loop.run_until_complete(slow_coroutine())
    (message,) = asyncio_log.take()
    assert message.startswith("Executing <Task finished") and "slow_coroutine() done" in message


@pytest.mark.promise("P10")
def test_a_slow_timer_and_a_slow_done_callback_are_reported(debug_loop, asyncio_log):
    with clock_of(debug_loop) as clock:
        debug_loop.call_later(0, clock.advance, 0.2)
        future = debug_loop.create_future()
        future.add_done_callback(lambda _: clock.advance(0.3))
        run_once(debug_loop)
        future.set_result(None)
        run_once(debug_loop)
    timer, callback = asyncio_log.take()
    assert timer.startswith("Executing <TimerHandle when=1000.0 Clock.advance(0.2)")
    assert "took 0.300 seconds" in callback and "lambda" in callback


def test_a_quick_callback_is_not_reported(debug_loop, asyncio_log):
    with clock_of(debug_loop) as clock:
        debug_loop.call_soon(clock.advance, 0.09)
        run_once(debug_loop)
    assert asyncio_log.take() == []


def test_what_is_slow_can_be_set(debug_loop, asyncio_log):
    with clock_of(debug_loop, slow=5) as clock:
        debug_loop.call_soon(clock.advance, 4.9)
        debug_loop.call_soon(clock.advance, 5)
        run_once(debug_loop)
    (message,) = asyncio_log.take()
    assert "took 5.000 seconds" in message


def test_slow_callbacks_are_not_reported_outside_debug_mode(loop, asyncio_log):
    with clock_of(loop) as clock:
        before = loop.time()
        loop.call_soon(clock.advance, 100)
        run_once(loop)
        assert loop.time() == before + 100
    assert asyncio_log.take() == []


def test_a_slow_callback_that_fails_is_reported_twice(debug_loop, asyncio_log):
    def slow_and_failing():
        clock.advance(0.2)
        raise ZeroDivisionError

    with clock_of(debug_loop) as clock:
        debug_loop.call_soon(slow_and_failing)
        run_once(debug_loop)
    failure, slowness = asyncio_log.take()
    assert failure.startswith("Exception in callback") and slowness.startswith("Executing")


def test_the_current_handle_is_known_during_a_callback(debug_loop):
    seen = []
    handle = debug_loop.call_soon(lambda: seen.append(debug_loop._current_handle))
    run_once(debug_loop)
    assert seen == [handle]
    assert debug_loop._current_handle is None


def test_the_current_handle_is_known_while_a_slow_callback_is_reported(debug_loop, monkeypatch):
    seen = []
    monkeypatch.setattr(
        asyncio.base_events.logger, "warning", lambda *arguments, **_: seen.append(debug_loop._current_handle)
    )
    with clock_of(debug_loop) as clock:
        handle = debug_loop.call_soon(clock.advance, 0.2)
        run_once(debug_loop)
    assert seen == [handle]


def test_a_step_from_before_debug_mode(debug_loop):
    """Nothing is known of where it was queued, although its task knows where that was made."""
    handles = []

    async def waits():
        await future
        handles.append(debug_loop._current_handle)

    future = debug_loop.create_future()
    task = debug_loop.create_task(waits())
    run_once(debug_loop)
    debug_loop.set_debug(False)
    debug_loop.call_soon(debug_loop.set_debug, True)
    future.set_result(None)
    run_until(debug_loop, task.done)
    (handle,) = handles
    assert isinstance(handle, asyncio.Handle) and handle._source_traceback is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers on loops")
def test_a_signal_handler_from_before_debug_mode(loop, asyncio_log):
    """asyncio makes its handle, which does not know where it was made."""
    handles = []

    def slow_and_failing():
        handles.append(loop._current_handle)
        clock.advance(0.2)
        raise ZeroDivisionError

    loop.add_signal_handler(signal.SIGUSR1, slow_and_failing)
    loop.set_debug(True)
    with clock_of(loop) as clock:
        signal.raise_signal(signal.SIGUSR1)
        run_until(loop, lambda: handles)
    loop.remove_signal_handler(signal.SIGUSR1)
    failure, slowness = asyncio_log.take()
    assert failure.startswith("Exception in callback") and failure.endswith("ZeroDivisionError")
    assert slowness.startswith(f"Executing {handles[0]!r}")
    assert type(handles[0]) is asyncio.Handle


def test_a_failing_protocol_is_reported(debug_loop, asyncio_log, pair):
    class Protocol(asyncio.Protocol):
        def data_received(self, data):
            raise ZeroDivisionError

        def connection_lost(self, exc):
            lost.set_result(None)

    one, other = pair
    lost = debug_loop.create_future()
    debug_loop.run_until_complete(debug_loop.create_connection(Protocol, sock=one))
    other.send(b"data")
    debug_loop.run_until_complete(lost)
    (message,) = asyncio_log.take()
    assert message.startswith("Fatal error: protocol.data_received() call failed")
    assert message.endswith("ZeroDivisionError")


def test_debug_mode_begins_with_the_next_callback(loop, asyncio_log):
    with clock_of(loop) as clock:
        loop.call_soon(loop.set_debug, True)
        loop.call_soon(clock.advance, 0.2)
        loop.call_soon(loop.set_debug, False)
        loop.call_soon(clock.advance, 0.2)
        run_once(loop)
    (message,) = asyncio_log.take()
    assert message.startswith("Executing <Handle Clock.advance(0.2)")


def test_calls_from_another_thread_are_refused(debug_loop):
    started, finish = threading.Event(), threading.Event()
    debug_loop.call_soon(lambda: (started.set(), finish.wait(), debug_loop.stop()))
    thread = threading.Thread(target=debug_loop.run_forever)
    thread.start()
    started.wait()
    try:
        for call in (
            lambda: debug_loop.call_soon(print),
            lambda: debug_loop.call_later(1, print),
            lambda: debug_loop.call_at(1, print),
        ):
            with pytest.raises(
                RuntimeError, match="Non-thread-safe operation invoked on an event loop other than the current"
            ):
                call()
        debug_loop.call_soon_threadsafe(int)
    finally:
        finish.set()
        thread.join()
    run_once(debug_loop)


def test_calls_from_another_thread_are_let_through_outside_debug_mode(loop):
    seen = []
    thread = threading.Thread(target=loop.call_soon, args=(seen.append, "let through"))
    thread.start()
    thread.join()
    run_once(loop)
    assert seen == ["let through"]


@pytest.mark.parametrize("how", ["call_soon", "call_later", "call_at", "call_soon_threadsafe"])
def test_coroutines_and_other_non_callables_are_refused(debug_loop, how):
    async def function():
        pass

    coroutine = function()
    arguments = {"call_later": (1,), "call_at": (1,)}.get(how, ())
    schedule = getattr(debug_loop, how)
    for wrong in (coroutine, function):
        with pytest.raises(
            TypeError, match=f"coroutines cannot be used with {'call_at' if how == 'call_later' else how}"
        ):
            schedule(*arguments, wrong)
    with pytest.raises(TypeError, match="a callable object was expected by"):
        schedule(*arguments, "text")
    coroutine.close()


def test_debug_mode_can_change_between_and_during_runs(loop):
    async def switch():
        for _ in range(6):
            loop.set_debug(not loop.get_debug())
            loop.slow_callback_duration = 3600
            await asyncio.sleep(0)

    assert loop.get_debug() is False
    loop.run_until_complete(switch())
    loop.set_debug(True)
    assert loop.get_debug() is True
    loop.run_until_complete(switch())
    assert loop.get_debug() is True


def test_coroutine_origins_are_tracked_while_a_debug_loop_runs(debug_loop):
    import sys

    depths = []
    debug_loop.call_soon(lambda: depths.append(sys.get_coroutine_origin_tracking_depth()))
    run_once(debug_loop)
    assert depths == [10]
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_the_environment_switches_it_on(impl):
    source = "loop = impl.new_event_loop(); print(loop.get_debug()); loop.close()"
    assert impl.run_script(source, "-X", "dev").stdout == "True\n"
    assert impl.run_script(source).stdout == "False\n"


def test_a_debug_run_works_like_any_other(impl):
    async def main():
        asyncio.get_running_loop().slow_callback_duration = 3600
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0.001, number)) for number in range(10)]
        return [task.result() for task in tasks]

    assert impl.run(main(), debug=True) == list(range(10))


def test_a_stuck_executor_call_is_no_slow_callback(debug_loop):
    result = debug_loop.run_until_complete(debug_loop.run_in_executor(None, lambda: "executor's"))
    assert result == "executor's"
