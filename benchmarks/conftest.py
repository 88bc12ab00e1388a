"""The implementations, all in this one process, for the benchmarks that compare a commit with an earlier one."""

import asyncio
import dataclasses
import importlib.util
import selectors
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import pytest

from hotloop._pure.loop.asyncio_tasks import AsyncioTasks
from hotloop_bench.rows import Row
from hotloop_bench.worker import opened as opened_as_by_a_worker


@dataclasses.dataclass(frozen=True)
class Implementation:
    """Makes the subjects of the rows."""

    new_event_loop: Callable[[], asyncio.AbstractEventLoop]
    new_selector: Callable[[], selectors.BaseSelector]


def hotloop_of(package: str, *parts: type) -> Implementation:
    """Raises ImportError where the package is missing: a missing extension is an error, not a skip."""
    loop = import_module("hotloop.loop")
    event_loop = loop.make_event_loop_class(import_module(f"{package}.network.network_core").NetworkCore)
    for part in parts:
        event_loop = loop.make_class_with(part, event_loop)
    return Implementation(event_loop, import_module(f"{package}.poller.selector").DefaultSelector)


LOADERS = {
    "c": lambda: hotloop_of("hotloop._c"),
    # What programs without the extension get: the loop in Python, with the interpreter's own tasks.
    "python": lambda: hotloop_of("hotloop._pure", AsyncioTasks),
    # It does not change from commit to commit, so its changes are the machine's.
    "asyncio": lambda: Implementation(asyncio.SelectorEventLoop, selectors.DefaultSelector),
}


def pytest_configure() -> None:
    if importlib.util.find_spec("pytest_benchmark") is None:
        raise pytest.UsageError("these benchmarks need pytest-benchmark: pip install pytest-benchmark")


@pytest.fixture(params=LOADERS)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    return LOADERS[request.param]()


@pytest.fixture
def opened(implementation: Implementation) -> Iterator[Callable[[Row], Any]]:
    """opened(row) is a subject for that row, cleaned up after the benchmark."""
    used: list[AbstractContextManager[Any]] = []

    def open_row(row: Row) -> Any:
        # On one core where the row asks for that.
        used.append(opened_as_by_a_worker(row, implementation))
        return used[-1].__enter__()

    yield open_row
    for manager in used:
        manager.__exit__(None, None, None)
