"""add_done_callback() and remove_done_callback() of odd callbacks, such as those whose comparing runs code."""

import asyncio
import itertools

import pytest
from support.endpoints import reports_of
from support.stepping import run_once


class Callback:
    """Compares as `equal`, after it has called `act`."""

    def __init__(self, equal, act=lambda: None):
        self.equal = equal
        self.act = act
        self.called = 0

    def __eq__(self, other):
        act, self.act = self.act, lambda: None
        act()
        return self.equal

    __hash__ = object.__hash__

    def __call__(self, future):
        self.called += 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_callback_is_itself_before_it_is_compared(loop, count):
    future = loop.create_future()
    callback = Callback(equal=False)
    for _ in range(count):
        future.add_done_callback(callback)
    assert future.remove_done_callback(callback) == count
    assert not future._callbacks
    future.set_result(None)
    run_once(loop)
    assert callback.called == 0


def test_a_comparison_that_fails(loop):
    def fail():
        raise ZeroDivisionError

    for others in range(3):
        future = loop.create_future()
        callbacks = [Callback(equal=False) for _ in range(others)] + [Callback(equal=True, act=fail)]
        for callback in callbacks:
            future.add_done_callback(callback)
        with pytest.raises(ZeroDivisionError):
            future.remove_done_callback(print)
        assert [callback for callback, _ in future._callbacks] == callbacks
        future.set_result(None)
        run_once(loop)
        assert [callback.called for callback in callbacks] == [1] * len(callbacks)


def test_a_callback_that_is_added_meanwhile_is_called(loop):
    """The comparison of one of up to three callbacks adds it."""
    for place, count in ((0, 1), (1, 2), (2, 3), (0, 3)):
        future = loop.create_future()
        late = Callback(equal=False)
        callbacks = [Callback(equal=False) for _ in range(count)]
        callbacks[place].act = lambda future=future, late=late: future.add_done_callback(late)
        for callback in callbacks:
            future.add_done_callback(callback)
        assert future.remove_done_callback(print) == 0
        future.set_result(None)
        run_once(loop)
        assert late.called == 1
        assert [callback.called for callback in callbacks] == [1] * count


def outcome(loop, equal, place, act):
    """The callbacks removed, left and called, with an action during one of the comparisons."""
    future = loop.create_future()
    callbacks = [Callback(equal=each) for each in equal]
    added = Callback(equal=True)
    acts = {
        "end": lambda: future.done() or future.set_result(None),
        "add": lambda: future.add_done_callback(added),
    }
    callbacks[place].act = acts[act]
    for callback in callbacks:
        future.add_done_callback(callback)
    removed = future.remove_done_callback(object())
    left = len(future._callbacks or ())
    if not future.done():
        future.set_result(None)
    run_once(loop)
    return removed, left, [callback.called for callback in [*callbacks, added]]


def test_the_same_as_asyncio_whatever_happens_meanwhile(loop):
    reference = asyncio.SelectorEventLoop()
    try:
        for count in (1, 2, 3, 4):
            for equal in itertools.product((False, True), repeat=count):
                for place, act in itertools.product(range(count), ("end", "add")):
                    scenario = (equal, place, act)
                    assert (scenario, outcome(loop, *scenario)) == (scenario, outcome(reference, *scenario))
    finally:
        reference.close()


def test_callbacks_that_are_removed_meanwhile(loop):
    """Callbacks before the removing one are called once, later ones at most once: asyncio may miss some."""
    for count in (1, 2, 3, 4):
        for place in range(count):
            future = loop.create_future()
            callbacks = [Callback(equal=False) for _ in range(count)]
            callbacks[place].act = lambda future=future, last=callbacks[-1]: future.remove_done_callback(last)
            for callback in callbacks:
                future.add_done_callback(callback)
            future.remove_done_callback(print)
            future.set_result(None)
            run_once(loop)
            assert all(callback.called <= 1 for callback in callbacks)
            assert [callback.called for callback in callbacks[:place]] == [1] * place


def test_a_task_that_waits_is_compared_as_its_wakeup(loop):
    compared = []

    class Looks:
        def __eq__(self, other):
            compared.append(other)
            return False

        __hash__ = None

    async def main():
        await future

    future = loop.create_future()
    tasks = [loop.create_task(main()) for _ in range(3)]
    run_once(loop)
    assert future.remove_done_callback(Looks()) == 0
    assert len(compared) == 3 and all(callable(callback) for callback in compared)
    future.set_result(None)
    for task in tasks:
        loop.run_until_complete(task)


def test_the_order_is_that_of_adding_after_the_first_was_removed(loop):
    calls = []
    future = loop.create_future()

    def first(future):
        calls.append("first")

    for name in "abc":
        future.add_done_callback(first if name == "a" else lambda future, name=name: calls.append(name))
    assert future.remove_done_callback(first) == 1
    future.add_done_callback(lambda future: calls.append("d"))
    future.set_result(None)
    run_once(loop)
    assert calls == ["b", "c", "d"]


def test_a_callback_of_a_dropped_future_is_no_other_futures(loop):
    """Of two callbacks the first is removed, and nothing refers to the future any more: it was never done."""
    called = []
    future = loop.create_future()
    future.add_done_callback(print)
    future.add_done_callback(called.append)
    assert future.remove_done_callback(print) == 1
    del future
    others = [loop.create_future() for _ in range(10)]
    assert [other._callbacks or None for other in others] == [None] * 10
    for other in others:
        other.set_result(None)
    run_once(loop)
    assert called == []


def test_a_callback_of_a_dropped_future_that_a_task_waited_for_is_no_other_futures(loop):
    called = []
    future = loop.create_future()

    async def wait(future):
        await asyncio.wait([future])

    async def main(future):
        task = asyncio.ensure_future(wait(future))
        await asyncio.sleep(0)
        future.add_done_callback(called.append)
        task.cancel()
        await asyncio.wait([task])

    loop.run_until_complete(main(future))
    del future
    others = [loop.create_future() for _ in range(10)]
    for other in others:
        other.set_result(None)
    run_once(loop)
    assert called == []


@pytest.mark.only("c", "python", reason="asyncio's compiled Future loses the context of the callback that is added")
def test_a_finalizer_of_the_callback_that_is_removed_adds_one(loop):
    """The comparison has put another callback in the place of the first, and nothing else refers to that one."""
    called = []

    class AddsAnother(Callback):
        def __del__(self):
            future.add_done_callback(called.append)

    def replace():
        assert future.remove_done_callback(first) == 1
        future.add_done_callback(AddsAnother(equal=False))

    future = loop.create_future()
    first = Callback(equal=True, act=replace)
    future.add_done_callback(first)
    future.remove_done_callback(print)
    while future._callbacks and type(future._callbacks[0][0]) is AddsAnother:
        future.remove_done_callback(future._callbacks[0][0])
    assert [callback for callback, _ in future._callbacks] == [called.append]
    future.set_result(None)
    run_once(loop)
    assert called == [future]


def test_none_is_a_callback_that_fails(loop):
    """It is kept, counted and removed as any other."""
    future = loop.create_future()
    seen = []
    future.add_done_callback(None)
    assert future.remove_done_callback(None) == 1
    future.add_done_callback(None)
    future.add_done_callback(seen.append)
    future.set_result(1)
    with reports_of(loop) as reports:
        run_once(loop)
    assert seen == [future] and [type(report["exception"]) for report in reports] == [TypeError]
