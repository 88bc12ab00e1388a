"""Waiting for asyncio's locks, and waking the waiters: the compiled ones do what asyncio's own do."""

import asyncio
import gc
import weakref
from collections import deque

import pytest
from support.comparing import description, outcome, outcome_of, same_on_both, turns
from support.locks import KINDS, cancelled, outcome_of_throw, state, without_addresses


def take_unseen(lock):
    """Take a lock that is free without the waiter that was woken for it."""
    inner = getattr(lock, "_lock", lock)
    if hasattr(inner, "_locked"):
        inner._locked = True
    else:
        inner._value = 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["cancel", "error", "close", "result"])
@pytest.mark.parametrize("woken", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_wait_that_ends_otherwise(loop, kind, ending, woken, free):
    """A waiting coroutine ends by an exception, close() or a result: woken or not, with the lock free or not."""

    async def use(module):
        lock = getattr(module, kind)()
        await lock.acquire()
        waiting = lock.acquire()
        waiter = waiting.send(None)
        others = [asyncio.ensure_future(lock.acquire()) for _ in range(2)]
        await turns(1)
        if woken:
            lock.release()
            if not free:
                take_unseen(lock)
        if ending == "cancel":
            found = [outcome_of_throw(waiting, asyncio.CancelledError("x"))]
        elif ending == "error":
            found = [outcome_of_throw(waiting, ZeroDivisionError("x"))]
        elif ending == "close":
            found = [waiting.close()]
        else:
            if not waiter.done():
                waiter.set_result("result")
            found = [outcome_of_throw(waiting, None)]
        await turns(3)
        found += [state(lock), [other.done() for other in others]]
        await cancelled(*others)
        return [*found, state(lock)]

    same_on_both(loop, use)


@pytest.mark.parametrize("ending", ["cancel", "error", "result"])
@pytest.mark.parametrize("acquiring", ["not yet", "waiting", "waiting twice"])
@pytest.mark.parametrize("notified", [False, True])
def test_condition_wait_that_ends_otherwise(loop, ending, acquiring, notified):
    async def use(module):
        condition = module.Condition()
        await condition.acquire()
        others = [asyncio.ensure_future(locked_wait(condition)) for _ in range(2)]
        waiting = condition.wait()
        waiter = waiting.send(None)
        await turns(2)
        found = [state(condition)]
        if acquiring != "not yet":
            await condition.acquire()
        if notified and not waiter.done():
            waiter.set_result(False)
        errors = {"cancel": asyncio.CancelledError("x"), "error": ZeroDivisionError("x"), "result": None}
        if not waiter.done() and ending == "result":
            waiter.set_result(None)
        found.append(describe(outcome_of_throw(waiting, errors[ending])))
        if acquiring == "waiting twice":
            found.append(describe(outcome_of_throw(waiting, asyncio.CancelledError("second"))))
        if acquiring != "not yet":
            await turns(1)
            condition.release()
            await turns(1)
            found.append(describe(outcome_of_throw(waiting, None)))
        found.append(state(condition))
        if condition.locked():
            condition.release()
        await turns(3)
        found.append([state(condition), [other.done() for other in others]])
        if condition.locked():
            waiting.close()
        await cancelled(*others)
        return found

    async def locked_wait(condition):
        async with condition:
            await condition.wait()

    def describe(found):
        return "future" if asyncio.isfuture(found) else found

    same_on_both(loop, use)


def test_waiter_that_is_gone_from_the_deque(loop, aio):
    del aio

    async def use(module):
        found = []
        for kind in KINDS:
            for clear in (True, False):
                lock = getattr(module, kind)()
                await lock.acquire()
                task = asyncio.ensure_future(lock.acquire())
                await turns(1)
                inner = getattr(lock, "_lock", lock)
                if clear:
                    inner._waiters[0].set_result(True)
                    inner._waiters.clear()
                else:
                    task.cancel()
                    inner._waiters = deque()
                found += [describe_result(result) for result in await asyncio.gather(task, return_exceptions=True)]
                found.append(state(lock))
        condition = module.Condition()
        await condition.acquire()
        task = asyncio.ensure_future(condition.wait())
        await turns(1)
        condition._waiters[0].set_result(True)
        condition._waiters.clear()
        found += [describe_result(result) for result in await asyncio.gather(task, return_exceptions=True)]
        return found, state(condition)

    def describe_result(result):
        return description(result) if isinstance(result, BaseException) else result

    same_on_both(loop, use)


def test_waiters_of_other_classes(loop):
    """A program may put its own futures among the waiters."""

    class Waiter:
        def __init__(self, *states):
            self.states = list(states)
            self.calls = []

        def __eq__(self, other):
            self.calls.append("==")
            return False

        __hash__ = None

        def done(self):
            self.calls.append("done")
            return self.states[0]

        def cancelled(self):
            self.calls.append("cancelled")
            return self.states[1]

        def set_result(self, result):
            self.calls.append(result)
            self.states[0] = True

    async def use(module):
        found = []
        for kind in KINDS:
            for states in [(False, False), (True, False), (True, True)]:
                lock = getattr(module, kind)()
                inner = getattr(lock, "_lock", lock)
                mine = [Waiter(*states), Waiter(*states)]
                inner._waiters = deque(mine[:1])
                trying = asyncio.ensure_future(outcome_of(lock.acquire()))
                await turns(1)
                found += [lock.locked(), outcome(lock.release), outcome(lock.release)]
                await turns(1)
                if kind == "Condition":
                    lock._waiters.append(mine[1])
                    inner._locked = True
                    found += [lock.notify(), lock.notify(3), lock.notify_all(), inner.release()]
                await cancelled(trying)
                found += [trying.cancelled() or trying.result(), [each.calls for each in mine], lock.locked()]
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("number", [0, 1, 2, -1, 5, True, 2**70, 1.5, "x", None])
def test_number_of_waiters_to_notify(loop, number):
    async def use(module):
        condition = module.Condition()

        async def wait():
            async with condition:
                return await condition.wait()

        tasks = [asyncio.ensure_future(wait()) for _ in range(3)]
        await turns(2)
        async with condition:
            found = [outcome(condition.notify, number)]
        await turns(3)
        found.append([task.done() for task in tasks])
        return without_addresses([*found, await cancelled(*tasks)])

    same_on_both(loop, use)


@pytest.mark.parametrize("predicate", [list, lambda: 1 // 0, lambda: next(iter(())), None, lambda argument: True])
def test_odd_predicates(loop, predicate):
    async def use(module):
        condition = module.Condition()

        async def wait():
            async with condition:
                return await condition.wait_for(predicate)

        task = asyncio.ensure_future(outcome_of(wait()))
        await turns(3)
        found = [task.done(), condition.locked()]
        task.cancel()
        return without_addresses([*found, await task])

    same_on_both(loop, use)


def test_truth_of_a_predicates_result_may_raise(loop):
    class Result:
        def __bool__(self):
            raise ZeroDivisionError

    async def use(module):
        condition = module.Condition()
        async with condition:
            return await outcome_of(condition.wait_for(Result))

    assert same_on_both(loop, use)[0] == "ZeroDivisionError"


@pytest.mark.parametrize("method", ["acquire", "__aenter__"])
def test_waiters_of_a_semaphore_that_the_program_removes(loop, method):
    async def use(module):
        semaphore = module.Semaphore(0)
        tasks = [asyncio.ensure_future(outcome_of(getattr(semaphore, method)())) for _ in range(3)]
        await turns(2)
        semaphore._waiters[0].set_result(True)
        semaphore._waiters.popleft()
        semaphore._value = 1
        await turns(3)
        found = [task.done() for task in tasks], semaphore._value, tasks[0].result()
        for task in tasks:
            task.cancel()
        await turns(2)
        return found

    same_on_both(loop, use)


class Local:
    """What a task has on its stack."""


@pytest.mark.parametrize("held", [False, True])
def test_condition_and_cancelled_waiter_are_freed_without_the_collector(loop, held):
    """The waiter gets the lock again at once, or waits for it."""

    async def wait(condition, local):
        async with condition:
            await condition.wait()

    async def use(module):
        condition, local = module.Condition(), Local()
        known = [weakref.ref(condition), weakref.ref(local)]
        waiting = asyncio.ensure_future(wait(condition, local))
        await turns(2)
        if held:
            await condition.acquire()
        waiting.cancel()
        del waiting, local
        await turns(2)
        if held:
            condition.release()
        del condition
        await turns(3)
        return [reference() for reference in known]

    gc.disable()
    try:
        assert same_on_both(loop, use) == [None, None]
    finally:
        gc.enable()
