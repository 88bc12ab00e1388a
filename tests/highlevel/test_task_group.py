"""asyncio.TaskGroup: the compiled one does what asyncio's own does, on every loop."""

import asyncio
import contextvars
import gc
import inspect
import sys
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, fail, give, run_through, same_on_both, turns
from support.same_outcome import describe, normal, outcome

import hotloop.asyncio

pytestmark = pytest.mark.only("c", "asyncio", reason="hotloop.asyncio is compiled; it works on both loops")
on_hotloop = pytest.mark.only("c", reason="what only hotloop's loop does")

ATTRIBUTES = [name for name in vars(asyncio.TaskGroup()) if name not in ("_loop", "_parent_task", "_on_completed_fut")]
CAN_BE_CANCELLED = hasattr(asyncio.TaskGroup, "cancel")


def attributes(group):
    return {name: normal(repr(getattr(group, name))) for name in ATTRIBUTES}


# -- random programs ---------------------------------------------------------------------------------------------------

numbers = strategies.integers(0, 4)
kinds = strategies.sampled_from(["give", "give", "give", "fail", "cancel", "stubborn", "late", "group", "exit"])
tasks_of_a_program = strategies.lists(strategies.tuples(kinds, numbers), max_size=5)
endings = strategies.tuples(strategies.sampled_from(["leave", "leave", "turns", "raise", "cancelled", "wait"]), numbers)
outside = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["turn", "cancel", "uncancel", "cancel_child", "create", "look", "cancel_group"]),
        numbers,
    ),
    max_size=8,
)


def ordered(found):
    """The same with everything that may have been in the order of a set sorted."""
    if isinstance(found, dict):
        return {name: sorted(text) for name, text in found.items()}
    if isinstance(found, list):
        return sorted(str(ordered(item)) for item in found)
    return tuple(map(ordered, found)) if isinstance(found, tuple) else found


class Program:
    """One run of a program: a task with a group, the group's tasks, and what else happens until all are done.

    A group cancels its tasks in the order of a set, so each task has a log of its own, by turns."""

    def __init__(self, module):
        self.module = module
        self.turn = 0
        self.log = []
        self.logs = {}
        self.tasks = []
        self.group = None

    def create(self, group, kind, number):
        coroutine = self.run(len(self.tasks), group, kind, number)
        try:
            self.tasks.append(group.create_task(coroutine, name=f"number {len(self.tasks)}"))
        except RuntimeError as error:
            coroutine.close()
            self.log.append(normal(str(error)))

    async def run(self, name, group, kind, number):
        log = self.logs[name] = []
        try:
            if kind == "group":
                async with self.module.TaskGroup() as inner:
                    self.create(inner, "give", number)
                    self.create(inner, "fail" if number == 3 else "give", 2)
            else:
                await turns(number)
        except asyncio.CancelledError as error:
            log.append((self.turn, "cancelled", error.args))
            if kind != "stubborn":
                raise
            if number % 2:
                raise ValueError("stubborn") from None
        log.append((self.turn, "ends"))
        match kind:
            case "fail":
                raise ValueError(name)
            case "cancel":
                raise asyncio.CancelledError(name)
            case "late":
                self.create(group, "give", number)
            case "exit" if number == 4:
                asyncio.current_task().cancel("itself")
        return name

    async def body(self, kinds, ending):
        how, number = ending
        async with self.module.TaskGroup() as group:
            self.group = group
            for kind in kinds:
                self.create(group, *kind)
            if how in ("turns", "raise", "cancelled"):
                await turns(number)
            if how == "raise":
                raise KeyError("body")
            if how == "cancelled":
                raise asyncio.CancelledError("body")
            if how == "wait":
                await asyncio.get_running_loop().create_future() if number == 4 else await turns(7)
        self.log.append("left")
        await turns(1)
        return "returned"

    async def play(self, kinds, ending, script):
        parent = asyncio.create_task(self.body(kinds, ending), name="parent")
        for action, number in script:
            self.log.append((action, self.act(parent, action, number)))
            if action == "turn":
                await self.pass_turns(number)
        await self.pass_turns(20)
        if not parent.done():
            self.log.append("waits")
            parent.cancel("at the end")
            await self.pass_turns(20)
        self.log += [ordered(await outcome(parent)), parent.cancelling(), self.look()]
        self.log += [ordered(await outcome(task)) for task in self.tasks]
        return self.log, self.logs

    async def pass_turns(self, number):
        for _ in range(number):
            self.turn += 1
            await asyncio.sleep(0)

    def look(self):
        return self.group and (ordered(attributes(self.group)), normal(repr(self.group)))

    def act(self, parent, action, number):
        match action:
            case "cancel":
                return parent.cancel(f"by {number}")
            case "uncancel":
                return parent.uncancel()
            case "cancel_child" if self.tasks:
                return self.tasks[number % len(self.tasks)].cancel(f"by {number}")
            case "create" if self.group is not None:
                return self.create(self.group, "give", number)
            case "cancel_group" if self.group is not None and CAN_BE_CANCELLED:
                return self.group.cancel()
            case "look":
                return self.look(), parent.cancelling()


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=tasks_of_a_program, ending=endings, script=outside)
def test_random_programs(loop, asyncio_log, kinds, ending, script):
    async def run(module):
        return await Program(module).play(kinds, ending, script)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()


# -- what a group looks like -------------------------------------------------------------------------------------------


def test_class():
    own, compiled = (module.TaskGroup for module in BOTH)
    assert own is not compiled
    assert issubclass(compiled, own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    for name in ("__init__", "__aenter__", "__aexit__", "create_task", "_on_task_done"):
        assert inspect.signature(getattr(own, name)) == inspect.signature(getattr(compiled, name))
        assert inspect.iscoroutinefunction(getattr(own, name)) == inspect.iscoroutinefunction(getattr(compiled, name))
    with pytest.raises(TypeError, match="positional argument"):
        compiled(1)


def test_attributes(loop):
    async def use(module):
        group = module.TaskGroup()
        found = [attributes(group), repr(group), group._loop, group._parent_task, group._on_completed_fut]
        async with group as entered:
            found += [entered is group, attributes(group), group._parent_task is asyncio.current_task()]
            task = group.create_task(give(1), name="name")
            found += [task.get_name(), group._tasks == {task}, repr(group), len(group.create_task(give(2))._callbacks)]
        found += [attributes(group), repr(group), group._parent_task is None, group._on_completed_fut]
        return [*found, group._loop is asyncio.get_running_loop()]

    same_on_both(loop, use)


def test_callback_of_a_task(loop):
    async def use(module):
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))
            ((callback, context),) = task._callbacks
            found = [
                normal(repr(task)),
                callback == group._on_task_done,
                callback.__self__ is group,
                callback.__func__ is module.TaskGroup._on_task_done,
                type(context).__name__,
            ]
            found += [task.remove_done_callback(group._on_task_done), task._callbacks]
            task.add_done_callback(group._on_task_done)
        return [*found, repr(group)]

    same_on_both(loop, use)


def test_name_and_context_of_a_task(loop):
    variable = contextvars.ContextVar("variable", default=0)

    async def child():
        return variable.get()

    async def use(module):
        context = contextvars.copy_context()
        context.run(variable.set, 7)
        async with module.TaskGroup() as group:
            tasks = [
                group.create_task(child(), name="one"),
                group.create_task(child(), context=context),
                group.create_task(child(), name=None, context=None),
                group.create_task(child(), context=context, name="four"),
                group.create_task(coro=child()),
            ]
            variable.set(8)
            tasks.append(group.create_task(child()))
            contexts = [task._callbacks[0][1].get(variable) for task in tasks]
        return [(normal(task.get_name()), task.result()) for task in tasks], contexts

    same_on_both(loop, use)


@pytest.mark.parametrize("keywords", [{"name": 5}, {"unknown": 1}, {"name": "a", "unknown": 1}])
def test_odd_keywords(loop, keywords, asyncio_log):
    async def use(module):
        coroutine = give(1)
        try:
            async with module.TaskGroup() as group:
                try:
                    return group.create_task(coroutine, **keywords).get_name()
                except Exception as error:
                    return type(error).__name__, str(error)
        except BaseException as error:
            return describe(error)
        finally:
            await turns(2)
            coroutine.close()

    same_on_both(loop, use)
    asyncio_log.take()


@pytest.mark.parametrize("wrong", [None, 1, "text", asyncio.sleep])
def test_what_is_no_coroutine(loop, wrong):
    async def use(module):
        return await outcome(enter(module))

    async def enter(module):
        async with module.TaskGroup() as group:
            group.create_task(wrong)

    same_on_both(loop, use)


def test_when_it_takes_no_tasks(loop):
    async def use(module):
        found = []

        def create(group):
            coroutine = give(1)
            try:
                group.create_task(coroutine)
            except RuntimeError as error:
                found.append((str(error), inspect.getcoroutinestate(coroutine)))
            coroutine.close()

        group = module.TaskGroup()
        create(group)
        async with group:
            pass
        create(group)
        found.append(await outcome(group.__aenter__()))
        try:
            async with module.TaskGroup() as group:
                group.create_task(fail(ValueError("x"), 0))
                group.create_task(give(1, 20)).add_done_callback(lambda _: create(group))
                await turns(2)
        except* ValueError:
            create(group)
        return found

    same_on_both(loop, use)


def test_tasks_that_are_created_while_it_waits(loop):
    async def use(module):
        log = []

        async def chain(group, left):
            await turns(1)
            log.append((left, len(group._tasks)))
            if left:
                group.create_task(chain(group, left - 1))

        async with module.TaskGroup() as group:
            group.create_task(chain(group, 4))
        return log, repr(group)

    same_on_both(loop, use)


def test_task_that_is_created_after_the_last_is_done(loop):
    """It is waited for as well: the group looks again when it is woken."""

    async def use(module):
        log = []
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))

            def create(_):
                log.append(len(group._tasks))
                group._tasks.add(asyncio.ensure_future(give(2, 3)))
                next(iter(group._tasks)).add_done_callback(group._on_task_done)

            task.add_done_callback(create)
        return log, repr(group), group._on_completed_fut

    same_on_both(loop, use)


# -- failing and cancelling --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("number", [1, 3])
def test_tasks_that_fail(loop, number, after):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                for name in range(number):
                    group.create_task(fail(ValueError(name), after))
                group.create_task(give(1, 20))
                await turns(2)

        task = asyncio.create_task(body())
        return await outcome(task), task.cancelling()

    same_on_both(loop, use)


@pytest.mark.parametrize("when", range(6))
@pytest.mark.parametrize("again", [None, 0, 1, 2])
def test_cancelled_parent(loop, when, again):
    async def stubborn():
        try:
            await turns(10)
        except asyncio.CancelledError:
            await turns(3)

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 3))
                group.create_task(stubborn())

        task = asyncio.create_task(body())
        await turns(when)
        task.cancel("first")
        if again is not None:
            await turns(again)
            task.cancel("second")
        return await outcome(task), task.cancelling()

    same_on_both(loop, use)


def test_cancelled_when_the_last_task_is_done(loop):
    """The group is woken and the parent cancelled in the same turn."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1)).add_done_callback(lambda _: parent.cancel("late"))

        parent = asyncio.create_task(body())
        return await outcome(parent), parent.cancelling()

    same_on_both(loop, use)


def test_failure_when_the_last_task_is_done(loop):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                group.create_task(fail(ValueError("x")))

        parent = asyncio.create_task(body())
        return await outcome(parent), parent.cancelling()

    same_on_both(loop, use)


@pytest.mark.parametrize("when", range(8))
@pytest.mark.parametrize("event", ["nothing", "cancelled", "cancelled twice", "another fails", "another is created"])
@pytest.mark.parametrize("ending", ["succeeds", "fails", "is cancelled"])
def test_tasks_that_take_long_to_end_after_a_failure(loop, when, event, ending):
    """The parent task is cancelled for the failure, and goes on waiting."""

    async def slow(started):
        try:
            await turns(20)
        except asyncio.CancelledError:
            await turns(started)
            if ending == "succeeds":
                return
            if ending == "fails":
                raise KeyError("slow") from None
            raise

    async def use(module):
        async def body():
            nonlocal group
            async with module.TaskGroup() as group:
                group.create_task(slow(3))
                group.create_task(slow(5))
                group.create_task(fail(ValueError("first"), 1))
                if event == "another fails":
                    group.create_task(fail(TypeError("another"), when))

        group = None
        task = asyncio.create_task(body())
        found = []
        for turn in range(12):
            if turn == when and event.startswith("cancelled"):
                task.cancel("outside")
                if event == "cancelled twice":
                    task.cancel("again")
            if turn == when and event == "another is created":
                coroutine = give(1)
                try:
                    group.create_task(coroutine)
                except Exception as error:
                    found.append(type(error).__name__)
                finally:
                    coroutine.close()
            await turns(1)
            found.append((task.done(), task.cancelling(), group is None or attributes(group)))
        # The traceback is compared, too: describe() has it.
        return [turn if len(turn) == 2 else (*turn[:2], ordered(turn[2])) for turn in found], await outcome(task)

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("how", ["throw", "close", "drop"])
@pytest.mark.parametrize("before", ["nothing", "cancelled once", "errors are forgotten", "errors are replaced"])
def test_coroutine_of_leaving_by_hand_after_a_failure(loop, error, how, before):
    async def use(module):
        group = module.TaskGroup()
        await group.__aenter__()
        asyncio.current_task().uncancel()
        for number in range(2):
            group.create_task(give(number, 5 + number))
        coroutine = group.__aexit__(None, None, None)
        waited = coroutine.send(None)
        waited._asyncio_future_blocking = False
        found = [waited is group._on_completed_fut]
        group._errors.append(KeyError("first"))
        group._aborting = True
        if before != "nothing":
            waited = coroutine.throw(asyncio.CancelledError())
            waited._asyncio_future_blocking = False
            found += [waited is group._on_completed_fut, attributes(group)]
        if before.startswith("errors"):
            group._errors = [] if before == "errors are forgotten" else "no list"
        try:
            if how == "throw":
                found.append(type(coroutine.throw(error("thrown"))).__name__)
            elif how == "close":
                found.append(coroutine.close())
        except GeneratorExit:
            # Its traceback has no entry of asyncio's coroutine if that was started in the middle.
            found.append("GeneratorExit")
        except BaseException as failure:
            found.append(describe(failure))
        found += [inspect.getcoroutinestate(coroutine), attributes(group)]
        del coroutine
        await turns(12)
        return [*found, attributes(group)]

    same_on_both(loop, use)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_errors_that_end_the_loop(loop, error):
    found = []
    for module in BOTH:

        async def body(module=module):
            async with module.TaskGroup() as group:
                group.create_task(fail(error("x")))
                group.create_task(give(1, 5))

        task = loop.create_task(body())
        ends = run_through(loop, error)
        found.append((ends, describe(task.exception())))
    assert found[0] == found[1]


def test_parent_that_is_done_already(loop, asyncio_log):
    """A group that another task leaves: a failure is reported, because the parent cannot be cancelled."""

    async def use(module):
        group = module.TaskGroup()

        async def enter():
            await group.__aenter__()
            group.create_task(fail(ValueError("x"), 4))

        await asyncio.create_task(enter())
        await turns(8)
        return normal(repr(group))

    same_on_both(loop, use)
    messages = [normal(message) for message in asyncio_log.take()]
    assert len(messages) == 2
    assert messages[0] == messages[1]


@pytest.mark.parametrize("error", [ValueError, GeneratorExit, asyncio.CancelledError, StopAsyncIteration])
@pytest.mark.parametrize("when", ["unstarted", "waiting", "waiting again"])
@pytest.mark.parametrize("how", ["throw", "close", "drop"])
def test_coroutine_of_leaving_by_hand(loop, error, when, how):
    async def use(module):
        group = module.TaskGroup()
        await group.__aenter__()
        tasks = [group.create_task(give(number, 5 + number)) for number in range(2)]
        coroutine = group.__aexit__(None, None, None)
        found = [inspect.iscoroutine(coroutine), coroutine.__name__, coroutine.__qualname__]
        if when != "unstarted":
            waited = coroutine.send(None)
            found += [waited is group._on_completed_fut, inspect.getcoroutinestate(coroutine)]
        if when == "waiting again":
            try:
                found.append(coroutine.send(None))
            except RuntimeError as failure:
                found.append(str(failure))
        try:
            if how == "throw":
                found.append(type(coroutine.throw(error("thrown"))).__name__)
            elif how == "close":
                found.append(coroutine.close())
        except BaseException as failure:
            # An exception that is thrown into an unstarted compiled coroutine has no traceback entry for it.
            found.append(type(failure).__name__ if when == "unstarted" else describe(failure))
        if how != "drop":
            found.append(inspect.getcoroutinestate(coroutine))
        found += [attributes(group), [task.cancelling() for task in tasks]]
        if how == "drop" and when == "unstarted":
            coroutine.close()
        del coroutine
        await turns(12)
        return [*found, attributes(group), [await outcome(task) for task in tasks]]

    same_on_both(loop, use)


def test_result_of_leaving(loop):
    async def use(module):
        found = []
        for number in range(2):
            group = module.TaskGroup()
            await group.__aenter__()
            for _ in range(number):
                group.create_task(give(1))
            found.append(await group.__aexit__(None, None, None))
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(not CAN_BE_CANCELLED, reason="TaskGroup.cancel() came with CPython 3.15")
@pytest.mark.parametrize("when", ["before", "inside", "waiting", "after"])
def test_cancel_of_the_group(loop, when):
    async def use(module):
        group = module.TaskGroup()

        async def body():
            if when == "before":
                group.cancel()
            async with group:
                group.create_task(give(1, 3))
                if when == "inside":
                    group.cancel()
                if when == "waiting":
                    asyncio.get_running_loop().call_soon(group.cancel)
            if when == "after":
                group.cancel()
            await turns(1)
            return asyncio.current_task().cancelling()

        return await outcome(asyncio.create_task(body())), attributes(group)

    same_on_both(loop, use)


# -- what programs change and override ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["__aenter__", "__aexit__", "create_task", "_on_task_done", "_abort", "_is_base_error"]
)
def test_overridden_methods_are_called(loop, method):
    async def use(module):
        calls = []

        class Watched(module.TaskGroup):
            pass

        def watched(self, *arguments, **keywords):
            calls.append((method, len(arguments)))
            return getattr(module.TaskGroup, method)(self, *arguments, **keywords)

        setattr(Watched, method, watched)

        async def body():
            async with Watched() as group:
                group.create_task(give(1))
                group.create_task(fail(ValueError("x"), 3))

        return await outcome(asyncio.create_task(body())), calls

    same_on_both(loop, use)


def test_super_calls_of_a_subclass(loop):
    async def use(module):
        class Limited(module.TaskGroup):
            def __init__(self, limit):
                super().__init__()
                self.limit = limit

            def create_task(self, coroutine, **keywords):
                if len(self._tasks) >= self.limit:
                    coroutine.close()
                    return None
                return super().create_task(coroutine, **keywords)

            async def __aexit__(self, *details):
                self.limit = 0
                return await super().__aexit__(*details)

        async with Limited(2) as group:
            tasks = [group.create_task(give(number)) for number in range(4)]
        return [task and task.result() for task in tasks], group.limit, repr(group)

    same_on_both(loop, use)


@pytest.mark.parametrize("place", ["class", "object"])
@pytest.mark.parametrize("method", ["_on_task_done", "_abort"])
def test_methods_that_are_replaced_while_tasks_run(loop, place, method, monkeypatch):
    async def use(module):
        calls = []

        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                original = getattr(group, method)

                def replacement(*arguments):
                    calls.append(len(arguments))
                    return original(*(arguments[1:] if place == "class" else arguments))

                with monkeypatch.context() as patch:
                    patch.setattr(module.TaskGroup if place == "class" else group, method, replacement)
                    group.create_task(give(2))
                    group.create_task(fail(ValueError("x"), 2))
                    await turns(4)
                    await turns(4)

        return await outcome(asyncio.create_task(body())), calls

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("when", ["before", "inside", "waiting"])
def test_deleted_attributes(loop, name, when, asyncio_log):
    async def use(module):
        group = module.TaskGroup()
        coroutine = give(1, 4)

        def delete():
            delattr(group, name)

        async def body():
            if when == "before":
                delete()
            async with group:
                group.create_task(coroutine)
                if when == "inside":
                    delete()
                if when == "waiting":
                    asyncio.get_running_loop().call_soon(delete)

        task = asyncio.create_task(body())
        await turns(10)
        task.cancel()
        await turns(10)
        coroutine.close()
        # CPython 3.13 names the module of a class that has the attribute in C.
        return str(task.done() and await outcome(task)).replace("asyncio.taskgroups.TaskGroup", "TaskGroup")

    def run(module):
        async def guarded():
            try:
                return await use(module)
            except BaseException as error:
                return type(error).__name__, str(error)

        return guarded()

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()


def test_attributes_that_are_replaced(loop):
    async def use(module):
        class Tasks(set):
            pass

        async with module.TaskGroup() as group:
            group._tasks = Tasks()
            group.create_task(give(1))
            group._errors = []
        async with module.TaskGroup() as other:
            other.create_task(give(1))
            asyncio.get_running_loop().call_soon(setattr, other, "_tasks", Tasks(other._tasks))
        return repr(group), type(group._tasks).__name__, repr(other), type(other._tasks).__name__

    same_on_both(loop, use)


def test_future_that_the_program_sets(loop):
    """What __aexit__() waits for is no secret."""

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 8))
                asyncio.get_running_loop().call_soon(lambda: group._on_completed_fut.set_result("early"))

        task = asyncio.create_task(body())
        await turns(4)
        found = task.done()
        return found, await outcome(task)

    same_on_both(loop, use)


# -- other loops, tasks and modes --------------------------------------------------------------------------------------


def test_without_a_running_loop_or_task(loop):
    found = []
    for module in BOTH:
        for on_loop in (False, True):
            group = module.TaskGroup()
            coroutine = group.__aenter__()

            def enter(coroutine=coroutine):
                try:
                    coroutine.send(None)
                except RuntimeError as error:
                    found.append(str(error))

            if on_loop:
                loop.call_soon(enter)
                loop.call_soon(loop.stop)
                loop.run_forever()
            else:
                enter()
    assert found[:2] == found[2:]


def test_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        async with module.TaskGroup() as group:
            task = group.create_task(give(1))
            created = [frame.name for frame in task._source_traceback][-2:]
        return created, task.result()

    same_on_both(loop, use)


def test_debug_mode_that_begins_while_tasks_run(loop):
    async def use(module):
        try:
            async with module.TaskGroup() as group:
                task = group.create_task(give(1, 2))
                await turns(1)
                loop.set_debug(True)
            return task.result(), repr(group)
        finally:
            loop.set_debug(False)

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["call_soon", "create_task", "create_future"])
def test_replaced_methods_of_the_loop(loop, name, monkeypatch):
    calls = []
    original = getattr(loop, name)

    def replacement(*arguments, **keywords):
        calls.append((name, len(arguments), sorted(keywords)))
        return original(*arguments, **keywords)

    async def use(module):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(loop, name, replacement)
            async with module.TaskGroup() as group:
                group.create_task(give(1))
                group.create_task(give(1), name="n")
        return list(calls)

    same_on_both(loop, use)


@pytest.mark.parametrize("eager", [False, True])
def test_task_factory(loop, eager):
    if eager and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with CPython 3.12")
    made = []

    def factory(loop, coroutine, **keywords):
        made.append(sorted(keywords))
        return asyncio.Task(coroutine, loop=loop, **keywords, **({"eager_start": True} if eager else {}))

    async def use(module):
        made.clear()
        loop.set_task_factory(factory)
        try:
            async with module.TaskGroup() as group:
                tasks = [group.create_task(give(1, 0)), group.create_task(give(2), name="n")]
            found = [task.result() for task in tasks]
            try:
                async with module.TaskGroup() as group:
                    tasks = [group.create_task(give(1, 2)), group.create_task(fail(ValueError("x"), 0))]
                    found.append(asyncio.current_task().cancelling())
            except* (ValueError, asyncio.CancelledError) as error:
                found.append(describe(error))
            return [*found, list(made), [task.cancelled() for task in tasks], attributes(group)]
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="create_task() passes keywords on since CPython 3.14")
@pytest.mark.parametrize("eager", [False, True])
def test_eager_start(loop, eager):
    async def use(module):
        async with module.TaskGroup() as group:
            tasks = [group.create_task(give(n, n), eager_start=eager) for n in range(3)]
            found = [task.done() for task in tasks]
        return [*found, [task.result() for task in tasks]]

    same_on_both(loop, use)


@pytest.mark.parametrize("made", ["by the loop", "by asyncio"])
@pytest.mark.parametrize("ending", ["succeeds", "fails", "is cancelled"])
def test_what_awaits_a_task_that_has_ended(loop, made, ending):
    """asyncio's own tasks know it since CPython 3.14."""

    async def use(module):
        found = []

        def look(task):
            known = getattr(task, "_asyncio_awaited_by", None)
            return made == "by asyncio" and known and [each is parent for each in known]

        async def body():
            async with module.TaskGroup() as group:
                tasks = [group.create_task(give(1, 1 + 8 * number)) for number in range(2)]
                tasks.append(group.create_task(fail(ValueError("x"), 4) if ending == "fails" else give(1, 4)))
                for _ in range(5):
                    found.append([look(task) for task in tasks])
                    await turns(1)
                if ending == "is cancelled":
                    tasks[1].cancel()
            found.append([look(task) for task in tasks])

        if made == "by asyncio":
            loop.set_task_factory(lambda loop, coro, **keywords: asyncio.Task(coro, loop=loop, **keywords))
        try:
            parent = loop.create_task(body())
            return await outcome(parent), found
        finally:
            loop.set_task_factory(None)

    same_on_both(loop, use)


def test_tasks_of_a_subclass(loop):
    class Own(asyncio.Task):
        pass

    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                return group.create_task(give(1)), repr(group)

        task = Own(body(), loop=asyncio.get_running_loop())
        return (await task)[0].result(), (await task)[1]

    same_on_both(loop, use)


def test_order_of_callbacks(loop):
    async def use(module):
        log = []
        async with module.TaskGroup() as group:
            for number in range(3):
                group.create_task(give(number, number)).add_done_callback(
                    lambda task: log.append((task.result(), len(group._tasks), asyncio.current_task()))
                )
            for turn in range(3):
                log.append(("turn", turn, len(group._tasks)))
                await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


def test_leaving_takes_as_many_turns(loop):
    async def use(module):
        log = []

        async def body():
            async with module.TaskGroup() as group:
                for number in range(3):
                    group.create_task(give(number, number))
            log.append("left")

        task = asyncio.create_task(body())
        while not task.done():
            log.append("turn")
            await asyncio.sleep(0)
        return log

    same_on_both(loop, use)


# -- what tools see ----------------------------------------------------------------------------------------------------


def test_where_a_task_waits(loop):
    async def use(module):
        async def body():
            async with module.TaskGroup() as group:
                group.create_task(give(1, 4))

        task = asyncio.create_task(body())
        await turns(2)
        found, coroutine = [], task.get_coro()
        while hasattr(coroutine, "cr_await"):
            frame = coroutine.cr_frame
            found.append(
                (frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno, coroutine.cr_code.co_name)
            )
            coroutine = coroutine.cr_await
        await task
        return found

    same_on_both(loop, use)


@on_hotloop
def test_callbacks_on_the_ready_queue(loop):
    async def use(module):
        loop = asyncio.get_running_loop()
        async with module.TaskGroup() as group:
            task = group.create_task(give(1, 0))
            await turns(1)
            (handle,) = [handle for handle in loop._ready if isinstance(handle, asyncio.Handle)]
            found = [
                normal(repr(handle)),
                handle._callback == group._on_task_done,
                handle._args == (task,),
                handle.cancelled(),
                handle._cancelled,
                handle._loop is loop,
                type(handle.get_context()).__name__,
            ]
            loop._ready.remove(handle)
            handle._run()
            found.append(len(group._tasks))
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="call graphs came with CPython 3.14")
def test_call_graph(loop):
    async def use(module):
        found = []

        async def look(task, parent):
            await turns(1)
            graph = asyncio.capture_call_graph(task)
            found.append([caller.future is parent for caller in graph.awaited_by])
            found.append([entry.frame.f_code.co_name for entry in graph.awaited_by[0].call_stack])
            found.append(task._asyncio_awaited_by == {parent})

        async def body():
            async with module.TaskGroup() as group:
                task = group.create_task(give(1, 4))
                group.create_task(look(task, asyncio.current_task()))
            found.append(task._asyncio_awaited_by)

        await asyncio.create_task(body())
        return found

    same_on_both(loop, use)


def test_everything_is_freed(loop):
    async def use(module):
        known = []

        async def body(coroutine):
            async with module.TaskGroup() as group:
                known.append(weakref.ref(group))
                known.append(weakref.ref(group.create_task(coroutine)))
                known.append(weakref.ref(group.create_task(give(2))))

        await body(give(1))
        await turns(1)
        return [reference() for reference in known]

    gc.disable()
    try:
        assert same_on_both(loop, use) == [None] * 3
    finally:
        gc.enable()


def test_exceptions_are_freed(loop):
    """Versions of asyncio differ in whether that takes the garbage collector."""

    async def use(module):
        class Error(ValueError):
            pass

        known = []

        async def body():
            error = Error("x")
            known.append(weakref.ref(error))
            try:
                async with module.TaskGroup() as group:
                    group.create_task(fail(error))
                    del error
            except* Error:
                pass

        await asyncio.create_task(body())
        await turns(1)
        without_collector = [reference() is None for reference in known]
        gc.collect()
        return without_collector, [reference() is None for reference in known]

    gc.collect()
    gc.disable()
    try:
        same_on_both(loop, use)
    finally:
        gc.enable()


def test_unawaited_coroutines_are_reported(loop):
    async def use(module):
        group = module.TaskGroup()
        with pytest.warns(RuntimeWarning) as caught:
            group.__aenter__()
            gc.collect()
        await group.__aenter__()
        with pytest.warns(RuntimeWarning) as again:
            group.__aexit__(None, None, None)
            gc.collect()
        await group.__aexit__(None, None, None)
        return [(str(warning.message), warning.lineno) for warning in [*caught, *again]]

    same_on_both(loop, use)


def test_groups_that_several_runs_use(impl, loop):
    async def use(module):
        group = module.TaskGroup()
        async with group:
            group.create_task(give(1))
        return group

    found = []
    for module in BOTH:
        other = impl.new_event_loop()
        group = other.run_until_complete(use(module))
        other.close()
        found.append(loop.run_until_complete(outcome(group.__aenter__())))
    assert found[0] == found[1]


@on_hotloop
def test_it_is_compiled(loop):
    async def use():
        async with hotloop.asyncio.TaskGroup() as group:
            task = group.create_task(give(1))
        return task.result(), type(group.create_task.__func__).__name__

    assert loop.run_until_complete(use()) == (1, "CompiledFunction")
