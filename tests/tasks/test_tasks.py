"""Task: stepping a coroutine, names, contexts, subclasses, factories, and objects that a coroutine must not yield."""

import asyncio
import contextlib
import contextvars
import gc
import sys
import types

import pytest
from support.garbage import without_collector
from support.implementations import missing_names
from support.interpreter import counts_references
from support.stepping import run_once

variable = contextvars.ContextVar("variable", default="default")


async def returning(value):
    return value


async def failing(error):
    raise error


@pytest.mark.promise("P21")
def test_isinstance(impl, loop):
    task = loop.create_task(returning(1))
    assert isinstance(task, impl.Task) and isinstance(task, impl.Future)
    assert isinstance(task, asyncio.Task) and isinstance(task, asyncio.Future)
    assert asyncio.isfuture(task)
    assert asyncio.ensure_future(task, loop=loop) is task
    loop.run_until_complete(task)


def test_the_result_and_the_exception_of_the_coroutine(impl, loop):
    task = impl.Task(returning("value"), loop=loop)
    assert loop.run_until_complete(task) == "value"
    assert (task.done(), task.cancelled(), task.result(), task.exception()) == (True, False, "value", None)
    error = ZeroDivisionError("from inside")
    task = impl.Task(failing(error), loop=loop)
    with pytest.raises(ZeroDivisionError, match="from inside"):
        loop.run_until_complete(task)
    assert task.exception() is error


def test_an_exception_that_was_handled_is_not_the_context_of_a_later_one(impl, loop):
    """Neither in the step that a future has ended with its exception nor in the steps after it."""
    contexts = []

    async def main(future):
        with contextlib.suppress(ZeroDivisionError):
            await future
        for turns in range(2):
            try:
                if turns:
                    await asyncio.sleep(0)
                raise KeyError
            except KeyError as error:
                contexts.append(error.__context__)

    future = loop.create_future()
    task = impl.Task(main(future), loop=loop)
    run_once(loop)
    future.set_exception(ZeroDivisionError())
    loop.run_until_complete(task)
    assert contexts == [None, None]


def test_nothing_runs_before_the_loop_does(loop):
    seen = []

    async def main():
        seen.append("ran")

    task = loop.create_task(main())
    assert seen == []
    run_once(loop)
    assert seen == ["ran"] and task.done()


def test_a_bare_yield_gives_the_others_a_turn(loop):
    seen = []

    async def main(name):
        for step in range(3):
            seen.append((name, step))
            await asyncio.sleep(0)

    for name in "ab":
        loop.create_task(main(name))
    run_once(loop, 5)
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_task_awaits_another(loop):
    async def outer():
        return await loop.create_task(returning("inner")), await loop.create_task(returning("second"))

    assert loop.run_until_complete(outer()) == ("inner", "second")


def test_the_exception_of_an_awaited_task_is_raised_where_it_is_awaited(loop):
    async def outer():
        inner = loop.create_task(failing(ZeroDivisionError("inner")))
        with pytest.raises(ZeroDivisionError, match="inner"):
            await inner
        return "went on"

    assert loop.run_until_complete(outer()) == "went on"


def test_a_long_chain_of_awaits(loop):
    async def nested(depth):
        if depth:
            return await nested(depth - 1) + 1
        await asyncio.sleep(0)
        return 0

    assert loop.run_until_complete(nested(200)) == 200


def test_a_chain_of_tasks_each_awaiting_the_next(loop):
    async def link(depth):
        return await loop.create_task(link(depth - 1)) + 1 if depth else 0

    assert loop.run_until_complete(link(2000)) == 2000


def test_set_result_is_not_for_tasks(loop):
    task = loop.create_task(returning(1))
    with pytest.raises(RuntimeError, match="Task does not support set_result operation"):
        task.set_result(1)
    with pytest.raises(RuntimeError, match="Task does not support set_exception operation"):
        task.set_exception(ZeroDivisionError())
    loop.run_until_complete(task)


def test_names(loop):
    named = loop.create_task(returning(1), name="mine")
    numbered = loop.create_task(returning(1))
    following = loop.create_task(returning(1))
    assert named.get_name() == "mine"
    assert numbered.get_name().startswith("Task-")
    assert int(following.get_name()[5:]) == int(numbered.get_name()[5:]) + 1
    numbered.set_name(42)
    assert numbered.get_name() == "42"
    assert loop.create_task(returning(1), name=43).get_name() == "43"
    run_once(loop)


def test_each_task_runs_in_a_copy_of_the_context(loop):
    seen = []

    async def main(value):
        seen.append(variable.get())
        variable.set(value)
        await asyncio.sleep(0)
        seen.append(variable.get())

    async def both():
        variable.set("outer")
        await asyncio.gather(loop.create_task(main("a")), loop.create_task(main("b")))
        seen.append(variable.get())

    loop.run_until_complete(both())
    assert seen == ["outer", "outer", "a", "b", "outer"]


def test_a_given_context_is_used_as_it_is(loop):
    async def main():
        variable.set("inside")
        await asyncio.sleep(0)
        return variable.get()

    context = contextvars.Context()
    task = loop.create_task(main(), context=context)
    assert loop.run_until_complete(task) == "inside"
    assert context[variable] == "inside"
    assert variable.get() == "default"
    if sys.version_info >= (3, 12):
        assert task.get_context() is context


class RunsInstead:
    """No Context, but with a run() as Context has it."""

    def __init__(self):
        self.current = []

    def run(self, function, *args):
        self.current.append(asyncio.current_task())
        return function(*args)


checks_context = sys.version_info >= (3, 15)


@pytest.mark.skipif(checks_context, reason="CPython 3.15 refuses it")
def test_an_object_with_a_run_method_is_a_context(loop):
    current = []

    async def waits():
        current.append(asyncio.current_task())
        await asyncio.sleep(0)
        current.append(asyncio.current_task())
        loop.call_soon(future.set_result, None)
        await future
        current.append(asyncio.current_task())
        return await failing(ZeroDivisionError())

    context = RunsInstead()
    future = loop.create_future()
    tasks = [loop.create_task(returning(0)), loop.create_task(waits(), context=context), loop.create_task(returning(0))]
    loop.run_until_complete(asyncio.wait(tasks))
    assert current == [tasks[1]] * 3
    assert context.current == [None] * 3
    assert type(tasks[1].exception()) is ZeroDivisionError


@pytest.mark.skipif(checks_context, reason="CPython 3.15 refuses it")
@pytest.mark.parametrize("context", [5, 0, False, ""], ids=repr)
def test_what_has_no_run_method_is_no_context(loop, context):
    reports = []
    loop.set_exception_handler(lambda loop, context: reports.append(repr(context["exception"])))
    coroutine = returning(1)
    task = loop.create_task(coroutine, context=context)
    for _ in range(3):
        run_once(loop)
    assert reports == [f"""AttributeError("'{type(context).__name__}' object has no attribute 'run'")"""]
    assert not task.done()
    task._log_destroy_pending = False
    coroutine.close()
    del task
    gc.collect()


@pytest.mark.skipif(not checks_context, reason="CPython 3.15 was the first to refuse it")
@pytest.mark.parametrize("context", [5, 0, False, ""], ids=repr)
def test_what_is_no_context_is_refused(impl, loop, context):
    def refusal(task_class):
        coroutine = returning(1)
        with pytest.raises(TypeError) as refused:
            task_class(coroutine, loop=loop, context=context)
        coroutine.close()
        return str(refused.value)

    assert refusal(impl.Task) == refusal(asyncio.Task)


def test_get_coro(loop):
    coroutine = returning(1)
    task = loop.create_task(coroutine)
    assert task.get_coro() is coroutine and task._coro is coroutine
    loop.run_until_complete(task)


def test_generator_based_coroutines(impl, loop):
    @types.coroutine
    def old_style(future):
        yield
        value = yield from future
        yield
        return value

    future = loop.create_future()
    loop.call_soon(future.set_result, "value")

    async def main():
        return await old_style(future)

    assert loop.run_until_complete(main()) == "value"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="CPython 3.12 stopped accepting generators as coroutines")
def test_a_generator_is_a_coroutine_on_3_11(impl, loop):
    @types.coroutine
    def old_style():
        yield
        return "value"

    assert loop.run_until_complete(impl.Task(old_style(), loop=loop)) == "value"

    def plain():
        yield
        return "plain"

    assert loop.run_until_complete(impl.Task(plain(), loop=loop)) == "plain"


def test_an_object_with_the_methods_of_a_coroutine(impl, loop):
    """Cython's coroutines, for example, are not of types.CoroutineType."""
    from collections.abc import Coroutine

    class Counting(Coroutine):
        def __init__(self):
            self.steps = 0

        def send(self, value):
            self.steps += 1
            if self.steps == 3:
                raise StopIteration(self.steps)

        def throw(self, *args):
            raise args[0]

        def close(self):
            pass

        def __await__(self):
            return self

    assert loop.run_until_complete(impl.Task(Counting(), loop=loop)) == 3


@pytest.mark.parametrize(
    "wrong", [None, 1, "text", print, returning, [], object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_coroutine_is_refused(impl, loop, wrong):
    with pytest.raises(TypeError, match="a coroutine was expected"):
        impl.Task(wrong, loop=loop)
    with pytest.raises(TypeError, match="a coroutine was expected"):
        loop.create_task(wrong)


@types.coroutine
def yielding(value):
    yield value


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda impl, loop: 1, "Task got bad yield: 1"),
        (lambda impl, loop: (), r"Task got bad yield: \(\)"),
        (lambda impl, loop: (number for number in ()), "yield was used instead of yield from for generator"),
        (lambda impl, loop: impl.Future(loop=loop), "yield was used instead of yield from in task"),
        (lambda impl, loop: asyncio.Future(loop=loop), "yield was used instead of yield from in task"),
    ],
    ids=["integer", "tuple", "generator", "future not awaited", "asyncio's future not awaited"],
)
def test_bad_yields_raise_inside_the_coroutine(impl, loop, make, message):
    with pytest.raises(RuntimeError, match=message):
        loop.run_until_complete(yielding_only(make(impl, loop)))


@pytest.mark.parametrize("module", ["impl", "asyncio"])
def test_a_future_of_another_loop_is_refused(impl, loop, module):
    other = impl.new_event_loop()
    future = (impl if module == "impl" else asyncio).Future(loop=other)

    async def main():
        await future

    with pytest.raises(RuntimeError, match="attached to a different loop"):
        loop.run_until_complete(main())
    future.cancel()
    other.close()


async def yielding_only(value):
    await yielding(value)


def test_a_task_can_catch_a_bad_yield_and_go_on(loop):
    async def main():
        with pytest.raises(RuntimeError, match="Task got bad yield"):
            await yielding("nonsense")
        await asyncio.sleep(0)
        return "went on"

    assert loop.run_until_complete(main()) == "went on"


def test_a_task_cannot_await_itself(loop):
    async def main():
        await task

    task = loop.create_task(main())
    with pytest.raises(RuntimeError, match="Task cannot await on itself"):
        loop.run_until_complete(task)


def test_stop_iteration_out_of_a_coroutine_is_a_runtime_error(loop):
    with pytest.raises(RuntimeError, match="coroutine raised StopIteration"):
        loop.run_until_complete(failing(StopIteration(1)))


def test_a_task_factory(impl, loop):
    made = []

    class Special(impl.Task):
        pass

    def factory(loop, coroutine, **keywords):
        made.append(set(keywords))
        return Special(coroutine, loop=loop, **keywords)

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    task = loop.create_task(returning(1), name="named", context=contextvars.copy_context())
    assert type(task) is Special
    assert task.get_name() == "named"
    assert loop.run_until_complete(task) == 1
    assert loop.run_until_complete(returning(2)) == 2
    assert len(made) == 2 and "context" in made[0]
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None
    assert type(loop.create_task(returning(3))) is impl.Task
    run_once(loop)


def test_a_task_factory_may_hand_out_asyncios_tasks(loop):
    loop.set_task_factory(lambda loop, coroutine, **keywords: asyncio.Task(coroutine, loop=loop, **keywords))

    async def main():
        return await asyncio.gather(*(asyncio.create_task(returning(number)) for number in range(5)))

    assert loop.run_until_complete(main()) == list(range(5))


def test_a_task_factory_must_be_callable(loop):
    with pytest.raises(TypeError, match="task factory must be a callable or None"):
        loop.set_task_factory("factory")


def test_a_subclass(impl, loop):
    steps = []

    class Mine(impl.Task):
        def cancel(self, msg=None):
            steps.append("cancel")
            return super().cancel(msg)

        def get_stack(self, *, limit=None):
            return "overridden"

    task = Mine(asyncio.sleep(3600), loop=loop, name="mine")
    task.extra = "attribute"
    assert "Mine pending name='mine'" in repr(task)
    assert isinstance(task, asyncio.Task)
    assert task in asyncio.all_tasks(loop)
    loop.call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert steps == ["cancel"] and task.get_stack() == "overridden" and task.extra == "attribute"


def test_step_after_the_end(impl, loop):
    task = loop.create_task(returning(1))
    loop.run_until_complete(task)
    step = getattr(task, "_Task__step", None)
    if step is not None:
        with pytest.raises(asyncio.InvalidStateError, match=r"(_step\(\)|step\(\)|__step\(\)): already done"):
            step()


@counts_references
def test_tasks_are_hashable_and_weakly_referencable(loop):
    import weakref

    task = loop.create_task(returning(1))
    other = loop.create_task(returning(1))
    assert len({task, other, task}) == 2
    reference = weakref.ref(task)
    run_once(loop)
    assert reference() is task
    del task
    assert reference() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_keyboard_interrupt_and_system_exit_leave_the_loop(loop, error):
    task = loop.create_task(failing(error()))
    with pytest.raises(error):
        loop.run_forever()
    assert task.done()
    with pytest.raises(error):
        task.result()


def test_other_base_exceptions_stay_in_the_task(loop):
    class Strange(BaseException):
        pass

    task = loop.create_task(failing(Strange()))
    with pytest.raises(Strange):
        loop.run_until_complete(task)
    assert type(task.exception()) is Strange


@counts_references
def test_the_result_does_not_stay_alive_through_the_task_machinery(loop):
    import weakref

    class Value:
        pass

    async def inner():
        return Value()

    async def main():
        return weakref.ref(await loop.create_task(inner()))

    with without_collector():
        reference = loop.run_until_complete(main())
        run_once(loop)
        assert reference() is None


def test_every_name_of_asyncios_task_is_there(loop):
    task = loop.create_task(returning(1))
    missing = missing_names(task, asyncio.Task)
    run_once(loop)
    assert missing == []


def test_class_getitem(impl):
    assert impl.Task[int].__origin__ is impl.Task


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task() passes keywords on since CPython 3.14")
def test_keywords_are_passed_on(loop):
    with pytest.raises(TypeError):
        coroutine = returning(1)
        try:
            loop.create_task(coroutine, nonsense=True)
        finally:
            coroutine.close()
