"""The stall watch by itself: scripted times, and no thread."""

import sys
import threading
import time

import pytest

from hotloop.instruments import stalls
from hotloop.instruments.cpu_time import cpu_time_of
from hotloop.instruments.stalls import StallWatch

pytestmark = pytest.mark.only("c", "python", reason="asyncio's loops do not report their progress")


class Scripted:
    """The part of a loop that a watch sees, with scripted progress."""

    progress = -1
    closed = False
    _thread_id = None

    reads = 0

    def is_closed(self):
        return self.closed

    def _progress(self):
        return self.progress


@pytest.fixture
def scripted():
    loop, reported = Scripted(), []
    watch = StallWatch(loop, 1.0, lambda stall: reported.append((stall.duration, stall.ended)))

    def look(now, progress, late=0.0):
        loop.progress = progress
        assert watch.look(now, late)
        return reported

    look.loop, look.watch, look.reported = loop, watch, reported
    return look


def test_idle_and_busy_loops_are_not_stalled(scripted):
    for now in range(20):
        assert scripted(now / 4, -1) == []
    for now in range(20, 40):
        assert scripted(now / 4, now) == []


def test_durations(scripted):
    assert scripted(10.0, 5) == []
    assert scripted(10.75, 5) == []
    assert scripted(11.0, 5) == [(1.0, False)]
    assert scripted(11.25, 5) == [(1.0, False)]
    assert scripted(12.5, 6) == [(1.0, False), (2.5, True)]
    assert scripted(13.5, 6) == [(1.0, False), (2.5, True), (1.0, False)]
    assert scripted(14.5, -1)[3:] == [(2.0, True)]


def test_a_watchdog_that_was_kept_from_running(scripted):
    """If the watchdog woke up late, a callback that runs then counts from the time at which it should have woken."""
    assert scripted(10.0, 5) == []
    assert scripted(15.0, 6, late=4.75) == [(4.75, False)]
    assert scripted(15.25, 7)[1:] == [(5.0, True)]
    assert scripted(15.5, -1) == scripted(20.0, -1, late=4.25) == scripted(21.0, 8, late=0.75)
    assert len(scripted.reported) == 2


@pytest.fixture
def cpu_times(monkeypatch):
    """What the CPU clock of each thread says next."""
    times = {}
    monkeypatch.setattr(stalls, "cpu_time_of", times.get)
    return times


def test_the_processor_time_counts_from_when_the_duration_does(scripted, cpu_times):
    seen = []
    scripted.watch._report = lambda stall: seen.append(stall.cpu_time)
    scripted.loop._thread_id = 1
    for now, progress, late, cpu_time in (
        (10.0, 5, 0.0, 100.0),
        (11.0, 5, 0.0, 100.25),
        (12.5, 6, 0.0, 101.5),  # the end of the first, after 2.5 s
        (20.0, 7, 7.25, 106.5),  # the watchdog could not run: 5 s since its last look
        (20.25, -1, 0.0, 120.0),  # never more than the duration, 7.5 s
    ):
        cpu_times[1] = cpu_time
        scripted(now, progress, late)
    assert seen == [0.25, 1.5, 5.0, 7.5]


def test_the_processor_time_if_the_first_look_is_late(cpu_times):
    loop, seen = Scripted(), []
    loop._thread_id, cpu_times[1] = 1, 100.0
    watch = StallWatch(loop, 1.0, lambda stall: seen.append(stall.cpu_time))
    loop.progress, cpu_times[1] = 5, 102.0
    assert watch.look(15.0, 4.75)
    assert seen == [2.0]


def test_the_processor_time_of_a_thread_that_has_ended(scripted, cpu_times):
    seen = []
    scripted.watch._report = lambda stall: seen.append(stall.cpu_time)
    for after in (
        (None, {}),  # the thread is gone
        (2, {1: 101.0, 2: 100.0}),  # the loop runs in another thread
        (1, {1: 3.0}),  # a new thread has its number
        (None, {1: 101.0}),  # only the loop has ended
    ):
        scripted.loop._thread_id, cpu_times[1] = 1, 100.0
        scripted(10.0, 5)
        scripted(11.0, 5)
        scripted.loop._thread_id, known = after
        cpu_times.clear()
        cpu_times.update(known)
        scripted(12.0, -1)
    assert seen == [0.0, None] * 3 + [0.0, 1.0]


def test_the_clocks_of_threads():
    """This thread's is its own clock; no thread has the number 1."""
    before = time.thread_time()
    known = cpu_time_of(threading.get_ident())
    if sys.platform == "linux":
        assert before <= known <= time.thread_time()
    else:
        assert known is None
    assert cpu_time_of(1) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another thread safely")
def test_the_clock_of_a_thread_that_has_ended(monkeypatch):
    """The kernel refuses it. A thread ends a little later than its join()."""
    thread = threading.Thread()
    thread.start()
    thread.join()
    monkeypatch.setattr(threading, "enumerate", lambda: [thread])
    while cpu_time_of(thread.ident) is not None:
        time.sleep(0.001)


def test_a_stop_is_the_end_of_what_has_ended_by_then(scripted):
    scripted(10.0, 5)
    scripted(11.0, 5)
    scripted.watch._stopped = 11.5
    scripted.loop.progress = -1
    assert not scripted.watch.look(20.0, 0.0)
    assert scripted.reported == [(1.0, False), (1.5, True)]


def test_a_loop_that_was_closed_in_the_meantime(scripted):
    scripted(10.0, 5)
    scripted(11.0, 5)
    scripted.loop.closed = True
    assert not scripted.watch.look(11.25, 0.0)
    assert scripted.reported == [(1.0, False), (1.25, True)]


def test_a_stall_that_ends_while_its_picture_is_taken():
    class Moving(Scripted):
        def _progress(self):
            self.reads += 1
            return 5 if self.reads <= 2 else 6

    loop, reported = Moving(), []
    loop._thread_id = threading.get_ident()
    watch = StallWatch(loop, 1.0, reported.append)
    assert watch.look(10.0, 0.0) and watch.look(11.0, 0.0) and watch.look(11.25, 0.0)
    begun, ended = reported
    assert begun.stack == ended.stack == ()
    assert (begun.duration, ended.duration) == (1.0, 1.25)
    assert "Stack" not in str(begun)
