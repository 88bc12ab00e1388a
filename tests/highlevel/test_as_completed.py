"""asyncio.as_completed(): the compiled one does what asyncio's own does, on every loop."""

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, Awaitable, fail, give, outcome, outcome_of, same_on_both, turns
from support.same_outcome import normal, shown

import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="hotloop.asyncio is compiled; it works on both loops")
on_hotloop = pytest.mark.only("c", reason="what only hotloop's loop does")
with_iterator = pytest.mark.skipif(
    sys.version_info < (3, 13), reason="as_completed() is a generator before CPython 3.13"
)


def raise_(error):
    raise error


async def all_of(iterator):
    return [await outcome_of(each) for each in iterator]


async def all_in(iterator):
    """The same for an asynchronous iterator; it ends at the first exception."""
    found = []
    try:
        async for each in iterator:
            found.append((type(each).__name__, await outcome_of(each)))
    except BaseException as error:
        found.append(repr(error))
    return found


# -- random programs ---------------------------------------------------------------------------------------------------

kinds = strategies.lists(
    strategies.tuples(strategies.sampled_from(["future", "give", "fail", "done", "task"]), strategies.integers(0, 3)),
    max_size=5,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "next", "anext", "cancel", "cancel_task", "finish", "fail", "look", "remove", "debug", "close"]
        ),
        strategies.integers(0, 3),
    ),
    max_size=10,
)


async def play(module, kinds, script, timeout):
    loop = asyncio.get_running_loop()
    log, given, tasks = [], [], []
    for place, (kind, number) in enumerate(kinds):
        match kind:
            case "give" | "fail":
                given.append(give(place, 1 + 2 * place) if kind == "give" else fail(KeyError(place), 1 + 2 * place))
            case "task":
                given.append(loop.create_task(give(place, 2 * number)))
            case "future" | "done":
                given.append(loop.create_future())
                if kind == "done":
                    given[-1].set_result(0)
    futures = [each for each in given if isinstance(each, asyncio.Future)]
    iterator = module.as_completed(given, timeout=timeout)

    async def wait(coroutine):
        found = await outcome_of(coroutine)
        log.append(("result", found.done() if isinstance(found, asyncio.Future) else found))

    for coroutine in iterator:  # up to Python 3.12 this is what begins
        tasks.append(loop.create_task(wait(coroutine)))
        break
    for action, number in script:
        log.append(action)
        future = futures[number % len(futures)] if futures else loop.create_future()
        match action:
            case "turn":
                await turns(number)
            case "next":
                for coroutine in iterator:
                    tasks.append(loop.create_task(wait(coroutine)))
                    break
                else:
                    log.append("the end")
            case "anext" if hasattr(iterator, "__anext__"):
                tasks.append(loop.create_task(wait(anext(iterator))))
            case "close":
                for coroutine in iterator:
                    coroutine.close()
                    break
            case "cancel":
                log.append(future.cancel(number))
            case "cancel_task" if tasks:
                log.append(tasks[number % len(tasks)].cancel(number))
            case "finish" | "fail" if not future.done() and not isinstance(future, asyncio.Task):
                future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "remove":
                for callback, _ in (future._callbacks or ())[:number]:
                    log.append(future.remove_done_callback(callback))
                    if number == 1:
                        future.add_done_callback(callback)
            case "debug":
                loop.set_debug(bool(number % 2))
            case "look":
                log += [shown(future) for future in futures]
                log.append(getattr(iterator, "_todo_left", None))
    await turns(10)
    loop.set_debug(False)
    log += [shown(future) for future in futures]
    for coroutine in iterator:
        tasks.append(loop.create_task(wait(coroutine)))
    for future in futures:
        future.cancel()
    await turns(4)
    log += [task.done() for task in tasks]
    for task in tasks:
        task.cancel()
    for timer in loop._scheduled:
        timer.cancel()
    await turns(4)
    return log


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # a cancelled task's argument
@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=kinds, script=actions, timeout=strategies.sampled_from([None, None, 60, 0]))
def test_random_programs(loop, asyncio_log, kinds, script, timeout):
    # Which comes first of two that end in the same turn is a matter of their addresses.
    ends = [number for kind, number in kinds if kind == "task"]
    hypothesis.assume(len(ends) == len(set(ends)) and sum(kind == "done" for kind, _ in kinds) <= 1)

    async def run(module):
        return await play(module, kinds, script, timeout)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of exceptions that were not retrieved, and of tasks that wait for ever


# -- arguments and result ----------------------------------------------------------------------------------------------


@with_iterator
def test_signature_and_documentation():
    own, compiled = (module.as_completed for module in BOTH)
    assert own is not compiled
    assert inspect.signature(own) == inspect.signature(compiled)
    assert inspect.isfunction(compiled)
    for name in ("__doc__", "__name__", "__qualname__", "__module__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert repr(compiled) == repr(own)


@with_iterator
def test_iterator(loop):
    async def use(module):
        iterator = module.as_completed([give(1), give(2)], timeout=60)
        found = [
            type(iterator).__name__,
            type(iterator).__qualname__,
            type(iterator).__module__,
            isinstance(iterator, asyncio.tasks._AsCompletedIterator),
            iter(iterator) is iterator,
            aiter(iterator) is iterator,
            isinstance(iterator._done, asyncio.Queue),
            type(iterator._timeout_handle).__name__,
            sorted(shown(future) for future in iterator._todo),
            iterator._todo_left,
            getattr(iterator, "_cur_task", None) is asyncio.current_task(),
        ]
        iterator.mark = 1
        coroutine = next(iterator)
        found += [
            coroutine.__qualname__,
            inspect.iscoroutine(coroutine),
            iterator._todo_left,
            await coroutine in (1, 2),
        ]
        coroutine = anext(iterator)
        found += [coroutine.__qualname__, inspect.iscoroutine(coroutine), iterator._todo_left]
        found += [
            type(await coroutine).__name__,
            iterator._todo_left,
            iterator._todo,
            iterator._timeout_handle.cancelled(),
        ]
        for end in (list(iterator), [each async for each in iterator]):
            found.append(end)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, dict.fromkeys, "generator"])
def test_collections(loop, kind):
    async def use(module):
        given = [give(number, number) for number in range(4)]
        given = (each for each in given) if kind == "generator" else kind([*given, given[0]])
        if inspect.iscoroutine(given) or (kind == "generator" and sys.version_info < (3, 12)):
            given = list(given)  # asyncio takes any generator for a coroutine
        return await all_of(module.as_completed(given))

    assert same_on_both(loop, use) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize("timeout", [None, 60])
def test_numbers_of_futures(loop, count, timeout):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(count)]
        return await all_of(module.as_completed(futures, timeout=timeout))

    assert same_on_both(loop, use) == list(range(count))


@with_iterator
@pytest.mark.parametrize("count", [0, 1, 100])
def test_asynchronous_iteration(loop, count):
    async def use(module):
        futures = [asyncio.ensure_future(give(number, number)) for number in range(count)]
        found = [each async for each in module.as_completed(futures)]
        return [futures.index(each) for each in found], await all_in(
            module.as_completed([give(1), fail(KeyError(1), 2)])
        )

    assert same_on_both(loop, use)[0] == list(range(count))


def test_all_that_can_be_awaited(loop):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait("item")
        future = asyncio.get_running_loop().create_future()

        async def finish():
            await turns(20)
            future.set_result("future")
            await turns(1)

        given = [give(1, 4), queue.get(), Awaitable(), module.gather(give(2, 10), finish()), future]
        return await all_of(module.as_completed(given))

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "make",
    [lambda: None, lambda: 1, lambda: [1], lambda: (None, None), lambda: "text", lambda: {1: 2}],
    ids=["None", "1", "[1]", "(None, None)", "text", "{1: 2}"],
)
def test_wrong_arguments(loop, make):
    async def use(module):
        try:
            return list(module.as_completed(make()))
        except TypeError as error:
            return str(error)

    same_on_both(loop, use)


def test_generator_with_what_cannot_be_awaited(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        try:
            return list(module.as_completed(each for each in [future, 1]))
        except TypeError as error:
            return str(error), shown(future)

    same_on_both(loop, use)


def test_single_awaitables(loop):
    async def use(module):
        found = []
        for given in (give(1), asyncio.get_running_loop().create_future(), asyncio.ensure_future(give(1))):
            try:
                found.append(list(module.as_completed(given)))
            except TypeError as error:
                found.append(str(error))
            if inspect.iscoroutine(given):
                given.close()
        return found

    same_on_both(loop, use)


def test_generator_that_fails(loop):
    async def use(module):
        future = asyncio.get_running_loop().create_future()

        def given():
            yield future
            raise ValueError("x")

        try:
            list(module.as_completed(given()))
        except (TypeError, ValueError) as error:
            return type(error), str(error), shown(future)

    same_on_both(loop, use)


def test_generator_that_changes_the_loop(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        made = []

        def factory(loop, coroutine, **keywords):
            made.append(coroutine.__name__)
            return asyncio.Task(coroutine, loop=loop, **keywords)

        def given():
            yield give(1)
            loop.set_task_factory(factory)

        try:
            return await all_of(module.as_completed(given())), made
        except TypeError as error:
            return str(error)
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize(
    "keywords", [{"timeout": 60}, {"timeout": -1}, {"timeout": "soon"}, {"loop": None}, {"a": 1, "b": 2}]
)
def test_keywords(loop, keywords):
    async def use(module):
        reported = []
        loop.set_exception_handler(lambda loop, context: reported.append(outcome(raise_, context["exception"])))
        future = asyncio.get_running_loop().create_future()
        try:
            found = await all_of(module.as_completed([asyncio.ensure_future(give(1, 0))], **keywords))
        except TypeError as error:
            found = normal(str(error))
        await turns(2)
        return found, shown(future), reported

    same_on_both(loop, use)


def test_by_keyword_and_by_position(loop):
    async def use(module):
        found = [await all_of(module.as_completed(fs=[give(1)]))]
        for arguments in [(), ([], 1), ([], 1, 2)]:
            try:
                module.as_completed(*arguments)
            except TypeError as error:
                found.append(str(error))
        return found

    same_on_both(loop, use)


def test_future_of_another_loop(impl, loop):
    other = impl.new_event_loop()

    async def use(module):
        try:
            list(module.as_completed([other.create_future()]))
        except ValueError as error:
            return str(error)

    same_on_both(loop, use)
    other.close()


def test_futures_of_other_classes(loop):
    class Own(asyncio.Future):
        pass

    async def use(module):
        loop = asyncio.get_running_loop()
        futures = [make(loop=loop) for make in (Own, asyncio.futures._PyFuture, asyncio.futures._CFuture)]
        for number, future in enumerate(futures):
            loop.call_later(0.002 * number, future.set_result, number)
        return await all_of(module.as_completed(futures))

    assert same_on_both(loop, use) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_without_a_running_loop(loop):
    found = []
    for module in BOTH:
        coroutine = give(1)
        try:
            asyncio.set_event_loop(loop)
            for each in module.as_completed([coroutine]):
                found.append(loop.run_until_complete(each))
        except RuntimeError as error:
            found.append(str(error))
        finally:
            asyncio.set_event_loop(None)
        coroutine.close()
    assert found[: len(found) // 2] == found[len(found) // 2 :]


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError("x")])
def test_futures_that_fail(loop, error):
    async def use(module):
        futures = [asyncio.ensure_future(each) for each in (give(1), fail(error, 3), give(2, 5))]
        return await all_of(module.as_completed(futures)), [future._log_traceback for future in futures]

    same_on_both(loop, use)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_timeout(loop, asynchronous):
    async def use(module):
        futures = [asyncio.ensure_future(give(1)), *(asyncio.get_running_loop().create_future() for _ in range(3))]
        iterator = module.as_completed(futures, timeout=0.002)
        if asynchronous and hasattr(iterator, "__anext__"):
            found = await all_in(iterator)
        else:
            found = await all_of(iterator)
        futures[1].set_result(1)
        await turns(2)
        return found, [shown(future) for future in futures], getattr(iterator, "_todo_left", None)

    same_on_both(loop, use)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_wait(loop, when, asynchronous):
    async def use(module):
        future = asyncio.get_running_loop().create_future()
        iterator = module.as_completed([future, give(1, 2)])
        asynchronous_here = asynchronous and hasattr(iterator, "__anext__")

        async def wait():
            return await (anext(iterator) if asynchronous_here else next(iterator))

        task = asyncio.ensure_future(wait())
        await turns(when)
        found = [task.cancel("why"), getattr(iterator, "_todo_left", None)]
        result = await outcome_of(task)
        found += [type(result) if isinstance(result, asyncio.Future) else result, task.cancelling()]
        future.set_result("late")
        await turns(4)
        found.append(getattr(iterator, "_todo_left", None))
        return [*found, await all_of(iterator) if when < 2 else None]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError("x"), GeneratorExit(), StopIteration(1), KeyboardInterrupt(), None])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_thrown_into(loop, error, asynchronous):
    async def use(module):
        iterator = module.as_completed([asyncio.get_running_loop().create_future() for _ in range(2)])
        is_asynchronous = asynchronous and hasattr(iterator, "__anext__")
        coroutine = iterator.__anext__() if is_asynchronous else next(iterator)
        coroutine.send(None)
        try:
            found = [normal(repr(coroutine.close() if error is None else coroutine.throw(error)))]
        except BaseException as raised:
            found = [type(raised), str(raised), repr(raised.__cause__), repr(raised.__context__)]
        return [*found, getattr(iterator, "_todo_left", None), inspect.getcoroutinestate(coroutine)]

    same_on_both(loop, use)


def test_waits_that_are_never_begun(loop):
    async def use(module):
        with pytest.warns(RuntimeWarning) as caught:
            for each in module.as_completed([give(1)]):
                del each
            gc.collect()
        await turns(3)
        return [str(warning.message) for warning in caught]

    same_on_both(loop, use)


def test_waits_in_any_order(loop):
    async def use(module):
        coroutines = list(module.as_completed([give(number, 2 * number) for number in range(4)]))
        tasks = [asyncio.ensure_future(coroutine) for coroutine in reversed(coroutines)]
        return [await task for task in tasks]

    assert same_on_both(loop, use) == [0, 1, 2, 3]


# -- order, contexts, modes --------------------------------------------------------------------------------------------


def test_order(loop):
    async def use(module):
        log = []
        futures = [asyncio.ensure_future(give(number, number)) for number in (0, 1, 3)]

        async def wait():
            for each in module.as_completed(futures):
                log.append(await each)

        task = asyncio.ensure_future(wait())
        for turn in range(10):
            log.append(("turn", turn, task.done()))
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_contexts(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def use(module):
        future = asyncio.get_running_loop().create_future()
        variable.set(1)
        iterator = module.as_completed([future])
        coroutine = next(iter(iterator))
        variable.set(2)
        found = [context[variable] for _, context in future._callbacks]
        future.set_result(1)
        return found, await coroutine

    assert same_on_both(loop, use) == ([1], 1)


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        return await all_of(module.as_completed([give(1), give(2, 3)], timeout=60))

    assert same_on_both(loop, use) == [1, 2]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with CPython 3.12")
def test_eager_tasks(loop):
    async def use(module):
        loop.set_task_factory(asyncio.eager_task_factory)
        try:
            return await all_of(module.as_completed([give(1, 0), give(2, 1), give(3, 3)]))
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "call_later", "create_task", "create_future"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append(name)
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            found = await all_of(module.as_completed([give(1), give(2, 3)], timeout=60))
        return found, list(calls)

    assert same_on_both(loop, use)[1]


# -- the class and its attributes --------------------------------------------------------------------------------------


@with_iterator
@pytest.mark.parametrize("action", ["delete", "replace"])
@pytest.mark.parametrize("name", ["_done", "_timeout_handle", "_todo", "_todo_left", "_cur_task"])
@pytest.mark.parametrize("when", ["first", "between"])
def test_changed_attributes(loop, name, action, when):
    async def use(module):
        reported = []
        loop.set_exception_handler(lambda loop, context: reported.append(outcome(raise_, context["exception"])))
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        iterator = module.as_completed(futures, timeout=60)
        handle = iterator._timeout_handle
        if when == "between":
            futures[2].set_result("first")
            waiting = asyncio.ensure_future(next(iterator))
            await turns(1)
        try:
            if action == "delete":
                delattr(iterator, name)
            else:
                replacement = {"_done": asyncio.Queue(), "_todo": [*iterator._todo], "_todo_left": -1}
                setattr(iterator, name, replacement.get(name))
        except AttributeError:
            pass
        for number, future in enumerate(futures[:2]):
            future.set_result(number)
        found = []
        for take in (lambda: next(iterator), lambda: anext(iterator), lambda: iterator._handle_completion(futures[0])):
            try:
                coroutine = take()
                task = coroutine and asyncio.ensure_future(coroutine)
                await turns(4)
                found.append(normal(repr(task)).split("coro")[0])
                if task:
                    task.cancel()
                    await turns(2)
                    found.append(
                        task.cancelled() or (outcome(raise_, task.exception()) if task.exception() else "result")
                    )
            except Exception as error:
                found.append(outcome(raise_, error))
        if when == "between":
            waiting.cancel()
            await turns(2)
        handle.cancel()
        return found, reported

    same_on_both(loop, use)


@with_iterator
def test_overridden_methods(loop, monkeypatch):
    async def use(module):
        iterator = module.as_completed([give(1), give(2, 3), give(3, 5)])
        found = [await next(iterator)]

        async def wait_for_one(self, resolve=False):
            return "by the program"

        with monkeypatch.context() as patch:
            patch.setattr(type(iterator), "_wait_for_one", wait_for_one)
            found.append(await next(iterator))
        found.append(await next(iterator))
        return found

    assert same_on_both(loop, use) == [1, "by the program", 2]


@with_iterator
def test_callbacks_that_the_program_calls(loop):
    async def use(module):
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        iterator = module.as_completed(futures)
        ((callback, _),) = futures[0]._callbacks
        found = [normal(repr(callback)), callback == iterator._handle_completion, callback.__self__ is iterator]
        futures[0].set_result(1)
        callback(futures[0])
        found += [await next(iterator), len(iterator._todo)]
        found.append(futures[1].remove_done_callback(iterator._handle_completion))
        iterator._handle_timeout()
        return [*found, await outcome_of(next(iterator))]

    same_on_both(loop, use)


# -- what tools see ----------------------------------------------------------------------------------------------------


@with_iterator
def test_where_the_task_waits(loop):
    async def use(module):
        iterator = module.as_completed([asyncio.get_running_loop().create_future() for _ in range(2)])
        found = []
        for coroutine in (next(iterator), anext(iterator)):
            task = asyncio.ensure_future(coroutine)
            await turns(1)
            while inspect.iscoroutine(coroutine):
                frame = coroutine.cr_frame
                found.append((coroutine.__qualname__, frame.f_code.co_name, frame.f_lineno, [*frame.f_locals][:1]))
                coroutine = coroutine.cr_await
            task.cancel()
            await turns(2)
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
            (caller,) = graph.awaited_by
            return caller.future is waiter, [entry.frame.f_code.co_name for entry in caller.call_stack]

        looking = asyncio.ensure_future(look())
        for each in module.as_completed([inner]):
            await each
        return await looking, inner._asyncio_awaited_by

    same_on_both(loop, use)


@on_hotloop
@with_iterator
def test_everything_is_freed(loop):
    async def use():
        futures = [loop.create_future() for _ in range(2)]
        iterator = hotloop.asyncio.as_completed(futures)
        known = [weakref.ref(each) for each in (*futures, iterator)]
        for number, future in enumerate(futures):
            future.set_result(number)
        for each in iterator:
            await each
        await turns(1)
        del futures, future, iterator, each
        return [reference() is None for reference in known]

    gc.disable()
    try:
        assert loop.run_until_complete(use()) == [True] * 3
    finally:
        gc.enable()


@on_hotloop
@with_iterator
def test_it_is_compiled(loop):
    async def use():
        coroutine = next(hotloop.asyncio.as_completed([give(1)]))
        found = type(coroutine).__module__
        return found, await coroutine

    assert loop.run_until_complete(use()) == ("hotloop._c.highlevel.coroutine", 1)
