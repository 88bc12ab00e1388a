"""asyncio.Timeout, timeout(), timeout_at() and wait_for(): the compiled ones do what asyncio's own do, on any loop."""

import asyncio
import copy
import fractions
import gc
import inspect
import pickle
import sys
import types
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, same_on_both, turns
from support.stepping import Clock
from support.virtual_time import virtual_class

import hotloop.asyncio

only_where_compiled = pytest.mark.skipif(sys.version_info < (3, 12), reason="there wait_for() is asyncio's own")


async def outcome(awaitable):
    """What awaiting gives, to be compared with another's."""
    try:
        return await awaitable
    except BaseException as error:
        return described(error)


def described(error, depth=4):
    """All of an exception that can be compared, with those that it comes from."""
    if error is None or depth == 0:
        return None
    return (
        type(error).__name__,
        text_of(error),
        described(error.__cause__, depth - 1),
        described(error.__context__, depth - 1),
        error.__suppress_context__,
        [described(each, depth - 1) for each in getattr(error, "exceptions", ())],
    )


def call(function, *arguments, **keywords):
    """What a call gives, to be compared with another's."""
    try:
        return function(*arguments, **keywords)
    except BaseException as error:
        return type(error).__name__, text_of(error)


def text_of(error):
    # An attribute that is missing is one of a class with __slots__, whose full name Python tells since 3.12.
    return str(error).replace("'asyncio.timeouts.Timeout'", "'Timeout'")


def pending_timers(loop):
    return len([handle for handle in loop._scheduled if not handle.cancelled()])


# -- random programs, in virtual time ----------------------------------------------------------------------------------

DELAYS = strategies.sampled_from([None, -1, 0, 0.0, 1, 1, 2, 2.5, 3, 3, 4, 5.5])
simple_actions = strategies.one_of(
    strategies.tuples(strategies.just("sleep"), strategies.sampled_from([-1, 0, 0, 1, 2, 3, 3.5])),
    strategies.tuples(strategies.sampled_from(["reschedule", "reschedule_at"]), DELAYS),
    strategies.tuples(strategies.just("cancel"), strategies.integers(0, 3)),
    strategies.tuples(
        strategies.sampled_from(["uncancel", "raise", "cancel_self", "look", "group"]), strategies.none()
    ),
)


def blocks(actions):
    inner = strategies.lists(actions, max_size=4)
    return strategies.one_of(
        strategies.tuples(
            strategies.sampled_from(["timeout", "timeout_at", "wait_for", "wait_for_task"]), DELAYS, inner
        ),
        strategies.tuples(strategies.sampled_from(["catch", "shield", "finally"]), strategies.none(), inner),
    )


tasks_of_a_program = strategies.lists(
    strategies.lists(strategies.recursive(simple_actions, blocks, max_leaves=6), max_size=4), min_size=1, max_size=4
)


class Player:
    """One run of a program: several tasks, and a log of what each action gave, in order and with the time."""

    def __init__(self, module):
        self.module = module
        self.log = []
        self.tasks = []
        self.inner = []

    async def play(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        for _ in range(4):
            await asyncio.wait(self.tasks, timeout=20)
            for task in self.tasks:
                task.cancel("at the end")
        while not all(task.done() for task in self.tasks + self.inner):
            for task in self.inner:
                task.cancel("at the end")
            await asyncio.wait(self.tasks + self.inner, timeout=20)
        for task in self.tasks + self.inner:
            self.log.append(("end", task.cancelled(), None if task.cancelled() else described(task.exception())))
        return self.log, pending_timers(asyncio.get_running_loop())

    async def play_task(self, name, actions):
        for number, action in enumerate(actions):
            self.note(name, number, await outcome(self.act(name, *action)))

    def note(self, *what):
        self.log.append((round(asyncio.get_running_loop().time(), 3), asyncio.current_task().cancelling(), *what))

    async def block(self, name, actions, timeout=None):
        for number, action in enumerate(actions):
            self.note(name, number, await self.act(name, *action, timeout=timeout), repr(timeout))
        return len(actions)

    async def act(self, name, action, value, inner=(), *, timeout=None):
        module, loop, task = self.module, asyncio.get_running_loop(), asyncio.current_task()
        match action:
            case "sleep":
                return await module.sleep(value, "slept")
            case "reschedule":
                return timeout and timeout.reschedule(value)
            case "reschedule_at":
                return timeout and timeout.reschedule(value and loop.time() + value)
            case "cancel":
                return self.tasks[value % len(self.tasks)].cancel(f"by {name}")
            case "cancel_self":
                return task.cancel("itself")
            case "uncancel":
                return task.uncancel()
            case "raise":
                raise LookupError(name)
            case "group":
                raise BaseExceptionGroup("group", [asyncio.CancelledError(), ValueError()])
            case "look":
                return timeout and (timeout.when(), timeout.expired(), str(timeout))
            case "timeout":
                return await self.within(module.timeout(value), name, inner)
            case "timeout_at":
                return await self.within(module.timeout_at(value and loop.time() + value), name, inner)
            case "wait_for":
                return await module.wait_for(self.block(name, inner), value)
            case "wait_for_task":
                return await module.wait_for(self.begun(name, inner), timeout=value)
            case "catch":
                return await outcome(self.block(name, inner, timeout))
            case "shield":
                return await asyncio.shield(self.begun(name, inner))
            case "finally":
                try:
                    return await self.block(name, inner, timeout)
                finally:
                    self.note(name, await module.sleep(1, "finally"))

    def begun(self, name, inner):
        self.inner.append(asyncio.ensure_future(self.block(name, inner)))
        return self.inner[-1]

    async def within(self, timeout, name, inner):
        try:
            async with timeout as entered:
                assert entered is timeout
                return await self.block(name, inner, timeout)
        finally:
            self.note(name, repr(timeout), timeout.expired(), timeout._timeout_handler)


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program)
def test_random_programs(impl, program):
    found = []
    for module in BOTH:
        loop = virtual_class(impl.EventLoop)()
        try:
            found.append(loop.run_until_complete(Player(module).play(program)))
        finally:
            loop.close()
    assert found[0] == found[1]


# -- what they look like -----------------------------------------------------------------------------------------------


def test_class_is_a_subclass_of_asyncios():
    own, compiled = asyncio.Timeout, hotloop.asyncio.Timeout
    assert issubclass(compiled, own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert getattr(compiled, "__final__", None) == getattr(own, "__final__", None)
    assert inspect.signature(compiled) == inspect.signature(own)


@pytest.mark.parametrize("name", ["timeout", "timeout_at", "wait_for"])
def test_functions_look_like_asyncios(name):
    own, compiled = (getattr(module, name) for module in BOTH)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__code__", "__annotations__"):
        assert getattr(compiled, attribute) == getattr(own, attribute)
    assert inspect.signature(compiled) == inspect.signature(own)
    assert inspect.iscoroutinefunction(compiled) == inspect.iscoroutinefunction(own)


def test_what_makes_timeouts_makes_those_of_its_module(loop):
    async def make(module):
        made = [
            module.timeout(5),
            module.timeout(delay=5),
            module.timeout(None),
            module.timeout(fractions.Fraction(1, 2)),
            module.timeout_at(5),
            module.timeout_at(when=None),
            module.Timeout(5),
        ]
        return [type(timeout) is module.Timeout and isinstance(timeout, asyncio.Timeout) for timeout in made]

    assert all(same_on_both(loop, make))


def test_odd_arguments(loop):
    async def make(module):
        found = []
        for name in ("timeout", "timeout_at", "Timeout"):
            function = getattr(module, name)
            for arguments in [(), (1, 2), ("x",), (b"",), ([],)]:
                found.append(str(call(function, *arguments)))
            for keywords in [{"delay": None}, {"when": 5}, {"delay": 1, "when": 2}, {"other": 1}]:
                found.append(str(call(function, **keywords)))
        return found

    same_on_both(loop, make)
    assert call(asyncio.timeout, 1) == call(hotloop.asyncio.timeout, 1)  # no running event loop
    assert call(asyncio.timeout, None) == call(hotloop.asyncio.timeout, None)


def test_attributes_are_there_when_asyncios_are(loop):
    names = ("_state", "_timeout_handler", "_task", "_when", "_cancelling")

    async def use(module):
        timeout = module.Timeout.__new__(module.Timeout)
        found = [[hasattr(timeout, name) for name in names]]
        timeout.__init__(5)
        found.append([hasattr(timeout, name) for name in names])
        found.append(call(timeout.__init__))
        timeout._when = None
        async with timeout:
            found.append([hasattr(timeout, name) for name in names])
            found.append((timeout._task is asyncio.current_task(), timeout._cancelling, timeout._timeout_handler))
        return [*found, str(timeout), timeout._state.name]

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["_state", "_timeout_handler", "_task", "_when", "_cancelling"])
@pytest.mark.parametrize("change", ["delete", "replace"])
@pytest.mark.parametrize("stage", ["before", "within", "expiring"])
def test_attributes_that_a_program_deletes_or_replaces(loop, name, change, stage):
    async def use(module):
        found = []

        def spoil(timeout):
            if change == "replace":
                setattr(timeout, name, "odd")
            elif hasattr(timeout, name):
                delattr(timeout, name)

        timeout = module.timeout(-1 if stage == "expiring" else 100)
        if stage == "before":
            spoil(timeout)
        handler = None
        try:
            async with timeout:
                handler = getattr(timeout, "_timeout_handler", None)
                if stage == "expiring":
                    try:
                        await turns(3)
                    except asyncio.CancelledError:
                        spoil(timeout)
                        raise
                elif stage == "within":
                    spoil(timeout)
                for act in (timeout.expired, timeout.when, lambda: timeout.reschedule(50), lambda: repr(timeout)[:9]):
                    found.append(call(act))
        except BaseException as error:
            found.append(described(error))
        found.append([hasattr(timeout, each) for each in ("_state", "_timeout_handler", "_when", "_cancelling")])
        found.append(call(timeout.expired))
        asyncio.current_task().uncancel()
        for each in (handler, getattr(timeout, "_timeout_handler", None)):
            if isinstance(each, asyncio.Handle):
                each.cancel()
        return found

    Clock.replacing_time_of(loop)
    same_on_both(loop, use)


def test_copies_and_pickles():
    found = []
    for module in BOTH:
        for duplicate in (copy.copy, lambda each: pickle.loads(pickle.dumps(each))):
            timeout = module.Timeout(5)
            timeout.mark = "kept"
            other = duplicate(timeout)
            assert type(other) is type(timeout)
            found.append((str(other), other.mark, other.when(), hasattr(other, "_cancelling")))
    assert found[:2] == found[2:]


# -- entering and leaving ----------------------------------------------------------------------------------------------


def test_every_state_refuses_what_asyncio_refuses(loop):
    async def use(module):
        found = []
        timeout = module.timeout(None)
        found += [call(timeout.reschedule, 1), repr(timeout), timeout.expired(), timeout.when()]
        found.append(await outcome(timeout.__aexit__(None, None, None)))
        async with timeout:
            found += [await outcome(timeout.__aenter__()), repr(timeout)]
            for when in (None, 5, 5.0004, -1, True, fractions.Fraction(1, 3), "x", b""):
                found += [call(timeout.reschedule, when), timeout.when(), timeout._timeout_handler is None]
                try:
                    found.append(repr(timeout))
                except TypeError as error:
                    found.append(str(error))
            found += [call(timeout.reschedule), call(timeout.reschedule, 1, 2), call(timeout.reschedule, when=None)]
        found += [call(timeout.reschedule, 1), repr(timeout), timeout.expired()]
        found += [await outcome(timeout.__aenter__()), await outcome(timeout.__aexit__(None, None, None))]
        found.append(call(timeout._on_timeout))
        return found, pending_timers(loop)

    same_on_both(loop, use)


def test_without_a_task_or_a_loop(impl, loop):
    def enter(module):
        timeout = module.Timeout(5)
        entering = timeout.__aenter__()
        return call(entering.send, None), repr(timeout), call(entering.send, None)

    found = []
    for module in BOTH:
        found.append([enter(module)])
        loop.call_soon(lambda module=module: found[-1].append(enter(module)))
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert found[0] == found[1]


@pytest.mark.parametrize("when", [5, 5.5, True, fractions.Fraction(11, 2)], ids=repr)
def test_handle_that_expires_it(loop, when):
    async def use(module):
        Clock.replacing_time_of(loop).now = 1.0
        timeout = module.timeout_at(when)
        async with timeout:
            handle = timeout._timeout_handler
            found = [
                type(handle) is type(loop.call_soon(lambda: None)),
                repr(handle),
                handle._callback.__self__ is timeout,
                handle._callback.__func__ is type(timeout)._on_timeout,
                handle._args,
                call(lambda: handle.when()),
            ]
            timeout.reschedule(0.5)
            found += [repr(timeout._timeout_handler), handle.cancelled()]
            timeout.reschedule(None)
        del loop.time
        return [*found, repr(handle)]

    same_on_both(loop, use)


def test_debug_mode_names_asyncios_line(loop):
    loop.set_debug(True)

    async def use(module):
        async with module.timeout(100) as timeout:
            found = [repr(timeout._timeout_handler).partition(" ")[2].partition(" ")[2]]
            found += [tuple(frame)[:3] for frame in timeout._timeout_handler._source_traceback[-3:]]
            handle = timeout._timeout_handler
            timeout.reschedule(loop.time() + 50)
            found += [tuple(frame)[:3] for frame in timeout._timeout_handler._source_traceback[-2:]]
            timeout.reschedule(-5)
            found.append(repr(timeout._timeout_handler))
            timeout.reschedule(None)
        return [*found, handle.cancelled()]

    same_on_both(loop, use)


def test_expires_and_raises(loop):
    async def use(module):
        found = []
        for body in ("sleep", "swallow", "other error", "group", "nested", "cancelled before", "cancelled too"):
            task = asyncio.ensure_future(expire(module, body, found))
            if body == "cancelled before":
                task.cancel()
            await turns(1)
            if body == "cancelled too":
                task.cancel("from outside")
            found.append(await outcome(task))
        return found, pending_timers(loop)

    async def expire(module, body, found):
        try:
            if body == "cancelled before":
                try:
                    await turns(1)
                except asyncio.CancelledError:
                    found.append("cancelled")
            async with module.timeout(0) as timeout:
                match body:
                    case "swallow":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            found.append("swallowed")
                    case "other error":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            raise ValueError(body) from None
                    case "group":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            raise ExceptionGroup(body, [KeyError(1)])  # noqa: B904
                    case "nested":
                        async with module.timeout(0):
                            await module.sleep(100)
                    case _:
                        await module.sleep(100)
        finally:
            task = asyncio.current_task()
            found += [
                repr(timeout),
                timeout.expired(),
                task.cancelling(),
                timeout._timeout_handler,
                timeout._cancelling,
            ]

    same_on_both(loop, use)


@pytest.mark.parametrize("method", ["__aenter__", "__aexit__"])
def test_driven_by_hand(loop, method):
    class Oops(Exception):
        pass

    async def use(module):
        found = []
        for act in (
            lambda c: c.send(None),
            lambda c: c.send(5),
            lambda c: c.throw(Oops("thrown")),
            lambda c: c.throw(GeneratorExit()),
            lambda c: c.close(),
            lambda c: (c.cr_running, c.cr_await, c.cr_frame.f_lineno, c.__name__, c.__qualname__),
        ):
            timeout = module.timeout(100)
            if method == "__aexit__":
                await timeout.__aenter__()
            coroutine = getattr(timeout, method)(*([] if method == "__aenter__" else [None, None, None]))
            for _ in range(2):
                result = call(act, coroutine)
                found.append("timeout" if result is timeout or "<Timeout" in str(result) else result)
                found.append((inspect.getcoroutinestate(coroutine), str(timeout)[:15]))
            coroutine.close()
            if timeout._timeout_handler is not None:
                timeout._timeout_handler.cancel()
        return found

    same_on_both(loop, use)


def test_calls_of_aexit_with_an_exception(loop):
    async def use(module):
        found = []
        for arguments in [(), (None,), (ValueError, ValueError(1), None), (ValueError, None, None), (1, 2, 3, 4)]:
            timeout = module.timeout(100)
            await timeout.__aenter__()
            made = call(timeout.__aexit__, *arguments)
            found += [made if isinstance(made, tuple) else await outcome(made), str(timeout)[:17]]
            if timeout._timeout_handler is not None:
                timeout._timeout_handler.cancel()
        return found

    same_on_both(loop, use)


def test_patched_class_is_followed(impl):
    # In a process of its own: a class that was changed takes no short cut any more.
    impl.run_script(
        """
import hotloop.asyncio

calls = []

def note(name, original):
    def patched(self, *arguments):
        calls.append(name)
        return original(self, *arguments)

    setattr(hotloop.asyncio.Timeout, name, patched)

async def use():
    timeout = hotloop.asyncio.timeout(100)
    entering = timeout.__aenter__()
    for name in ("reschedule", "_on_timeout", "when"):
        note(name, getattr(asyncio.Timeout, name))
    await entering  # made before
    timeout.when()
    timeout.reschedule(-1)
    try:
        await hotloop.asyncio.sleep(100)
    except asyncio.CancelledError:
        asyncio.current_task().uncancel()
    await timeout.__aexit__(None, None, None)
    assert calls == ["reschedule", "when", "reschedule", "_on_timeout"], calls

impl.run(use())
"""
    )


def test_methods_replaced_on_the_object_are_called(loop):
    async def use(module):
        calls = []
        timeout = module.timeout(100)
        timeout.reschedule = lambda when: calls.append(("reschedule", when is timeout.when()))
        async with timeout:
            pass
        other = module.timeout(-1)
        other._on_timeout = lambda: calls.append("expired")
        async with other:
            await turns(3)
        return calls, str(timeout), str(other)

    assert same_on_both(loop, use)[0] == [("reschedule", True), "expired"]


def test_subclasses(loop):
    async def use(module):
        calls = []

        class Noting(module.Timeout):
            def reschedule(self, when):
                calls.append("reschedule")
                super().reschedule(when)

            def _on_timeout(self):
                calls.append("expired")
                super()._on_timeout()

            async def __aexit__(self, *arguments):
                calls.append(arguments[0])
                return await super().__aexit__(*arguments)

        found = [await outcome(expiring(Noting(None))), await outcome(expiring(Noting(-1)))]
        return found, calls

    async def expiring(timeout):
        async with timeout:
            await turns(3)
        return repr(timeout)

    same_on_both(loop, use)


def test_loop_with_methods_of_its_own(impl):
    calls = []

    class Loop(impl.EventLoop):
        def time(self):
            calls.append("time")
            return super().time()

        def call_at(self, when, callback, *arguments, context=None):
            calls.append(("call_at", callback.__qualname__, arguments, context))
            return super().call_at(when, callback, *arguments, context=context)

    async def use(module):
        calls.clear()
        async with module.timeout(100) as timeout:
            timeout.reschedule(loop.time() + 50)
        await module.wait_for(turns(0), 100)
        return [name if isinstance(name, str) else name[:2] for name in calls]

    loop = Loop()
    try:
        same_on_both(loop, use)
    finally:
        loop.close()


def test_unawaited_is_reported(loop):
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Timeout\.__aenter__' was never awaited"):
        hotloop.asyncio.Timeout(5).__aenter__()
        gc.collect()


# -- wait_for() --------------------------------------------------------------------------------------------------------


class Awaitable:
    def __init__(self, make):
        self.make = make

    def __await__(self):
        return self.make()


async def returned(value, passing=0):
    await turns(passing)
    return value


async def raised(error, passing=0):
    await turns(passing)
    raise error


@types.coroutine
def generator_coroutine():
    yield
    return "generated"


KINDS = {
    "coroutine": lambda loop: returned("result"),
    "coroutine that waits": lambda loop: returned("result", 3),
    "failing coroutine": lambda loop: raised(ValueError("failed")),
    "failing later": lambda loop: raised(ValueError("failed"), 2),
    "cancelled": lambda loop: raised(asyncio.CancelledError("inside"), 1),
    "compiled coroutine": lambda loop: hotloop.asyncio.sleep(0, "slept"),
    "task": lambda loop: loop.create_task(returned("result", 1)),
    "failing task": lambda loop: loop.create_task(raised(ValueError("failed"), 1)),
    "awaitable": lambda loop: Awaitable(lambda: returned("result", 1).__await__()),
    "generator": lambda loop: generator_coroutine(),
    "no awaitable": lambda loop: 5,
    "none": lambda loop: None,
    "plain generator": lambda loop: (each for each in ()),
    "no iterator": lambda loop: Awaitable(lambda: 5),
    "coroutine from __await__": lambda loop: Awaitable(generator_coroutine),
    "failing __await__": lambda loop: Awaitable(lambda: 1 / 0),
}


@only_where_compiled
@pytest.mark.parametrize("timeout", [None, 100, 100.5, 1e-9, 0, -1, -0.5, True, fractions.Fraction(100), float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_wait_for_any_awaitable(loop, kind, timeout):
    async def use(module):
        return [
            await outcome(module.wait_for(KINDS[kind](loop), timeout)),
            await outcome(module.wait_for(KINDS[kind](loop), timeout=timeout)),
            asyncio.current_task().cancelling(),
            pending_timers(loop),
        ]

    same_on_both(loop, use)


@only_where_compiled
def test_odd_arguments_of_wait_for(loop):
    async def use(module):
        done = loop.create_future()
        done.set_result("done")
        found = []
        for arguments, keywords in [
            ((), {}),
            ((done,), {}),
            ((done, 1, 2), {}),
            ((done,), {"timeouts": 1}),
            ((), {"fut": done, "timeout": 1}),
            ((), {"timeout": 1, "fut": done}),
            ((done, "x"), {}),
            ((done, float("nan")), {}),
            ((done, 2**70), {}),
            ((done, 2**2000), {}),
        ]:
            made = call(module.wait_for, *arguments, **keywords)
            found.append(made if isinstance(made, tuple) else await outcome(made))
        return found, pending_timers(loop)

    same_on_both(loop, use)


@only_where_compiled
def test_futures_of_every_kind(impl, loop):
    async def use(module):
        found = []
        for make in (loop.create_future, lambda: asyncio.Future(loop=loop), lambda: impl.Future(loop=loop)):
            for finish in ("result", "exception", "cancel", "nothing"):
                future = make()
                waiting = asyncio.ensure_future(module.wait_for(future, 0.001 if finish == "nothing" else 100))
                await turns(2)
                match finish:
                    case "result":
                        future.set_result(1)
                    case "exception":
                        future.set_exception(KeyError(1))
                    case "cancel":
                        future.cancel("message")
                found += [await outcome(waiting), future.cancelled(), pending_timers(loop)]
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_cancelling_a_waiting_task(loop):
    async def use(module):
        found = []
        for passing in range(4):
            future = loop.create_future()
            task = asyncio.ensure_future(module.wait_for(future, 100))
            await turns(passing)
            task.cancel("message")
            if passing == 3:
                future.set_result("in the same turn") if not future.done() else None
            found += [await outcome(task), future.cancelled(), task.cancelling(), pending_timers(loop)]
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_awaited_coroutine_that_swallows_the_cancellation(loop):
    async def stubborn():
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await turns(2)
            return "stubborn"

    async def use(module):
        task = asyncio.ensure_future(module.wait_for(stubborn(), 1e-9))
        return await outcome(task), task.cancelling()

    same_on_both(loop, use)


@only_where_compiled
def test_expires_in_the_turn_of_the_result(loop):
    async def use(module):
        found = []
        clock = Clock.replacing_time_of(loop)
        try:
            for first in (True, False):
                future = loop.create_future()
                if first:
                    loop.call_at(clock.now + 5, future.set_result, "result")
                task = asyncio.ensure_future(module.wait_for(future, 5))
                await turns(2)
                if not first:
                    loop.call_at(clock.now + 5, lambda future=future: future.done() or future.set_result("result"))
                clock.advance(6)
                found += [await outcome(task), future.cancelled(), task.cancelling()]
        finally:
            del loop.time
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_coroutine_that_is_awaited_already(loop):
    async def use(module):
        coroutine = returned("result", 5)
        first = asyncio.ensure_future(coroutine)
        await turns(1)
        return await outcome(module.wait_for(coroutine, 100)), await first

    same_on_both(loop, use)


@only_where_compiled
def test_driven_by_hand_in_wait_for(loop):
    class Oops(Exception):
        pass

    async def use(module):
        found = []
        for act in (
            lambda c: c.send(None),
            lambda c: c.throw(Oops("thrown")),
            lambda c: c.throw(asyncio.CancelledError("thrown")),
            lambda c: c.throw(GeneratorExit()),
            lambda c: c.close(),
            lambda c: (c.cr_running, c.cr_await is None, c.__qualname__),
        ):
            for steps in range(3):
                body = returned("result", 1)
                coroutine = module.wait_for(body, 100)
                for _ in range(steps):
                    call(coroutine.send, None)
                found += [call(act, coroutine), inspect.getcoroutinestate(coroutine), inspect.getcoroutinestate(body)]
                coroutine.close()
                body.close()
                found.append(pending_timers(loop))
        return found

    same_on_both(loop, use)


@only_where_compiled
def test_wait_for_is_shown_where_it_waits(loop):
    async def use(module):
        async def outer():
            await module.wait_for(returned("result", 9), 100)

        task = asyncio.ensure_future(outer())
        direct = asyncio.ensure_future(module.wait_for(loop.create_future(), 100))
        await turns(1)
        awaited = task.get_coro().cr_await
        found = [
            (awaited.cr_code.co_name, awaited.cr_frame.f_lineno, awaited.cr_await.__name__),
            [(frame.f_code.co_name, frame.f_lineno) for frame in direct.get_stack()],
        ]
        for each in (task, direct):
            each.cancel()
            await outcome(each)
        return found

    same_on_both(loop, use)


def test_nothing_keeps_a_timeout(loop):
    async def use(module):
        timeout = module.timeout(100)
        known = weakref.ref(timeout)
        async with timeout:
            pass
        del timeout
        other = module.timeout(100)
        entered = weakref.ref(other)
        await other.__aenter__()
        other._timeout_handler.cancel()
        other.itself = other
        del other
        gc.collect()
        await turns(2)
        return known() is None, entered() is None

    assert same_on_both(loop, use) == (True, True)


if sys.version_info >= (3, 12):

    def test_eager_tasks(loop):
        async def body(module, found):
            async with module.timeout(100) as timeout:
                found.append(timeout._task is asyncio.current_task())
                found.append(await module.wait_for(returned("result", 1), 100))
            return timeout._task

        async def use(module):
            loop.set_task_factory(asyncio.eager_task_factory)
            try:
                found = []
                task = asyncio.ensure_future(body(module, found))
                found.append(task.done())
                return [*found, await task is task, *found[1:]]
            finally:
                loop.set_task_factory(None)

        same_on_both(loop, use)
