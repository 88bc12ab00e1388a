"""asyncio.gather(): the compiled one does what asyncio's own does, on every loop."""

import asyncio
import contextvars
import gc
import inspect
import sys
import warnings
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, Awaitable, fail, give, run_through, same_on_both, turns
from support.same_outcome import describe, normal, outcome

import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="hotloop.asyncio is compiled; it works on both loops")
on_hotloop = pytest.mark.only("c", reason="what only hotloop's loop does")


# -- random programs ---------------------------------------------------------------------------------------------------

numbers = strategies.integers(0, 4)
children = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["give", "fail", "cancel", "stubborn", "future", "done", "failed", "task", "gather", "again", "awaitable"]
        ),
        numbers,
    ),
    max_size=6,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "cancel", "cancel_child", "finish", "fail", "cancel_future", "look", "remove"]
        ),
        numbers,
    ),
    max_size=10,
)


class Program:
    """One run of a program: a call of gather(), and what else happens until it is done."""

    def __init__(self, module, kinds):
        self.module = module
        self.loop = asyncio.get_running_loop()
        self.log = []
        self.futures = []
        self.given = []
        for kind, number in kinds:
            self.given.append(self.child(kind, number))

    def child(self, kind, number):
        match kind:
            case "give" | "fail" | "cancel" | "stubborn":
                return self.run(len(self.given), kind, number)
            case "task":
                return self.loop.create_task(self.run(len(self.given), "give", number))
            case "future":
                self.futures.append(self.loop.create_future())
                return self.futures[-1]
            case "done":
                future = self.loop.create_future()
                future.set_result(number)
                return future
            case "failed":
                future = self.loop.create_future()
                future.set_exception(KeyError(number))
                return future
            case "gather":
                return self.module.gather(self.run("inner", "give", number), self.child("future", 0))
            case "again":
                return self.given[number % len(self.given)] if self.given else self.child("future", 0)
            case "awaitable":
                return Awaitable(number)

    async def run(self, name, kind, number):
        try:
            await turns(number)
        except asyncio.CancelledError as error:
            self.log.append((name, "cancelled", error.args))
            if kind != "stubborn":
                raise
        self.log.append((name, "ends"))
        if kind == "fail":
            raise ValueError(name)
        if kind == "cancel":
            raise asyncio.CancelledError(name)
        return name

    async def wait(self, outer):
        result = await outcome(outer)
        self.log.append(("result", normal(str(result))))

    async def play(self, script, return_exceptions):
        outer = self.module.gather(*self.given, return_exceptions=return_exceptions)
        self.log.append((type(outer).__name__, outer.done(), normal(repr(outer))))
        waiter = self.loop.create_task(self.wait(outer))
        outer.add_done_callback(lambda _: self.log.append("outer is done"))
        for action, number in script:
            self.log.append((action, self.act(outer, action, number)))
            if action == "turn":
                await turns(number)
        for future in self.futures:
            future.cancel("at the end")
        await turns(20)
        if not outer.done():
            outer.set_result("by the program")  # which has removed a callback
            await turns(1)
        self.log.append((waiter.done(), normal(repr(outer)), getattr(outer, "_cancel_requested", None)))
        await waiter
        for future in self.given:
            if isinstance(future, asyncio.Future) and future.done() and not future.cancelled():
                future.exception()
        return self.log

    def act(self, outer, action, number):
        children = getattr(outer, "_children", [])
        match action:
            case "cancel":
                return outer.cancel(f"by {number}")
            case "cancel_child" if children:
                return children[number % len(children)].cancel(f"by {number}")
            case "finish" | "fail" | "cancel_future" if self.futures:
                future = self.futures[number % len(self.futures)]
                if future.done():
                    return None
                if action == "cancel_future":
                    return future.cancel()
                return future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "remove" if number == 0 and self.futures:
                future = self.futures[0]
                return [future.remove_done_callback(callback) for callback, _ in future._callbacks or ()]
            case "look":
                return [normal(repr(child)) for child in children], getattr(outer, "_cancel_requested", None)


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=children, script=actions, return_exceptions=strategies.booleans())
def test_random_programs(loop, asyncio_log, kinds, script, return_exceptions):
    async def run(module):
        return await Program(module, kinds).play(script, return_exceptions)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of exceptions that were not retrieved: see test_reports()


# -- what it returns ---------------------------------------------------------------------------------------------------


def test_signature_and_documentation():
    own, compiled = (module.gather for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.isfunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


def test_future_that_it_returns(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(give(1), future)
        found = [
            type(outer).__name__,
            isinstance(outer, asyncio.Future),
            isinstance(outer, asyncio.tasks._GatheringFuture),
            asyncio.isfuture(outer),
            outer._children[1] is future,
            len(outer._children),
            outer._cancel_requested,
            outer.get_loop() is asyncio.get_running_loop(),
            normal(repr(outer)),
            outer._callbacks,
        ]
        outer.mark = 1
        found.append(outer.mark)
        future.set_result(2)
        found.append(await outer)
        return [*found, normal(repr(outer)), outer.cancel(), outer._cancel_requested]

    found = same_on_both(loop, use)
    assert found[-4:] == [[1, 2], "<_GatheringFuture finished result=[1, 2]>", False, False]


def test_nothing_to_gather(loop):
    async def use(module):
        outer = module.gather()
        return type(outer).__name__, outer.done(), await outer, await module.gather(return_exceptions=True)

    same_on_both(loop, use)


def test_callback_of_a_child(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        ((callback, context),) = future._callbacks
        found = [
            normal(repr(future)),
            normal(repr(outer._children[1])),
            callback.__qualname__,
            callback.__module__,
            type(callback).__name__,
            type(context).__name__,
            future._callbacks[0][0] is callback,
            outer._children[1]._callbacks[0][0] is callback,
            inspect.signature(callback).parameters.keys(),
        ]
        found += [future.remove_done_callback(callback), future._callbacks]
        found.append(future.remove_done_callback(callback))
        future.add_done_callback(callback)
        future.set_result(2)
        return [*found, await outer]

    assert same_on_both(loop, use)[-1] == [2, 1]


def test_callback_that_is_called_by_the_program(loop):
    """It counts, whoever calls it."""

    async def use(module):
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        outer = module.gather(*futures)
        callback = futures[1]._callbacks[0][0]
        found = []
        for future in futures:
            future.add_done_callback(lambda _: found.append(outer.done()))
            future.set_result(len(found))
        callback(futures[0])
        return await outer, found

    same_on_both(loop, use)


def test_removed_callback_is_not_called(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        future.remove_done_callback(future._callbacks[0][0])
        future.set_result(1)
        await turns(4)
        found = outer.done()
        outer.set_result("by the program")
        return found, await outer

    assert same_on_both(loop, use) == (False, "by the program")


def test_children_that_the_program_changes(loop):
    async def use(module):
        outer = module.gather(give(1), give(2))
        extra = asyncio.get_running_loop().create_future()
        extra.set_result(3)
        outer._children.append(extra)
        found = [await outer]
        outer = module.gather(give(1, 3), give(2, 3))
        outer._children = [extra]
        found.append(outer.cancel())
        return [*found, await outer]

    assert same_on_both(loop, use) == [[1, 2, 3], False, [1, 2]]


def test_outer_done_before_its_children(loop, asyncio_log):
    async def use(module):
        outer = module.gather(give(1), fail(ValueError("late"), 3))
        outer.set_result("early")
        found = await outer
        children = outer._children
        await turns(5)
        return found, [child._log_traceback for child in children]

    assert same_on_both(loop, use) == ("early", [False, False])


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_same_awaitable_several_times(loop):
    async def use(module):
        coroutine, future, task = give(1), asyncio.get_running_loop().create_future(), asyncio.ensure_future(give(3))
        outer = module.gather(coroutine, future, coroutine, task, future, task, *[give(n) for n in range(20)])
        future.set_result(2)
        children = outer._children
        return children[0] is children[2], children[1] is children[4], await outer

    same_on_both(loop, use)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 128, 129, 1000])
def test_number_of_children(loop, count):
    async def use(module):
        coroutines = [give(number) for number in range(count)]
        again = module.gather(*coroutines, coroutines[-1])
        return await again, await module.gather(*[give(number, 0) for number in range(count)])

    assert same_on_both(loop, use)[1] == list(range(count))


def test_awaitables_of_other_kinds(loop):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait("item")
        return await module.gather(Awaitable(1), give(2), queue.get(), asyncio.sleep(0, 3), module.gather(give(4)))

    assert same_on_both(loop, use) == [1, 2, "item", 3, [4]]


@pytest.mark.parametrize("wrong", [None, 1, "text", [], object()])
def test_what_cannot_be_awaited(loop, wrong):
    async def use(module):
        first, last = give(1), give(2)
        try:
            module.gather(first, wrong, last)
        except TypeError as error:
            found = str(error), inspect.getcoroutinestate(first), inspect.getcoroutinestate(last)
        last.close()
        await turns(4)
        return found

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        coroutine = give(1)
        found = []
        for arguments in [(coroutine, other.create_future()), (other.create_future(), coroutine)]:
            try:
                module.gather(*arguments)
            except ValueError as error:
                found.append(str(error))
        coroutine.close()
        await turns(3)
        return found

    same_on_both(loop, use)
    other.close()


@pytest.mark.parametrize(
    "keywords", [{"loop": None}, {"return_exceptions": 1}, {"return_exceptions": []}, {"a": 1, "b": 2}]
)
def test_odd_keywords(loop, keywords):
    async def use(module):
        coroutine = fail(ValueError(1))
        try:
            return normal(str(await outcome(module.gather(coroutine, **keywords))))
        except TypeError as error:
            coroutine.close()
            return str(error)

    same_on_both(loop, use)


def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        future = loop.create_future()
        outer = module.gather(future)
        future.set_result(1)
        found.append((loop.run_until_complete(outer), outer.get_loop() is loop))
        coroutine = give(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(module.gather(coroutine))
            except (RuntimeError, ValueError) as error:
                found.append((type(error), str(error)))
            asyncio.set_event_loop(None)
            coroutine.close()
        found.append([(str(warning.message), warning.category) for warning in caught if "awaited" not in str(warning)])
    assert found[: len(found) // 2] == found[len(found) // 2 :]


# -- failing and cancelling --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("return_exceptions", [False, True])
@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_children_that_fail(loop, return_exceptions, kind):
    async def use(module):
        outer = module.gather(
            give(1), fail(kind("first"), 2), fail(kind("second"), 3), give(4, 5), return_exceptions=return_exceptions
        )
        found = [normal(str(await outcome(outer))), normal(repr(outer))]
        await turns(8)
        return [*found, [child._log_traceback for child in outer._children]]

    same_on_both(loop, use)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_errors_that_end_the_loop(loop, kind, position):
    found = []
    for module in BOTH:
        outers = []

        async def use(module=module, outers=outers):
            outers.append(module.gather(*[fail(kind(9)) if at == position else give(at) for at in range(4)]))
            return await outers[0]

        task = loop.create_task(use())
        ends = run_through(loop, kind)
        found.append((ends, normal(repr(outers[0])), describe(task.exception())))
    assert found[0] == found[1]


@pytest.mark.parametrize("return_exceptions", [False, True])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_waiter(loop, when, return_exceptions):
    async def use(module):
        outers = []

        async def wait():
            outers.append(module.gather(give(1, 1), give(2, 2), give(3, 3), return_exceptions=return_exceptions))
            return await outers[0]

        task = asyncio.ensure_future(wait())
        await turns(when)
        found = [task.cancel("why"), await outcome(task), task.cancelling()]
        return [*found, [(normal(repr(outer)), outer._cancel_requested) for outer in outers]]

    same_on_both(loop, use)


def test_stubborn_child(loop):
    """Cancelling ends gather() in a cancellation, even if a child goes on to return."""

    async def stubborn():
        try:
            await turns(5)
        except asyncio.CancelledError:
            await turns(1)
        return "done"

    async def use(module):
        found = []
        for return_exceptions in (False, True):
            outer = module.gather(stubborn(), give(1), return_exceptions=return_exceptions)
            await turns(2)
            found += [outer.cancel("why"), await outcome(outer), outer._cancel_requested, outer.cancelled()]
        return found

    same_on_both(loop, use)


def test_reports(loop, asyncio_log):
    """Of exceptions that no code retrieves."""
    found = []
    for module in BOTH:

        async def use(module=module):
            outer = module.gather(fail(ValueError("x")), give(1))
            await turns(5)
            del outer

        loop.run_until_complete(use())
        gc.collect()
        found.append([normal(message) for message in asyncio_log.take()])
    assert found[0] == found[1]
    assert "_GatheringFuture exception was never retrieved" in found[0][0]


def test_children_that_are_destroyed_are_not_reported(loop):
    """The program has no reference to the tasks that gather() makes."""

    async def use(module):
        outer = module.gather(give(1), asyncio.ensure_future(give(2)))
        found = [child._log_destroy_pending for child in outer._children]
        return found, await outer

    assert same_on_both(loop, use)[0] == [False, True]


# -- order, contexts and other loops -----------------------------------------------------------------------------------


def test_order_of_callbacks(loop):
    async def use(module):
        log = []
        asyncio.get_running_loop().call_soon(log.append, "before")
        outer = module.gather(*[give(number, 0) for number in range(3)])
        asyncio.get_running_loop().call_soon(log.append, "after")
        for child in outer._children:
            child.add_done_callback(lambda child: log.append(child.result()))
        outer.add_done_callback(lambda _: log.append("outer"))
        for turn in range(5):
            log.append(("turn", turn, outer.done()))
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def child():
        seen = variable.get()
        variable.set(seen + 1)
        return seen

    async def use(module):
        variable.set(5)
        outer = module.gather(child(), child())
        future = asyncio.get_running_loop().create_future()
        other = module.gather(future)
        variable.set(6)
        ((_, context),) = future._callbacks
        future.set_result(None)
        return [await outer, await other, variable.get(), context[variable]]

    assert same_on_both(loop, use) == [[5, 5], [None], 6, 5]


def test_current_task_in_the_callback(loop):
    """The caller is not the current task any more when gather() is done."""

    async def use(module):
        found = []
        outer = module.gather(give(1), give(2))
        outer.add_done_callback(lambda _: found.append(asyncio.current_task()))
        await outer
        await turns(1)
        return found

    assert same_on_both(loop, use) == [None]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        outer = module.gather(give(1), give(2), fail(ValueError("x")), return_exceptions=True)
        created = [frame.name for frame in outer._source_traceback][-3:]
        return created, normal(str(await outer))

    same_on_both(loop, use)


def test_debug_mode_that_begins_while_children_run(loop):
    async def use(module):
        outer = module.gather(give(1, 2), give(2, 3))
        await turns(1)
        loop.set_debug(True)
        try:
            return await outer
        finally:
            loop.set_debug(False)

    assert same_on_both(loop, use) == [1, 2]


@pytest.mark.parametrize("name", ["call_soon", "create_task"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append(getattr(arguments[0], "__qualname__", ""))
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await module.gather(give(1), give(2))
        return found, list(calls)

    assert len(same_on_both(loop, use)[1]) >= 2


def test_task_factory(loop):
    made = []

    def factory(loop, coroutine, **keywords):
        made.append(keywords)
        return asyncio.Task(coroutine, loop=loop, **keywords)

    async def use(module):
        made.clear()
        loop.set_task_factory(factory)
        try:
            return await module.gather(give(1), give(2)), list(made)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
@pytest.mark.parametrize("return_exceptions", [False, True])
def test_eager_tasks(loop, return_exceptions):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            found = []
            for coroutines in (
                [give(1, 0), give(2, 0)],
                [give(1, 0), give(2, 1)],
                [give(1, 0), fail(ValueError("x"), 0), fail(ValueError("y"), 1)],
            ):
                outer = module.gather(*coroutines, return_exceptions=return_exceptions)
                found += [outer.done(), normal(str(await outcome(outer)))]
            await turns(3)
            return found
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


def test_tasks_of_a_subclass(loop):
    class Own(asyncio.Task):
        pass

    async def use(module):
        return await module.gather(Own(give(1)), give(2), Own(give(3), loop=asyncio.get_running_loop()))

    assert same_on_both(loop, use) == [1, 2, 3]


# -- what tools see ----------------------------------------------------------------------------------------------------


@on_hotloop
def test_callbacks_on_the_ready_queue(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        outer = module.gather(future, give(1))
        future.set_result(2)
        (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
        found = [
            normal(repr(handle)),
            handle._callback.__qualname__,
            handle._args == (future,),
            handle.cancelled(),
            handle._cancelled,
            handle._loop is loop,
            type(handle.get_context()).__name__,
        ]
        handle.cancel()
        await turns(4)
        return [*found, handle.cancelled(), outer.done()]

    same_on_both(loop, use)


@on_hotloop
def test_handle_that_the_program_runs(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        outer = module.gather(future)
        future.set_result(2)
        loop._ready.pop()._run()
        return outer.done(), await outer

    assert same_on_both(loop, use) == (True, [2])


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        outer = module.gather(give(1, 4), give(2, 5))
        waiter = asyncio.current_task()

        async def look():
            await turns(1)
            graph = asyncio.capture_call_graph(outer._children[0])
            return (
                [entry.frame.f_code.co_name for entry in graph.call_stack],
                [caller.future is waiter for caller in graph.awaited_by],
                outer._children[1]._asyncio_awaited_by == {waiter},
            )

        looking = asyncio.ensure_future(look())
        await outer
        return await looking, outer._children[0]._asyncio_awaited_by

    same_on_both(loop, use)


def test_everything_is_freed(loop):
    async def use(module):
        known = []
        for coroutines in ([give(1), give(2)], [give(1), fail(ValueError("x"))]):
            outer = module.gather(*coroutines, return_exceptions=True)
            await outer
            known += [weakref.ref(outer), *map(weakref.ref, outer._children)]
        del outer
        await turns(1)
        return [reference() for reference in known]

    gc.disable()
    try:
        assert same_on_both(loop, use) == [None] * 6
    finally:
        gc.enable()


def test_garbage_is_collected(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        outer = module.gather(future, give(1))
        known = weakref.ref(outer), weakref.ref(future)
        await turns(4)
        del outer, future
        gc.collect()
        return [reference() for reference in known]

    assert same_on_both(loop, use) == [None, None]


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        outer = hotloop.asyncio.gather(give(1))
        return type(outer).__module__, await outer

    assert loop.run_until_complete(use()) == ("hotloop._c.highlevel.gathering", [1])
