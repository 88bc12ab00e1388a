"""asyncio.Queue, PriorityQueue and LifoQueue: the compiled ones do what asyncio's own do, on every loop."""

import asyncio
import copy
import gc
import heapq
import pickle
import sys
import weakref
from collections import deque

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, outcome, same_on_both, turns
from support.task_programs import TaskPlayer

import hotloop.asyncio

KINDS = ("Queue", "PriorityQueue", "LifoQueue")
HAS_SHUTDOWN = sys.version_info >= (3, 13)


# -- random programs ---------------------------------------------------------------------------------------------------

ACTIONS = ["get", "get_nowait", "put", "put_nowait", "task_done", "join", "pause", "cancel", "inspect"]
if HAS_SHUTDOWN:
    ACTIONS += ["shutdown", "shutdown_now"]

tasks_of_a_program = strategies.lists(
    strategies.lists(strategies.tuples(strategies.sampled_from(ACTIONS), strategies.integers(0, 5)), max_size=8),
    min_size=1,
    max_size=5,
)


class Player(TaskPlayer):
    def __init__(self, module, kind, maxsize):
        super().__init__()
        self.queue = getattr(module, kind)(maxsize)

    async def play(self, program):
        await self.play_tasks(program, 60)
        await self.end_tasks()
        return self.log

    def look(self):
        return (str(self.queue),)

    async def act(self, action, number):
        queue = self.queue
        match action:
            case "get":
                return await queue.get()
            case "put":
                return await queue.put(number)
            case "put_nowait":
                return queue.put_nowait(number)
            case "join":
                return await queue.join()
            case "inspect":
                return queue.qsize(), queue.empty(), queue.full(), queue.maxsize, len(queue._getters)
            case "shutdown":
                return queue.shutdown()
            case "shutdown_now":
                return queue.shutdown(immediate=True)
            case _:
                return getattr(queue, action)()


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program, kind=strategies.sampled_from(KINDS), maxsize=strategies.integers(-1, 3))
def test_random_programs(loop, program, kind, maxsize):
    async def run(module):
        return await Player(module, kind, maxsize).play(program)

    same_on_both(loop, run)


# -- what a queue looks like -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_class_is_a_subclass_of_asyncios(kind):
    own, compiled = (getattr(module, kind) for module in BOTH)
    assert issubclass(compiled, own)
    assert isinstance(compiled(), own)
    assert isinstance(compiled(), hotloop.asyncio.Queue)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    assert str(compiled[int]) == str(own[int])


@pytest.mark.parametrize("kind", KINDS)
def test_odd_arguments_of_the_constructor(kind):
    for arguments in [(), (3,), (-1,), (2**80,), (1.5,), (True,), ("x",), (None,), (1, 2)]:
        results = [outcome(lambda make, given: str(make(*given)), getattr(module, kind), arguments) for module in BOTH]
        assert results[0] == results[1], arguments
    assert getattr(hotloop.asyncio, kind)(maxsize=4).maxsize == 4


@pytest.mark.parametrize("maxsize", [1.5, True, float("inf"), 2**80, -(2**80)])
def test_odd_limits_hold(loop, maxsize):
    async def fill(module):
        queue = module.Queue(maxsize)
        return [outcome(queue.put_nowait, item) for item in range(4)], queue.full(), str(queue)

    same_on_both(loop, fill)


@pytest.mark.parametrize("kind", KINDS)
def test_maxsize_by_its_name_makes_the_same_queue(loop, kind):
    make = getattr(hotloop.asyncio, kind)
    assert type(make(maxsize=1)._finished) is type(make(1)._finished)

    async def use(module):
        make = getattr(module, kind)
        queue = make(maxsize=1)
        queue.put_nowait(1)
        return (
            queue.full(),
            str(queue),
            [outcome(make, *some, **names) for some, names in (([1], {"maxsize": 1}), ([], {"size": 1}))],
        )

    same_on_both(loop, use)


def test_attributes_can_be_read_set_and_deleted(loop):
    async def use(module):
        queue = module.Queue()
        queue.put_nowait(1)
        found = [list(queue._queue), len(queue._getters), len(queue._putters), queue._unfinished_tasks, queue._maxsize]
        queue._queue = deque([5, 6])
        queue._maxsize = 2
        found += [queue.get_nowait(), await queue.get(), queue.full()]
        queue._queue = [7]  # no deque: get() fails as popleft() does
        found.append(outcome(queue.get_nowait))
        for name in ("_queue", "_getters", "_putters", "_unfinished_tasks", "_finished", "_maxsize"):
            other = module.Queue()
            other.put_nowait(1)
            delattr(other, name)
            found.append((name, hasattr(other, name)))
            found += [
                outcome(call)[0]
                for call in (other.qsize, other.full, lambda q=other: q.put_nowait(1))
                if isinstance(outcome(call), tuple)
            ]
            try:
                found.append(await other.get())
            except AttributeError as error:
                found.append(type(error))
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles(kind):
    found = []
    for module in BOTH:
        for duplicate in (copy.copy, copy.deepcopy, lambda queue: pickle.loads(pickle.dumps(queue))):
            queue = getattr(module, kind)(5)
            queue.put_nowait(1)
            queue.mark = "kept"
            other = duplicate(queue)
            assert type(other) is type(queue)
            found.append((str(other), other.mark, other.get_nowait(), str(queue)))
    assert found[:3] == found[3:]


# -- what programs override --------------------------------------------------------------------------------------------


def test_subclass_hooks_are_called(loop):
    async def use(module):
        class Set(module.Queue):
            def _init(self, maxsize):
                self._queue = set()

            def _put(self, item):
                self._queue.add(item)

            def _get(self):
                return self._queue.pop()

        queue = Set()
        for item in (1, 1, 1):
            await queue.put(item)
        found = [queue.qsize(), await queue.get(), queue.empty()]
        getter = asyncio.ensure_future(queue.get())
        await turns(1)
        queue.put_nowait(9)
        return [*found, await getter]

    assert same_on_both(loop, use) == [1, 1, True, 9]


@pytest.mark.parametrize("arguments", [(), (2,)])
def test_init_hook_finds_what_asyncio_has_set_by_then(loop, arguments):
    """From Python 3.13 on, a put_nowait() there fails: whether the queue is shut down is set afterwards."""

    async def use(module):
        class Filled(module.Queue):
            def _init(self, maxsize):
                super()._init(maxsize)
                names = ("_maxsize", "_getters", "_putters", "_unfinished_tasks", "_finished", "_is_shutdown")
                found.extend(name for name in names if hasattr(self, name))
                self.put_nowait(1)

        found = []
        try:
            found.append(str(Filled(*arguments)._queue))
        except AttributeError as error:
            found.append(error.name)
        return found

    assert (same_on_both(loop, use)[-1] == "_is_shutdown") == HAS_SHUTDOWN


@pytest.mark.parametrize("method", ["full", "empty", "qsize", "_wakeup_next", "_get_loop", "put_nowait", "get_nowait"])
def test_overridden_methods_are_called(loop, method):
    async def use(module):
        calls = []

        class Watched(module.Queue):
            pass

        def watched(self, *arguments):
            calls.append(method)
            return getattr(module.Queue, method)(self, *arguments)

        setattr(Watched, method, watched)
        queue = Watched(1)
        putters = [asyncio.ensure_future(queue.put(item)) for item in range(3)]
        await turns(2)
        found = [await queue.get() for _ in putters]
        return found, len(calls)

    same_on_both(loop, use)


@pytest.mark.parametrize("target", ["own", "compiled"])
def test_patched_class_is_followed(loop, target, monkeypatch):
    calls = []
    original = asyncio.Queue._put

    def patched(self, item):
        calls.append(item)
        original(self, item)

    async def use():
        queue = hotloop.asyncio.Queue()
        await queue.put(1)
        putting = queue.put(2)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Queue if target == "own" else hotloop.asyncio.Queue, "_put", patched)
            await queue.put(3)
            await putting  # made before
        return [queue.get_nowait() for _ in range(queue.qsize())]

    assert loop.run_until_complete(use()) == [1, 3, 2]
    assert calls == [3, 2]


def test_class_in_the_place_of_event_is_used(aio, monkeypatch):
    made = []

    class Event(asyncio.Event):
        def __init__(self):
            made.append(self)
            super().__init__()

    monkeypatch.setattr(asyncio.locks, "Event", Event)
    queue, heap = aio.Queue(), aio.PriorityQueue(3)
    assert [queue._finished, heap._finished] == made
    assert all(event.is_set() for event in made)


@pytest.mark.parametrize("name", ["__init__", "set"])
def test_patched_event_is_followed(aio, monkeypatch, name):
    calls = []
    original = getattr(asyncio.Event, name)

    def patched(event):
        calls.append(name)
        original(event)

    monkeypatch.setattr(asyncio.Event, name, patched)
    queue = aio.Queue()
    queue.put_nowait(1)
    queue.task_done()
    assert len(calls) == (1 if name == "__init__" else 2)


def test_method_replaced_on_the_object_is_called(loop):
    async def use(module):
        queue = module.Queue()
        taken = []
        queue._put = taken.append
        queue.put_nowait(1)
        await queue.put(2)
        return taken, queue.qsize(), queue._unfinished_tasks

    assert same_on_both(loop, use) == ([1, 2], 0, 2)


def test_comparing_items_may_change_the_queue(loop):
    class Item:
        def __init__(self, number, spoil=None):
            self.number, self.spoil = number, spoil

        def __lt__(self, other):
            for item in (self, other):
                if item.spoil:
                    item.spoil()
            return self.number < other.number

    async def use(module):
        queue = module.PriorityQueue()

        def spoil():
            del queue._getters

        queue.put_nowait(Item(2))
        try:
            queue.put_nowait(Item(1, spoil))
        except AttributeError as error:
            # For a C field that is missing, CPython 3.14 and later names the class with its module.
            return str(error).replace("asyncio.queues.", ""), queue.qsize(), queue._unfinished_tasks
        return None

    found = same_on_both(loop, use)
    assert found[1:] == (2, 2)


@pytest.mark.parametrize("action", ["put", "get"])
def test_comparing_items_may_replace_the_heap(loop, action):
    """The heap that is being changed lives until the change is complete."""

    to_replace = []

    class Item:
        def __init__(self, number):
            self.number = number

        def __lt__(self, other):
            if to_replace:
                # Memory that was given up too early would be in use again.
                to_replace.pop()._queue = []
                self.kept = [[None] * size for size in range(100)]
            return self.number < other.number

    async def use(module):
        queue = module.PriorityQueue()
        for number in range(40):
            queue.put_nowait(Item(number))
        to_replace.append(queue)
        found = queue.put_nowait(Item(-1)) if action == "put" else queue.get_nowait().number
        return found, queue.qsize(), queue._unfinished_tasks

    assert same_on_both(loop, use) == ((None, 0, 41) if action == "put" else (0, 0, 40))


def test_heap_order(loop):
    async def use(module):
        queue = module.PriorityQueue()
        for item in [3, 1, 2, 5, 4]:
            await queue.put(item)
        assert queue._queue[0] == heapq.nsmallest(1, queue._queue)[0]
        return [await queue.get() for _ in range(5)]

    assert same_on_both(loop, use) == [1, 2, 3, 4, 5]


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_queue_of_another_loop_is_refused(impl, loop):
    async def wait(queue):
        try:
            await asyncio.wait_for(queue.get(), 0.001)
        except TimeoutError:
            return "timeout"
        except RuntimeError as error:
            return str(error).partition("<")[0], str(error).rpartition("> ")[2]

    found = []
    for module in BOTH:
        queue = module.Queue()
        found.append([loop.run_until_complete(wait(queue))])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait(queue)))
        other.close()
    assert found[0] == found[1]
    assert found[1][1][1] == "is bound to a different event loop"


def test_cancelled_getter_passes_its_item_on(loop):
    async def use(module):
        queue = module.Queue()
        getters = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await turns(1)
        queue.put_nowait("item")
        getters[0].cancel()
        await turns(3)
        found = [getter.done() and not getter.cancelled() and getter.result() for getter in getters]
        getters[2].cancel()
        await turns(2)
        return found, str(queue)

    assert same_on_both(loop, use)[0] == [False, "item", False]


def test_waiter_is_shown_where_it_waits(loop):
    async def use(module):
        queue = module.Queue(1)

        async def consume():
            await queue.get()

        getter = asyncio.ensure_future(consume())
        direct = asyncio.ensure_future(queue.get())
        await turns(1)
        awaited = getter.get_coro().cr_await
        found = [
            (awaited.cr_frame.f_code.co_qualname, awaited.cr_frame.f_lineno, awaited.cr_code.co_name),
            [(frame.f_code.co_qualname, frame.f_lineno) for frame in direct.get_stack()],
            repr(direct).partition("coro=")[2].partition(">")[0],
        ]
        for task in (getter, direct):
            task.cancel()
        await turns(2)
        return found

    same_on_both(loop, use)


def test_queue_and_waiters_are_collected(loop):
    async def use(module):
        queue = module.Queue()
        queue.itself = queue
        known = weakref.ref(queue)
        getter = queue.get()
        getter.send(None)
        del queue
        getter.close()
        del getter
        gc.collect()
        return known()

    assert same_on_both(loop, use) is None


def test_unawaited_get_is_reported(loop):
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Queue\.get' was never awaited"):
        hotloop.asyncio.Queue().get()
        gc.collect()


if HAS_SHUTDOWN:

    @pytest.mark.parametrize("immediate", [False, True])
    def test_shutdown_wakes_all(loop, immediate):
        async def use(module):
            queue = module.Queue(1)
            getters = [asyncio.ensure_future(queue.get()) for _ in range(2)]
            await turns(1)
            queue.shutdown(immediate=immediate)
            putter = asyncio.ensure_future(queue.put(1))
            found = await asyncio.gather(*getters, putter, return_exceptions=True)
            return [type(error).__name__ for error in found], str(queue), outcome(queue.put_nowait, 1)

        assert same_on_both(loop, use)[0] == ["QueueShutDown"] * 3
