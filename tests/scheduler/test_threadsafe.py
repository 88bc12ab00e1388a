"""call_soon_threadsafe(): from threads and signal handlers, in order, none lost, however wake-ups are coalesced."""

import asyncio
import contextlib
import contextvars
import errno
import os
import signal
import sys
import sysconfig
import threading
import time

import pytest
from support.implementations import expected_backend
from support.stepping import run_once, run_until

# Calls of each thread. The promise is about the compiled core without the GIL; in Python that many calls take minutes.
NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
CALLS = int(os.environ.get("HOTLOOP_THREADSAFE_CALLS", "1000000" if NO_GIL else "4000"))

variable = contextvars.ContextVar("variable", default="unset")


def start_threads(targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join()


@pytest.mark.promise("P08")
def test_many_threads_lose_no_call(impl, loop):
    """All calls arrive, each thread's in its order."""
    threads = 8
    calls = CALLS if impl.name == "c" else 4_000
    received = [0] * threads
    out_of_order = []
    remaining = threads

    def receive(number, call):
        if received[number] != call:
            out_of_order.append((number, call))
        received[number] += 1

    def finished():
        nonlocal remaining
        remaining -= 1
        if not remaining:
            loop.stop()

    def sender(number):
        for call in range(calls):
            loop.call_soon_threadsafe(receive, number, call)
        loop.call_soon_threadsafe(finished)

    running = start_threads([lambda n=number: sender(n) for number in range(threads)])
    loop.run_forever()
    join(running)
    assert received == [calls] * threads
    assert out_of_order == []


@pytest.mark.promise("P08")
def test_threads_and_the_loop_itself_queue_at_once(loop):
    threads, calls = 4, 1_000
    counts = {"threads": 0, "loop": 0}
    running = []

    def count(name):
        counts[name] += 1

    def own_work():
        count("loop")
        if counts["threads"] == threads * calls:
            loop.stop()
        else:
            loop.call_soon(own_work)

    def sender():
        for _ in range(calls):
            loop.call_soon_threadsafe(count, "threads")

    loop.call_soon(own_work)
    running = start_threads([sender] * threads)
    loop.run_forever()
    join(running)
    assert counts["threads"] == threads * calls
    assert counts["loop"] >= 1


def queue_by_call_soon(loop, append):
    loop.call_soon(append, "loop")


def queue_by_call_soon_threadsafe(loop, append):
    loop.call_soon_threadsafe(append, "loop")


def queue_a_task(loop, append):
    async def task():
        append("loop")

    loop.create_task(task())


def queue_a_done_callback(loop, append):
    future = loop.create_future()
    future.add_done_callback(lambda _future: append("loop"))
    future.set_result(None)


@pytest.mark.parametrize("in_callback", [False, True])
@pytest.mark.parametrize(
    "queue", [queue_by_call_soon, queue_by_call_soon_threadsafe, queue_a_task, queue_a_done_callback]
)
def test_a_call_from_a_thread_comes_before_what_the_loop_queues_later(loop, queue, in_callback):
    order = []

    def make_calls():
        join(start_threads([lambda: loop.call_soon_threadsafe(order.append, "thread")]))
        queue(loop, order.append)

    if in_callback:
        loop.call_soon(make_calls)
        run_once(loop)
    else:
        make_calls()
    run_once(loop)
    assert order == ["thread", "loop"]


def test_a_call_from_a_thread_wakes_a_sleeping_loop(loop):
    """Again and again, each time when the loop has become idle: no wake-up may get lost between its checks."""
    answered = threading.Semaphore(0)
    rounds = 300

    def ask():
        for _ in range(rounds):
            loop.call_soon_threadsafe(answered.release)
            answered.acquire()
        loop.call_soon_threadsafe(loop.stop)

    threads = start_threads([ask])
    loop.run_forever()
    join(threads)


def test_two_loops_ping_pong(impl):
    """Each loop sleeps until the other wakes it."""
    loops = [impl.new_event_loop() for _ in range(2)]
    hits = [0, 0]

    def hit(side):
        hits[side] += 1
        if hits[side] < 500:
            loops[1 - side].call_soon_threadsafe(hit, 1 - side)
        else:
            for loop in loops:
                loop.call_soon_threadsafe(loop.stop)

    loops[0].call_soon(hit, 0)
    threads = start_threads([loop.run_forever for loop in loops])
    join(threads)
    for loop in loops:
        loop._ready.clear()
        loop.close()
    assert min(hits) >= 499


def test_calls_made_while_the_loop_does_not_run_are_kept(loop):
    seen = []
    threads = start_threads([lambda: [loop.call_soon_threadsafe(seen.append, number) for number in range(100)]])
    join(threads)
    assert seen == []
    run_once(loop, 2)
    assert seen == list(range(100))


def test_order_against_call_soon_on_the_same_thread(loop):
    seen = []
    for number in range(100):
        (loop.call_soon if number % 3 else loop.call_soon_threadsafe)(seen.append, number)
    run_once(loop)
    assert seen == list(range(100))


def test_calls_from_a_callback_run_in_the_next_turn(loop):
    seen = []

    def callback():
        loop.call_soon_threadsafe(seen.append, "next")
        seen.append("this")

    loop.call_soon(callback)
    run_once(loop)
    assert seen == ["this"]
    run_once(loop)
    assert seen == ["this", "next"]


def test_a_call_can_be_cancelled_from_the_thread_that_made_it(loop):
    seen = []

    def thread():
        handles = [loop.call_soon_threadsafe(seen.append, number) for number in range(100)]
        for handle in handles[::2]:
            handle.cancel()
            assert handle.cancelled()

    join(start_threads([thread]))
    run_once(loop, 2)
    assert seen == list(range(1, 100, 2))


def test_cancelling_from_a_thread_while_the_loop_runs_never_runs_half_a_handle(loop):
    ran = []
    attempts = 2000

    def thread():
        for number in range(attempts):
            loop.call_soon_threadsafe(ran.append, number).cancel()
        loop.call_soon_threadsafe(loop.stop)

    threads = start_threads([thread])
    loop.run_forever()
    join(threads)
    assert ran == sorted(ran)


def test_the_handle_is_asyncios(loop):
    handle = loop.call_soon_threadsafe(print, "text")
    assert isinstance(handle, asyncio.Handle)
    assert handle._callback is print
    assert not handle.cancelled()
    handle.cancel()
    assert handle.cancelled()
    run_once(loop)


def test_context_is_taken_from_the_calling_thread(loop):
    seen = []
    given = contextvars.copy_context()
    given.run(variable.set, "given")

    def thread():
        variable.set("thread's")
        loop.call_soon_threadsafe(lambda: seen.append(variable.get()))
        loop.call_soon_threadsafe(lambda: seen.append(variable.get()), context=given)

    join(start_threads([lambda: contextvars.Context().run(thread)]))
    run_once(loop, 2)
    assert seen == ["thread's", "given"]


@pytest.fixture(params=["empty", "filled"])
def same_context(request):
    """A context in which the loop and the threads begin: no variable is set in it, or another one is."""
    context = contextvars.Context()
    if request.param == "filled":
        context.run(contextvars.ContextVar("another").set, "value")
    return context


def test_calls_do_not_see_what_others_set(loop, same_context):
    seen = []

    def callback(number):
        seen.append(variable.get())
        variable.set(number)
        seen.append(variable.get())

    def thread():
        for number in range(3):
            loop.call_soon_threadsafe(callback, number)
        variable.set("thread's")
        loop.call_soon_threadsafe(callback, 3)
        loop.call_soon_threadsafe(loop.stop)

    expected = ["unset", 0, "unset", 1, "unset", 2, "thread's", 3]
    for _ in range(2):
        running = start_threads([lambda: same_context.copy().run(thread)])
        same_context.copy().run(loop.run_forever)
        join(running)
        assert seen == expected
        seen.clear()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Handle.get_context() came with CPython 3.12")
def test_each_call_has_a_context_of_its_own(loop, same_context):
    """The call runs in it: it sees values set there before, and its own values are there afterwards."""
    seen = []

    def callback():
        seen.append(variable.get())
        variable.set("callback's")

    def from_the_loop():
        handles = [loop.call_soon_threadsafe(callback) for _ in range(4)]
        contexts = [handle.get_context() for handle in handles[:3]]
        contexts[1].run(variable.set, "set before")
        assert [handle.get_context() for handle in handles[:3]] == contexts
        assert len({id(context) for context in contexts}) == 3
        handles[2].cancel()
        loop.call_soon_threadsafe(loop.stop)
        return handles

    def run():
        handles = []
        loop.call_soon(lambda: handles.extend(from_the_loop()))
        loop.run_forever()
        return handles

    handles = same_context.copy().run(run)
    assert seen == ["unset", "set before", "unset"]
    values = [handle.get_context().get(variable, "unset") for handle in handles]
    assert values == ["callback's", "callback's", "unset", "callback's"]
    assert len({id(handle.get_context()) for handle in handles}) == 4


def test_a_closed_loop_refuses(impl):
    loop = impl.new_event_loop()
    loop.close()
    errors = []

    def thread():
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as error:
            errors.append(str(error))

    join(start_threads([thread]))
    assert errors == ["Event loop is closed"]


def test_a_loop_closed_while_threads_call_it(impl):
    """Every call is either accepted or raises that the loop is closed; nothing crashes and nothing hangs."""
    for _ in range(20):
        loop = impl.new_event_loop()
        others = []
        started = threading.Barrier(4)

        def thread(loop=loop, started=started, others=others):
            started.wait()
            try:
                while True:
                    loop.call_soon_threadsafe(int)
            except RuntimeError as error:
                if str(error) != "Event loop is closed":
                    others.append(error)

        threads = start_threads([thread] * 3)
        started.wait()
        run_once(loop, 5)
        loop.close()
        join(threads)
        assert others == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no setitimer")
def test_calls_from_signal_handlers_wake_the_loop(loop):
    """A plain signal.signal() handler runs between any two bytecodes, also inside the poll: the loop sees its calls."""
    seen = []
    remaining = 200

    def handler(number, frame):
        nonlocal remaining
        if remaining:
            remaining -= 1
            loop.call_soon_threadsafe(seen.append, remaining)
            if not remaining:
                loop.call_soon_threadsafe(loop.stop)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        loop.run_forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert sorted(seen) == list(range(200))  # a handler may interrupt another one before its call


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no setitimer")
def test_calls_from_signal_handlers_amid_calls_from_the_loop(loop):
    """The handler also interrupts call_soon_threadsafe() itself: it must not wait forever for a lock of that call."""
    seen = []
    own = 0
    signals = 0

    def handler(number, frame):
        nonlocal signals
        signals += 1
        loop.call_soon_threadsafe(seen.append, signals)

    def work():
        nonlocal own
        for _ in range(50):
            loop.call_soon_threadsafe(int)
        own += 1
        if signals >= 100:
            loop.stop()
        else:
            loop.call_soon_threadsafe(work)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
        loop.call_soon(work)
        loop.run_forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    run_once(loop, 3)
    assert sorted(seen) == list(range(1, signals + 1))  # a handler may interrupt another one before its call


def eventfds():
    """The numbers of this process's eventfds, where the system shows them."""
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:
        return set()
    # The listing's own descriptor is closed by now.
    links = {int(number): f"/proc/self/fd/{number}" for number in numbers}
    return {fd for fd, link in links.items() if os.path.lexists(link) and "eventfd" in os.readlink(link)}


@contextlib.contextmanager
def failing_wake_ups(loop, wakers):
    """Neither the self-pipe nor the compiled loop's substitute for it can be written to."""

    class Full:
        def send(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    csock = loop._csock
    saved = {waker: os.dup(waker) for waker in wakers}
    full = os.open("/dev/full", os.O_WRONLY)
    loop._csock = Full()
    for waker in wakers:
        os.dup2(full, waker, inheritable=False)
    try:
        yield
    finally:
        for waker, duplicate in saved.items():
            os.dup2(duplicate, waker, inheritable=False)
            os.close(duplicate)
        loop._csock = csock
        os.close(full)


@pytest.mark.promise("P34")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this platform has no /dev/full")
def test_a_wake_up_that_fails_is_not_taken_for_one(impl):
    """The call raises nothing, because the callback is queued; and the next call wakes the loop."""
    if expected_backend(impl.name).endswith("-shim"):
        pytest.skip("this build's kqueue is the tests' own, where no wake-up fails")
    before = eventfds()
    loop = impl.new_event_loop()
    wakers = eventfds() - before
    seen = []

    def post():
        time.sleep(0.05)  # most likely the loop sleeps by then; if not, the test passes without a wake-up
        with failing_wake_ups(loop, wakers):
            loop.call_soon_threadsafe(seen.append, 1)
        loop.call_soon_threadsafe(seen.append, 2)
        loop.call_soon_threadsafe(loop.stop)

    at_last = loop.call_later(10, loop.stop)
    (thread,) = start_threads([post])
    loop.run_forever()
    join([thread])
    assert seen == [1, 2]
    assert loop.time() < at_last.when()
    at_last.cancel()
    loop.close()


def test_wakeups_never_block_or_fail_however_many_there_are(loop):
    """A hundred thousand writes fill a pipe that no code reads; that must have no effect."""
    total = 100_000
    count = 0

    def callback():
        nonlocal count
        count += 1

    join(start_threads([lambda: [loop.call_soon_threadsafe(callback) for _ in range(total)]]))
    run_until(loop, lambda: count == total)
    assert count == total
