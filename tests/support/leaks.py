"""A pytest plugin that looks for leaks by repeating: `PYTHONPATH=tests pytest -p support.leaks tests/tasks/test_x.py`.

Each test is run WARM_UPS times, for objects that are made once and kept, then REPEATS times more. After each run the
plugin collects garbage and counts what the process has. A test leaks if a count has grown in every single repeat: a
lost reference is lost each time, while caches fill up, and a dictionary or a list of the test runner grows only now and
then. CPython's own `-m test -R` decides in the same way, but it counts references, which only a debug build of Python
knows. This plugin counts blocks of memory instead.

Only the last run of a test is reported. Tests with hypothesis are left out: it remembers what it has tried.
"""

import array
import asyncio
import contextvars
import functools
import gc
import itertools
import linecache
import os
import socket
import sys
import typing

import pytest
from _pytest import runner
from support import implementations

WARM_UPS = 3
REPEATS = 5
KINDS = ("descriptors", "objects", "blocks")
"""What is counted: open descriptors, objects of the garbage collector, blocks of memory that Python has allocated."""
MORE_THAN_ARE_KEPT = 1500
MORE_HANDLES_THAN_ARE_KEPT = 33_000


async def fill(loop):
    """Make more of each kind of object than hotloop keeps for reuse (recycling.h), and drop them."""
    for schedule in loop.call_soon, loop.call_soon_threadsafe, functools.partial(loop.call_later, 0):
        for _ in range(MORE_HANDLES_THAN_ARE_KEPT):
            schedule(int)
        await asyncio.sleep(0)
    futures = [loop.create_future() for _ in range(MORE_THAN_ARE_KEPT)]
    tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(MORE_THAN_ARE_KEPT)]
    with socket.socket() as sock:
        sock.setblocking(False)
        operations = [loop.sock_recv(sock, 1) for _ in range(MORE_THAN_ARE_KEPT)]
        for operation in operations:
            operation.close()
    await asyncio.gather(*tasks)
    del futures, operations


def clear_caches():
    """Clear the caches of the standard library that grow with each run, by the test's own classes and code."""
    linecache.clearcache()
    asyncio.coroutines._iscoroutine_typecache.clear()
    for clear in typing._cleanups:
        clear()
    sys._clear_type_cache() if sys.version_info < (3, 13) else sys._clear_internal_caches()


def forget_tracebacks(item):
    """An exception among the test's parameters is raised in each run, and its traceback becomes longer each time."""
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        if isinstance(value, BaseException):
            value.__traceback__ = value.__context__ = None


def measure(implementation):
    # Fills the free lists, so that the number of objects kept for reuse is the same after each run.
    with asyncio.Runner(loop_factory=implementation.new_event_loop) as runner:
        runner.run(fill(runner.get_loop()))
    clear_caches()
    for _ in range(3):  # a finalizer may make more garbage
        gc.collect()
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return len(os.listdir(folder)), len(gc.get_objects()), sys.getallocatedblocks()


def leaks(history):
    """The counts that have grown each time, as text."""
    found = []
    for kind, name in enumerate(KINDS):
        counts = history[kind :: len(KINDS)]
        steps = [after - before for before, after in itertools.pairwise(counts)]
        if min(steps) > 0:
            found.append(f"{name}: {', '.join(f'+{step}' for step in steps)}")
    return found


def wide_fixtures(item):
    """The fixtures of the test that outlive it. Each notes every use, and never forgets it."""
    found = itertools.chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())
    return [fixture for fixture in found if fixture.scope != "function"]


def run_once(item, nextitem):
    """The reports of one run. `nextitem` decides which fixtures of wider scope are kept."""
    item._initrequest()  # as in pytest-rerunfailures: fixtures are made anew
    item._report_sections.clear()
    item.user_properties.clear()
    # In a copy of the context, in which a variable that is set would stay for good.
    return contextvars.copy_context().run(runner.runtestprotocol, item, log=False, nextitem=nextitem)


def run_again_and_again(item, nextitem):
    """The leaks as text; none for a test that does not pass, which its last run will report."""
    # Fixtures of wider scope must not be made and dropped each time, so pretend that another test needs them.
    others = (other for other in item.session.items if other.parent is item.parent and other is not item)
    sibling = next(others, nextitem)
    implementation = implementations.load(os.environ.get("HOTLOOP_TEST_IMPLS", "c").partition(",")[0])
    history = array.array("q")  # numbers, not objects: they must not count
    for number in range(WARM_UPS + 1 + REPEATS):
        notes = [(fixture._finalizers, len(fixture._finalizers)) for fixture in wide_fixtures(item)]
        reports = run_once(item, sibling)
        if not all(report.passed for report in reports):
            return []
        if number > 0:
            for finalizers, length in notes:
                del finalizers[length:]
        del reports, notes
        forget_tracebacks(item)
        counts = measure(implementation)
        if number >= WARM_UPS:
            history.extend(counts)
    return leaks(history)


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if getattr(getattr(item, "obj", None), "is_hypothesis_test", False)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    found = run_again_and_again(item, nextitem)
    for report in run_once(item, nextitem):
        if report.when == "call" and report.passed and found:
            report.outcome = "failed"
            report.longrepr = "it leaks, each time:\n" + "\n".join(found)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_configure():
    if sys.getallocatedblocks() == 0:
        raise pytest.UsageError("leaks: Python does not count blocks of memory that are not its own (PYTHONMALLOC)")


def pytest_report_header():
    return f"leaks: {WARM_UPS} warm-ups, {REPEATS} repeats"


assert pytest.version_tuple >= (9, 2), "the functions of pytest's own that are used here may change"
