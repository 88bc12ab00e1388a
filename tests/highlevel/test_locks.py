"""asyncio.Lock, Semaphore, BoundedSemaphore and Condition: the compiled ones do what asyncio's own do."""

import asyncio
import copy
import gc
import pickle
import sys
import weakref
from collections import deque

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, description, outcome, outcome_of, same_on_both, turns

import hotloop.asyncio

KINDS = ("Lock", "Semaphore", "BoundedSemaphore", "Condition")
METHODS = (
    *("acquire", "release", "locked", "_wake_up_first", "_wake_up_next", "_get_loop", "__aenter__", "__aexit__"),
    *("wait", "wait_for", "notify", "notify_all", "_notify", "__repr__"),
)
OTHER_VALUES = ("deleted", None, [], deque(), "text", 7, 2**70, -1, True)


def started(coroutine):
    return asyncio.ensure_future(coroutine)


async def cancelled(*tasks):
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


# -- random programs ---------------------------------------------------------------------------------------------------

ACTIONS = ["acquire", "release", "with", "pause", "cancel", "inspect"]
CONDITION_ACTIONS = [*ACTIONS, "with_wait", "wait", "wait_for", "raise_level", "notify", "notify_all", "with_notify"]


def programs_of(actions):
    action = strategies.tuples(strategies.sampled_from(actions), strategies.integers(0, 5))
    return strategies.lists(strategies.lists(action, max_size=8), min_size=1, max_size=6)


class Player:
    """One run of a program: several tasks that use one lock, and a log of what each action gave, in order."""

    def __init__(self, lock):
        self.lock = lock
        self.level = 0
        self.log = []
        self.tasks = []

    async def play(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        await turns(80)
        while not all(task.done() for task in self.tasks):
            # A task goes on after some of its cancellations, and a condition waits for its lock after each.
            for task in self.tasks:
                task.cancel()
            self.log.append(outcome(self.lock.release))
            await turns(3)
        self.log += [(task.done(), task.cancelled()) for task in self.tasks]
        self.log.append(state(self.lock))
        return self.log

    async def play_task(self, name, actions):
        for action, number in actions:
            try:
                result = await self.act(action, number)
            except Exception as error:
                result = description(error)
            except asyncio.CancelledError as error:
                self.log.append((name, action, "cancelled", description(error), state(self.lock)))
                if number % 2:
                    raise
                continue
            self.log.append((name, action, result, state(self.lock)))

    async def act(self, action, number):
        lock = self.lock
        match action:
            case "acquire" | "wait":
                return await getattr(lock, action)()
            case "with":
                async with lock as held:
                    await turns(number)
                return held
            case "with_wait":
                async with lock:
                    return await lock.wait()
            case "with_notify":
                async with lock:
                    lock.notify(number)
            case "wait_for":
                async with lock:
                    return await lock.wait_for(lambda: self.level >= number)
            case "raise_level":
                self.level += 1
                async with lock:
                    lock.notify_all()
            case "notify":
                return lock.notify(number - 1)
            case "pause":
                return await turns(number)
            case "cancel":
                return self.tasks[number % len(self.tasks)].cancel(f"by {number}")
            case "inspect":
                return lock.locked()
            case _:
                return getattr(lock, action)()


def state(lock):
    inner = getattr(lock, "_lock", None)
    waiters = [(waiter.done(), waiter.cancelled()) for waiter in lock._waiters or ()]
    own = repr(lock).partition(" at ")[2].partition(" ")[2], getattr(lock, "_value", None), waiters
    return own if inner is None else (own, state(inner))


random_programs = hypothesis.settings(
    max_examples=120, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)


@random_programs
@hypothesis.given(program=programs_of(ACTIONS), kind=strategies.sampled_from(KINDS), value=strategies.integers(0, 3))
def test_random_programs(loop, program, kind, value):
    async def run(module):
        arguments = (value,) if "Semaphore" in kind else ()
        return await Player(getattr(module, kind)(*arguments)).play(program)

    same_on_both(loop, run)


@random_programs
@hypothesis.given(program=programs_of(CONDITION_ACTIONS), shared=strategies.booleans())
def test_random_programs_of_conditions(loop, program, shared):
    async def run(module):
        return await Player(module.Condition(module.Lock()) if shared else module.Condition()).play(program)

    same_on_both(loop, run)


@random_programs
@hypothesis.given(
    parties=strategies.integers(1, 3),
    program=strategies.lists(
        strategies.tuples(
            strategies.sampled_from(["wait", "wait", "abort", "reset", "cancel"]), strategies.integers(0, 6)
        ),
        max_size=12,
    ),
)
def test_random_programs_of_barriers(loop, parties, program):
    """asyncio's Barrier on a compiled Condition."""

    async def run(module):
        barrier = asyncio.Barrier(parties)
        barrier._cond = module.Condition()
        tasks = []
        log = []

        async def call(name, action):
            found = await outcome_of(getattr(barrier, action)())
            log.append((name, found, barrier.n_waiting, barrier.broken))

        for name, (action, pause) in enumerate(program):
            if action != "cancel":
                tasks.append(asyncio.create_task(call(name, action)))
            elif tasks:
                tasks[pause % len(tasks)].cancel()
            await turns(pause)
        await turns(20)
        await cancelled(*tasks)
        return log, repr(barrier).partition(" at ")[2].partition(" ")[2], state(barrier._cond)

    same_on_both(loop, run)


# -- what a lock looks like --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_class_is_a_subclass_of_asyncios(kind):
    own, compiled = (getattr(module, kind) for module in BOTH)
    assert issubclass(compiled, own)
    assert isinstance(compiled(), own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert issubclass(hotloop.asyncio.BoundedSemaphore, hotloop.asyncio.Semaphore)


@pytest.mark.parametrize("kind", ["Semaphore", "BoundedSemaphore"])
@pytest.mark.parametrize(
    "arguments", [(), (3,), (0,), (-1,), (2**80,), (-(2**80),), (1.5,), (True,), (False,), ("x",), (None,), (1, 2)]
)
def test_odd_arguments_of_the_constructor(loop, kind, arguments):
    async def use(module):
        made = [outcome(lambda: repr(getattr(module, kind)(*arguments)).partition(" at ")[2].partition(" ")[2])]
        if isinstance(made[0], tuple):
            return made
        semaphore = getattr(module, kind)(*arguments)
        for _ in range(2):
            if not semaphore.locked():
                made.append(await semaphore.acquire())
            made += [
                semaphore.locked(),
                repr(semaphore._value),
                type(semaphore._value),
                hasattr(semaphore, "_bound_value"),
            ]
        for _ in range(3):
            made.append((outcome(semaphore.release), repr(semaphore._value)))
        return made

    same_on_both(loop, use)


def test_keyword_arguments_of_the_constructors(loop):
    async def use(module):
        lock = module.Lock()
        condition = module.Condition(lock=lock)
        return [
            condition._lock is lock,
            type(module.Condition(lock=None)._lock) is module.Lock,
            type(module.Condition(None)._lock) is module.Lock,
            type(module.Condition()._lock) is module.Lock,
            module.Semaphore(value=3)._value,
            module.BoundedSemaphore(value=3)._bound_value,
            *(outcome(module.Condition, *arguments)[0] for arguments in [(1,), (lock, lock)]),
            outcome(lambda: module.Condition(loop=None)),
            outcome(lambda: module.Lock(loop=None)),
            outcome(lambda: module.Semaphore(1, value=1)),
        ]

    assert all(same_on_both(loop, use)[:4])


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_can_be_read_and_set(loop, kind):
    async def use(module):
        lock = getattr(module, kind)()
        found = [lock._waiters, lock._loop, getattr(lock, "_locked", None), getattr(lock, "_value", None)]
        lock.mark = 1
        found += [lock.mark, await lock.acquire(), lock.locked()]
        waiting = started(lock.acquire())
        await turns(1)
        inner = getattr(lock, "_lock", lock)
        found += [type(inner._waiters), len(inner._waiters), inner._loop is loop, lock.release(), await waiting]
        del lock.mark
        return found, hasattr(lock, "mark")

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["_waiters", "_locked", "_value", "_bound_value", "_loop", "_lock", "locked", "acquire", "release"]
)
def test_attributes_of_other_values(loop, kind, name):
    """Deleted or replaced before the use, and while a task waits."""

    async def use(module, value, waits):
        lock = getattr(module, kind)()
        inner = getattr(lock, "_lock", lock)
        tasks = []
        if waits:
            await lock.acquire()
            tasks = [started(lock.acquire()), started(hold(lock))]
            if kind == "Condition":
                tasks += [started(lock.wait())]
            await turns(2)
        if value == "deleted":
            found = [str(outcome(delattr, lock, name))[:17]]
        else:
            setattr(lock, name, copy.copy(value))
            found = []
        for call in ("locked", "release", "locked", "notify", "notify_all"):
            found += [outcome(getattr(lock, call))] if hasattr(lock, call) else []
        for _ in range(2):
            trying = started(outcome_of(take(lock)))
            await turns(4)
            found.append(trying.done() and trying.result())
            tasks.append(trying)
        holding = started(outcome_of(hold(lock)))
        await turns(5)
        found.append(holding.done() and holding.result())
        for _ in range(5):  # a condition waits for its lock after each cancellation
            for task in (holding, *tasks):
                task.cancel()
            found.append(outcome(inner.release))
            await turns(3)
        done = await cancelled(holding, *tasks)
        found += [description(each) if isinstance(each, BaseException) else each for each in done]
        return without_addresses(found)

    async def take(lock):
        return await lock.acquire()

    async def hold(lock):
        async with lock:
            await turns(1)
            if kind == "Condition":
                lock.notify()

    for value in OTHER_VALUES:
        # asyncio's class has a _loop as well, which shows when the object's is deleted.
        if (name, value) != ("_loop", "deleted"):
            for waits in (False, True):
                same_on_both(loop, lambda module, value=value, waits=waits: use(module, value, waits))


def without_addresses(found):
    """The texts of `found`, without what differs between two equal objects."""
    if isinstance(found, (list, tuple)):
        return [without_addresses(each) for each in found]
    text = str(found)
    return text.partition(" at 0x")[0] if " at 0x" in text else text


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles(kind):
    found = []
    for module in BOTH:
        for duplicate in (copy.copy, copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))):
            lock = getattr(module, kind)()
            lock.mark = "kept"
            other = duplicate(lock)
            assert type(other) is type(lock)
            found.append((state(other), other.mark, state(lock)))
    assert found[:3] == found[3:]


def test_copied_condition_has_its_own_lock(loop):
    async def use(module):
        condition = copy.deepcopy(module.Condition())
        async with condition:
            found = [condition.locked(), condition._lock.locked(), condition.acquire.__self__ is condition._lock]
            waiting = started(condition.acquire())
            await turns(1)
        return found, await waiting

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", KINDS)
def test_waiter_is_shown_where_it_waits(loop, kind):
    async def use(module):
        lock = getattr(module, kind)()
        await lock.acquire()

        async def hold():
            async with lock:
                pass

        tasks = [started(hold()), started(lock.acquire())]
        await turns(1)
        awaited = tasks[0].get_coro().cr_await
        found = []
        for coroutine in (awaited, awaited.cr_await, tasks[1].get_coro()):
            frame = coroutine.cr_frame
            found.append((frame.f_code.co_name, frame.f_lineno, coroutine.cr_code.co_name, coroutine.__qualname__))
        found.append(repr(tasks[1]).partition("coro=")[2].partition(">")[0])
        await cancelled(*tasks)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", KINDS)
def test_lock_and_waiters_are_collected(loop, kind):
    async def use(module):
        lock = getattr(module, kind)()
        await lock.acquire()
        lock.itself = lock
        known = weakref.ref(lock)
        waiting = lock.acquire()
        waiting.send(None)
        del lock
        waiting.close()
        del waiting
        gc.collect()
        return known()

    assert same_on_both(loop, use) is None


@pytest.mark.parametrize("method", ["acquire", "__aenter__", "__aexit__"])
@pytest.mark.parametrize("kind", KINDS)
def test_unawaited_coroutine_is_reported(kind, method):
    name = (
        "_ContextManagerMixin" if method.startswith("_") else kind.replace("Bounded", "").replace("Condition", "Lock")
    )
    arguments = [None] * 3 if method == "__aexit__" else []
    for module in BOTH:
        lock = getattr(module, kind)()
        with pytest.warns(RuntimeWarning, match=rf"coroutine '{name}\.{method}' was never awaited"):
            getattr(lock, method)(*arguments)
            gc.collect()
        assert not lock.locked()


SIZES = """
import asyncio, gc, hotloop.asyncio, tracemalloc

def size(module):
    gc.collect()  # first: it fills free lists, and the objects that are made then empty them
    made = [module.{kind}() for _ in range(500)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = [module.{kind}() for _ in range(500)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / len(made)

print(size(asyncio), size(hotloop.asyncio))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_lock_is_no_larger_than_asyncios(impl, kind):
    # In an interpreter of its own: every attribute that a test sets on a lock makes all later ones larger.
    own, compiled = map(float, impl.run_script(SIZES.format(kind=kind)).stdout.split())
    # A compiled Condition has 1.5% more on CPython 3.12.
    assert compiled <= own * 1.03


# -- what programs override --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", ["subclass", "own", "compiled", "object"])
def test_overridden_methods_are_called(loop, kind, method, place, monkeypatch):
    if not hasattr(getattr(asyncio, kind)(), method):
        pytest.skip(f"no {method}() in {kind}")
    of_the_lock = kind == "Condition" and method in ("acquire", "release", "locked")
    if of_the_lock and place != "subclass":
        pytest.skip("the object has the lock's method, the class none")
    if place == "own" and method in dir(getattr(asyncio, kind)) and is_compiled(kind, method):
        pytest.skip("the compiled class overrides it")

    async def use(module):
        cls = getattr(module, kind)
        calls = []
        lock = cls()
        original = getattr(type(lock._lock) if of_the_lock else cls, method)

        def watched(self, *arguments):
            calls.append(method)
            return original(self._lock if of_the_lock else self, *arguments)

        with monkeypatch.context() as patch:
            if place == "subclass":
                lock = type(kind, (cls,), {method: watched})()
            elif place == "object":
                setattr(lock, method, watched.__get__(lock))
            else:
                patch.setattr(getattr(asyncio, kind) if place == "own" else cls, method, watched)
            found = await self_use(lock)
        return found, calls

    async def self_use(lock):
        tasks = [started(hold(lock, number)) for number in range(3)]
        await turns(2)
        tasks[1].cancel()
        return [repr(lock).partition("[")[2], *without_addresses(await asyncio.gather(*tasks, return_exceptions=True))]

    async def hold(lock, number):
        await lock.acquire()
        await turns(2)
        lock.release()
        async with lock:
            if kind != "Condition":
                return lock.locked()
            if number == 0:
                await turns(4)
                lock.notify(1)
                return lock.notify_all()
            await asyncio.wait_for(lock.wait(), 0.01) if number == 1 else None
            return await lock.wait_for(lambda: True)

    same_on_both(loop, use)


def is_compiled(kind, method):
    classes = getattr(hotloop.asyncio, kind).__mro__
    return any(method in vars(cls) for cls in classes[: classes.index(getattr(asyncio, kind))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["acquire", "__aenter__", "__aexit__", "wait", "wait_for"])
def test_class_patched_between_call_and_first_step(loop, kind, call, monkeypatch):
    if not hasattr(getattr(asyncio, kind)(), call):
        pytest.skip(f"no {call}() in {kind}")

    async def use(module):
        lock = getattr(module, kind)()
        lock_class = module.Lock if kind == "Condition" else getattr(module, kind)
        await lock.acquire()
        calls = []
        arguments = {"__aexit__": [None] * 3, "wait_for": [lambda: calls.append("asked") or len(calls) > 2]}
        coroutine = getattr(lock, call)(*arguments.get(call, []))
        with monkeypatch.context() as patch:
            for name in ("release", "locked", "_get_loop"):
                original = getattr(lock_class, name)

                def watched(self, name=name, original=original):
                    calls.append(name)
                    return original(self)

                patch.setattr(lock_class, name, watched)
            task = started(coroutine)
            await turns(2)
            lock.release() if lock.locked() else None
            if call in ("wait", "wait_for"):
                async with lock:
                    lock.notify_all()
            await turns(3)
        await turns(2)
        return without_addresses(await cancelled(task)), calls

    same_on_both(loop, use)


def test_subclass_of_condition_with_methods_of_the_same_names(loop):
    async def use(module):
        class Own(module.Condition):
            def locked(self):
                return "own"

            @property
            def release(self):
                return self._lock.release

            @release.setter
            def release(self, method):
                self.was_set = method.__name__

        condition = Own()
        return condition.locked(), condition.was_set, type(condition._lock) is module.Lock, sorted(vars(condition))[:1]

    # A plain function of the class gives way to the attribute that the constructor sets.
    assert same_on_both(loop, lambda module: first_three(use(module)))[0] is False


async def first_three(coroutine):
    return (await coroutine)[:3]


@pytest.mark.parametrize("inner", ["Lock", "Semaphore", "other module", "subclass"])
def test_condition_with_another_lock(loop, inner):
    async def use(module):
        other = BOTH[BOTH.index(module) - 1]
        lock = {
            "Lock": module.Lock,
            "Semaphore": module.Semaphore,
            "other module": other.Lock,
            "subclass": type("Own", (module.Lock,), {}),
        }[inner]()
        condition = module.Condition(lock)

        async def wait(number):
            async with condition:
                return await condition.wait(), number

        tasks = [started(wait(number)) for number in range(4)]
        await turns(2)
        tasks[1].cancel()
        found = [condition.locked(), lock.locked(), outcome(condition.notify)]
        async with condition:
            found.append(condition.notify(2))
            tasks[2].cancel()
            await turns(1)
        await turns(3)
        found.append([task.done() for task in tasks])
        return without_addresses([*found, await cancelled(*tasks)])

    same_on_both(loop, use)


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["cancel", "error", "close", "result"])
@pytest.mark.parametrize("woken", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_wait_that_ends_otherwise(loop, kind, ending, woken, free):
    """What is thrown into a coroutine that waits, woken or not, with the lock free or not, and others behind it."""

    async def use(module):
        lock = getattr(module, kind)()
        await lock.acquire()
        waiting = lock.acquire()
        waiter = waiting.send(None)
        others = [started(lock.acquire()) for _ in range(2)]
        await turns(1)
        if woken:
            lock.release()
            if not free:
                inner = getattr(lock, "_lock", lock)
                inner.__dict__.update({}) if False else None
                setattr(inner, "_locked" if hasattr(inner, "_locked") else "_value", hasattr(inner, "_locked") or 0)
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


def outcome_of_throw(coroutine, error):
    try:
        return coroutine.send(None) if error is None else coroutine.throw(error)
    except BaseException as raised:
        return description(raised), raised is error, getattr(raised, "value", None)


@pytest.mark.parametrize("ending", ["cancel", "error", "result"])
@pytest.mark.parametrize("acquiring", ["not yet", "waiting", "waiting twice"])
@pytest.mark.parametrize("notified", [False, True])
def test_condition_wait_that_ends_otherwise(loop, ending, acquiring, notified):
    async def use(module):
        condition = module.Condition()
        await condition.acquire()
        others = [started(locked_wait(condition)) for _ in range(2)]
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
        waiting.close() if condition.locked() else None
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
                task = started(lock.acquire())
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
        task = started(condition.wait())
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
                trying = started(outcome_of(lock.acquire()))
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

        tasks = [started(wait()) for _ in range(3)]
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

        task = started(outcome_of(wait()))
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


@pytest.mark.parametrize("kind", KINDS)
def test_lock_of_another_loop_is_refused(impl, loop, kind):
    async def wait(lock):
        try:
            await asyncio.wait_for(lock.acquire(), 0.001)
        except TimeoutError:
            return "timeout"
        except RuntimeError as error:
            return str(error).partition("<")[0], str(error).rpartition("> ")[2]
        return "acquired"

    found = []
    for module in BOTH:
        lock = getattr(module, kind)()
        found.append([loop.run_until_complete(wait(lock)) for _ in range(2)])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait(lock)))
        lock.release()
        found[-1].append(other.run_until_complete(wait(lock)))
        other.close()
    assert found[0] == found[1]
    assert found[1][:2] == ["acquired", "timeout"]
    assert found[1][2][1] == "is bound to a different event loop"


def test_condition_wait_on_another_loop(impl, loop):
    found = []
    for module in BOTH:
        condition = module.Condition()

        async def wait(condition=condition):
            async with condition:
                return (await outcome_of(asyncio.wait_for(condition.wait(), 0.001)))[0], condition.locked()

        found.append([loop.run_until_complete(wait())])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait()))
        other.close()
    assert found[0] == found[1]
    assert found[1][1] == ("RuntimeError", True)


def test_several_runs_of_a_loop(loop):
    def use(module):
        semaphore = module.Semaphore(0)
        waiting = loop.create_task(semaphore.acquire())
        loop.run_until_complete(turns(2))
        semaphore.release()
        found = [waiting.done(), loop.run_until_complete(waiting), state(semaphore)]
        return found

    own, compiled = map(use, BOTH)
    assert own == compiled


def test_without_a_running_loop():
    def use(module):
        found = []
        for kind in KINDS:
            lock = getattr(module, kind)()
            for call in ("acquire", "__aenter__", "acquire", "wait"):
                if hasattr(lock, call):
                    found.append(outcome_of_throw(getattr(lock, call)(), None))
            found.append(state(lock))
        return found

    own, compiled = map(use, BOTH)
    assert own == compiled


def test_the_same_turns_in_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        log = []
        lock, semaphore, condition = module.Lock(), module.Semaphore(2), module.Condition()

        async def work(name):
            async with semaphore:
                log.append(("semaphore", name))
                async with lock:
                    log.append(("lock", name))
                    await turns(1)
            async with condition:
                if name < 3:
                    log.append(("waited", name, await condition.wait()))
                else:
                    condition.notify_all()

        async def count():
            for turn in range(30):
                log.append(turn)
                await turns(1)

        await asyncio.gather(count(), *map(work, range(4)))
        return log

    same_on_both(loop, use)


if sys.version_info >= (3, 12):

    def test_eager_tasks(loop):
        loop.set_task_factory(asyncio.eager_task_factory)

        async def use(module):
            log = []
            lock, condition = module.Lock(), module.Condition()

            async def work(name):
                async with lock:
                    log.append(name)
                    await turns(1)
                async with condition:
                    if name < 2:
                        await condition.wait()
                    condition.notify(1)
                    log.append((name, "notified"))

            await asyncio.gather(*map(work, range(4)))
            return log

        same_on_both(loop, use)
