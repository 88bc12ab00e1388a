"""Stalls are reported while they last and when they are over, whatever blocks the loop, in any thread.

A stall in these tests lasts until its report has come, so nothing depends on the machine's speed.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import logging
import re
import sys
import threading
import time
import traceback
import weakref

import pytest
from support.virtual_time import run_virtual

from hotloop import watch_stalls
from hotloop.instruments import stalls
from hotloop.instruments.stalls import Stall
from hotloop.instruments.watchdog import WATCHDOG

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress")

LIMIT = 0.02


class Reports:
    """The stalls of one callback or task; on a loaded machine other callbacks may be slow enough for one.

    The name of its outermost function identifies it: that is on the stack wherever the stall is found.
    """

    def __init__(self, function="block"):
        self.function = function
        self.stalls = []
        self.begun = threading.Event()
        self.ended = threading.Event()

    def __call__(self, stall):
        if not any(frame.name == self.function for frame in stall.stack):
            return False
        self.stalls.append(stall)
        (self.ended if stall.ended else self.begun).set()
        return True

    def both(self):
        """The reports of a stall's beginning and end; there must be no others."""
        self.ended.wait()
        begun, ended = self.stalls
        assert (begun.ended, ended.ended) == (False, True)
        return begun, ended


@pytest.fixture
def reports():
    return Reports()


def block(reports):
    reports.begun.wait()


def watchdogs():
    return [thread for thread in threading.enumerate() if thread.name == "hotloop-watchdog"]


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_task_that_blocks(impl):
    reports = Reports("work")

    async def work():
        block(reports)

    async def parent():
        await asyncio.gather(asyncio.create_task(work(), name="worker"))

    async def main():
        with watch_stalls(asyncio.get_running_loop(), LIMIT, reports):
            await asyncio.create_task(parent(), name="parent")
            await asyncio.to_thread(reports.ended.wait)

    impl.run(main())
    begun, ended = reports.both()
    for stall in begun, ended:
        assert (stall.task_name, stall.coroutine) == ("worker", "test_a_task_that_blocks.<locals>.work")
        assert stall.thread_id == threading.get_ident()
        assert stall.thread_name == threading.current_thread().name
        names = [frame.name for frame in stall.stack]
        assert names.index("test_a_task_that_blocks") < names.index("work") < names.index("block")
        assert next(frame.line for frame in stall.stack if frame.name == "work") == "block(reports)"
        # main() waits for parent(): its entry shows the line where it waits.
        assert len(stall.awaited_by) == 2
        assert stall.awaited_by[0].startswith("task 'parent', at ")
        assert stall.awaited_by[1].startswith("  task 'Task-")
    assert LIMIT <= begun.duration <= ended.duration


def test_a_callback_that_blocks_has_no_task(loop, reports):
    with watch_stalls(loop, LIMIT, reports):
        loop.call_soon(block, reports)
        loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
    loop.run_until_complete(loop.shutdown_default_executor())
    begun, ended = reports.both()
    assert begun.task_name is begun.coroutine is ended.task_name is None
    assert begun.awaited_by == ()


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="ctypes.PyDLL keeps CPython's GIL")
def test_c_code_that_keeps_the_gil(loop):
    """The report comes as soon as the GIL is free."""
    reports = Reports("hold_and_block")

    def hold_and_block():
        ctypes.PyDLL(None).usleep(int(5 * LIMIT * 1e6))
        block(reports)

    with watch_stalls(loop, LIMIT, reports):
        loop.call_soon(hold_and_block)
        loop.call_soon(loop.stop)
        loop.run_forever()
    reports.both()


def burn_cpu(reports):
    end = time.thread_time() + 5 * LIMIT
    while time.thread_time() < end or not reports.begun.is_set():
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another thread safely")
@pytest.mark.parametrize("in_thread", [False, True], ids=["main thread", "another thread"])
def test_the_processor_time_of_a_callback_that_works(impl, in_thread):
    """However busy the machine is: the callback ends when it has been on a processor for long enough."""
    reports = Reports("burn_cpu")

    async def main():
        with watch_stalls(asyncio.get_running_loop(), LIMIT, reports):
            asyncio.get_running_loop().call_soon(burn_cpu, reports)
            await asyncio.to_thread(reports.ended.wait)

    if in_thread:
        thread = threading.Thread(target=impl.run, args=[main()])
        thread.start()
        thread.join()
    else:
        impl.run(main())
    begun, ended = reports.both()
    assert 0 <= begun.cpu_time <= begun.duration
    # It may have run for a quarter of the limit, and longer on a busy machine, before the watchdog saw it.
    assert begun.cpu_time <= ended.cpu_time <= ended.duration


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another thread safely")
def test_the_processor_time_of_a_callback_that_waits(loop):
    reports = Reports("wait")

    def wait():
        reports.begun.wait()
        # Longer than anything that the thread did before the watchdog saw the callback.
        time.sleep(5 * LIMIT)

    with watch_stalls(loop, LIMIT, reports):
        loop.call_soon(wait)
        loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
    loop.run_until_complete(loop.shutdown_default_executor())
    _, ended = reports.both()
    assert 0 <= ended.cpu_time < ended.duration / 2


def test_each_stall_once(loop):
    seen = []

    def report(stall):
        # Only the stalls of this test: on a slow machine any callback may stall.
        if (stall.task_name or "").startswith("stall "):
            seen.append((stall.task_name, stall.ended))
            changed.set()

    async def stall():
        wanted = (asyncio.current_task().get_name(), False)
        while wanted not in seen:
            changed.wait()
            changed.clear()

    async def main():
        for number in range(3):
            await asyncio.create_task(stall(), name=f"stall {number}")

    changed = threading.Event()
    with watch_stalls(loop, LIMIT, report):
        loop.run_until_complete(main())
    for thread in watchdogs():
        thread.join()
    assert seen == [(f"stall {number}", ended) for number in range(3) for ended in (False, True)]


def test_several_loops_have_one_watchdog(impl):
    collected = [Reports("block_all") for _ in range(3)]
    counts = []

    def run(reports):
        loop = impl.new_event_loop()
        with watch_stalls(loop, LIMIT, reports):
            loop.call_soon(block_all)
            loop.call_soon(loop.stop)
            loop.run_forever()
            counts.append(len(watchdogs()))
        loop.close()

    def block_all():
        for reports in collected:
            block(reports)

    threads = [threading.Thread(target=run, args=[reports], name=f"loop {n}") for n, reports in enumerate(collected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1, 1, 1]
    for number, (reports, thread) in enumerate(zip(collected, threads, strict=True)):
        begun, ended = reports.both()
        assert begun.thread_name == f"loop {number}"
        assert begun.thread_id == ended.thread_id == thread.ident


def test_a_loop_with_virtual_time(impl, reports):
    """The loop's clock stands still while it is blocked; the watchdog's does not."""

    async def main():
        with watch_stalls(asyncio.get_running_loop(), LIMIT, reports):
            await asyncio.sleep(3600)
            asyncio.get_running_loop().call_soon(block, reports)
            await asyncio.sleep(1)

    run_virtual(impl, main())
    reports.both()


# -- how long it lasts -------------------------------------------------------------------------------------------------


def test_the_watchdog_ends_when_nothing_is_watched(loop, reports):
    first, second = watch_stalls(loop, 60, reports), watch_stalls(loop, 60, reports)
    [thread] = watchdogs()
    first.stop()
    assert watchdogs() == [thread]
    second.stop()
    second.stop()
    thread.join()
    with watch_stalls(loop, 60, reports):
        assert watchdogs() != [thread]


def test_a_limit_that_is_longer_than_a_thread_can_sleep(loop, reports):
    with watch_stalls(loop, 1e12):
        while watchdogs() and not WATCHDOG._changed._waiters:
            time.sleep(0.001)
        assert watchdogs(), "the watchdog has ended instead of sleeping"
        with watch_stalls(loop, LIMIT, reports):
            loop.call_soon(block, reports)
            loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
        loop.run_until_complete(loop.shutdown_default_executor())
    reports.both()


def test_a_closed_loop_is_watched_no_longer(impl, reports):
    loop = impl.new_event_loop()
    watch_stalls(loop, LIMIT, reports)
    [thread] = watchdogs()
    loop.close()
    thread.join()


def test_a_loop_is_not_kept_alive(impl, reports):
    loop = impl.new_event_loop()
    watch = watch_stalls(loop, 60, reports)
    reference = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert reference() is None
    watch.stop()


def test_the_end_of_a_stall_is_reported_when_the_loop_ends_with_it(impl):
    reports = Reports("main")

    async def main():
        block(reports)

    loop = impl.new_event_loop()
    watch = watch_stalls(loop, LIMIT, reports)
    loop.run_until_complete(main())
    loop.close()
    watch.stop()
    reports.both()


def test_stopped_inside_a_stall(loop):
    """The watch ends before the stall does: there is no second report."""
    reports = Reports("stop")

    def stop():
        block(reports)
        watch.stop()
        for thread in watchdogs():
            thread.join()

    watch = watch_stalls(loop, LIMIT, reports)
    loop.call_soon(stop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    [begun] = reports.stalls
    assert not begun.ended


def test_stopped_while_the_watchdog_looks(loop):
    """The stall ends, and the watch is stopped, right after the look has read the loop's progress."""

    class Loop:
        progress = 1

        def is_closed(self):
            return False

        def _progress(self):
            read, self.progress = self.progress, next(progress)
            if self.progress == 2:
                watch.stop()
            return read

    told = []
    watched, progress = Loop(), iter([1, 1, 1, 2, 2])
    watch = stalls.StallWatch(watched, 1.0, lambda stall: told.append(stall.ended))
    assert watch.look(10.0, 0.0) and watch.look(12.0, 0.0)
    assert told == [False]
    assert watch.look(13.0, 0.0)
    assert not watch.look(14.0, 0.0)
    assert told == [False, True]


@pytest.mark.parametrize("error", [LookupError, SystemExit])
def test_a_report_that_raises_is_logged_and_the_watch_goes_on(loop, reports, caplog, error):
    def report(stall):
        if reports(stall) and not stall.ended:
            raise error("text")

    with watch_stalls(loop, LIMIT, report):
        loop.call_soon(block, reports)
        loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
    loop.run_until_complete(loop.shutdown_default_executor())
    reports.both()
    [record] = [record for record in caplog.records if record.name == "hotloop.stalls"]
    assert record.levelname == "ERROR"
    assert record.exc_info[0] is error


def test_a_look_that_raises_is_logged_once_and_all_loops_are_watched_on(impl, loop, reports, asyncio_log):
    class Nameless(impl.Task):
        def get_name(self):
            if threading.current_thread().name == "hotloop-watchdog":
                looks.release()
                raise LookupError("text")
            return "nameless"

    async def work():
        for _ in range(3):
            assert looks.acquire(timeout=60)

    looks = threading.Semaphore(0)
    with watch_stalls(loop, LIMIT, reports):
        loop.run_until_complete(Nameless(work(), loop=loop))
        loop.call_soon(block, reports)
        loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
    loop.run_until_complete(loop.shutdown_default_executor())
    reports.both()
    [message] = asyncio_log.take()
    assert message.startswith("the watchdog could not look at an event loop\n")
    assert message.endswith("LookupError: text")


def test_a_report_may_stop_the_watch_and_begin_another(loop):
    second = Reports()

    def report(stall):
        if any(frame.name == "block" for frame in stall.stack):
            watch.stop()
            others.append(watch_stalls(loop, LIMIT, second))

    others = []
    watch = watch_stalls(loop, LIMIT, report)
    loop.call_soon(block, second)
    loop.call_soon(loop.stop)
    loop.run_forever()
    for other in others:
        other.stop()
    second.both()


# -- the default report ------------------------------------------------------------------------------------------------


def stall(**facts):
    known = {"duration": 0.25, "ended": False, "thread_id": 1, "thread_name": "MainThread"}
    known |= {"task_name": None, "coroutine": None, "stack": (), "awaited_by": ()}
    return Stall(**known | facts)


def frames(*places):
    """The stack of these functions, outermost first: each with the name of its file before a colon."""
    files = {"app": "/srv/app.py", "package": "/srv/.venv/lib/python3.11/site-packages/package.py"}
    files |= {"asyncio": asyncio.base_events.__file__, "hotloop": stalls.__file__, "stdlib": threading.__file__}
    split = [place.split(":") for place in places]
    return tuple(
        traceback.FrameSummary(files.get(file, file), line, name, lookup_line=False)
        for line, (file, name) in enumerate(split, 1)
    )


OUTSIDE = ("app:<module>", "hotloop:run", "asyncio:run", "asyncio:run_until_complete")


def test_text_of_a_stall():
    task = {"task_name": "Task-7", "coroutine": "handle"}
    begun = stall(
        duration=0.2512,
        stack=frames(*OUTSIDE, "app:handle", "app:read"),
        awaited_by=("task 'Task-1'", "  task 'Task-0'"),
        **task,
    )
    assert str(begun).splitlines() == [
        "/srv/app.py:6 in read(): the event loop in thread 'MainThread' has been blocked for 0.251 s, "
        "by task 'Task-7' (handle())",
        "Stack (most recent call last):",
        "  ... 4 outer frames",
        '  File "/srv/app.py", line 5, in handle',
        '  File "/srv/app.py", line 6, in read',
        "The task is awaited by:",
        "  task 'Task-1'",
        "    task 'Task-0'",
    ]
    ended = stall(duration=1.5, ended=True, cpu_time=0.25, stack=frames("app:read"))
    assert (
        str(ended)
        == ended.headline
        == ("/srv/app.py:1 in read(): the event loop in thread 'MainThread' was blocked for 1.5 s (CPU time 0.250 s)")
    )


@pytest.mark.parametrize(
    ("callback", "place"),
    [
        (["app:handle", "stdlib:wait", "stdlib:acquire"], "app.py:5 in handle()"),
        (["package:serve", "app:handle", "package:read", "stdlib:wait"], "app.py:6 in handle()"),
        (["package:serve", "package:read", "stdlib:wait"], "package.py:6 in read()"),
        (["asyncio:_run", "stdlib:wait"], "threading.py:6 in wait()"),
        (["asyncio:_run", "hotloop:step", "asyncio:wait_for", "app:handle", "asyncio:get"], "app.py:8 in handle()"),
        (["asyncio:connect"], "base_events.py:5 in connect()"),
        (["<frozen importlib._bootstrap>:_find", "app:<module>", "<frozen zipimport>:read"], "app.py:6 in <module>()"),
    ],
)
def test_the_first_line_says_where_in_the_program(callback, place):
    first = str(stall(stack=frames(*OUTSIDE, *callback))).splitlines()[0]
    assert first.partition(": the event loop ")[0].endswith(f"/{place}")


def test_a_callback_without_a_frame():
    """The loop has called a function in C. The program's line that runs the loop has not blocked it."""
    assert str(stall(stack=frames(*OUTSIDE))) == stall().headline
    assert str(stall(stack=frames(*OUTSIDE, "asyncio:_run"))) == stall().headline
    assert stall().headline.startswith("the event loop in thread")


def test_a_long_stack_is_shown_whole_on_request():
    functions = [f"app:function_{number}" for number in range(20)]
    waiting = tuple(f"task {number}" for number in range(10))
    report = stall(stack=frames(*OUTSIDE, *functions), awaited_by=waiting)
    text = str(report)
    assert text.count("  File ") == 5
    assert "  ... 19 outer frames\n" in text
    assert text.endswith("in function_19\nThe task is awaited by:\n  task 0\n  task 1\n  task 2\n  ... 7 more")
    whole = str(dataclasses.replace(report, whole=True))
    assert whole.count("  File ") == 24
    assert whole.endswith("\n  task 9")
    assert "..." not in whole


def test_the_whole_on_request_of_the_watch(loop, reports):
    with watch_stalls(loop, LIMIT, reports, whole=True):
        loop.call_soon(block, reports)
        loop.run_until_complete(loop.run_in_executor(None, reports.ended.wait))
    loop.run_until_complete(loop.shutdown_default_executor())
    begun, _ = reports.both()
    assert ", in test_the_whole_on_request_of_the_watch\n" in str(begun)
    assert ", in test_the_whole_on_request_of_the_watch\n" not in str(dataclasses.replace(begun, whole=False))
    assert re.match(rf"{re.escape(__file__)}:\d+ in block\(\): ", begun.headline)


def test_default_report(loop, caplog):
    """The report of the end is a single line: the stack was in the first report."""
    logged = Reports()

    class Handler(logging.Handler):
        def emit(self, record):
            if "in block" in record.getMessage():
                logged.begun.set()

    handler = Handler()
    stalls.logger.addHandler(handler)
    try:
        with watch_stalls(loop, LIMIT):
            loop.call_soon(block, logged)
            loop.call_soon(loop.stop)
            loop.run_forever()
        for thread in watchdogs():
            thread.join()
    finally:
        stalls.logger.removeHandler(handler)
    records = [record for record in caplog.records if record.name == "hotloop.stalls"]
    assert {record.levelname for record in records} == {"WARNING"}
    at = next(at for at, record in enumerate(records) if "in block" in record.getMessage())
    assert "has been blocked for" in records[at].getMessage()
    end = records[at + 1].getMessage()
    assert "was blocked for" in end and "\n" not in end


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, -1, float("nan"), float("inf"), 10**400])
def test_a_limit_that_is_none(loop, after):
    with pytest.raises(ValueError, match="must be positive and finite"):
        watch_stalls(loop, after)
    assert watchdogs() == []


@pytest.mark.parametrize("after", ["1", None, True])
def test_a_limit_that_is_no_number(loop, after):
    with pytest.raises(TypeError, match="must be a number of seconds"):
        watch_stalls(loop, after)


def test_other_bad_input(loop, impl):
    with pytest.raises(TypeError, match="must be callable"):
        watch_stalls(loop, 1, "report")
    other = asyncio.SelectorEventLoop()
    with contextlib.closing(other), pytest.raises(TypeError, match="only hotloop's event loops"):
        watch_stalls(other, 1)
    closed = impl.new_event_loop()
    closed.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        watch_stalls(closed, 1)


def test_no_thread_can_be_started(loop, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            watch_stalls(loop, 60)
    assert not WATCHDOG._due
    with watch_stalls(loop, 60):
        assert len(watchdogs()) == 1
