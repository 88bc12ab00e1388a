"""An event loop's metrics for OpenTelemetry: `pip install opentelemetry-api`.

    hotloop.otel.instrument(loop)

Everything is read from loop.metrics() when a reader of the meter provider collects; in between nothing happens. The
instruments belong to the provider and serve all loops, which an attribute tells apart. OpenTelemetry has conventions
for the event loop of Node.js only; the names here follow their pattern. Attributes for code and for directions have the
conventions' own names.
"""

import asyncio
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hotloop import __version__
from hotloop.metrics import BUCKET_BOUNDS_NS, Delays, Metrics

try:
    from opentelemetry import metrics as api
except ImportError as error:
    raise ImportError("hotloop.otel needs opentelemetry-api: pip install opentelemetry-api", name=error.name) from error

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

__all__ = ["Instrumentation", "instrument"]

_PREFIX = "hotloop.eventloop."
_LOOP = "hotloop.eventloop.name"
_STATE = "hotloop.eventloop.state"
_DIRECTION = "network.io.direction"
_SECOND = 1e9
"""In nanoseconds."""
_BOUNDS = (*(f"{bound / _SECOND:.9g}" for bound in BUCKET_BOUNDS_NS), "+Inf")

_Attributes = Mapping[str, str | int]
_Values = Iterator[tuple[float, _Attributes]]


@dataclass(frozen=True)
class _Instrument:
    name: str
    kind: Literal["counter", "up_down_counter", "gauge"]
    unit: str
    description: str
    read: Callable[[Metrics], _Values]


# -- the instruments ---------------------------------------------------------------------------------------------------


def _one(value: Callable[[Metrics], float]) -> Callable[[Metrics], _Values]:
    return lambda metrics: iter([(value(metrics), {})])


def _each(attribute: str, values: Callable[[Metrics], Mapping[str, float]]) -> Callable[[Metrics], _Values]:
    return lambda metrics: ((value, {attribute: kind}) for kind, value in values(metrics).items())


def _longest(metrics: Metrics) -> _Values:
    longest = metrics.longest_callback
    if longest is not None:
        known = (longest.name, longest.file, longest.line)
        names = ("code.function.name", "code.file.path", "code.line.number")
        place = {name: value for name, value in zip(names, known, strict=True) if value is not None}
        yield longest.duration_ns / _SECOND, place


def _of_delays(name: str, what: str, delays: Callable[[Metrics], Delays]) -> Iterator[_Instrument]:
    """The parts of a histogram, because OpenTelemetry has no asynchronous histogram. Buckets are like Prometheus's."""

    def buckets(metrics: Metrics) -> _Values:
        for bound, count in zip(_BOUNDS, itertools.accumulate(delays(metrics).buckets), strict=True):
            yield count, {"le": bound}

    def count(metrics: Metrics) -> float:
        return delays(metrics).count

    def total(metrics: Metrics) -> float:
        return delays(metrics).total_ns / _SECOND

    def maximum(metrics: Metrics) -> float:
        return delays(metrics).maximum_ns / _SECOND

    yield _Instrument(f"{name}.count", "counter", "{sample}", f"Samples of {what}", _one(count))
    yield _Instrument(f"{name}.time", "counter", "s", f"Sum of the samples of {what}", _one(total))
    yield _Instrument(f"{name}.max", "gauge", "s", f"Longest sample of {what}", _one(maximum))
    yield _Instrument(f"{name}.bucket", "counter", "{sample}", f"Samples of {what}, up to `le` seconds", buckets)


def _times(metrics: Metrics) -> Mapping[str, float]:
    return {"active": metrics.busy_ns / _SECOND, "idle": metrics.idle_ns / _SECOND}


def _bytes(metrics: Metrics) -> Mapping[str, float]:
    return {"receive": metrics.bytes_received, "transmit": metrics.bytes_sent}


def _names(metrics: Metrics) -> Mapping[str, float]:
    return {"resolving": metrics.names_resolving, "waiting": metrics.names_waiting}


def _operations(metrics: Metrics) -> Mapping[str, float]:
    return {"receive": metrics.receives, "transmit": metrics.sends}


# fmt: off
_INSTRUMENTS = (
    _Instrument("time", "counter", "s", "Time spent in callbacks (active) and waiting (idle)", _each(_STATE, _times)),
    _Instrument("iterations", "counter", "{iteration}", "Batches of callbacks run", _one(lambda m: m.iterations)),
    _Instrument("polls", "counter", "{poll}", "Times the kernel was asked for I/O", _one(lambda m: m.polls)),
    _Instrument("callbacks", "counter", "{callback}", "Callbacks and task steps run", _one(lambda m: m.callbacks)),
    _Instrument("task.steps", "counter", "{step}", "Steps of tasks run", _one(lambda m: m.task_steps)),
    _Instrument("callback.longest", "gauge", "s", "Longest callback or task step, and which it was", _longest),
    _Instrument("ready", "up_down_counter", "{callback}", "Callbacks that are queued", _one(lambda m: m.ready)),
    _Instrument("timers", "up_down_counter", "{timer}", "Timers that are pending", _one(lambda m: m.timers)),
    _Instrument("transports", "up_down_counter", "{transport}", "Open transports",
                _each("hotloop.transport.kind", lambda m: m.transports)),
    _Instrument("descriptors", "up_down_counter", "{descriptor}", "Descriptors that the selector watches",
                _each("hotloop.descriptor.kind", lambda m: m.watched)),
    _Instrument("names", "counter", "{name}", "Names handed to the loop's threads", _one(lambda m: m.names)),
    _Instrument("names.pending", "up_down_counter", "{name}", "Names that these threads resolve, or that wait for one",
                _each("hotloop.name.state", _names)),
    _Instrument("io", "counter", "By", "Bytes moved by transports and sock_*() methods", _each(_DIRECTION, _bytes)),
    _Instrument("io.operations", "counter", "{operation}", "System calls that moved them",
                _each(_DIRECTION, _operations)),
    *_of_delays("delay", "how long callbacks waited that were ready", lambda m: m.scheduling_delay),
    *_of_delays("timer.lateness", "how late timers were found to be due", lambda m: m.timer_lateness),
)
# fmt: on


# -- the loops ---------------------------------------------------------------------------------------------------------


class Instrumentation:
    """A loop whose metrics are exported: see instrument(). A context manager that stops at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, exporter: "_Exporter") -> None:
        self._loop = weakref.ref(loop)
        self._exporter = exporter
        self.name = name
        """The value of the attribute `hotloop.eventloop.name`."""

    def stop(self) -> None:
        """Stop exporting this loop. Idempotent; callable from any thread."""
        self._exporter.remove(self)

    def __enter__(self) -> "Instrumentation":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def snapshot(self) -> Metrics | None:
        """The loop's metrics; None if it was closed or collected."""
        loop: Any = self._loop()
        if loop is None or loop.is_closed():
            return None
        metrics: Metrics = loop.metrics()
        return metrics


class _Exporter:
    """The instruments of one meter, and the loops that they measure.

    A reader collects the instruments one by one. All instruments of one collection use the same snapshots: new ones are
    taken when an instrument is collected for the second time."""

    def __init__(self, meter: "Meter") -> None:
        self.forget()
        for each in _INSTRUMENTS:
            create = getattr(meter, f"create_observable_{each.kind}")
            create(_PREFIX + each.name, [self._callback(each)], unit=each.unit, description=each.description)

    def forget(self) -> None:
        """Drop all loops and renew the lock. A forked child needs this: the loops are the parent's, and another thread
        may have held the lock."""
        self._lock = threading.Lock()
        self._loops: dict[str, Instrumentation] = {}
        self._snapshots: dict[str, Metrics] = {}
        self._answered: set[str] = set()

    def add(self, loop: asyncio.AbstractEventLoop, name: str | None) -> Instrumentation:
        with self._lock:
            if name is None:
                # A program may have given such a name to another loop.
                name = next(each for each in map("loop-{}".format, _numbers) if not self._exports(each))
            elif self._exports(name):
                raise ValueError(f"another event loop is exported by the name {name!r}")
            self._loops[name] = instrumentation = Instrumentation(loop, name, self)
        return instrumentation

    def _exports(self, name: str) -> bool:
        present = self._loops.get(name)
        return present is not None and present.snapshot() is not None

    def remove(self, instrumentation: Instrumentation) -> None:
        with self._lock:
            if self._loops.get(instrumentation.name) is instrumentation:
                del self._loops[instrumentation.name]
                self._snapshots.pop(instrumentation.name, None)

    def _callback(self, instrument: _Instrument) -> "Callable[[CallbackOptions], Iterable[Observation]]":
        def observe(_: "CallbackOptions") -> "Iterable[Observation]":
            return [
                api.Observation(value, {_LOOP: name, **attributes})
                for name, metrics in self._collect(instrument.name)
                for value, attributes in instrument.read(metrics)
            ]

        return observe

    def _collect(self, asked: str) -> list[tuple[str, Metrics]]:
        with self._lock:
            if asked in self._answered or not self._answered:
                self._answered.clear()
                self._snapshots.clear()
                for name, instrumentation in list(self._loops.items()):
                    metrics = instrumentation.snapshot()
                    if metrics is None:
                        del self._loops[name]
                    else:
                        self._snapshots[name] = metrics
            self._answered.add(asked)
            return list(self._snapshots.items())


_lock = threading.Lock()
_numbers = itertools.count(1)
_default: _Exporter | None = None
# A provider's instruments keep its exporter alive, as long as readers can collect them.
_exporters: "weakref.WeakKeyDictionary[MeterProvider, weakref.ref[_Exporter]]" = weakref.WeakKeyDictionary()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for exporter in (_default, *(reference() for reference in _exporters.values())):
        if exporter is not None:
            exporter.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def instrument(
    loop: asyncio.AbstractEventLoop,
    meter_provider: "MeterProvider | None" = None,
    *,
    name: str | None = None,
) -> Instrumentation:
    """Export the numbers of loop.metrics() through a meter of `meter_provider`.

    The default provider is OpenTelemetry's global one, which may be set later. `name` is the value of the attribute
    `hotloop.eventloop.name`, which tells loops apart; the default is the next of "loop-1" and so on that is not in use.
    Exporting lasts until the loop is closed or collected, or until stop() of the returned context manager. A forked
    child exports its own loops only. Raises TypeError for a loop that is not hotloop's, ValueError if the name is in
    use, and RuntimeError if the loop is closed.
    """
    if not hasattr(loop, "metrics"):
        raise TypeError(f"only hotloop's event loops have metrics, not {loop!r}")
    if loop.is_closed():
        raise RuntimeError("Event loop is closed")
    with _lock:
        return _exporter_of(meter_provider).add(loop, name)


def _exporter_of(provider: "MeterProvider | None") -> _Exporter:
    global _default
    if provider is None:
        if _default is None:
            _default = _Exporter(api.get_meter(__package__, __version__))
        return _default
    reference = _exporters.get(provider)
    exporter = None if reference is None else reference()
    if exporter is None:
        exporter = _Exporter(provider.get_meter(__package__, __version__))
        _exporters[provider] = weakref.ref(exporter)
    return exporter
