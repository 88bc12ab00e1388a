"""Cycles through handles, futures, tasks and loops are collected, and nothing is kept longer than needed."""

import asyncio
import contextlib
import gc
import inspect
import sys
import sysconfig
import weakref

import pytest
from support.garbage import Reference, collected, without_collector
from support.stepping import run_once

NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Target:
    """A callable, weakly referenceable object."""

    def __call__(self, *args):
        pass


def test_a_cycle_through_a_handle_that_waits_on_the_queue_of_a_dropped_loop(impl):
    loop = impl.new_event_loop()
    target = Target()
    target.handle = loop.call_soon(target, loop)
    target.loop = loop
    reference = Reference(target)
    loop.close()
    del loop, target
    assert collected(reference)


def test_a_cycle_through_a_timer(impl):
    loop = impl.new_event_loop()
    target = Target()
    target.handle = loop.call_later(3600, target, loop)
    target.loop = loop
    reference = Reference(target)
    loop.close()
    del loop, target
    assert collected(reference)


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_a_cycle_through_a_handle_that_ran(loop, schedule):
    target = Target()
    target.handle = loop.call_later(0, target) if schedule == "call_later" else getattr(loop, schedule)(target)
    run_once(loop, 2)
    reference = Reference(target)
    del target
    assert collected(reference)


def test_cycles_through_handles_are_collected_after_a_freeze(impl):
    """gc.freeze() hides existing objects from the collector for good, including those kept for the next handles."""
    impl.run_script(
        """
import gc, weakref

class Target:
    def __call__(self):
        pass

async def main():
    loop = asyncio.get_running_loop()
    for _ in range(3):
        await asyncio.gather(*[asyncio.sleep(0) for _ in range(100)])
        for _ in range(100):
            loop.call_soon(int)
    await asyncio.sleep(0)
    gc.collect()
    gc.freeze()
    references = []
    for _ in range(100):
        target = Target()
        target.handle = loop.call_soon(target)
        references.append(weakref.ref(target))
    del target
    await asyncio.sleep(0)
    gc.collect()
    assert not any(reference() for reference in references)

impl.run(main())
"""
    )


def test_a_handle_that_ran_is_not_kept(loop):
    """Without the collector: neither the queue nor the loop keeps a handle that has run."""
    with without_collector():
        target = Target()
        reference = Reference(target)
        loop.call_soon(target)
        del target
        run_once(loop)
        assert reference() is None
        target = Target()
        reference = Reference(target)
        loop.call_later(0, target)
        del target
        run_once(loop, 2)
        assert reference() is None


def test_a_cycle_through_a_futures_result(impl, loop):
    target = Target()
    target.future = impl.Future(loop=loop)
    target.future.set_result(target)
    reference = Reference(target)
    del target
    assert collected(reference)


def test_a_cycle_through_a_futures_callbacks(impl, loop):
    for callbacks in (1, 2, 3):
        target = Target()
        target.future = impl.Future(loop=loop)
        for _ in range(callbacks):
            target.future.add_done_callback(lambda _, target=target: None)
        reference = Reference(target)
        del target
        assert collected(reference)


def test_a_cycle_through_a_futures_exception(impl, loop):
    error = ZeroDivisionError()
    error.future = impl.Future(loop=loop)
    error.future.set_exception(error)
    error.future.exception()
    error.target = Target()
    reference = Reference(error.target)
    del error
    assert collected(reference)


def test_a_cycle_through_a_futures_attributes(impl, loop):
    future = impl.Future(loop=loop)
    future.me = future
    reference = Reference(future)
    del future
    assert collected(reference)


def test_a_cycle_through_a_suspended_task(impl, loop):
    async def main(target):
        target.task = asyncio.current_task()
        await target.future

    target = Target()
    target.future = loop.create_future()
    task = impl.Task(main(target), loop=loop)
    run_once(loop)
    task._log_destroy_pending = False
    references = Reference(target), Reference(task)
    del target, task
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_cycle_through_a_finished_task(impl, loop):
    async def main(target):
        target.task = asyncio.current_task()
        return target

    target = Target()
    loop.run_until_complete(impl.Task(main(target), loop=loop))
    reference = Reference(target)
    del target
    assert collected(reference)


def test_a_cycle_through_a_failed_task(impl, loop):
    """The exception's traceback holds the frame, the frame the task, the task the exception."""

    async def main(target):
        task = asyncio.current_task()
        target.task = task
        raise ZeroDivisionError

    target = Target()
    with pytest.raises(ZeroDivisionError):
        loop.run_until_complete(impl.Task(main(target), loop=loop))
    reference = Reference(target)
    del target
    assert collected(reference)


def test_two_tasks_that_await_each_other(impl, loop):
    async def main(other):
        await other[0]

    first, second = [], []
    first.append(impl.Task(main(second), loop=loop))
    second.append(impl.Task(main(first), loop=loop))
    run_once(loop)
    references = Reference(first[0]), Reference(second[0])
    for task in (*first, *second):
        task._log_destroy_pending = False
    del first, second, task
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_loop_that_holds_itself(impl):
    loop = impl.new_event_loop()
    loop.me = loop
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    reference = Reference(loop)
    del loop
    assert collected(reference)


@pytest.mark.parametrize(
    "attribute", ["_exception_handler", "_task_factory", "slow_callback_duration", "_old_agen_hooks", "own"]
)
def test_a_loop_that_holds_a_method_of_itself(impl, attribute):
    # A method cannot be cleared: the collector must be able to clear the loop.
    loop = impl.new_event_loop()
    setattr(loop, attribute, loop.create_future)
    loop.call_later(3600, loop.stop)
    loop.call_soon(loop.stop)
    reference = Reference(loop)
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()
    # The warning has kept the loop until here.
    assert collected(reference)


# What of a loop is a queue, a selector or a number.
TYPED = {"_ready", "_scheduled", "_selector", "_thread_id", "_closed", "_stopping", "_debug"}


def test_each_attribute_of_a_loop_can_be_cleared(impl):
    loop = impl.new_event_loop()
    loop.close()
    declared = {
        name for cls in type(loop).__mro__ for name, value in vars(cls).items() if inspect.isdatadescriptor(value)
    }
    names = {name for name in declared | vars(loop).keys() if not name.startswith("__")} - TYPED
    kept = []
    for name in names:
        loop = impl.new_event_loop()
        loop.close()
        setattr(loop, name, loop.create_future)
        reference = Reference(loop)
        del loop
        if not collected(reference):
            kept.append(name)
    assert len(names) > 10
    assert not kept


def test_an_unclosed_loop_warns_and_closes_itself(impl):
    loop = impl.new_event_loop()
    reference = Reference(loop)
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()
    assert reference() is None


def test_a_closed_loop_keeps_nothing_of_what_was_queued(impl):
    loop = impl.new_event_loop()
    targets = [Target() for _ in range(3)]
    references = [Reference(target) for target in targets]
    loop.call_soon(targets[0])
    loop.call_later(3600, targets[1])
    loop.call_soon_threadsafe(targets[2])
    loop.close()
    del targets
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert loop.is_closed()


def test_no_cycle_is_made_by_a_failing_await(impl, loop):
    """With the collector off: exceptions raised through futures and tasks must not hold their frames forever."""

    class Error(Exception):
        pass

    async def inner():
        raise Error

    async def main():
        try:
            await impl.Task(inner(), loop=loop)
        except Error as error:
            return weakref.ref(error)

    gc.collect()
    with without_collector():
        reference = loop.run_until_complete(main())
        run_once(loop)
        assert reference() is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before CPython 3.12 a cancellation leaves a cycle behind")
def test_no_cycle_is_made_by_a_cancellation(impl, loop):
    async def inner(reference):
        try:
            await loop.create_future()
        except asyncio.CancelledError as error:
            reference.append(weakref.ref(error))
            raise

    async def main():
        references = []
        task = impl.Task(inner(references), loop=loop)
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        del task
        return references[0]

    gc.collect()
    with without_collector():
        reference = loop.run_until_complete(main())
        run_once(loop)
        assert reference() is None


async def nothing():
    pass


async def sleeping():
    await asyncio.sleep(0)


async def failing():
    raise ZeroDivisionError


def one_call_soon(impl, loop):
    loop.call_soon(int)
    run_once(loop)


def one_timer(impl, loop):
    loop.call_later(0, int)
    run_once(loop, 2)


def one_cancelled_timer(impl, loop):
    loop.call_later(3600, int).cancel()
    run_once(loop)  # asyncio drops cancelled timers in its iterations


def one_cancelled_handle(impl, loop):
    loop.call_soon(int).cancel()
    run_once(loop)


def one_threadsafe_call(impl, loop):
    loop.call_soon_threadsafe(int)
    run_once(loop)


def one_future(impl, loop):
    future = impl.Future(loop=loop)
    future.add_done_callback(id)
    future.add_done_callback(repr)
    future.remove_done_callback(id)
    future.set_result(None)
    run_once(loop)


def one_failed_future(impl, loop):
    future = impl.Future(loop=loop)
    future.set_exception(ZeroDivisionError())
    future.exception()


def one_task(impl, loop):
    loop.run_until_complete(impl.Task(sleeping(), loop=loop))


def one_failed_task(impl, loop):
    with contextlib.suppress(ZeroDivisionError):
        loop.run_until_complete(impl.Task(failing(), loop=loop))


def one_cancelled_task(impl, loop):
    task = impl.Task(sleeping(), loop=loop)
    run_once(loop)
    task.cancel()
    run_once(loop, 2)


def one_gather(impl, loop):
    async def main():
        await asyncio.gather(nothing(), sleeping(), return_exceptions=True)

    loop.run_until_complete(main())


def one_selector(impl, loop):
    with impl.DefaultSelector() as selector:
        selector.register(loop._ssock, 1)
        selector.select(0)


def one_refused_call(impl, loop):
    for wrong in (lambda: loop.call_later(None, int), lambda: impl.Future(loop), lambda: impl.Task(1, loop=loop)):
        with contextlib.suppress(TypeError):
            wrong()


@pytest.mark.skipif(NO_GIL, reason="sys.getallocatedblocks() does not count exactly without the GIL")
@pytest.mark.parametrize(
    "once",
    [
        one_call_soon,
        one_timer,
        one_cancelled_timer,
        one_cancelled_handle,
        one_threadsafe_call,
        one_future,
        one_failed_future,
        one_task,
        one_failed_task,
        one_cancelled_task,
        one_gather,
        one_selector,
        one_refused_call,
    ],
)
def test_ten_thousand_times_leaves_nothing(impl, loop, once):
    def blocks_after(times):
        for _ in range(times):
            once(impl, loop)
        gc.collect()
        return sys.getallocatedblocks()

    times = 10_000 if once not in (one_gather, one_selector) else 2_000
    before = blocks_after(500)
    # Free lists and caches vary by some hundred; a leak of one object each time would show as thousands.
    assert blocks_after(times) - before < times // 5


@pytest.mark.skipif(NO_GIL, reason="sys.getallocatedblocks() does not count exactly without the GIL")
def test_many_loops_leave_nothing(impl):
    def blocks_after(times):
        for _ in range(times):
            loop = impl.new_event_loop()
            loop.run_until_complete(sleeping())
            loop.call_soon(int)
            loop.call_later(3600, int)
            loop.close()
        del loop
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(50)
    assert blocks_after(500) - before < 200
