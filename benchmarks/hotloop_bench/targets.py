"""The event loops that are compared: how each is made and which implementation it must turn out to be.

aiofastnet is no loop: it replaces the transports and the TLS of one. So it has a target for each loop beneath it.

Only worker processes make loops, and each has one target for its whole life.
"""

import asyncio
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import selectors
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import load


class WrongImplementation(Exception):
    """A worker runs another implementation than the one that its target names."""


@dataclass(frozen=True)
class Target:
    """One column of the table."""

    name: str
    module: str
    """The module whose new_event_loop() makes the loop."""
    selector_module: str | None = None
    """The module whose DefaultSelector the selector rows measure."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set when the worker starts."""
    core: str | None = None
    """The package that the loop's LoopCore must come from."""
    tasks: str | None = None
    """The module that the loop's tasks must come from."""
    compiled_asyncio: bool = False
    """Whether hotloop's compiled objects stand in asyncio's place."""
    aiofastnet: bool = False
    """Whether aiofastnet's transports and TLS stand in the place of the loop's own."""

    def prepare(self) -> None:
        """Import the loop's module. The worker calls this once, before anything else."""
        if self.name == "hotloop-python":
            hide_compiled_modules()
        if self.aiofastnet:
            importlib.import_module("aiofastnet")
        importlib.import_module(self.module)
        if self.compiled_asyncio:
            install_compiled_asyncio()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = importlib.import_module(self.module).new_event_loop()
        if self.aiofastnet:
            importlib.import_module("aiofastnet").patch_loop(loop)
        return loop

    def new_selector(self) -> selectors.BaseSelector:
        if self.selector_module is None:
            raise LookupError(f"{self.name} has no selector")
        selector: selectors.BaseSelector = importlib.import_module(self.selector_module).DefaultSelector()
        return selector


TARGETS = {
    target.name: target
    for target in (
        Target("asyncio", "asyncio", selector_module="selectors"),
        Target("uvloop", "uvloop"),
        Target("rloop", "rloop"),
        Target("rsloop", "rsloop"),
        Target("zuvloop", "zuvloop"),
        Target("aiofastnet", "asyncio", aiofastnet=True),
        Target("aiofastnet-uvloop", "uvloop", aiofastnet=True),
        Target("aiofastnet-zuvloop", "zuvloop", aiofastnet=True),
        Target(
            "hotloop-c",
            "hotloop",
            selector_module="hotloop",
            environment={"HOTLOOP_IMPL": "c"},
            core="hotloop._c",
            tasks="hotloop._c.tasks.task",
        ),
        Target(
            "hotloop-compiled",
            "hotloop",
            selector_module="hotloop",
            environment={"HOTLOOP_IMPL": "c"},
            core="hotloop._c",
            tasks="hotloop._c.tasks.task",
            compiled_asyncio=True,
        ),
        Target(
            "hotloop-asyncio-tasks",
            "hotloop",
            selector_module="hotloop",
            environment={"HOTLOOP_IMPL": "c", "HOTLOOP_TASKS": "asyncio"},
            core="hotloop._c",
            tasks=asyncio.Task.__module__,
        ),
        # What a program gets where the extension could not be built: hotloop's own loop, the interpreter's own tasks.
        # HOTLOOP_IMPL=python is not measured: it has everything in Python, for debugging.
        Target(
            "hotloop-python", "hotloop", selector_module="hotloop", core="hotloop._pure", tasks=asyncio.Task.__module__
        ),
    )
}
BARE_C = Target("bare-c", "hotloop_bench.load")
"""No loop, so not among TARGETS: the server in C that network rows are compared with."""

BASELINES = ("uvloop", "asyncio")
"""The default baseline is the first of these that runs."""


def hide_compiled_modules() -> None:
    """Hide hotloop's compiled modules from this process, as if they had not been built."""
    package = importlib.util.find_spec("hotloop")
    for folder in package.submodule_search_locations or () if package else ():
        for path in Path(folder).glob("_c/*/*"):
            name = f"{path.parent.name}.{path.name.partition('.')[0]}"
            if path.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
                sys.modules[f"hotloop._c.{name}"] = None  # type: ignore[assignment]  # importing it raises ImportError


def hide_aiofastnet() -> None:
    """Hide it from this process. A library may prefer it to the transports of any loop wherever it can be imported, as
    aiohttp's development branch does."""
    sys.modules["aiofastnet"] = None  # type: ignore[assignment]  # importing it raises ImportError


def install_compiled_asyncio() -> None:
    """Put hotloop's compiled objects in asyncio's place. WrongImplementation where there are none."""
    layer = importlib.import_module("hotloop._asyncio.compiled_layer")
    layer.install()
    if not layer.compiled_asyncio().installed:
        raise WrongImplementation(f"nothing of asyncio is compiled: {layer.compiled_asyncio().reason}")


def facts(target: Target) -> dict[str, str]:
    """What this process really runs: the classes of a loop, a task, a transport and a selector that it makes."""

    async def class_of_task() -> type[Any]:
        return type(asyncio.current_task())

    if target is BARE_C:
        load.program()
        return {"version": load.compiler_version()}
    loop = target.new_event_loop()
    found = {"version": version(target), "loop": qualified_name(type(loop))}
    try:
        found["task"] = qualified_name(loop.run_until_complete(class_of_task()))
        if target.aiofastnet:
            found["transport"] = qualified_name(loop.run_until_complete(class_of_transport(loop)))
            found["TLS"] = tls_of_aiofastnet()
    finally:
        loop.close()
    for base in type(loop).__mro__:
        if base.__name__ == "LoopCore":
            found["core"] = qualified_name(base)
    if target.selector_module:
        with target.new_selector() as selector:
            found["selector"] = qualified_name(type(selector))
    return found


async def class_of_transport(loop: asyncio.AbstractEventLoop) -> type[Any]:
    """The class of the transports that the loop's servers make."""
    accepted: asyncio.Future[type[Any]] = loop.create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            accepted.set_result(type(transport))
            transport.abort()

    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    try:
        with socket.create_connection(server.sockets[0].getsockname()):
            return await accepted
    finally:
        server.close()
        await server.wait_closed()


def tls_of_aiofastnet() -> str:
    """Which of its two ways aiofastnet takes: the slower one is for a Python that OpenSSL is linked into."""
    direct = importlib.import_module("aiofastnet").OPENSSL_DYN_LIBS is not None
    return "by calls of OpenSSL" if direct else "by the ssl module"


def check(target: Target, found: Mapping[str, str]) -> None:
    """WrongImplementation unless the facts are those of the target."""
    # A policy that something has installed makes other loops, under asyncio's name.
    loops = None if target is BARE_C else target.module
    transports = "aiofastnet" if target.aiofastnet else None
    wanted = (("loop", loops), ("core", target.core), ("task", target.tasks), ("transport", transports))
    for fact, package in wanted:
        if package is not None and not found.get(fact, "nothing").startswith(f"{package}."):
            raise WrongImplementation(
                f"{target.name} was asked for, but its {fact} is {found.get(fact, 'missing')}, not one of {package}"
            )


def become(target: Target) -> None:
    """Make this process one that runs the target: its environment variables, its module, the check of what it is.

    ImportError if it is not installed, WrongImplementation if it is not what its name says."""
    os.environ.update(target.environment)
    target.prepare()
    check(target, facts(target))


def version(target: Target) -> str:
    if target.aiofastnet:
        loop = version(replace(target, aiofastnet=False))
        name = "" if target.module == "asyncio" else f"{target.module} "
        return f"{importlib.metadata.version('aiofastnet')} on {name}{loop}"
    if target.module == "asyncio":
        return "Python " + sys.version.split()[0]
    if target.module == "hotloop":
        return str(importlib.import_module("hotloop").__version__)
    return importlib.metadata.version(target.module)


def qualified_name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
