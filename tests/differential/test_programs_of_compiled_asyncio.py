"""Random programs of queues, locks, timeouts and groups of tasks, with asyncio's own objects and with compiled ones.

Both run on the same kind of loop, with virtual time. Everything that a task can notice goes into a trace, in order: the
outcome of each step, exceptions with their causes and contexts, and what the objects look like in the end.
"""

import asyncio
import contextlib
import inspect
import sys
import types

import hypothesis
import hypothesis.strategies as st
import pytest
from support.comparing import description
from support.interpreter import uses_hypothesis
from support.virtual_time import virtual_class

import hotloop.asyncio

pytestmark = [pytest.mark.differential, uses_hypothesis]

DELAYS = st.sampled_from([-1, 0, 0, 1, 1, 2, 3])
ENDS = st.sampled_from([asyncio.ALL_COMPLETED, asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION])
NO_DELAYS = st.one_of(st.none(), DELAYS)
# Coroutines that a task or a compiled function runs itself, without a coroutine of the program's between the two.
BARE = st.sampled_from(
    [
        "get",
        "put",
        "join",
        "wait",
        "acquire",
        "acquire_room",
        "enter",
        "wait_condition",
        "read",
        "readline",
        "sleep",
        "pause",
        "gather",
    ]
)
# What is done with a coroutine that the program drives itself, each time it waits; None: the task waits for it.
INTERVENTIONS = st.lists(st.sampled_from([None, "throw", "cancel", "close", "resume"]), max_size=3)
SIMPLE = [
    ("sleep", DELAYS),
    ("put", st.integers(0, 3)),
    ("put_nowait", st.integers(0, 3)),
    ("get", None),
    ("get_nowait", None),
    ("task_done", None),
    ("join", None),
    ("set", None),
    ("clear", None),
    ("wait", None),
    ("acquire", None),
    ("release", None),
    ("release_room", None),
    ("notify", st.integers(1, 2)),
    ("cancel", st.integers(0, 8)),
    ("uncancel", None),
    ("fail", st.integers(0, 2)),
    ("sibling", None),
    ("bare", BARE),
    ("bare_task", BARE),
    ("bare_wait_for", st.tuples(BARE, NO_DELAYS)),
    ("bare_gather", st.tuples(st.lists(BARE, max_size=3), st.booleans())),
    ("bare_group", BARE),
    ("bare_shield", BARE),
    ("wait_tasks", st.tuples(ENDS, NO_DELAYS, st.sets(st.integers(0, 8), min_size=1, max_size=3))),
    ("wait_for_task", st.tuples(st.integers(0, 8), NO_DELAYS)),
    ("reschedule_any", st.tuples(st.integers(0, 8), NO_DELAYS)),
    ("enter_again", st.integers(0, 8)),
    ("by_hand", st.tuples(BARE, INTERVENTIONS)),
    ("wait_for_done", st.tuples(st.sampled_from(["result", "exception", "cancelled"]), NO_DELAYS)),
    ("feed", st.sampled_from([b"a", b"b\n", b"cd\ne"])),
]
if sys.version_info >= (3, 13):
    SIMPLE.append(("shutdown", st.booleans()))


def simple_step():
    return st.one_of(
        *[st.tuples(st.just(name), st.none() if argument is None else argument, st.none()) for name, argument in SIMPLE]
    )


def nested_steps(children):
    block = st.lists(children, max_size=4)
    blocks = st.lists(block, max_size=3)
    return st.one_of(
        st.tuples(st.sampled_from(["locked", "room", "condition", "shield", "handling"]), st.none(), block),
        st.tuples(st.sampled_from(["timeout", "timeout_at", "wait_for"]), NO_DELAYS, block),
        st.tuples(st.just("reschedule"), NO_DELAYS, block),
        st.tuples(st.just("gather"), st.booleans(), blocks),
        st.tuples(st.just("wait_all"), st.tuples(ENDS, NO_DELAYS), blocks),
        # A group keeps its tasks in a set, so it cancels them in any order: only one of them takes steps.
        st.tuples(st.just("group"), st.lists(st.tuples(DELAYS, st.booleans()), max_size=3), block),
        st.tuples(st.just("caught"), st.sampled_from(["Exception", "CancelledError"]), block),
    )


OVERRIDDEN = ["put", "get", "put_nowait", "get_nowait", "_put", "_get", "task_done", "join", "acquire", "release"]
OVERRIDDEN += ["locked", "wait", "notify", "set", "is_set", "qsize", "empty", "full"]
# What subclasses of the program's override; None: it uses the classes themselves.
SUBCLASSES = st.one_of(st.none(), st.sets(st.sampled_from(OVERRIDDEN), max_size=3))
STEPS = st.recursive(simple_step(), nested_steps, max_leaves=12)
PROGRAMS = st.lists(st.lists(STEPS, max_size=5), min_size=1, max_size=4)


def passing_on(method):
    """A method that does what another does."""
    if inspect.iscoroutinefunction(method):

        async def overriding(self, *arguments):
            return await method(self, *arguments)
    else:

        def overriding(self, *arguments):
            return method(self, *arguments)

    return overriding


def class_to_use(base, overridden):
    if overridden is None:
        return base
    return type(
        "Derived", (base,), {name: passing_on(getattr(base, name)) for name in overridden if hasattr(base, name)}
    )


class Run:
    """One run of a program with one version of asyncio."""

    def __init__(self, module, kind, maxsize, overridden):
        self.module = module
        self.loop = asyncio.get_running_loop()
        self.queue = class_to_use(getattr(module, kind), overridden)(maxsize)
        self.lock = class_to_use(module.Lock, overridden)()
        self.room = class_to_use(module.Semaphore, overridden)(1)
        self.event = class_to_use(module.Event, overridden)()
        self.condition = class_to_use(module.Condition, overridden)()
        self.reader = module.StreamReader(loop=self.loop)
        self.tasks = []
        self.bare_tasks = []
        self.scopes = []
        self.trace = []

    def note(self, *what):
        self.trace.append((self.loop.time(), *what))

    async def play(self, program):
        tasks = [self.start(steps, (number,)) for number, steps in enumerate(program)]
        await asyncio.sleep(20)
        self.note("over")
        # Some tasks catch their cancellation and go on.
        rounds = 0
        while not all(task.done() for task in self.tasks):
            rounds += 1
            for task in self.tasks:
                task.cancel()
            for one in (self.lock, self.condition):
                # No cancellation ends a Condition.wait() for a lock that nobody releases any more.
                if rounds > 20 and one.locked():
                    one.release()
            await asyncio.sleep(1)
        for task in self.tasks:
            if not task.cancelled():
                task.exception()
        self.note(*[task.cancelled() for task in tasks])
        self.note(str(self.queue), *[self.look(one) for one in (self.lock, self.room, self.event, self.condition)])
        trace = self.trace.copy()
        # What is still left ends in any order. The end of the run would cancel each once: those that a task starts when
        # it has caught its cancellation would lose their loop while they wait.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.sleep(1)
        return trace

    @staticmethod
    def look(one):
        return repr(one).partition(" at 0x")[0], repr(one).rpartition("[")[2]

    def start(self, steps, path):
        task = asyncio.create_task(self.run(steps, path))
        self.tasks.append(task)
        return task

    async def run(self, steps, path):
        """Take the steps; anything raised ends the task."""
        for number, step in enumerate(steps):
            await self.take(step, (*path, number))
        return path

    async def take(self, step, path):
        name, argument, block = step
        task = asyncio.current_task()
        try:
            result = await getattr(self, f"do_{name}")(argument, block, path)
        except BaseException as error:
            self.note(path, name, description(error), task.cancelling())
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
            if name in (
                "locked",
                "room",
                "condition",
                "timeout",
                "timeout_at",
                "wait_for",
                "bare_wait_for",
                "wait_for_task",
                "gather",
                "group",
                "cancel",
            ):
                raise
            if isinstance(error, asyncio.CancelledError) or name == "fail":
                raise
        else:
            self.note(path, name, result, task.cancelling())

    # -- the steps -----------------------------------------------------------------------------------------------------

    async def do_sleep(self, delay, block, path):
        return await self.module.sleep(delay, "slept")

    async def do_put(self, item, block, path):
        return await self.queue.put(item)

    async def do_put_nowait(self, item, block, path):
        return self.queue.put_nowait(item)

    async def do_get(self, argument, block, path):
        return await self.queue.get()

    async def do_get_nowait(self, argument, block, path):
        return self.queue.get_nowait()

    async def do_task_done(self, argument, block, path):
        return self.queue.task_done()

    async def do_join(self, argument, block, path):
        return await self.queue.join()

    async def do_shutdown(self, immediate, block, path):
        return self.queue.shutdown(immediate)

    async def do_set(self, argument, block, path):
        return self.event.set()

    async def do_clear(self, argument, block, path):
        return self.event.clear()

    async def do_wait(self, argument, block, path):
        return await self.event.wait()

    async def do_acquire(self, argument, block, path):
        return await self.lock.acquire()

    async def do_release(self, argument, block, path):
        return self.lock.release()

    async def do_release_room(self, argument, block, path):
        return self.room.release()

    async def do_notify(self, number, block, path):
        async with self.condition:
            self.condition.notify(number)

    async def do_cancel(self, number, block, path):
        return self.tasks[number % len(self.tasks)].cancel(f"by {path}")

    async def do_uncancel(self, argument, block, path):
        return asyncio.current_task().uncancel()

    async def do_fail(self, number, block, path):
        raise ValueError(number)

    async def do_sibling(self, argument, block, path):
        self.start([("sleep", 1, None), ("put", 5, None)], (*path, "sibling"))

    # Compiled coroutines that a task, wait_for(), gather() or shield() runs without another between them.

    def bare(self, kind):
        match kind:
            case "get" | "join":
                return getattr(self.queue, kind)()
            case "put":
                return self.queue.put(6)
            case "wait":
                return self.event.wait()
            case "acquire":
                return self.lock.acquire()
            case "acquire_room":
                return self.room.acquire()
            case "enter":
                return self.room.__aenter__()
            case "wait_condition":
                return self.condition.wait()
            case "read":
                return self.reader.read(2)
            case "readline":
                return self.reader.readline()
            case "sleep":
                return self.module.sleep(1, "slept")
            case "pause":
                return self.module.sleep(0)
            case "gather":
                return as_coroutine(self.module.gather(self.event.wait(), self.queue.get()))

    def start_bare(self, kind):
        task = asyncio.create_task(self.bare(kind))
        self.tasks.append(task)
        self.bare_tasks.append(task)
        return task

    async def do_bare(self, kind, block, path):
        return await self.bare(kind)

    async def do_bare_task(self, kind, block, path):
        self.start_bare(kind)

    async def do_bare_wait_for(self, argument, block, path):
        kind, delay = argument
        return await self.module.wait_for(self.bare(kind), delay)

    async def do_by_hand(self, argument, block, path):
        kind, interventions = argument
        return await driven(self.bare(kind), interventions)

    async def do_wait_for_done(self, argument, block, path):
        end, delay = argument
        future = self.loop.create_future()
        match end:
            case "result":
                future.set_result(path)
            case "exception":
                future.set_exception(ValueError("of a future"))
            case "cancelled":
                future.cancel("before")
        return await self.module.wait_for(future, delay)

    async def do_feed(self, data, block, path):
        return self.reader.feed_data(data)

    async def do_handling(self, argument, block, path):
        try:
            raise LookupError("handled")
        except LookupError:
            return await self.run(block, path)

    async def do_bare_gather(self, argument, block, path):
        kinds, return_exceptions = argument
        found = await self.module.gather(*map(self.bare, kinds), return_exceptions=return_exceptions)
        return [description(one) if isinstance(one, BaseException) else one for one in found]

    async def do_bare_group(self, kind, block, path):
        async with self.module.TaskGroup() as group:
            task = group.create_task(self.bare(kind))
            self.tasks.append(task)
        return task.cancelled() or task.result()

    async def do_bare_shield(self, kind, block, path):
        return await self.module.shield(self.start_bare(kind))

    def bare_task(self, number):
        """One that was started without a coroutine of the program's: any other could wait for the current task."""
        return self.bare_tasks[number % len(self.bare_tasks)] if self.bare_tasks else self.start_bare("sleep")

    async def do_wait_for_task(self, argument, block, path):
        number, delay = argument
        return await self.module.wait_for(self.bare_task(number), delay)

    async def do_wait_tasks(self, argument, block, path):
        when, delay, numbers = argument
        return await self.wait_for_all([self.bare_task(number) for number in sorted(numbers)], when, delay)

    async def do_locked(self, argument, block, path):
        async with self.lock:
            return await self.run(block, path)

    async def do_room(self, argument, block, path):
        async with self.room:
            return await self.run(block, path)

    async def do_condition(self, argument, block, path):
        async with self.condition:
            await self.run(block, path)
            return await self.condition.wait()

    async def do_shield(self, argument, block, path):
        return await self.module.shield(self.start(block, path))

    async def do_timeout(self, delay, block, path):
        async with self.module.timeout(delay) as scope:
            self.scopes.append(scope)
            await self.run(block, path)
        return scope.expired(), repr(scope)

    async def do_timeout_at(self, delay, block, path):
        when = None if delay is None else asyncio.get_running_loop().time() + delay
        async with self.module.timeout_at(when) as scope:
            self.scopes.append(scope)
            await self.run(block, path)
        return scope.when() == when, repr(scope)

    async def do_reschedule(self, delay, block, path):
        async with self.module.timeout(1) as scope:
            scope.reschedule(None if delay is None else asyncio.get_running_loop().time() + delay)
            await self.run(block, path)
        return repr(scope)

    def scope(self, number):
        """A timeout of any task, which may have ended; else one that was never entered."""
        return self.scopes[number % len(self.scopes)] if self.scopes else self.module.Timeout(1)

    async def do_reschedule_any(self, argument, block, path):
        number, delay = argument
        scope = self.scope(number)
        scope.reschedule(None if delay is None else asyncio.get_running_loop().time() + delay)
        return repr(scope)

    async def do_enter_again(self, number, block, path):
        async with self.scope(number) as scope:
            await self.module.sleep(0)
        return repr(scope)

    async def do_wait_for(self, delay, block, path):
        return await self.module.wait_for(self.run(block, path), delay)

    async def do_gather(self, return_exceptions, blocks, path):
        parts = [self.run(block, (*path, number)) for number, block in enumerate(blocks)]
        found = await self.module.gather(*parts, return_exceptions=return_exceptions)
        return [description(one) if isinstance(one, BaseException) else one for one in found]

    async def do_group(self, others, block, path):
        async with self.module.TaskGroup() as group:
            tasks = [group.create_task(self.run(block, path)), *[group.create_task(self.end(*one)) for one in others]]
            self.tasks.append(tasks[0])
        return [task.cancelled() or task.result() for task in tasks]

    async def end(self, delay, fails):
        await self.module.sleep(delay)
        if fails:
            raise ValueError("in a group")

    async def do_wait_all(self, argument, blocks, path):
        tasks = [self.start(block, (*path, number)) for number, block in enumerate(blocks)] or [self.start([], path)]
        return await self.wait_for_all(tasks, *argument)

    async def wait_for_all(self, tasks, when, delay):
        done, pending = await self.module.wait(tasks, timeout=delay, return_when=when)
        return [task in done for task in tasks], len(pending)

    async def do_caught(self, kind, block, path):
        with contextlib.suppress(Exception if kind == "Exception" else asyncio.CancelledError):
            await self.run(block, path)


@hypothesis.given(
    program=PROGRAMS,
    kind=st.sampled_from(["Queue", "PriorityQueue", "LifoQueue"]),
    maxsize=st.integers(0, 2),
    overridden=SUBCLASSES,
)
def test_any_program_is_the_same_with_compiled_objects(impl, program, kind, maxsize, overridden):
    traces = []
    for module in (asyncio, hotloop.asyncio):
        with asyncio.Runner(loop_factory=virtual_class(impl.EventLoop)) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: None)
            traces.append(runner.run(play(module, program, kind, maxsize, overridden)))
    assert traces[0] == traces[1]


async def as_coroutine(future):
    return await future


@types.coroutine
def driven(coroutine, interventions):
    """Await a coroutine as a loop would run it: with what a program can do to it where it waits."""
    interventions = iter(interventions)
    error = None
    while True:
        try:
            waited_for = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as stopped:
            return stopped.value
        error = None
        intervention = next(interventions, None)
        if intervention is not None and waited_for is not None:
            waited_for._asyncio_future_blocking = False
        match intervention:
            case None:
                try:
                    yield waited_for
                except BaseException as raised:
                    error = raised
            case "throw":
                error = ValueError("thrown")
            case "cancel":
                error = asyncio.CancelledError("thrown")
            case "close":
                return coroutine.close()


async def play(module, program, kind, maxsize, overridden):
    return await Run(module, kind, maxsize, overridden).play(program)
