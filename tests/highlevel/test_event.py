"""asyncio.Event: the compiled one does what asyncio's own does, on every loop."""

import asyncio
import copy
import pickle
from collections import deque

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, description, outcome, outcome_of, same_on_both, turns
from support.task_programs import TaskPlayer

import hotloop.asyncio

ACTIONS = ["wait", "set", "clear", "is_set", "pause", "cancel"]


def state(event):
    waiters = [(waiter.done(), waiter.cancelled()) for waiter in event._waiters]
    return repr(event).partition(" at ")[2].partition(" ")[2], event._value, waiters


class Player(TaskPlayer):
    def __init__(self, event):
        super().__init__()
        self.event = event

    async def play(self, program):
        await self.play_tasks(program, 50)
        await self.end_tasks()
        return self.log

    def look(self):
        return (state(self.event),)

    async def act(self, action, _number):
        result = getattr(self.event, action)()
        return await result if action == "wait" else result


@hypothesis.settings(max_examples=80, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    program=strategies.lists(
        strategies.lists(strategies.tuples(strategies.sampled_from(ACTIONS), strategies.integers(0, 5)), max_size=8),
        min_size=1,
        max_size=5,
    )
)
def test_random_programs(loop, program):
    async def run(module):
        return await Player(module.Event()).play(program)

    same_on_both(loop, run)


@pytest.mark.parametrize("name", ["_waiters", "_value", "_loop"])
@pytest.mark.parametrize("value", ["deleted", None, [], deque(), "text", 7, True])
@pytest.mark.parametrize("waits", [False, True])
def test_attributes_of_other_values(loop, name, value, waits):
    """Deleted or replaced before the use, and while a task waits."""
    if (name, value) == ("_loop", "deleted"):
        pytest.skip("asyncio's class has such an attribute as well, which shows then")

    async def use(module):
        event = module.Event()
        tasks = [asyncio.ensure_future(outcome_of(event.wait())) for _ in range(2 * waits)]
        await turns(1)
        found = []
        if value == "deleted":
            found.append(str(outcome(delattr, event, name))[:17])
        else:
            setattr(event, name, copy.copy(value))
        found += [outcome(event.is_set)]
        tasks.append(asyncio.ensure_future(outcome_of(event.wait())))
        await turns(1)
        found += [outcome(event.set), outcome(event.is_set), outcome(event.clear), outcome(event.is_set)]
        await turns(2)
        for task in tasks:
            task.cancel()
        return [str(each).partition(" at 0x")[0] for each in [*found, *await asyncio.gather(*tasks)]]

    same_on_both(loop, use)


@pytest.mark.parametrize("method", ["is_set", "set", "clear", "wait", "_get_loop", "__repr__"])
@pytest.mark.parametrize("place", ["subclass", "own", "compiled", "object"])
def test_overridden_methods_are_called(loop, method, place, monkeypatch):
    if place == "own" and method in vars(hotloop.asyncio.Event):
        pytest.skip("the compiled class overrides it")

    async def use(module):
        calls = []
        original = getattr(module.Event, method)

        def watched(self):
            calls.append(method)
            return original(self)

        event = module.Event()
        with monkeypatch.context() as patch:
            if place == "subclass":
                event = type("Own", (module.Event,), {method: watched})()
            elif place == "object":
                setattr(event, method, watched.__get__(event))
            else:
                patch.setattr(asyncio.Event if place == "own" else module.Event, method, watched)
            waiting = asyncio.ensure_future(event.wait())
            await turns(1)
            found = [event.is_set(), event.set(), event.is_set(), await waiting, event.clear(), repr(event)[-8:]]
        return found, calls

    same_on_both(loop, use)


def test_copies_and_pickles():
    found = []
    for module in BOTH:
        for duplicate in (copy.copy, copy.deepcopy, lambda event: pickle.loads(pickle.dumps(event))):
            event = module.Event()
            event.set()
            event.mark = "kept"
            other = duplicate(event)
            assert type(other) is type(event)
            found.append((state(other), other.mark))
    assert found[:3] == found[3:]


@pytest.mark.parametrize("error", [asyncio.CancelledError("x"), ZeroDivisionError("x"), GeneratorExit()])
@pytest.mark.parametrize("gone", [False, True])
def test_wait_that_ends_otherwise(loop, error, gone):
    async def use(module):
        event = module.Event()
        waiting = event.wait()
        waiting.send(None)
        if gone:
            event._waiters.clear()
        try:
            waiting.throw(type(error)(*error.args))
        except BaseException as raised:
            return description(raised), state(event)

    same_on_both(loop, use)


def test_waiter_is_shown_where_it_waits(loop):
    async def use(module):
        waiting = asyncio.ensure_future(module.Event().wait())
        await turns(1)
        coroutine = waiting.get_coro()
        found = [coroutine.cr_code.co_name, coroutine.cr_frame.f_lineno, repr(waiting).partition("coro=")[2][:30]]
        waiting.cancel()
        await turns(1)
        return found

    same_on_both(loop, use)


def test_event_of_another_loop_is_refused(impl, loop):
    found = []
    for module in BOTH:
        event = module.Event()
        results = []
        for each in (loop, impl.new_event_loop()):
            error = each.run_until_complete(outcome_of(asyncio.wait_for(event.wait(), 0.001)))
            results.append((error[0], error[1].rpartition("> ")[2]))
        each.close()
        found.append(results)
    assert found[0] == found[1]
    assert found[1][1] == ("RuntimeError", "is bound to a different event loop")


def test_class_is_a_subclass_of_asyncios():
    assert issubclass(hotloop.asyncio.Event, asyncio.Event)
    assert hotloop.asyncio.Event.__qualname__ == "Event"
