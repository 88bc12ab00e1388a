"""asyncio.shield(): the compiled one does what asyncio's own does, on every loop."""

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, Awaitable, fail, give, on_both_loops, on_hotloop, outcome_of, same_on_both, turns
from support.garbage import without_collector
from support.same_outcome import ComparedCallback, normal, shown

import hotloop.asyncio

pytestmark = on_both_loops


# -- random programs ---------------------------------------------------------------------------------------------------

actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            [
                "turn", "cancel_inner", "cancel_outer", "cancel_task", "finish", "fail", "finish_outer", "look",
                "again", "remove_inner", "remove_outer", "debug", "drop",
            ]
        ),
        strategies.integers(0, 3),
    ),
    max_size=8,
)  # fmt: skip


async def play(module, kind, script):
    loop = asyncio.get_running_loop()
    log = []
    inner = loop.create_future() if kind == "future" else asyncio.ensure_future(give(1, 2))
    outer = module.shield(inner)
    outer.add_done_callback(lambda _: log.append("outer is done"))
    inner.add_done_callback(lambda _: log.append("inner is done"))

    async def wait(future):
        log.append(("result", await outcome_of(future)))

    waiting = [loop.create_task(wait(outer))]
    for action, number in script:
        log.append(action)
        match action:
            case "turn":
                await turns(number)
            case "cancel_inner":
                log.append(inner.cancel(number))
            case "cancel_outer":
                log.append(outer.cancel(number))
            case "cancel_task":
                log.append(waiting[number % len(waiting)].cancel(number))
            case "finish" | "fail" if kind == "future" and not inner.done():
                inner.set_result(number) if action == "finish" else inner.set_exception(KeyError(number))
            case "finish_outer" if not outer.done():
                outer.set_result("by the program")
            case "again":
                waiting.append(loop.create_task(wait(module.shield(outer if number else inner))))
            case "remove_inner" | "remove_outer":
                future = inner if action == "remove_inner" else outer
                if len(future._callbacks or ()) > number:
                    callback = future._callbacks[number][0]
                    log.append(future.remove_done_callback(callback))
                    if number == 1:
                        future.add_done_callback(callback)
            case "debug":
                loop.set_debug(bool(number % 2))
            case "look":
                log += [shown(inner), shown(outer)]
    await turns(6)
    log += [shown(inner), shown(outer), inner._log_traceback, outer._log_traceback]
    loop.set_debug(False)
    inner.cancel()
    await turns(3)
    for future in (outer, *waiting):
        future.cancel()
    await turns(4)
    for future in (inner, outer):
        if not future.cancelled():
            future.exception()
    return log


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kind=strategies.sampled_from(["future", "task"]), script=actions)
def test_random_programs(loop, asyncio_log, kind, script):
    async def run(module):
        return await play(module, kind, script)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of exceptions that were not retrieved


# -- arguments and result ----------------------------------------------------------------------------------------------


def test_signature_and_documentation():
    own, compiled = (module.shield for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.isfunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


def test_future_that_it_returns(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        found = [type(outer) is type(inner), outer is inner, outer.get_loop() is inner.get_loop()]
        found += [shown(inner), shown(outer)]
        inner.set_result(1)
        found += [shown(inner), shown(outer), module.shield(inner) is inner]
        found += [await outer, shown(outer), await module.shield(inner)]
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", ["coroutine", "compiled", "task", "gather", "shield", "awaitable"])
@pytest.mark.parametrize("by_keyword", [False, True])
def test_what_is_shielded(loop, kind, by_keyword):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait("item")
        inner = {
            "coroutine": lambda: give(1),
            "compiled": queue.get,
            "task": lambda: asyncio.ensure_future(give(1)),
            "gather": lambda: module.gather(give(1), give(2)),
            "shield": lambda: module.shield(give(1)),
            "awaitable": Awaitable,
        }[kind]()
        outer = module.shield(arg=inner) if by_keyword else module.shield(inner)
        return shown(outer), await outer

    same_on_both(loop, use)


@pytest.mark.parametrize("arguments", [(), (1,), (None,), ("text",), ([],), (1, 2)])
def test_wrong_arguments(loop, arguments):
    async def use(module):
        try:
            module.shield(*arguments)
        except TypeError as error:
            return str(error)

    same_on_both(loop, use)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        inner = loop.create_future()
        outer = module.shield(inner)
        found.append([outer.get_loop() is loop, shown(inner), shown(outer)])
        inner.set_result(1)
        found[-1].append(loop.run_until_complete(outer))
        asyncio.set_event_loop(loop)
        outer = module.shield(give(2))
        found[-1].append(loop.run_until_complete(outer))
        asyncio.set_event_loop(None)
    assert found[0] == found[1]


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        inner = other.create_future()
        outer = module.shield(inner)
        found = outer.get_loop() is other, shown(inner), shown(outer)
        inner.set_result(1)
        outer.cancel()
        return found

    same_on_both(loop, use)
    other.run_until_complete(turns(3))
    other.close()


def test_futures_of_other_classes(loop):
    class Own(asyncio.Future):
        pass

    async def use(module):
        found = []
        for make in (Own, asyncio.futures._PyFuture, asyncio.futures._CFuture):
            inner = make(loop=asyncio.get_running_loop())
            outer = module.shield(inner)
            inner.set_result(1)
            found += [type(outer).__name__, shown(inner), await outer]
        return found

    same_on_both(loop, use)


def test_loop_that_makes_other_futures(loop, monkeypatch):
    class Own(asyncio.Future):
        pass

    made = []

    def create_future():
        made.append(Own(loop=loop))
        return made[-1]

    async def use(module):
        made.clear()
        inner = loop.create_future()
        monkeypatch.setattr(loop, "create_future", create_future)
        outer = module.shield(inner)
        cancelled = module.shield(inner)
        monkeypatch.undo()
        cancelled.cancel()
        await turns(2)
        found = [type(outer).__name__, shown(outer), shown(inner), len(made)]
        inner.set_result(1)
        return [*found, await outer]

    assert same_on_both(loop, use)[-2:] == [2, 1]


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("x"), StopAsyncIteration(), asyncio.CancelledError("x"), None])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_ends_of_the_inner_task(loop, error, after):
    async def use(module):
        inner = asyncio.ensure_future(give(1, after) if error is None else fail(error, after))
        outer = module.shield(inner)
        log = []
        for future, name in ((inner, "inner"), (outer, "outer")):
            future.add_done_callback(lambda _, name=name: log.append(name))
        for turn in range(6):
            log.append((turn, inner.done(), outer.done()))
            await asyncio.sleep(0)
        log.append((inner._log_traceback, outer._log_traceback))
        return log, await outcome_of(outer), inner._log_traceback, outer._log_traceback

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_errors_that_end_the_loop(loop, kind):
    found = []
    for module in BOTH:

        async def use(module=module):
            return await module.shield(fail(kind(9)))

        task = loop.create_task(use())
        ends = 0
        for _ in range(5):
            try:
                loop.run_until_complete(turns(3))
            except kind:
                ends += 1
        found.append((ends, repr(task.exception())))
    assert found[0] == found[1]


@pytest.mark.parametrize("later", ["returns", "raises", "is cancelled", "stays"])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_outer_cancelled(loop, asyncio_log, later, when):
    """What becomes of the inner exception depends on the version."""

    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        other = asyncio.ensure_future(outcome_of(inner)) if when == 4 else None

        async def wait(shielded):
            return await module.shield(shielded)

        task = asyncio.ensure_future(wait(inner))
        await turns(when % 4)
        found = [task.cancel("why"), shown(inner)]
        found += [await outcome_of(task), shown(inner), task.cancelling()]
        if later == "returns":
            inner.set_result(1)
        elif later == "raises":
            inner.set_exception(ValueError("x"))
        elif later == "is cancelled":
            inner.cancel()
        await turns(2)
        found += [shown(inner), inner._log_traceback]
        if other is not None:
            other.cancel()
        del inner, task, other
        gc.collect()
        await turns(2)
        return [*found, [normal(message) for message in asyncio_log.take()]]

    same_on_both(loop, use)


@pytest.mark.parametrize("inner_first", [False, True])
@pytest.mark.parametrize("end", ["set_result", "set_exception", "cancel"])
def test_outer_cancelled_in_the_same_turn(loop, asyncio_log, inner_first, end):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        found = [inner_first or outer.cancel("why")]
        getattr(inner, end)(*{"set_result": [1], "set_exception": [ValueError("x")], "cancel": []}[end])
        found += [inner_first and outer.cancel("why"), shown(inner), shown(outer)]
        await turns(2)
        found += [shown(inner), shown(outer), inner._log_traceback]
        del inner, outer
        gc.collect()
        return [*found, [normal(message) for message in asyncio_log.take()]]

    same_on_both(loop, use)


def test_shielded_several_times(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outers = [module.shield(inner) for _ in range(4)]
        inner.add_done_callback(print)
        found = [shown(inner)]
        for number in (1, 0, 3):
            outers[number].cancel()
            await turns(2)
            found.append(shown(inner))
        inner.remove_done_callback(print)
        inner.set_result(1)
        return [*found, await outers[2]]

    same_on_both(loop, use)


def test_callbacks_that_compare_by_code_of_the_program(loop):
    async def use(module):
        seen = []
        inner = asyncio.get_running_loop().create_future()
        inner.add_done_callback(ComparedCallback(seen))
        outer = module.shield(inner)
        inner.add_done_callback(ComparedCallback(seen))
        outer.cancel()
        await turns(2)
        found = [shown(inner)[1][1:-1]]
        inner.set_result(1)
        await turns(2)
        return found, seen

    same_on_both(loop, use)


def test_callback_that_is_put_back(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        for callback, _ in inner._callbacks:
            inner.remove_done_callback(callback)
            inner.add_done_callback(callback)
            inner.add_done_callback(callback)
        outer.cancel()
        await turns(2)
        return shown(inner), shown(outer)

    same_on_both(loop, use)


def test_callbacks_that_the_program_calls(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        ((of_outer, _),) = outer._callbacks
        of_outer(outer)
        found = [shown(inner), shown(outer)]
        inner.set_result(1)
        await turns(2)
        return [*found, outer.done(), outer.cancel()]

    same_on_both(loop, use)


# -- order, contexts, modes --------------------------------------------------------------------------------------------


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def use(module):
        variable.set(1)
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        variable.set(2)
        return [context[variable] for future in (inner, outer) for _, context in future._callbacks]

    assert set(same_on_both(loop, use)) == {1}


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        outer = module.shield(give(1))
        return [frame.name for frame in outer._source_traceback][-2:], await outer

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
@pytest.mark.parametrize("after", [0, 1])
def test_eager_tasks(loop, after):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            outer = module.shield(give(1, after))
            return type(outer).__name__, outer.done(), await outer
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


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
            found = await module.shield(give(1))
        return found, list(calls)

    assert same_on_both(loop, use)[1]


# -- what tools see ----------------------------------------------------------------------------------------------------


@on_hotloop
def test_handles_on_the_ready_queue(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        inner.set_result(1)
        handles = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
        found = [[normal(repr(handle)) for handle in handles], [handle._args == (inner,) for handle in handles]]
        handles[-1].cancel()
        await turns(3)
        found.append(shown(outer))
        outer.cancel()
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        inner = asyncio.ensure_future(give(1, 4))
        waiter = asyncio.current_task()

        async def look():
            await turns(1)
            graph = asyncio.capture_call_graph(inner)
            return [caller.future is waiter for caller in graph.awaited_by]

        looking = asyncio.ensure_future(look())
        await module.shield(inner)
        return await looking, inner._asyncio_awaited_by

    same_on_both(loop, use)


@pytest.mark.parametrize("end", ["return", "raise", "cancel", "look"])
def test_everything_is_freed(loop, end):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        known = weakref.ref(inner), weakref.ref(outer)
        if end == "return":
            inner.set_result(1)
        elif end == "raise":
            inner.set_exception(ValueError("x"))
        else:
            outer.cancel()
        await turns(3)
        if end == "raise":
            outer.exception()
        del inner, outer
        return [reference() is None for reference in known]

    with without_collector():
        assert same_on_both(loop, use) == [True, True]


def test_garbage_is_collected(loop):
    async def use(module):
        inner = asyncio.get_running_loop().create_future()
        outer = module.shield(inner)
        shown(inner), shown(outer)
        known = weakref.ref(inner), weakref.ref(outer)
        del inner, outer
        gc.collect()
        return [reference() for reference in known]

    assert same_on_both(loop, use) == [None, None]


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        inner = loop.create_future()
        await turns(1)
        hotloop.asyncio.shield(inner).cancel()
        handles = [type(handle).__module__ for handle in loop._ready]
        inner.cancel()
        return handles

    assert "hotloop._c.highlevel.shield" in loop.run_until_complete(use())
