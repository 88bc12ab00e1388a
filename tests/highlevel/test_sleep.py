"""asyncio.sleep(): the compiled one does what asyncio's own does, on every loop."""

import asyncio
import decimal
import fractions
import gc
import inspect
import sys
import traceback

import pytest
from support.comparing import BOTH, same_on_both
from support.stepping import Clock, run_once

import hotloop.asyncio


async def outcome(awaitable):
    """What awaiting gives, to be compared with another's."""
    try:
        return await awaitable
    except BaseException as error:
        return type(error).__name__, str(error)


def by_hand(call, *arguments):
    """What a call for a coroutine, or a method of one, gives."""
    try:
        return call(*arguments)
    except BaseException as error:
        return type(error).__name__, str(error)


def test_looks_like_asyncios_function():
    own, compiled = asyncio.sleep, hotloop.asyncio.sleep
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__defaults__", "__code__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert inspect.signature(compiled) == inspect.signature(own)
    assert inspect.iscoroutinefunction(compiled)


DELAYS = [0, -1, 0.0, -0.5, True, False, 1e-9, -(2**80), decimal.Decimal(0), fractions.Fraction(-1, 2), float("-inf")]
REFUSED = [None, "1", b"", [], 1j, float("nan") if sys.version_info >= (3, 13) else "nan"]


@pytest.mark.parametrize("delay", DELAYS + REFUSED, ids=repr)
def test_odd_delays(loop, delay):
    async def sleep(module):
        return [await outcome(module.sleep(delay)), await outcome(module.sleep(delay, "result"))]

    same_on_both(loop, sleep)


def test_odd_arguments(loop):
    calls = [((), {}), ((0, 1, 2), {}), ((), {"delay": 0}), ((0,), {"result": 5}), ((0,), {"results": 5})]

    async def sleep(module):
        found = []
        for arguments, keywords in calls:
            made = by_hand(lambda given=arguments, named=keywords: module.sleep(*given, **named))
            found.append(made if isinstance(made, tuple) else await made)
        return found

    same_on_both(loop, sleep)


@pytest.mark.parametrize("delay", [0, -1.5, 0.0, -3])
def test_one_iteration_passes(loop, delay):
    async def sleep(module):
        order = []

        async def other():
            for number in range(4):
                order.append(number)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(3):
            await module.sleep(delay)
            order.append("slept")
        await task
        return order

    assert same_on_both(loop, sleep) == [0, "slept", 1, "slept", 2, "slept", 3]


@pytest.mark.parametrize("delay", [3, 3.5, 2**40, True, fractions.Fraction(7, 2)], ids=repr)
def test_wakes_when_it_is_time(loop, delay):
    clock = Clock.replacing_time_of(loop)
    for module in BOTH:
        clock.now = 0.0
        task = loop.create_task(module.sleep(delay, "slept"))
        for now in (0.0, float(delay) * 0.99):
            clock.now = now
            run_once(loop, 3)
            assert not task.done()
        clock.now = float(delay) + 0.1
        run_once(loop, 2)
        assert task.result() == "slept"


def test_wakes_in_the_order_of_the_deadlines(loop):
    clock = Clock.replacing_time_of(loop)

    def run(module):
        order = []

        async def sleep(delay):
            await module.sleep(delay)
            order.append(delay)

        tasks = [loop.create_task(sleep(delay)) for delay in (3, 1, 2, 1.5, 0, 3, -1, 0.5)]
        run_once(loop, 2)
        clock.advance(10)
        run_once(loop, 3)
        assert all(task.done() for task in tasks)
        return order

    assert run(asyncio) == run(hotloop.asyncio)


def test_what_it_leaves_on_the_loop(loop):
    async def sleep(module):
        before = len(loop._scheduled)
        task = asyncio.ensure_future(module.sleep(1000, "x"))
        await asyncio.sleep(0)
        [handle] = [handle for handle in loop._scheduled if not handle.cancelled()][before:]
        found = [
            handle._callback.__qualname__,
            handle._args[0] is task._fut_waiter,
            handle._args[1],
            repr(handle).partition(" ")[2].partition(" ")[2].partition("at 0x")[0],
            type(handle._args[0]) is type(loop.create_future()),
            repr(task).partition("coro=")[2].partition(" at ")[0].partition(" wait_for")[0],
        ]
        task.cancel()
        await outcome(task)
        return [*found, handle.cancelled(), task.cancelled()]

    same_on_both(loop, sleep)


def test_debug_mode_names_asyncios_line(loop):
    loop.set_debug(True)

    async def sleep(module):
        task = asyncio.ensure_future(module.sleep(1000))
        await asyncio.sleep(0)
        [handle] = [handle for handle in loop._scheduled if not handle.cancelled()]
        found = [tuple(frame)[:3] for frame in handle._source_traceback[-3:]]
        found += [tuple(frame)[:3] for frame in task._fut_waiter._source_traceback[-3:]]
        task.cancel()
        await outcome(task)
        return found, repr(handle).rpartition("created at")[2]

    same_on_both(loop, sleep)


@pytest.mark.parametrize("delay", [0, 1000], ids=str)
def test_cancelling(loop, delay):
    async def sleep(module):
        found = []
        for turns in range(4):
            task = asyncio.ensure_future(module.sleep(delay, "result"))
            for _ in range(turns):
                await asyncio.sleep(0)
            found.append(task.cancel("message"))
            found += [await outcome(task), task.cancelled(), task.cancelling()]
        return found, len([handle for handle in loop._scheduled if not handle.cancelled()])

    same_on_both(loop, sleep)


@pytest.mark.parametrize("delay", [0, 1000], ids=str)
def test_driven_by_hand(loop, delay):
    """Every method of the coroutine, at each place: before it starts, where it waits, and after its end."""

    class Oops(Exception):
        pass

    async def sleep(module):
        found = []
        for action in (
            lambda c: c.send(None),
            lambda c: c.send(5),
            lambda c: c.throw(Oops("thrown")),
            lambda c: c.throw(StopIteration(3)),
            lambda c: c.throw(GeneratorExit()),
            lambda c: c.throw(asyncio.CancelledError("stop")),
            lambda c: c.close(),
            lambda c: c.cr_running,
            lambda c: c.cr_await is None,
        ):
            for steps in range(3):
                coroutine = module.sleep(delay, "result")
                futures = [by_hand(coroutine.send, None) for _ in range(steps)][:1]
                results = [by_hand(action, coroutine), inspect.getcoroutinestate(coroutine), coroutine.cr_frame is None]
                for result in results:
                    found.append(result if not isinstance(result, asyncio.Future) else ("future", result.done()))
                for future in futures:
                    if isinstance(future, asyncio.Future) and not future.done():
                        future.cancel()
                coroutine.close()
        return found, len([handle for handle in loop._scheduled if not handle.cancelled()])

    same_on_both(loop, sleep)


def test_without_a_running_loop(impl):
    for delay in (0, 1, float("nan")):
        found = []
        for module in BOTH:
            coroutine = module.sleep(delay, "result")
            found.append([by_hand(coroutine.send, None) for _ in range(3)])
        assert found[0] == found[1]


@pytest.mark.parametrize("delay", [0, 1000], ids=str)
def test_shown_where_it_waits(loop, delay):
    async def sleep(module):
        async def outer():
            await module.sleep(delay)

        task = asyncio.ensure_future(outer())
        direct = asyncio.ensure_future(module.sleep(delay))
        await asyncio.sleep(0)
        awaited = task.get_coro().cr_await
        found = [
            (awaited.cr_code.co_name, awaited.cr_frame.f_lineno, type(awaited.cr_await).__name__),
            sorted(awaited.cr_frame.f_locals.items())[:1],
            [(frame.f_code.co_name, frame.f_lineno) for frame in direct.get_stack()],
        ]
        if delay == 0:
            generator = awaited.cr_await
            found.append((generator.gi_code.co_name, generator.gi_frame.f_lineno))
        for each in (task, direct):
            each.cancel()
            await outcome(each)
        return found

    same_on_both(loop, sleep)


def test_future_that_a_program_sets(loop):
    async def sleep(module):
        task = asyncio.ensure_future(module.sleep(1000, "slept"))
        await asyncio.sleep(0)
        task._fut_waiter.set_result("set by hand")
        found = [await task]
        task = asyncio.ensure_future(module.sleep(1000, "slept"))
        await asyncio.sleep(0)
        task._fut_waiter.set_exception(ValueError("set by hand"))
        return [*found, await outcome(task), len([handle for handle in loop._scheduled if not handle.cancelled()])]

    same_on_both(loop, sleep)


def test_loop_with_methods_of_its_own(impl):
    calls = []

    class Loop(impl.EventLoop):
        def create_future(self):
            calls.append("create_future")
            return super().create_future()

        def call_later(self, delay, callback, *arguments, context=None):
            calls.append(("call_later", delay, callback.__name__, arguments[1:], context))
            return super().call_later(delay, callback, *arguments, context=context)

    def run(module):
        loop = Loop()
        try:
            calls.clear()
            loop.run_until_complete(module.sleep(1e-9, "result"))
            return [call for call in calls if call[0] == "call_later" or call == "create_future"]
        finally:
            loop.close()

    assert run(asyncio) == run(hotloop.asyncio)


def test_error_of_the_loop_is_raised(loop):
    """Where asyncio's function fails half-way, so does the compiled one."""

    async def sleep(module):
        found = []
        for name, replacement in [
            ("call_later", lambda *_, **__: 1 / 0),
            ("create_future", lambda: 1 / 0),
            ("create_future", lambda: "no future"),
        ]:
            setattr(loop, name, replacement)
            try:
                found.append(await outcome(module.sleep(1000)))
            finally:
                delattr(loop, name)
        return found, len([handle for handle in loop._scheduled if not handle.cancelled()])

    same_on_both(loop, sleep)


def test_exceptions_have_the_same_contexts(loop):
    async def sleep(module, delay):
        try:
            raise KeyError("handled")
        except KeyError:
            await module.sleep(delay)

    async def run(module):
        found = []
        for delay in (0, 1000):
            task = asyncio.ensure_future(sleep(module, delay))
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                found.append((repr(error.__context__), repr(error.__cause__)))
                found.append([frame.name for frame in traceback.extract_tb(error.__traceback__)][-1:] != [])
        return found

    same_on_both(loop, run)


def test_unawaited_is_reported():
    for delay in (0, 1):
        with pytest.warns(RuntimeWarning, match=r"coroutine 'sleep' was never awaited"):
            hotloop.asyncio.sleep(delay)
            gc.collect()


@pytest.mark.parametrize("delay", [0, 1000], ids=str)
def test_dropped_half_way(loop, delay):
    async def sleep(module):
        coroutine = module.sleep(delay)
        coroutine.send(None)
        del coroutine
        gc.collect()
        return len([handle for handle in loop._scheduled if not handle.cancelled()])

    assert same_on_both(loop, sleep) == 0


if sys.version_info >= (3, 12):

    @pytest.mark.parametrize("delay", [0, 1e-9], ids=str)
    def test_eager_tasks(loop, delay):
        async def sleep(module):
            loop.set_task_factory(asyncio.eager_task_factory)
            try:
                task = asyncio.ensure_future(module.sleep(delay, "result"))
                return task.done(), asyncio.current_task() is not task, await task
            finally:
                loop.set_task_factory(None)

        assert same_on_both(loop, sleep) == (False, True, "result")
