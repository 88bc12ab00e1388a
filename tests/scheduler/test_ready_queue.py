"""call_soon(): which callbacks run, in which order, and in which turn of the loop."""

import asyncio
import contextvars
import copy
import threading
from collections import deque
from random import Random

import pytest
from support.stepping import run_once

variable = contextvars.ContextVar("variable", default="outside")


def test_callbacks_run_in_the_order_they_were_queued(loop):
    seen = []
    for number in range(1000):
        loop.call_soon(seen.append, number)
    run_once(loop)
    assert seen == list(range(1000))


def test_callbacks_get_their_arguments(loop):
    seen = []

    def callback(*args):
        seen.append(args)

    for count in range(10):
        loop.call_soon(callback, *range(count))
    run_once(loop)
    assert seen == [tuple(range(count)) for count in range(10)]


def test_any_callable_will_do(loop):
    seen = []

    class Callable:
        def __call__(self, *args):
            seen.append(args)

        def method(self, *args):
            seen.append(("method", *args))

    loop.call_soon(Callable(), 1)
    loop.call_soon(Callable().method, 2)
    loop.call_soon(lambda: seen.append("lambda"))
    loop.call_soon(seen.append, "builtin")
    loop.call_soon(dict)
    run_once(loop)
    assert seen == [(1,), ("method", 2), "lambda", "builtin"]


def test_one_iteration_runs_what_was_ready_when_it_began(loop):
    seen = []

    def nested():
        seen.append("outer")
        loop.call_soon(seen.append, "inner")

    loop.call_soon(nested)
    loop.call_soon(seen.append, "second")
    run_once(loop)
    assert seen == ["outer", "second"]
    run_once(loop)
    assert seen == ["outer", "second", "inner"]


def test_a_callback_that_queues_itself_runs_once_an_iteration(loop):
    turns = 0

    def again():
        nonlocal turns
        turns += 1
        if turns < 100:
            loop.call_soon(again)

    loop.call_soon(again)
    for expected in range(1, 101):
        run_once(loop)
        assert turns == expected
    run_once(loop)
    assert turns == 100


def test_a_handle_cancelled_by_an_earlier_callback_of_the_batch_does_not_run(loop):
    seen = []
    loop.call_soon(lambda: later.cancel())
    later = loop.call_soon(seen.append, "cancelled")
    loop.call_soon(seen.append, "after")
    run_once(loop)
    assert seen == ["after"]


def test_cancelling_a_running_handle_is_too_late_and_harmless(loop):
    seen = []

    def callback(text):
        handle.cancel()
        seen.append(text)

    handle = loop.call_soon(callback, "ran")
    run_once(loop)
    assert seen == ["ran"]
    assert handle.cancelled()


def test_the_queue_grows_and_shrinks_while_it_runs(loop):
    """Bursts of all sizes around the powers of two, each queued from inside the one before."""
    sizes = [1, 2, 3, 63, 64, 65, 127, 128, 129, 1000, 5, 4095, 4096, 4097, 2, 1]
    seen = []

    def burst(position):
        if position < len(sizes):
            for number in range(sizes[position]):
                loop.call_soon(seen.append, (position, number))
            loop.call_soon(burst, position + 1)

    burst(0)
    run_once(loop, len(sizes) + 1)
    assert seen == [(position, number) for position, size in enumerate(sizes) for number in range(size)]


def test_a_callback_runs_in_a_copy_of_the_context_that_queued_it(loop):
    seen = []
    variable.set("queued")
    loop.call_soon(lambda: (seen.append(variable.get()), variable.set("changed")))
    variable.set("later")
    loop.call_soon(lambda: seen.append(variable.get()))
    run_once(loop)
    assert seen == ["queued", "later"]
    assert variable.get() == "later"
    variable.set("outside")


@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe"])
def test_thousands_of_callbacks_run_in_copies_of_their_own(loop, method):
    seen, contexts = [], []

    def callback(number):
        seen.append(variable.get())
        variable.set(f"of callback {number}")
        contexts.append(contextvars.copy_context())

    def schedule():
        for number in range(5000):
            if number == 4000:
                variable.set("after 4,000")
            getattr(loop, method)(callback, number)
        variable.set("after all")

    loop.call_soon(schedule)
    run_once(loop, 2)
    assert seen == ["outside"] * 4000 + ["after 4,000"] * 1000
    assert [context[variable] for context in contexts] == [f"of callback {number}" for number in range(5000)]
    assert variable.get() == "outside"


def test_a_given_context_is_used_as_it_is(loop):
    context = contextvars.copy_context()
    loop.call_soon(variable.set, "changed", context=context)
    run_once(loop)
    assert context[variable] == "changed"
    assert variable.get() == "outside"


def test_one_context_can_serve_many_callbacks(loop):
    context = contextvars.Context()
    seen = []
    for number in range(3):
        loop.call_soon(lambda n=number: (seen.append(variable.get()), variable.set(n)), context=context)
    run_once(loop)
    assert seen == ["outside", 0, 1]


def test_the_context_is_left_after_an_exception(loop):
    contexts = []
    loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))

    def fail():
        variable.set("inside")
        raise ZeroDivisionError

    loop.call_soon(fail)
    run_once(loop)
    assert variable.get() == "outside"
    assert [type(error) for error in contexts] == [ZeroDivisionError]


def test_the_queue_can_be_looked_at(loop):
    """Other packages read `loop._ready`: its length, its handles, and popleft()."""
    first = loop.call_soon(print)
    second = loop.call_soon(print)
    assert len(loop._ready) == 2
    assert list(loop._ready) == [first, second]
    assert bool(loop._ready)
    assert loop._ready.popleft() is first
    assert loop._ready.popleft() is second
    assert not loop._ready
    with pytest.raises(IndexError):
        loop._ready.popleft()


def test_handles_can_be_put_on_the_queue_by_hand(impl, loop):
    seen = []
    loop._ready.append(impl.Handle(seen.append, ("by hand",), loop))
    loop._ready.extend([impl.Handle(seen.append, (number,), loop) for number in range(3)])
    run_once(loop)
    assert seen == ["by hand", 0, 1, 2]


def test_handles_can_be_put_before_all_others(impl, loop):
    """nest_asyncio2 gives back the handles that it could not run in this way; here more of them than the queue has room
    for."""
    seen = []
    there = [loop.call_soon(seen.append, number) for number in range(50)]
    handles = [impl.Handle(seen.append, (-number,), loop) for number in range(1, 200)]
    foreign = asyncio.Handle(seen.append, (-200,), loop)
    loop._ready.extendleft(handles)
    loop._ready.appendleft(foreign)
    assert list(loop._ready) == [foreign, *reversed(handles), *there]
    with pytest.raises(TypeError):
        loop._ready.extendleft(None)
    with pytest.raises(ZeroDivisionError):
        loop._ready.extendleft(1 // 0 for _ in range(3))
    assert len(loop._ready) == 250
    run_once(loop)
    assert seen == list(range(-200, 50))


def test_handles_of_asyncio_itself_run_on_the_queue(loop):
    seen = []
    handle = asyncio.Handle(seen.append, ("asyncio's",), loop)
    loop._ready.append(handle)
    cancelled = asyncio.Handle(seen.append, ("cancelled",), loop)
    cancelled.cancel()
    loop._ready.append(cancelled)
    assert list(loop._ready) == [handle, cancelled]
    run_once(loop)
    assert seen == ["asyncio's"]


def test_clearing_the_queue_drops_what_was_queued(loop):
    for _ in range(200):
        loop.call_soon(pytest.fail, "it was dropped")
    loop._ready.clear()
    assert len(loop._ready) == 0
    run_once(loop)


def test_garbage_collected_while_the_queue_grows_may_queue_more(loop):
    """A finalizer that calls call_soon() may run at any allocation, also at those that growing the queue makes."""
    import gc

    seen = []

    class Finalized:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            for _ in range(3):
                loop.call_soon(seen.append, "finalizer")

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(300):
            Finalized()
            loop.call_soon(seen.append, number)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    run_once(loop, 2)
    assert [entry for entry in seen if entry != "finalizer"] == list(range(300))
    assert seen.count("finalizer") == 900


def test_a_loop_runs_on_whatever_thread_runs_it(loop):
    seen = []
    loop.call_soon(lambda: seen.append(threading.current_thread().name))
    thread = threading.Thread(target=run_once, args=(loop,), name="runner")
    thread.start()
    thread.join()
    assert seen == ["runner"]


def pop_all(queue):
    while queue:
        queue.pop()


# Each of (queue, a handle, handles, a place).
OPERATIONS = [
    lambda queue, handle, handles, place: queue.append(handle),
    lambda queue, handle, handles, place: queue.appendleft(handle),
    lambda queue, handle, handles, place: queue.extend(handles),
    lambda queue, handle, handles, place: queue.extendleft(handles),
    lambda queue, handle, handles, place: queue.insert(place, handle),
    lambda queue, handle, handles, place: queue.__setitem__(place, handle),
    lambda queue, handle, handles, place: queue.__delitem__(place),
    lambda queue, handle, handles, place: queue.__iadd__(handles) is queue,
    lambda queue, handle, handles, place: len(queue) > 50 or queue.__imul__(2) is queue,
    lambda queue, handle, handles, place: queue[place],
    lambda queue, handle, handles, place: queue.rotate(place),
    lambda queue, handle, handles, place: queue.remove(handle),
    lambda queue, handle, handles, place: queue.index(handle, place),
    lambda queue, handle, handles, place: queue.count(handle),
    lambda queue, handle, handles, place: handle in queue,
    lambda queue, handle, handles, place: queue.pop(),
    lambda queue, handle, handles, place: queue.popleft(),
    lambda queue, handle, handles, place: queue.reverse(),
    lambda queue, handle, handles, place: list(reversed(queue)),
    lambda queue, handle, handles, place: queue.copy(),
    lambda queue, handle, handles, place: copy.copy(queue),
    lambda queue, handle, handles, place: queue + deque(handles),
    lambda queue, handle, handles, place: queue * 2,
    lambda queue, handle, handles, place: (len(queue), bool(queue), queue.maxlen),
    lambda queue, handle, handles, place: (queue == queue.copy(), queue.copy() != queue, queue == list(queue)),
    lambda queue, handle, handles, place: len(queue) > 100 and pop_all(queue),
]


def test_the_queue_is_a_deque(loop):
    """After any change by a program the queue holds what a deque would hold, and its handles run in that order."""
    random = Random(1)
    seen = []
    model = deque()

    def outcome(queue, operation, *arguments):
        try:
            return operation(queue, *arguments)
        except (IndexError, ValueError) as error:
            return type(error)

    for number in range(3000):
        new = asyncio.Handle(seen.append, (number,), loop)
        handle = random.choice(model) if model and number % 2 else new
        place = random.randrange(-len(model) - 1, len(model) + 2)
        operation = random.choice(OPERATIONS)
        arguments = handle, [new, handle], place
        assert outcome(loop._ready, operation, *arguments) == outcome(model, operation, *arguments)
        assert list(loop._ready) == list(model)
    assert isinstance(loop._ready, deque)
    with pytest.raises(TypeError, match="unhashable"):
        hash(loop._ready)
    loop._ready = loop._ready
    loop._ready += [new]
    model.append(new)
    run_once(loop)
    assert seen == [handle._args[0] for handle in model]


@pytest.mark.only("c", reason="elsewhere a timer is also in the heap, and runs twice")
def test_a_timer_that_is_put_on_the_queue_is_pending_no_more(loop):
    seen = []
    ways = [
        lambda timer: loop._ready.append(timer),
        lambda timer: loop._ready.insert(0, timer),
        lambda timer: loop._ready.__setitem__(-1, timer),
    ]
    for number, put in enumerate(ways):
        loop.call_soon(seen.append, "replaced")
        timer = loop.call_later(3600, seen.append, number)
        put(timer)
        assert not timer._scheduled
    run_once(loop)
    assert sorted(seen, key=str) == [0, 1, 2, "replaced", "replaced"]


@pytest.mark.parametrize("put", ["append", "appendleft", "extend"])
def test_a_task_without_a_loop_is_not_queued(impl, loop, put):
    """asyncio's tasks cannot be queued at all: its loop fails when it comes to one."""
    task = impl.Task.__new__(impl.Task)
    if impl.name == "c":
        with pytest.raises(RuntimeError, match="does not belong to a loop"):
            getattr(loop._ready, put)([task] if put == "extend" else task)
    assert not loop._ready
    run_once(loop)


def test_what_is_queued_while_the_queue_is_changed_stays(loop):
    """The argument of rotate() may be an object whose __index__() runs any code."""
    seen = []

    class Number:
        def __index__(self):
            loop.call_soon(seen.append, "queued meanwhile")
            return 1

    for number in range(3):
        loop.call_soon(seen.append, number)
    loop._ready.rotate(Number())
    run_once(loop)
    assert sorted(seen, key=str) == [0, 1, 2, "queued meanwhile"]
