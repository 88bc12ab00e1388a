"""The implementations the tests run on, each behind the same facade.

`c` and `python` are hotloop's two cores, loaded from their own packages so that one process can hold both. `asyncio` is
the interpreter's own loop, the oracle: a test that fails on asyncio asks for the wrong thing.
"""

import asyncio
import dataclasses
import importlib
import os
import selectors
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

ALL = ("c", "python", "asyncio")
PACKAGES = {"c": "hotloop._c", "python": "hotloop._pure"}


def expected_backend(name: str) -> str:
    """The backend that an implementation's DefaultSelector must have: that of this platform, or the one for which the
    extension was built with the same HOTLOOP_POLLER."""
    poller = os.environ.get("HOTLOOP_POLLER", "auto")
    if name == "c" and poller not in ("auto", "none"):
        return poller
    return selectors.DefaultSelector.__name__.removesuffix("Selector").lower()


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One event loop with the classes that belong to it."""

    name: str
    EventLoop: type[asyncio.SelectorEventLoop]
    Future: type[asyncio.Future]
    Task: type[asyncio.Task]
    Handle: type[asyncio.Handle]
    TimerHandle: type[asyncio.TimerHandle]
    DefaultSelector: type[selectors.BaseSelector]

    @property
    def is_oracle(self) -> bool:
        return self.name == "asyncio"

    def new_event_loop(self) -> asyncio.SelectorEventLoop:
        return self.EventLoop()

    def run(self, main: Coroutine[Any, Any, Any], *, debug: bool | None = None) -> Any:
        with asyncio.Runner(loop_factory=self.new_event_loop, debug=debug) as runner:
            return runner.run(main)

    def popen(self, source: str, *options: str, **keywords: Any) -> subprocess.Popen:
        """Start an interpreter that runs `source` with this facade bound to `impl`. Warnings are errors in it."""
        prelude = f"import asyncio, os, sys; from support.implementations import load; impl = load({self.name!r})\n"
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = os.environ | {"PYTHONPATH": path, "HOTLOOP_IMPL": "" if self.is_oracle else self.name}
        command = [sys.executable, "-X", "faulthandler", "-W", "error", *options, "-c", prelude + source]
        return subprocess.Popen(command, env=environ, text=True, **keywords)

    def run_script(self, source: str, *options: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run `source` in a new interpreter to its end; `check` asserts exit code 0 and an empty stderr."""
        with self.popen(source, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                out, err = process.communicate(timeout=60)
            except BaseException:
                process.kill()
                raise
        if check:
            assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(source, process.returncode, out, err)


def missing_names(instance: object, oracle: type) -> list[str]:
    """The attributes of instances of `oracle` that `instance` lacks; of the special methods, only some."""
    protocols = {"__await__", "__iter__", "__del__", "__class_getitem__", "__eq__", "__hash__", "__lt__", "__le__"}
    names = {name for name in dir(oracle) if not name.startswith("__") or name in protocols}
    return sorted(name for name in names if not hasattr(instance, name))


def _load_hotloop(name: str) -> Implementation:
    parts = (
        "scheduler.handles",
        "scheduler.timers",
        "tasks.future",
        "tasks.task",
        "poller.selector",
        "network.network_core",
    )
    modules = {part.partition(".")[2]: importlib.import_module(f"{PACKAGES[name]}.{part}") for part in parts}
    return Implementation(
        name=name,
        EventLoop=importlib.import_module("hotloop.loop").make_event_loop_class(modules["network_core"].NetworkCore),
        Future=modules["future"].Future,
        Task=modules["task"].Task,
        Handle=modules["handles"].Handle,
        TimerHandle=modules["timers"].TimerHandle,
        DefaultSelector=modules["selector"].DefaultSelector,
    )


def load(name: str) -> Implementation:
    """The facade called `name`; ImportError if it is one of hotloop's and not installed."""
    if name != "asyncio":
        return _load_hotloop(name)
    return Implementation(
        name=name,
        EventLoop=asyncio.SelectorEventLoop,
        Future=asyncio.Future,
        Task=asyncio.Task,
        Handle=asyncio.Handle,
        TimerHandle=asyncio.TimerHandle,
        DefaultSelector=selectors.DefaultSelector,
    )
