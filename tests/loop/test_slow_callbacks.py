"""loop.set_slow_callback_hook(): the hook gets each slow callback at once, in production and in debug mode."""

import asyncio
import functools
import sys
import threading
import time

import pytest
from support.interpreter import limits_memory
from support.stepping import burn, run_once

from hotloop.metrics import SlowCallback

pytestmark = pytest.mark.only("c", "python", reason="asyncio has no such hook")

NEARLY = 0.97


def of(reports, *names):
    """The reports about the test's own callbacks: on a loaded machine others may be slow as well."""
    return [one for one in reports if one.name in names]


def slow():
    burn(0.02 / NEARLY)


def fail_slowly():
    slow()
    raise ValueError


@pytest.fixture(params=[False, True], ids=["plain", "debug"])
def reports(request, loop):
    """The arguments of the hook's calls, in debug mode or not."""
    loop.set_debug(request.param)
    loop.slow_callback_duration = 3600
    reports = []
    loop.set_slow_callback_hook(reports.append, 0.02)
    return reports


def test_a_slow_callback_is_reported_with_its_place(loop, reports):
    handle = loop.call_soon(functools.partial(slow))
    loop.call_soon(int)
    run_once(loop)
    (report,) = of(reports, "slow")
    assert type(report) is SlowCallback
    assert report.duration >= NEARLY * 0.02
    assert report.handle is handle
    code = slow.__code__
    assert (report.name, report.file, report.line, report.task) == (
        "slow",
        code.co_filename,
        code.co_firstlineno,
        None,
    )


@pytest.mark.parametrize("wraps_itself", [False, True])
def test_a_decorated_callback_is_reported_with_the_place_of_what_it_decorates(loop, reports, wraps_itself):
    @functools.wraps(slow)
    def wrapper():
        slow()

    if wraps_itself:
        wrapper.__wrapped__ = wrapper
    loop.call_soon(wrapper)
    run_once(loop)
    (report,) = of(reports, "slow")
    assert report.line == (wrapper if wraps_itself else slow).__code__.co_firstlineno


def test_a_slow_step_is_reported_with_its_task(loop, reports):
    async def step():
        await asyncio.sleep(0)
        slow()

    loop.run_until_complete(loop.create_task(step(), name="late"))
    assert {one.task for one in of(reports, step.__qualname__)} == {"late"}


def test_a_slow_callback_that_fails_is_reported(loop, reports):
    def fails():
        slow()
        raise ValueError

    contexts = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    loop.call_soon(fails)
    run_once(loop)
    assert len(of(reports, fails.__qualname__)) == 1
    assert len(contexts) == 1


def test_what_is_not_slow_is_not_reported(loop, reports):
    loop.set_slow_callback_hook(reports.append, 3600)
    loop.call_soon(slow)
    run_once(loop)
    assert reports == []


def test_a_threshold_of_zero_reports_all_that_has_run(loop, reports):
    loop.set_slow_callback_hook(reports.append, 0)
    for _ in range(3):
        loop.call_soon(int)
    loop.call_soon(int).cancel()
    run_once(loop)
    assert [one.name for one in reports] == ["int"] * 3


def test_the_hook_is_replaced_and_unset(loop, reports):
    others = []
    loop.set_slow_callback_hook(others.append, 0.02)
    loop.call_soon(slow)
    run_once(loop)
    loop.set_slow_callback_hook(None)
    loop.call_soon(slow)
    run_once(loop)
    assert (len(reports), len(of(others, "slow"))) == (0, 1)


def test_it_can_be_unset_by_the_hook_itself(loop):
    reports = []

    def once(report):
        reports.append(report)
        loop.set_slow_callback_hook(None)

    loop.set_slow_callback_hook(once, 0.0)
    loop.call_soon(int)
    loop.call_soon(int)
    run_once(loop)
    assert len(reports) == 1


def test_the_time_of_the_hook_is_not_the_next_callbacks(loop):
    reports = []

    def hook(report):
        reports.append(report.name)
        burn(0.4)

    loop.set_slow_callback_hook(hook, 0.3)
    loop.call_soon(burn, 0.3 / NEARLY)
    for _ in range(5):
        loop.call_soon(int)
    run_once(loop)
    assert reports == ["burn"]


def test_what_the_hook_raises_goes_to_the_exception_handler(loop, reports):
    contexts = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))

    def hook(report):
        raise ValueError("from the hook")

    loop.set_slow_callback_hook(hook, 0.0)
    called = []
    loop.call_soon(called.append, 1)
    loop.call_soon(called.append, 2)
    run_once(loop)
    assert called == [1, 2]
    assert [str(context["exception"]) for context in contexts] == ["from the hook"] * 2
    assert contexts[0]["message"] == "Exception in the slow-callback hook"


def fail(*arguments):
    raise MemoryError


def without_memory_for_records(impl, monkeypatch):
    module = sys.modules["hotloop._c.loop.slow_callbacks" if impl.name == "c" else "hotloop._pure.loop.metrics"]
    monkeypatch.setattr(module, "describe", fail)


@pytest.mark.parametrize("last", [slow, fail_slowly], ids=["that ends", "that fails"])
@pytest.mark.parametrize("others", [0, 3])
def test_no_memory_for_the_record_of_the_longest_callback(impl, loop, monkeypatch, last, others):
    """The loop finishes the batch and goes on, and reports only the exception that a callback has raised."""
    contexts, called = [], []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    for number in range(others):
        loop.call_soon(called.append, number)
    loop.call_soon(last)
    with monkeypatch.context() as patch:
        without_memory_for_records(impl, patch)
        run_once(loop)
        loop.call_soon(called.append, others)
        run_once(loop)
    assert called == list(range(others + 1))
    assert [type(context["exception"]) for context in contexts] == [ValueError] * (last is fail_slowly)
    assert loop.metrics().longest_callback is None
    loop.call_soon(slow)
    run_once(loop)
    assert loop.metrics().longest_callback is not None


@pytest.mark.parametrize("debug", [False, True])
def test_no_memory_to_call_the_hook(loop, debug):
    """The loop does not blame the callback for the failed call of the hook, and goes on."""
    contexts, called = [], []
    loop.set_debug(debug)
    loop.slow_callback_duration = 3600
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    loop._set_slow_hook(fail, 0.0)
    for number in range(3):
        loop.call_soon(called.append, number)
        run_once(loop)
    loop.set_slow_callback_hook(None)
    assert called == [0, 1, 2]
    assert contexts == []


def test_a_hook_may_leave_the_loop(loop):
    def hook(report):
        raise SystemExit

    loop.set_slow_callback_hook(hook, 0.0)
    loop.call_soon(int)
    with pytest.raises(SystemExit):
        run_once(loop)
    loop.set_slow_callback_hook(None)
    called = []
    loop.call_soon(called.append, 1)
    run_once(loop)
    assert called == [1]


# -- processor time ----------------------------------------------------------------------------------------------------
# A busy machine lets a callback take longer, but not run longer: that is what these tests rely on.


def burn_cpu(seconds):
    """Keep the processor busy for that long, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_processor_time_of_a_callback_that_works(loop, reports):
    loop.call_soon(burn_cpu, 0.02 / NEARLY)
    run_once(loop)
    (report,) = of(reports, "burn_cpu")
    assert 0.02 <= report.cpu_time <= report.duration


def test_the_processor_time_of_a_callback_that_waits(loop, reports):
    """What the callback before it used does not count."""
    loop.call_soon(burn_cpu, 0.1)
    loop.call_soon(time.sleep, 0.1)
    run_once(loop)
    (report,) = of(reports, "sleep")
    assert 0 <= report.cpu_time < report.duration / 2


def test_the_processor_time_of_a_callback_that_runs_the_loop(loop, reports):
    def outer():
        burn_cpu(0.04)
        loop.call_soon(time.sleep, 0.1)
        loop._run_once()

    loop.call_soon(outer)
    run_once(loop)
    inner, outer = of(reports, "sleep", outer.__qualname__)
    assert inner.cpu_time < inner.duration / 2
    assert NEARLY * 0.04 <= outer.cpu_time <= outer.duration - inner.duration / 2


def test_the_processor_time_in_another_thread(loop):
    """Each thread has a clock of its own. The threshold is so high that one reading is recent enough for both runs."""
    reports = []

    def lower():
        loop.set_slow_callback_hook(reports.append, 0)

    def run():
        loop.call_soon(lower)
        run_once(loop)

    loop.set_slow_callback_hook(reports.append, 10**9)
    burn_cpu(0.02)
    loop.call_soon(int)
    run_once(loop)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert 0 <= reports[0].cpu_time <= reports[0].duration


def test_the_processor_time_is_not_known_if_the_hook_came_later(loop):
    reports = []
    loop.set_debug(True)
    loop.slow_callback_duration = 3600
    loop.call_soon(loop.set_slow_callback_hook, reports.append, 0)
    run_once(loop)
    assert reports[0].cpu_time is None


@pytest.mark.only("python", reason="the compiled loop asks the system itself")
def test_a_system_without_such_a_clock(loop, monkeypatch):
    reports = []
    monkeypatch.setattr("hotloop._pure.loop.metrics.cpu_clock", lambda: None)
    loop.set_slow_callback_hook(reports.append, 0)
    loop.call_soon(int)
    run_once(loop)
    assert reports[0].cpu_time is None


@pytest.mark.parametrize("work", [burn_cpu, time.sleep])
def test_debug_mode_logs_the_processor_time_beside_its_text(loop, asyncio_log, work):
    """Tools read asyncio's text, so that has no more than asyncio's."""
    loop.set_debug(True)
    loop.slow_callback_duration = 0.02
    loop.call_soon(work, 0.1)
    run_once(loop)
    (record,) = [record for record in asyncio_log.records if f"{work.__name__}(0.1)" in record.getMessage()]
    _, seconds = record.args
    assert record.msg == "Executing %s took %.3f seconds"
    if work is burn_cpu:
        assert record.hotloop_cpu_time >= 0.1
    else:
        assert 0 <= record.hotloop_cpu_time < seconds / 2
    asyncio_log.take()


def test_debug_mode_still_logs(loop, asyncio_log):
    loop.set_debug(True)
    loop.slow_callback_duration = 0.01
    reports = []
    loop.set_slow_callback_hook(reports.append, 0.01)
    loop.call_soon(slow)
    run_once(loop)
    (message,) = asyncio_log.take()
    assert message.startswith("Executing <Handle slow()")
    assert len(of(reports, "slow")) == 1


@pytest.mark.parametrize("threshold", [-1, -0.001, float("nan"), float("inf")])
def test_thresholds_that_are_none(loop, threshold):
    with pytest.raises(ValueError, match="threshold"):
        loop.set_slow_callback_hook(print, threshold)


def test_a_hook_that_cannot_be_called(loop):
    with pytest.raises(TypeError, match="callable"):
        loop.set_slow_callback_hook(1)
    with pytest.raises(TypeError):
        loop.set_slow_callback_hook(print, "1")


@limits_memory
def test_no_memory_to_describe_a_transport(impl):
    """Whichever allocation fails, nothing is printed: an iterator that ends early would need memory for its end."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    impl.run_script(
        """if True:
        import asyncio, socket, _testcapi
        from hotloop._asyncio.describe_callbacks import describe

        class Silent(asyncio.Protocol):
            pass

        async def main():
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(Silent, one)
            described = describe(transport)
            for allocation in range(100):
                _testcapi.set_nomemory(allocation, allocation + 1)
                try:
                    found = describe(transport)
                finally:
                    _testcapi.remove_mem_hooks()
                assert found in (described, (None,) * 4), found
            transport.close()

        one, other = socket.socketpair()
        with other:
            impl.run(main())
        """
    )
