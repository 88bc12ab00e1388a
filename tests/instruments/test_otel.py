"""hotloop.otel, as OpenTelemetry's SDK sees it: names, units, values, several loops, and loops that go away."""

import asyncio
import contextlib
import dataclasses
import gc
import os
import re
import weakref

import pytest
from support.documents import ROOT

sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402

import hotloop  # noqa: E402
from hotloop import otel  # noqa: E402
from hotloop.metrics import BUCKET_BOUNDS_NS, Delays, LongestCallback, Metrics  # noqa: E402

NAME = "hotloop.eventloop.name"


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader):
    provider = sdk.MeterProvider([reader], shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def collect(reader):
    """A reader's result: by instrument, the values by their attributes other than the loop's name."""
    data = reader.get_metrics_data()
    found = {}
    for resource in data.resource_metrics if data is not None else ():
        [scope] = resource.scope_metrics
        assert (scope.scope.name, scope.scope.version) == ("hotloop", hotloop.__version__)
        for metric in scope.metrics:
            points = {}
            for point in metric.data.data_points:
                attributes = dict(point.attributes)
                loop = attributes.pop(NAME)
                points[loop, *attributes.values()] = point.value
            assert metric.name not in found, "two instruments of one name"
            found[metric.name.removeprefix("hotloop.eventloop.")] = points
    return found


def delays(*durations):
    buckets = [0] * (len(BUCKET_BOUNDS_NS) + 1)
    for duration in durations:
        buckets[sum(duration > bound for bound in BUCKET_BOUNDS_NS)] += 1
    return Delays(len(durations), sum(durations), max(durations, default=0), tuple(buckets))


SNAPSHOT = Metrics(
    time_ns=1,
    iterations=2,
    polls=3,
    callbacks=4,
    task_steps=5,
    busy_ns=6_000_000_000,
    idle_ns=7_500_000_000,
    scheduling_delay=delays(1000, 3_000_000, 40_000_000_000),
    timer_lateness=delays(),
    longest_callback=LongestCallback(250_000_000, 1, "handle", "/srv/app.py", 12, "Task-1"),
    ready=8,
    timers=9,
    transports={"tcp": 10, "datagram": 1},
    watched={"server": 1},
    names_resolving=15,
    names_waiting=16,
    names=17,
    bytes_received=11,
    receives=12,
    bytes_sent=13,
    sends=14,
)


class Scripted:
    """The part of a loop that instrument() needs, with known numbers."""

    def __init__(self, snapshot=SNAPSHOT):
        self.snapshot = snapshot
        self.taken = 0
        self.closed = False

    def is_closed(self):
        return self.closed

    def metrics(self):
        self.taken += 1
        return dataclasses.replace(self.snapshot, polls=self.taken)


def test_every_number(reader, provider):
    loop = Scripted()
    otel.instrument(loop, provider, name="it")
    found = collect(reader)
    counted = {name: points for name, points in found.items() if not name.endswith(".bucket")}
    assert counted == {
        "time": {("it", "active"): 6.0, ("it", "idle"): 7.5},
        "iterations": {("it",): 2},
        "polls": {("it",): 1},
        "callbacks": {("it",): 4},
        "task.steps": {("it",): 5},
        "callback.longest": {("it", "handle", "/srv/app.py", 12): 0.25},
        "ready": {("it",): 8},
        "timers": {("it",): 9},
        "transports": {("it", "tcp"): 10, ("it", "datagram"): 1},
        "descriptors": {("it", "server"): 1},
        "names": {("it",): 17},
        "names.pending": {("it", "resolving"): 15, ("it", "waiting"): 16},
        "io": {("it", "receive"): 11, ("it", "transmit"): 13},
        "io.operations": {("it", "receive"): 12, ("it", "transmit"): 14},
        "delay.count": {("it",): 3},
        "delay.time": {("it",): pytest.approx(40.003001)},
        "delay.max": {("it",): pytest.approx(40)},
        "timer.lateness.count": {("it",): 0},
        "timer.lateness.time": {("it",): 0},
        "timer.lateness.max": {("it",): 0},
    }
    buckets = found["delay.bucket"]
    assert len(buckets) == len(BUCKET_BOUNDS_NS) + 1
    assert buckets["it", "1.024e-06"] == 1
    assert buckets["it", "0.002097152"] == 1
    assert buckets["it", "0.004194304"] == 2
    assert buckets["it", "17.1798692"] == 2
    assert buckets["it", "+Inf"] == 3
    assert set(found["timer.lateness.bucket"].values()) == {0}


def test_names_units_and_kinds(reader, provider):
    loop = Scripted()
    otel.instrument(loop, provider, name="it")
    [resource] = reader.get_metrics_data().resource_metrics
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert all(name.startswith("hotloop.eventloop.") for name in metrics)
    assert all(metric.description for metric in metrics.values())
    units = {name.removeprefix("hotloop.eventloop."): metric.unit for name, metric in metrics.items()}
    assert (units["time"], units["io"], units["callbacks"], units["transports"]) == (
        "s",
        "By",
        "{callback}",
        "{transport}",
    )
    monotonic = {name for name, metric in metrics.items() if getattr(metric.data, "is_monotonic", False)}
    assert {"hotloop.eventloop.time", "hotloop.eventloop.io", "hotloop.eventloop.delay.bucket"} <= monotonic
    assert not monotonic & {"hotloop.eventloop.ready", "hotloop.eventloop.transports", "hotloop.eventloop.delay.max"}
    [point] = metrics["hotloop.eventloop.callback.longest"].data.data_points
    assert {"code.function.name", "code.file.path", "code.line.number", NAME} == point.attributes.keys()


def test_a_longest_callback_that_has_no_name(reader, provider):
    longest = LongestCallback(1_000_000, 40, None, None, None, None)
    loop = Scripted(dataclasses.replace(SNAPSHOT, longest_callback=longest))
    otel.instrument(loop, provider, name="it")
    assert collect(reader)["callback.longest"] == {("it",): 0.001}


def test_no_longest_callback(reader, provider):
    loop = Scripted(dataclasses.replace(SNAPSHOT, longest_callback=None))
    otel.instrument(loop, provider, name="it")
    found = collect(reader)
    assert "callbacks" in found and "callback.longest" not in found


def test_a_collection_is_one_snapshot(provider, reader):
    """A collection takes one snapshot of the loop for all its instruments."""
    loop = Scripted()
    otel.instrument(loop, provider, name="it")
    for number in range(1, 4):
        assert collect(reader)["polls"] == {("it",): number}
        assert loop.taken == number


def test_several_readers():
    readers = InMemoryMetricReader(), InMemoryMetricReader()
    provider = sdk.MeterProvider(readers, shutdown_on_exit=False)
    loop = Scripted()
    otel.instrument(loop, provider, name="it")
    seen = [collect(reader)["polls"]["it",] for reader in (*readers, *readers)]
    assert seen == [1, 2, 3, 4]
    provider.shutdown()


def test_several_loops(reader, provider):
    first, second = Scripted(), Scripted()
    first_one = otel.instrument(first, provider)
    otel.instrument(second, provider, name="other")
    assert collect(reader)["callbacks"] == {(first_one.name,): 4, ("other",): 4}
    assert first_one.name.startswith("loop-")
    first_one.stop()
    first_one.stop()
    assert collect(reader)["callbacks"] == {("other",): 4}
    third = otel.instrument(first, provider)
    assert third.name != first_one.name
    with third:
        assert len(collect(reader)["callbacks"]) == 2
    second.closed = True
    assert collect(reader) == {}
    otel.instrument(first, provider, name="other")
    assert collect(reader)["callbacks"] == {("other",): 4}


def test_a_name_like_the_default_ones(reader, provider):
    loops = [Scripted() for _ in range(3)]
    first = otel.instrument(loops[0], provider)
    number = int(first.name.removeprefix("loop-"))
    otel.instrument(loops[1], provider, name=f"loop-{number + 1}")
    assert otel.instrument(loops[2], provider).name == f"loop-{number + 2}"
    assert len(collect(reader)["callbacks"]) == 3


def test_a_loop_is_not_kept_alive(reader, provider):
    loop = Scripted()
    reference = weakref.ref(loop)
    otel.instrument(loop, provider, name="it")
    assert collect(reader)
    del loop
    gc.collect()
    assert reference() is None
    assert collect(reader) == {}


def test_a_provider_is_not_kept_alive():
    provider = sdk.MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    loop = Scripted()
    instrumentation = otel.instrument(loop, provider, name="it")
    provider.shutdown()
    reference = weakref.ref(provider)
    del provider, instrumentation
    gc.collect()
    assert reference() is None


def test_the_global_provider(load_implementation):
    """A program may set the provider after it has instrumented the loop."""
    load_implementation("python").run_script("""if True:
        import hotloop, warnings
        warnings.simplefilter("default")  # the SDK's own business
        from hotloop import otel
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        async def main():
            otel.instrument(asyncio.get_running_loop())
            reader = InMemoryMetricReader()
            metrics.set_meter_provider(MeterProvider([reader]))
            [resource] = reader.get_metrics_data().resource_metrics
            [scope] = resource.scope_metrics
            assert "hotloop.eventloop.callbacks" in {metric.name for metric in scope.metrics}

        hotloop.run(main())
    """)


def test_without_opentelemetry(load_implementation):
    load_implementation("python").run_script("""if True:
        sys.modules["opentelemetry"] = None
        try:
            import hotloop.otel
        except ImportError as error:
            assert "pip install opentelemetry-api" in str(error), error
        else:
            raise AssertionError
    """)


def test_bad_input(provider):
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop), pytest.raises(TypeError, match="only hotloop's event loops"):
        otel.instrument(loop, provider)
    closed = Scripted()
    closed.closed = True
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        otel.instrument(closed, provider)
    one, other = Scripted(), Scripted()
    otel.instrument(one, provider, name="it")
    with pytest.raises(ValueError, match="another event loop is exported by the name 'it'"):
        otel.instrument(other, provider, name="it")


# -- real loops --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
def test_a_child_exports_its_own_loops_only(load_implementation):
    load_implementation("python").run_script("""if True:
        import hotloop, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # fork() in a process with threads
        from hotloop import otel
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        def names():
            data = reader.get_metrics_data()
            return [
                point.attributes["hotloop.eventloop.name"]
                for resource in (data.resource_metrics if data is not None else ())
                for metric in resource.scope_metrics[0].metrics
                if metric.name == "hotloop.eventloop.callbacks"
                for point in metric.data.data_points
            ]

        def hold():
            with instrumentation._exporter._lock, otel._lock:
                held.set()
                forked.wait()

        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], shutdown_on_exit=False)
        loop, other = hotloop.new_event_loop(), hotloop.new_event_loop()
        instrumentation = otel.instrument(loop, provider, name="parent")
        held, forked = threading.Event(), threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            assert names() == []
            otel.instrument(other, provider, name="child")
            assert names() == ["child"], names()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        forked.set()
        thread.join()
        assert status == 0, "the child failed"
        assert names() == ["parent"]
        loop.close()
        other.close()
    """)


@pytest.mark.only("c", "python", reason="asyncio's loops have no metrics")
def test_a_loop_of_hotloop(impl, reader, provider):
    async def main():
        for _ in range(10):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: collected.append(collect(reader)))

    collected = []
    loop = impl.new_event_loop()
    loop.metrics()  # pure Python keeps times from the first snapshot on
    with contextlib.closing(loop), otel.instrument(loop, provider, name="it"):
        loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        collected.append(collect(reader))
    for found in collected:
        assert found["callbacks"]["it",] >= 10
        assert found["task.steps"]["it",] >= 10
        assert found["time"]["it", "active"] > 0
    assert collected[1]["callbacks"]["it",] >= collected[0]["callbacks"]["it",]
    assert collect(reader) == {}


def test_the_page_has_every_instrument(reader, provider):
    loop = Scripted()
    otel.instrument(loop, provider, name="it")
    page = (ROOT / "docs" / "opentelemetry.md").read_text(encoding="utf-8")
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([\w.]+)`", " ".join(table))) == sorted(collect(reader))
