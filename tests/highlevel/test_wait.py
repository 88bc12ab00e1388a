"""asyncio.wait(): the compiled one does what asyncio's own does, on every loop."""

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, fail, give, outcome_of, same_on_both, turns
from support.same_outcome import normal, shown

import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="hotloop.asyncio is compiled; it works on both loops")
on_hotloop = pytest.mark.only("c", reason="what only hotloop's loop does")

WHEN = [asyncio.ALL_COMPLETED, asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION]


def numbers(futures, result):
    """Which of the futures wait() has found done and pending."""
    if len(result) != 2:
        return result
    return tuple(sorted(futures.index(future) for future in found) for found in result)


async def awaited(futures, waiting):
    """What an await of wait() returns or raises."""
    found = await outcome_of(waiting)
    return numbers(futures, found) if isinstance(found[0], set) else found


# -- random programs ---------------------------------------------------------------------------------------------------

kinds = strategies.lists(
    strategies.tuples(strategies.sampled_from(["future", "give", "fail", "done", "failed"]), strategies.integers(0, 3)),
    min_size=1,
    max_size=5,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "cancel", "cancel_task", "finish", "fail", "look", "remove", "again", "debug", "await"]
        ),
        strategies.integers(0, 4),
    ),
    max_size=8,
)


async def play(module, kinds, script, return_when, timeout):
    loop = asyncio.get_running_loop()
    log = []
    futures = []
    for kind, number in kinds:
        if kind in ("give", "fail"):
            futures.append(asyncio.ensure_future(give(1, number) if kind == "give" else fail(KeyError(1), number)))
            continue
        futures.append(loop.create_future())
        if kind == "done":
            futures[-1].set_result(1)
        elif kind == "failed":
            futures[-1].set_exception(KeyError(2))

    async def wait():
        log.append(("result", await awaited(futures, module.wait(futures, timeout=timeout, return_when=return_when))))

    waiting = [loop.create_task(wait())]
    for action, number in script:
        log.append(action)
        future = futures[number % len(futures)]
        match action:
            case "turn":
                await turns(number)
            case "cancel":
                log.append(future.cancel(number))
            case "cancel_task":
                log.append(waiting[number % len(waiting)].cancel(number))
            case "finish" | "fail" if not future.done() and not isinstance(future, asyncio.Task):
                future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "again":
                waiting.append(loop.create_task(wait()))
            case "await":
                waiting.append(loop.create_task(outcome_of(future)))
            case "remove":
                for callback, _ in (future._callbacks or ())[number % 2 :]:
                    log.append(future.remove_done_callback(callback))
                    if number > 2:
                        future.add_done_callback(callback)
            case "debug":
                loop.set_debug(bool(number % 2))
            case "look":
                log += [shown(future) for future in futures]
    await turns(6)
    log += [shown(future) for future in futures]
    loop.set_debug(False)
    for future in futures:
        future.cancel()
    await turns(5)
    log += [task.done() for task in waiting]
    for task in waiting:
        task.cancel()
    await turns(3)
    for future in futures:
        if not future.cancelled():
            future.exception()
    return log


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    kinds=kinds,
    script=actions,
    return_when=strategies.sampled_from(WHEN),
    timeout=strategies.sampled_from([None, None, 60, 0, -1]),
)
def test_random_programs(loop, asyncio_log, kinds, script, return_when, timeout):
    async def run(module):
        return await play(module, kinds, script, return_when, timeout)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of tasks that wait for ever, because the program has removed their callbacks


# -- arguments and result ----------------------------------------------------------------------------------------------


def test_signature_and_documentation():
    own, compiled = (module.wait for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.iscoroutinefunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, dict.fromkeys])
@pytest.mark.parametrize("return_when", WHEN)
def test_collections(loop, kind, return_when):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(4)]
        done, pending = result = await module.wait(kind([*futures, futures[0]]), return_when=return_when)
        found = type(result), type(done), type(pending), numbers(futures, result)
        await asyncio.gather(*futures)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("return_when", WHEN)
@pytest.mark.parametrize("timeout", [None, 60, 60.0])
@pytest.mark.parametrize("count", [1, 2, 100, 1000])
def test_numbers_of_futures(loop, count, timeout, return_when):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number % 5)) for number in range(count)]
        await turns(1)
        result = await module.wait(futures, return_when=return_when, timeout=timeout)
        found = numbers(futures, result)
        await asyncio.gather(*futures)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "keywords",
    [
        {"timeout": None},
        {"timeout": 0},
        {"timeout": -1.5},
        {"timeout": 0.001},
        {"timeout": "soon"},
        {"timeout": object},
        {"return_when": "ALL_COMPLETED"},
        {"return_when": "".join(["FIRST_", "COMPLETED"])},
        {"return_when": "never"},
        {"return_when": None},
        {"return_when": asyncio.FIRST_COMPLETED, "timeout": 60},
        {"timeout": 60, "return_when": asyncio.FIRST_EXCEPTION},
        {"loop": None},
        {"timeout": 1, "more": 2},
        {"fs": []},
    ],
)
def test_keywords(loop, keywords):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), asyncio.get_running_loop().create_future()]
        futures[1].set_result(1)
        try:
            return numbers(futures, await module.wait(futures, **keywords))
        except (TypeError, ValueError) as error:
            await futures[0]
            return type(error), normal(str(error))

    same_on_both(loop, use)


def test_by_keyword_and_by_position(loop):
    async def use(module):
        future = asyncio.ensure_future(give(1))
        found = [numbers([future], await module.wait(fs=[future]))]
        for arguments in [(), ([future], 1), ([future], 1, 2)]:
            try:
                module.wait(*arguments)
            except TypeError as error:
                found.append(str(error))
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", ["nothing", "number", "future", "coroutine", "with a coroutine", "with a number"])
def test_wrong_futures(loop, kind):
    async def use(module):
        future, coroutine = asyncio.get_running_loop().create_future(), give(1)
        given = {
            "nothing": [],
            "number": 1,
            "future": future,
            "coroutine": coroutine,
            "with a coroutine": [future, coroutine],
            "with a number": [future, 1],
        }[kind]
        found = await outcome_of(module.wait(given))
        coroutine.close()
        return normal(str(found)), shown(future)

    same_on_both(loop, use)


def test_futures_of_other_classes(loop):
    class Own(asyncio.Future):
        pass

    async def use(module):
        futures = [make(loop=loop) for make in (Own, asyncio.futures._PyFuture, asyncio.futures._CFuture)]
        futures += [asyncio.ensure_future(give(1)), module.gather(give(2)), module.shield(give(3))]
        for future in futures[:3]:
            loop.call_soon(future.set_result, 1)
        return [
            numbers(futures, await module.wait(futures)),
            numbers(futures, await module.wait([futures[4], module.gather(give(1))] and futures[3:])),
        ]

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        futures = [loop.create_future(), other.create_future()]
        futures[1].set_result(1)
        return numbers(futures, await module.wait(futures, timeout=0.001))

    same_on_both(loop, use)
    other.run_until_complete(turns(2))
    other.close()


def test_futures_given_are_read_at_the_first_step(loop):
    async def use(module):
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        given = futures[:1]
        coroutine = module.wait(given)
        given.append(futures[1])
        found = numbers(futures, await coroutine)
        given = futures[:2]
        waiting = asyncio.ensure_future(module.wait(given))
        await turns(1)
        given.clear()
        return found, numbers(futures, await waiting)

    assert same_on_both(loop, use) == (([0, 1], []), ([0, 1], []))


# -- without a task or a loop ------------------------------------------------------------------------------------------


def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        future = loop.create_future()
        loop.call_soon(future.set_result, 1)
        found.append(numbers([future], loop.run_until_complete(module.wait([future]))))
        coroutine = module.wait([future])
        try:
            coroutine.send(None)
        except RuntimeError as error:
            found.append(str(error))
    assert found[:2] == found[2:]


def test_never_awaited(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        with pytest.warns(RuntimeWarning) as caught:
            module.wait([future])
            gc.collect()
        module.wait([future]).close()
        return str(caught[0].message), shown(future)

    same_on_both(loop, use)


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("return_when", WHEN)
@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x")])
def test_futures_that_fail(loop, return_when, error):
    async def use(module):
        futures = [*(asyncio.ensure_future(give(number, number)) for number in (1, 3))]
        futures += [asyncio.ensure_future(fail(error, number)) for number in (2, 4)]
        log = []
        waiting = asyncio.ensure_future(module.wait(futures, return_when=return_when, timeout=60))
        for turn in range(9):
            log.append((turn, waiting.done(), [(shown(future), future._log_traceback) for future in futures]))
            await asyncio.sleep(0)
        for future in futures:
            await outcome_of(future)
        return log, numbers(futures, await waiting)

    same_on_both(loop, use)


@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_waiter(loop, when, timeout):
    async def use(module):
        futures = [asyncio.ensure_future(give(1, 2)), asyncio.get_running_loop().create_future()]
        task = asyncio.ensure_future(module.wait(futures, timeout=timeout))
        await turns(when)
        found = [shown(futures[1]), task.cancel("why"), await awaited(futures, task), shown(futures[1])]
        await futures[0]
        return [*found, task.cancelling(), normal(repr(task))]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError("x"), GeneratorExit(), StopIteration(1), KeyboardInterrupt(), None])
def test_thrown_into(loop, error):
    async def use(module):
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        coroutine = module.wait([future], timeout=60)
        found = [coroutine.send(None) is not future, shown(future), len(loop._scheduled)]
        try:
            found.append(coroutine.close() if error is None else coroutine.throw(error))
        except BaseException as raised:
            found.append((type(raised), str(raised), repr(raised.__cause__), repr(raised.__context__)))
        return [*found, shown(future), inspect.getcoroutinestate(coroutine)]

    same_on_both(loop, use)


@pytest.mark.parametrize("end", ["set_result", "set_exception", "cancel"])
def test_waiter_that_the_program_finishes(loop, end):
    async def use(module):
        futures = [asyncio.get_running_loop().create_future()]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        arguments = {"set_result": [1], "set_exception": [ValueError("x")], "cancel": []}[end]
        getattr(task._fut_waiter, end)(*arguments)
        futures[0].set_result(1)
        return await awaited(futures, task), shown(futures[0])

    same_on_both(loop, use)


def test_timeout(loop):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), *(asyncio.get_running_loop().create_future() for _ in range(2))]
        found = [numbers(futures, await module.wait(futures, timeout=0.001)), [shown(future) for future in futures]]
        return [*found, numbers(futures, await module.wait(futures, timeout=0.001))]

    assert same_on_both(loop, use)[2] == ([0], [1, 2])


def test_timer_ends_with_the_wait(loop):
    async def use(module):
        before = len([timer for timer in loop._scheduled if not timer.cancelled()])
        task = asyncio.ensure_future(module.wait([loop.create_future()], timeout=60))
        await turns(1)
        found = [len([timer for timer in loop._scheduled if not timer.cancelled()]) - before]
        (timer,) = [timer for timer in loop._scheduled if not timer.cancelled()]
        found += [timer._callback.__name__, timer._args == (task._fut_waiter,)]
        task.cancel()
        await turns(2)
        return [*found, timer.cancelled()]

    assert same_on_both(loop, use) == [1, "_release_waiter", True, True]


# -- order, contexts, modes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("return_when", WHEN)
def test_order(loop, return_when):
    async def use(module):
        log = []
        futures = [asyncio.ensure_future(give(number, number)) for number in (0, 1, 1, 2)]
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: log.append(number))

        async def wait():
            for _ in range(3):
                log.append(numbers(futures, await module.wait(futures, return_when=return_when)))

        task = asyncio.ensure_future(wait())
        for turn in range(12):
            log.append(("turn", turn))
            await asyncio.sleep(0)
        await task
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        variable.set(1)
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        found = [context[variable] for future in futures for _, context in future._callbacks]
        task.cancel()
        return found

    assert same_on_both(loop, use) == [1, 1]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        return numbers(futures, await module.wait(futures, timeout=60))

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
def test_eager_tasks(loop):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            futures = [asyncio.ensure_future(give(number, number)) for number in range(3)]
            task = asyncio.ensure_future(module.wait(futures))
            return shown(futures[2]), task.done(), numbers(futures, await task)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "call_later", "create_future", "call_at"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    class Own(asyncio.Future):
        pass

    def replacement(*arguments, **keywords):
        if name != "create_future":
            calls.append(getattr(arguments[-1], "__qualname__", ""))
            return original(*arguments, **keywords)
        calls.append(name)
        return Own(loop=loop)

    async def use(module):
        calls.clear()
        futures = [asyncio.ensure_future(give(number)) for number in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await module.wait(futures, timeout=60)
        return numbers(futures, found), list(calls)

    assert same_on_both(loop, use)[1]


# -- what tools see ----------------------------------------------------------------------------------------------------


def test_callback_of_a_future(loop):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        callbacks = [callback for future in futures for callback, _ in future._callbacks]
        found = [
            callbacks[0] is callbacks[1],
            callbacks[0].__qualname__,
            callbacks[0].__module__,
            type(callbacks[0]).__name__,
            [shown(future) for future in futures],
        ]
        callbacks[0](futures[0])
        callbacks[0](futures[0])
        return [*found, await awaited(futures, task), [shown(future) for future in futures]]

    assert same_on_both(loop, use)[-2] == ([], [0, 1])


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_removed_callbacks(loop, removed):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures))
        await turns(1)
        for future in futures[:removed]:
            future.remove_done_callback(future._callbacks[0][0])
        for future in futures:
            future.set_result(1)
        await turns(3)
        found = task.done()
        task.cancel()
        return found, await awaited(futures, task)

    same_on_both(loop, use)


def test_callbacks_that_compare_by_code_of_the_program(loop):
    async def use(module):
        seen = []

        class Callback:
            def __eq__(self, other):
                seen.append(normal(repr(other)))
                return False

            __hash__ = None

            def __call__(self, future):
                seen.append("called")

        futures = [loop.create_future() for _ in range(2)]
        futures[0].add_done_callback(Callback())
        found = await module.wait(futures, timeout=0.001)
        futures[0].set_result(1)
        await turns(1)
        return numbers(futures, found), seen

    same_on_both(loop, use)


@on_hotloop
def test_handles_on_the_ready_queue(loop):
    async def use(module):
        futures = [loop.create_future() for _ in range(2)]
        task = asyncio.ensure_future(module.wait(futures, return_when=asyncio.FIRST_COMPLETED))
        await turns(1)
        futures[0].set_result(1)
        (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
        found = [normal(repr(handle)), handle._args == (futures[0],)]
        handle.cancel()
        await turns(3)
        found.append(task.done())
        futures[1].set_result(1)
        return [*found, await awaited(futures, task)]

    assert same_on_both(loop, use)[2:] == [False, ([0, 1], [])]


def test_where_the_task_waits(loop):
    """asyncio's _wait() is between."""

    async def use(module):
        coroutine = module.wait([loop.create_future()])
        task = asyncio.ensure_future(coroutine)
        found = [coroutine.cr_frame.f_lineno == asyncio.wait.__code__.co_firstlineno]
        await turns(1)
        inner = coroutine.cr_await
        for waiting in (coroutine, inner):
            frame = waiting.cr_frame
            found += [waiting.__qualname__, frame.f_code.co_name, frame.f_lineno, "fs" in frame.f_locals]
        found += [waiting.cr_code is getattr(asyncio.tasks, waiting.__name__).__code__]
        found += [type(inner.cr_await).__name__, task.get_stack()[-1].f_lineno]
        task.cancel()
        await turns(2)
        return [*found, coroutine.cr_frame, inner.cr_frame]

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        inner = asyncio.ensure_future(give(1, 4))
        waiter = asyncio.current_task()

        async def look():
            await turns(1)
            graph = asyncio.capture_call_graph(inner)
            (caller,) = graph.awaited_by
            return caller.future is waiter, [entry.frame.f_code.co_name for entry in caller.call_stack]

        looking = asyncio.ensure_future(look())
        await module.wait([inner])
        return await looking, inner._asyncio_awaited_by

    same_on_both(loop, use)


@on_hotloop
@pytest.mark.parametrize("end", ["return", "cancel", "look"])
def test_everything_is_freed(loop, end):
    """At once; asyncio's own leaves a cycle from Python 3.14 on."""

    async def use():
        futures = [loop.create_future() for _ in range(2)]
        known = [weakref.ref(future) for future in futures]
        task = asyncio.ensure_future(hotloop.asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED))
        await turns(1)
        known += [weakref.ref(task), weakref.ref(task._fut_waiter)]
        if end == "look" and sys.version_info < (3, 14):
            shown(futures[0])
        if end == "cancel":
            task.cancel()
        else:
            futures[0].set_result(1)
        await turns(3)
        del task, futures
        return [reference() is None for reference in known]

    gc.disable()
    try:
        assert loop.run_until_complete(use()) == [True] * 4
    finally:
        gc.enable()


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        coroutine = hotloop.asyncio.wait([asyncio.ensure_future(give(1))])
        found = type(coroutine).__module__
        await coroutine
        return found

    assert loop.run_until_complete(use()) == "hotloop._c.highlevel.coroutine"
