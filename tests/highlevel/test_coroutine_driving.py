"""send(), throw() and close() of a compiled function's coroutine in each state: it does what asyncio's own does."""

import asyncio
import inspect
import itertools
import types
import warnings

import pytest
from support.comparing import BOTH, description
from support.driven_coroutines import (
    Subject,
    empty_queue,
    event,
    filled_queue,
    full_queue,
    joined_queue,
    outcome,
    priority_queue,
    subclass,
)

pytestmark = pytest.mark.only("c", "asyncio", reason="the subject is compiled, and has to work on any loop")


SUBJECTS = [empty_queue, filled_queue, full_queue, joined_queue, event, subclass]

OPERATIONS = {
    "send None": lambda subject: subject.send(None),
    "send a value": lambda subject: subject.send(1),
    "throw": lambda subject: subject.coroutine.throw(ValueError("thrown")),
    "throw a class": lambda subject: subject.coroutine.throw(ValueError),
    "throw StopIteration": lambda subject: subject.coroutine.throw(StopIteration(1)),
    "throw GeneratorExit": lambda subject: subject.coroutine.throw(GeneratorExit()),
    "throw a cancellation": lambda subject: subject.coroutine.throw(asyncio.CancelledError()),
    "throw nonsense": lambda subject: subject.coroutine.throw("nonsense"),
    "throw two arguments": lambda subject: subject.coroutine.throw(ValueError, "thrown"),
    "throw nothing": lambda subject: subject.coroutine.throw(),
    "close": lambda subject: subject.coroutine.close(),
    "finish": lambda subject: subject.finish(),
    "resolve": Subject.resolve,
    "cancel": Subject.cancel,
}


def drive(loop, module, make, names):
    """The outcome of each operation, the state after it, and the warnings."""
    log = []

    async def main():
        subject = make(module)
        for name in names:
            log.append((name, outcome(OPERATIONS[name], subject), subject.state()))
        outcome(subject.coroutine.close)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(main())
    return log, sorted({(warning.category.__name__, str(warning.message)) for warning in caught})


@pytest.mark.parametrize("make", SUBJECTS)
def test_every_sequence_of_three_operations(loop, make):
    for names in itertools.product(OPERATIONS, repeat=3):
        own, compiled = (drive(loop, module, make, names) for module in BOTH)
        assert own == compiled


@pytest.mark.parametrize("make", SUBJECTS)
def test_longer_sequences(loop, make):
    usual = ["send None", "throw", "close", "finish", "resolve", "cancel"]
    for names in itertools.product(["send None"], usual, usual, usual, ["send None", "close"]):
        own, compiled = (drive(loop, module, make, names) for module in BOTH)
        assert own == compiled


def test_operations_on_a_coroutine_that_runs(loop, aio):
    log = []

    def use_it():
        log.append((outcome(coroutine.send, None), outcome(coroutine.throw, ValueError()), outcome(coroutine.close)))
        log.append((inspect.getcoroutinestate(coroutine), coroutine.cr_running, coroutine.cr_suspended))

    async def main():
        nonlocal coroutine
        coroutine = priority_queue(aio, use_it).get()
        await coroutine

    coroutine = None
    loop.run_until_complete(main())
    executing = description(ValueError("coroutine already executing"))
    assert log[:2] == [(executing,) * 3, ("CORO_RUNNING", True, False)]


def test_stop_iteration_that_is_raised_inside(loop, aio):
    def stop():
        raise StopIteration("inside")

    async def main():
        with pytest.raises(RuntimeError, match=r"^coroutine raised StopIteration$") as caught:
            await priority_queue(aio, stop).get()
        return description(caught.value)

    expected = RuntimeError("coroutine raised StopIteration")
    expected.__cause__ = expected.__context__ = StopIteration("inside")
    assert loop.run_until_complete(main()) == description(expected)


class Stubborn:
    """An awaitable that ignores close(), in place of a queue's waiter."""

    def __init__(self, goes_on):
        self.goes_on = goes_on

    def __await__(self):
        try:
            yield
        except GeneratorExit:
            if self.goes_on:
                yield
        return "ignored"


@pytest.mark.parametrize("goes_on", [True, False])
def test_close_with_an_awaitable_that_swallows_it(loop, monkeypatch, goes_on):
    """If the awaitable ignores GeneratorExit, close() raises an error or returns the coroutine's result."""

    async def main(module):
        queue = module.Queue()
        monkeypatch.setattr(queue, "_get_loop", lambda: types.SimpleNamespace(create_future=lambda: Waiter(goes_on)))
        coroutine = queue.get()
        coroutine.send(None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log = [outcome(coroutine.close), inspect.getcoroutinestate(coroutine)]
            log.append(outcome(coroutine.close))
        return log, [str(warning.message) for warning in caught]

    class Waiter(Stubborn):
        def cancel(self):
            return False

        def cancelled(self):
            return True

        def done(self):
            return False

    own, compiled = (loop.run_until_complete(main(module)) for module in BOTH)
    assert own == compiled
