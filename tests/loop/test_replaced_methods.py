"""Methods that asyncio's loop calls on itself may be replaced, on the class or on the loop, at any moment."""

import asyncio
import collections
import gc
import heapq
import os
import signal
import subprocess
import sys
import threading
import time
import unittest.mock
import weakref

import pytest
from support.stepping import run_once

# After so many changes the interpreter gives a class no more version tags (CPython 3.13 and later: 1000).
MANY_CHANGES = 2000


@pytest.fixture
def own_class(impl):
    """A class that belongs to the test, which may change it."""

    class Changed(impl.EventLoop):
        pass

    return Changed


@pytest.fixture
def changed(own_class):
    """A loop of that class."""
    loop = own_class()
    try:
        yield loop
    finally:
        loop.close()


def record_calls(monkeypatch, loop, of, name):
    """Replace a method by one that also appends its name to the returned list."""
    calls = []
    owner = type(loop) if of == "the class" else loop
    before = getattr(owner, name)

    def recording(*args, **keywords):
        calls.append(name)
        return before(*args, **keywords)

    monkeypatch.setattr(owner, name, recording, raising=False)
    return calls


replaced_on = pytest.mark.parametrize("of", ["the class", "the loop"])


@replaced_on
def test_call_later_uses_a_replaced_call_at(changed, monkeypatch, of):
    calls = record_calls(monkeypatch, changed, of, "call_at")
    due = []
    changed.call_later(0, due.append, True)
    assert calls == ["call_at"]
    run_once(changed, 2)
    assert due == [True]


@replaced_on
@pytest.mark.parametrize("changes", [0, MANY_CHANGES], ids=["", "a class that was changed often"])
def test_a_call_soon_that_is_replaced_in_a_callback_is_used_in_it(changed, monkeypatch, of, changes):
    async def main():
        future = changed.create_future()
        future.add_done_callback(lambda future: None)
        for count in range(changes):
            type(changed).counter = count
            assert changed.counter == count
        await asyncio.sleep(0)
        calls = record_calls(monkeypatch, changed, of, "call_soon")
        future.set_result(None)
        task = changed.create_task(asyncio.sleep(0))
        seen = len(calls)
        monkeypatch.undo()
        await task
        return seen

    assert changed.run_until_complete(main()) == 2


@replaced_on
def test_a_run_once_that_is_replaced_in_a_callback_runs_the_next_iteration(changed, monkeypatch, of):
    async def main():
        await asyncio.sleep(0)
        calls = record_calls(monkeypatch, changed, of, "_run_once")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return len(calls)

    assert changed.run_until_complete(main()) == 2


@replaced_on
def test_a_clock_that_is_replaced_in_a_callback_moves_the_timers(changed, monkeypatch, of):
    async def main():
        due = []
        changed.call_later(3600, due.append, True)
        for _ in range(3000):
            await asyncio.sleep(0)
        later = changed.time() + 7200
        monkeypatch.setattr(type(changed) if of == "the class" else changed, "time", lambda *_: later, raising=False)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return due

    assert changed.run_until_complete(main()) == [True]


def fired_in_one_turn(loop, now, deadlines):
    """The deadlines of the timers that fire in one iteration at the time `now`."""
    fired = []
    timers = [loop.call_at(deadline, fired.append, deadline) for deadline in deadlines]
    loop.time = lambda: now
    run_once(loop)
    for timer in timers:
        timer.cancel()
    return fired


@pytest.mark.parametrize("resolution", [0.001, 2])
def test_timers_fire_as_early_as_a_test_clock_allows(loop, resolution):
    """aiotools's clock adds up the waits of the loop, and misses deadlines by errors of rounding."""
    loop._clock_resolution = resolution
    early, at_its_end = 100 + 0.999 * resolution, 100 + resolution
    assert fired_in_one_turn(loop, 100, [99, 100, early, at_its_end]) == [99, 100, early]


def test_timers_fire_as_early_as_under_asyncio_by_a_clock_of_the_programs(loop):
    """looptime's clock, which sets no resolution, misses deadlines by errors of rounding, too."""
    with unittest.mock.patch.object(loop, "_clock_resolution", 0.001):
        assert fired_in_one_turn(loop, 100, [100.0005]) == [100.0005]
    assert fired_in_one_turn(loop, 200, [200, 200 + 1e-10, 200 + 1e-8]) == [200, 200 + 1e-10]


def test_timers_fire_as_early_as_under_asyncio_by_a_patched_monotonic(loop, monkeypatch):
    fired = []
    for deadline in (200, 200 + 1e-10, 200 + 1e-8):
        loop.call_at(deadline, fired.append, deadline)
    monkeypatch.setattr(time, "monotonic", lambda: 200.0)
    run_once(loop)
    monkeypatch.undo()
    assert fired == [200, 200 + 1e-10]


def test_a_property_that_replaces_a_method(impl):
    """The loop looks for replaced methods, and that replaces one."""

    class Loop(impl.EventLoop):
        busy = False

        @property
        def time(self):
            if not self.busy:
                self.busy = True
                self.call_soon = super().call_soon
                self.busy = False
            return time.monotonic

    loop = Loop()
    try:
        loop.call_later(0, loop.stop)
        loop.run_forever()
    finally:
        loop.close()


def test_a_patched_monotonic_clock_is_the_loops(loop):
    """freezegun, for example, freezes time.monotonic() and moves it by hand."""

    async def main():
        now, fired = 1000.0, []
        with unittest.mock.patch("time.monotonic", lambda: now):
            loop.call_later(60, fired.append, "after 60 s")
            loop.call_at(1090, fired.append, "at 1090")
            for now in (1030.0, 1061.0, 1089.0, 1090.0):
                assert loop.time() == now
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                fired.append(now)
        assert fired == [1030.0, "after 60 s", 1061.0, 1089.0, "at 1090", 1090.0]
        assert loop.time() == pytest.approx(time.monotonic(), abs=60)

    loop.run_until_complete(main())


IMPORTED_WHILE_PATCHED = """
import asyncio
import time

own = time.monotonic
time.monotonic = lambda: 1000.0
import hotloop

loop = hotloop.new_event_loop()
assert loop.time() == 1000.0
time.monotonic = None
try:
    loop.time()
except TypeError:
    pass
else:
    raise AssertionError
time.monotonic = lambda: 1000.0
loop.run_until_complete(asyncio.sleep(0))
time.monotonic = own
assert own() <= loop.time() <= own()
loop.run_until_complete(asyncio.sleep(0.001))
loop.close()
"""


@pytest.mark.only("c", "python", reason="it is about the import of hotloop")
def test_hotloop_is_first_imported_while_the_clock_is_patched(impl):
    """The clock is the program's then, and the system's again afterwards."""
    environment = os.environ | {"HOTLOOP_IMPL": impl.name}
    subprocess.run([sys.executable, "-W", "error", "-c", IMPORTED_WHILE_PATCHED], env=environment, check=True)


@pytest.mark.parametrize(
    ("name", "value"), [("slow_callback_duration", 5.0), ("_clock_resolution", 0.5), ("_debug", True)]
)
def test_mock_patches_a_setting_and_gives_it_back(loop, name, value):
    """It deletes what is no entry of `__dict__`, so these settings are entries."""
    for before in (getattr(loop, name), value):
        setattr(loop, name, before)
        with unittest.mock.patch.object(loop, name, not value):
            assert getattr(loop, name) == (not value)
        assert getattr(loop, name) == before


@pytest.mark.parametrize(
    "name", ["_clock_resolution", "_debug", "_selector", "_task_factory", "slow_callback_duration"]
)
def test_mock_patches_nest_and_give_back_what_was_set_before(loop, name):
    before = getattr(loop, name)
    with unittest.mock.patch.object(loop, name, 1):
        with unittest.mock.patch.object(loop, name, 0):
            assert getattr(loop, name) == 0
        assert getattr(loop, name) == 1
        setattr(loop, name, 0)
    assert getattr(loop, name) is before
    loop.run_until_complete(asyncio.sleep(0))


def test_a_setting_that_was_replaced_is_not_kept(loop):
    class Factory:
        def __call__(self, loop, coro, **options):
            return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(Factory())
    reference = weakref.ref(loop.get_task_factory())
    loop.set_task_factory(None)
    gc.collect()
    assert reference() is None


@pytest.mark.only("c", reason="the other loops keep their attributes there")
def test_a_loop_has_no_dict_until_somebody_asks_for_it(loop):
    """The interpreter calls the methods of such an object more quickly."""

    async def main():
        await asyncio.to_thread(time.sleep, 0)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        for closed in (writer, server):
            closed.close()
            await closed.wait_closed()
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()

    def has_dict():
        return any(type(one) is dict and "_debug" in one for one in gc.get_referents(loop))

    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.remove_signal_handler(signal.SIGUSR1)
    loop.set_debug(True)
    loop.run_until_complete(main())
    assert not has_dict()
    # Nothing of hotloop's own.
    shown = {"_clock_resolution", "_debug", "_selector", "_task_factory", "slow_callback_duration"}
    assert set(vars(loop)) == shown and has_dict()


def test_a_dict_that_the_program_keeps_is_the_loops(loop):
    kept = vars(loop)
    loop.slow_callback_duration = 5.0
    loop.anything = 1
    assert kept["slow_callback_duration"] == 5.0 and kept["anything"] == 1 and vars(loop) is kept
    loop.__dict__ = kept | {"anything": 2}
    assert loop.anything == 2


def test_a_subclass_keeps_a_setting_in_its_dict(impl):
    class Doubling(impl.EventLoop):
        @property
        def slow_callback_duration(self):
            return 2 * self.__dict__["slow_callback_duration"]

        @slow_callback_duration.setter
        def slow_callback_duration(self, seconds):
            vars(self)["slow_callback_duration"] = seconds

    loop = Doubling()
    assert loop.slow_callback_duration == 0.2
    loop.slow_callback_duration = 1.0
    assert loop.slow_callback_duration == 2.0 and vars(loop)["slow_callback_duration"] == 1.0
    loop.close()


def test_a_subclass_may_run_all_its_callbacks_itself(impl):
    """trio-asyncio's loop, for example, has queues of its own, and these names."""

    class NeverFilled:
        def clear(self):
            pass

    class OwnQueues(impl.EventLoop):
        def __init__(self):
            super().__init__()
            self._ready = NeverFilled()
            self._scheduled = NeverFilled()
            self._queue = collections.deque()
            self._timers = []
            self._clock = self._poll = self._begin = self._wakeup = None

        def call_soon(self, callback, *args, context=None):
            self._queue.append(asyncio.Handle(callback, args, self, context))
            return self._queue[-1]

        def call_later(self, delay, callback, *args, context=None):
            return self.call_at(self.time() + delay, callback, *args, context=context)

        def call_at(self, when, callback, *args, context=None):
            timer = asyncio.TimerHandle(when, callback, args, self, context)
            heapq.heappush(self._timers, timer)
            return timer

        def run_until_complete(self, coroutine):
            asyncio._set_running_loop(self)
            try:
                task = self.create_task(coroutine)
                while not task.done():
                    if not self._queue:
                        timer = heapq.heappop(self._timers)
                        time.sleep(max(timer.when() - self.time(), 0))
                        self._queue.append(timer)
                    handle = self._queue.popleft()
                    if not handle.cancelled():
                        handle._run()
                return task.result()
            finally:
                asyncio._set_running_loop(None)

    async def main():
        queue = asyncio.Queue()

        async def produce():
            for number in range(3):
                await asyncio.sleep(0.001 * number)
                queue.put_nowait(number)

        producer = asyncio.create_task(produce())
        got = [await asyncio.wait_for(queue.get(), 60) for _ in range(3)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.001)
        return got, await asyncio.gather(producer, asyncio.sleep(0, "slept"))

    loop = OwnQueues()
    try:
        assert loop.run_until_complete(main()) == ([0, 1, 2], [None, "slept"])
        assert loop._timers  # those of the wait_for() that did not have to wait
    finally:
        loop.close()
    assert loop.is_closed()


@replaced_on
def test_a_replaced_process_events_is_given_the_events(changed, monkeypatch, of, pair):
    one, other = pair
    seen = []
    changed.add_reader(one, lambda: (seen.append(one.recv(9)), changed.stop()))
    calls = record_calls(monkeypatch, changed, of, "_process_events")
    other.send(b"x")
    changed.run_forever()
    changed.remove_reader(one)
    assert seen == [b"x"]
    assert calls


@pytest.mark.parametrize("of", ["the class", "the selector"])
def test_a_replaced_select_is_called(impl, pair, monkeypatch, of):
    one, other = pair
    seen, timeouts = [], []
    plain = impl.EventLoop()
    usual = type(plain._selector)
    plain.close()

    class Selecting(usual):
        def select(self, timeout=None):
            timeouts.append(timeout)
            return super().select(timeout)

    def select(timeout=None):
        timeouts.append(timeout)
        return usual.select(selector, timeout)

    selector = Selecting() if of == "the class" else usual()
    if of == "the selector":
        selector.select = select
    loop = impl.EventLoop(selector)
    try:
        loop.add_reader(one, lambda: (seen.append(one.recv(9)), loop.stop()))
        other.send(b"x")
        loop.run_forever()
        loop.remove_reader(one)
    finally:
        loop.close()
        vars(selector).pop("select", None)  # it refers to the selector
    assert seen == [b"x"]
    assert timeouts


@pytest.mark.skipif(sys.version_info < (3, 14), reason="before 3.14 asyncio itself decides what a factory gets")
def test_a_task_factory_is_given_what_the_caller_gave(loop):
    given = []

    def factory(loop, coro, **keywords):
        given.append(keywords)
        return asyncio.Task(coro, loop=loop, **keywords)

    async def main():
        for keywords in ({}, {"name": None}, {"name": "x", "context": None}):
            await loop.create_task(asyncio.sleep(0), **keywords)

    task = main()
    loop.set_task_factory(factory)
    loop.run_until_complete(task)
    assert given[1:] == [{}, {"name": None}, {"name": "x", "context": None}]


@pytest.mark.only("c", "python", reason="asyncio's prints a ValueError")
def test_a_dropped_loop_whose_sockets_were_finalized_first_warns_and_no_more(impl, own_class, capsys):
    loop = own_class()
    loop.itself = loop
    loop._ssock.close()
    loop._csock.close()
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        del loop
        gc.collect()
    assert capsys.readouterr().err == ""


def test_a_subclass_may_have_class_attributes_of_these_names(impl):
    """trio-asyncio's loop has `_closed = False`. What asyncio's __init__() and methods set counts."""

    class Unset:
        _debug = _stopping = _closed = False

    class Loop(Unset, impl.EventLoop):
        _thread_id = _task_factory = None

    loop = Loop()
    loop.call_soon(loop.stop)
    loop.run_forever()
    seen = [loop._debug, loop._closed]
    loop.set_debug(True)
    factory = lambda loop, coroutine, **options: asyncio.Task(coroutine, loop=loop, **options)  # noqa: E731
    loop.set_task_factory(factory)

    async def look():
        return loop._thread_id, loop.is_running()

    seen += [loop.get_debug(), loop._debug, loop._task_factory is factory, loop.run_until_complete(look())]
    loop.close()
    seen += [loop._closed, loop.is_closed(), loop._thread_id]
    assert seen == [False, False, True, True, True, (threading.get_ident(), True), True, True, None]
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.call_soon(print)


@pytest.mark.parametrize("what", ["cancels the last timer", "queues a callback"])
def test_a_clock_that_changes_what_the_loop_is_about_to_wait_for(loop, what):
    """The loop asks for the time once more when it knows that it has to wait."""
    clock = loop.time
    timer = loop.call_later(3600 if what == "queues a callback" else 0.05, int)
    asked = []

    def time():
        if not asked:
            asked.append(True)
            if what == "queues a callback":
                loop.call_soon_threadsafe(loop.stop)
            else:
                timer.cancel()
                threading.Timer(0.1, loop.call_soon_threadsafe, [loop.stop]).start()
        return clock()

    def begin():
        loop.time = time

    loop.call_soon(begin)
    loop.run_forever()
    assert asked
    timer.cancel()


@pytest.fixture
def selecting(loop, monkeypatch):
    """Replaces the select() of the loop's selector by a function of the original and the timeout."""

    def replace(select):
        original = loop._selector.select
        monkeypatch.setattr(loop._selector, "select", lambda timeout=None: select(original, timeout), raising=False)

    return replace


def test_a_select_that_polls_before_it_waits_is_woken(loop, selecting):
    """As looptime's does: the first of the two calls must not use up the wake-up."""
    future = loop.create_future()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, True))

    def select(original, timeout):
        if timeout is None and thread.ident is None:
            # The loop has decided to sleep.
            thread.start()
            thread.join()
        return original(0) or original(timeout)

    selecting(select)
    assert loop.run_until_complete(future)


def test_a_select_that_is_called_twice_reports_a_wake_up_twice(loop, selecting):
    future = loop.create_future()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, True))
    counts = []

    def select(original, timeout):
        if timeout is None and thread.ident is None:
            thread.start()
            thread.join()
            counts.extend([len(original(None)), len(original(None))])
        return original(timeout)

    selecting(select)
    assert loop.run_until_complete(future)
    assert counts == [1, 1]


def test_a_clock_that_adds_up_what_select_was_asked_to_wait(loop, selecting, monkeypatch):
    """As a test's virtual clock does: equal deadlines stay equal."""
    passed = [0.0]

    def select(original, timeout):
        passed.append(passed[-1] + (timeout or 0))
        return original(0)

    async def main():
        selecting(select)
        monkeypatch.setattr(loop, "time", lambda: passed[-1], raising=False)
        for _ in range(20):
            await asyncio.sleep(1)
        return passed[-1]

    assert loop.run_until_complete(main()) == 20.0
