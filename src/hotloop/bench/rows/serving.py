"""What the network rows have in common: a service on a loop, and the load that another process puts on it.

The loop runs only during rounds. Between two rounds no message is under way, so a round begins and ends with everything
at rest.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

from ..load import BareServer, Generator, Load, LoadFailed, Network, Service
from .descriptors import descriptors_allowed

BACKLOG = 1024
"""Of the servers: all connections of a row may come at once."""
SECONDS_TO_SAY_GOODBYE = 5.0

Loop = asyncio.AbstractEventLoop
Serve = Callable[[Loop, Network, str], AbstractAsyncContextManager[str]]
"""serve(loop, network, path) starts a server, a unix one at that path, and gives the address it listens at."""


class Connections:
    """How many a server has."""

    def __init__(self) -> None:
        self.open = 0

    async def all_gone(self) -> None:
        """Wait until the server has noticed that the generator is gone, but not for long: no row is about that."""
        deadline = time.monotonic() + SECONDS_TO_SAY_GOODBYE
        while self.open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)


class Errors:
    """What goes wrong on the server's side, where nobody awaits it: the reason why the generator gets no answer."""

    def __init__(self, loop: Loop) -> None:
        self.first: BaseException | None = None
        self.generator: Generator | None = None
        loop.set_exception_handler(self.handle)

    def handle(self, loop: Loop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            self.note(error)

    def note(self, error: BaseException) -> None:
        self.first = self.first or error
        if self.generator is not None:
            self.generator.process.kill()  # it would wait for an answer that does not come


class Served:
    """A server on a loop under the load of a generator."""

    def __init__(self, loop: Loop, generator: Generator, errors: Errors) -> None:
        self.loop, self.generator, self.errors = loop, generator, errors

    def run(self, n: int) -> Load:
        before = time.process_time()
        try:
            found = self.loop.run_until_complete(self.loop.run_in_executor(None, self.generator.run, n))
        except LoadFailed as error:
            if self.errors.first is not None:
                raise self.errors.first from error
            raise
        cpu = time.process_time() - before
        return Load(int(found["messages"]), cpu, found["seconds"], found["p50"], found["p99"])


class BareServed:
    """The bare server under the same load."""

    def __init__(self, server: BareServer, generator: Generator) -> None:
        self.server, self.generator = server, generator

    def run(self, n: int) -> Load:
        before = self.server.cpu()
        found = self.generator.run(n)
        cpu = self.server.cpu() - before
        return Load(int(found["messages"]), cpu, found["seconds"], found["p50"], found["p99"])


Opener = Callable[[Loop], AbstractContextManager[Served]]
BareOpener = Callable[[], AbstractContextManager[BareServed]]


def served(serve: Serve, network: Network, connections: int, size: int | None, *, waves: bool = False) -> Opener:
    """Makes `opened` of a row: the server on a loop, and its generator with these connections and messages."""

    @contextlib.contextmanager
    def opened(loop: Loop) -> Iterator[Served]:
        errors = Errors(loop)
        with descriptors_allowed(connections), socket_path() as path:
            server = serve(loop, network, path)
            address = loop.run_until_complete(server.__aenter__())
            try:
                with Generator(network, address, connections, size, waves=waves) as generator:
                    errors.generator = generator
                    yield Served(loop, generator, errors)
            finally:
                errors.generator = None
                loop.run_until_complete(server.__aexit__(None, None, None))

    return opened


def bare(service: Service, network: Network, connections: int, size: int | None, *, waves: bool = False) -> BareOpener:
    """Makes `bare` of a row."""

    @contextlib.contextmanager
    def opened() -> Iterator[BareServed]:
        with (
            socket_path() as path,
            BareServer(network, service, path if network == "unix" else "") as server,
            Generator(network, server.address, connections, size, waves=waves) as generator,
        ):
            yield BareServed(server, generator)

    return opened


@contextlib.contextmanager
def socket_path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield str(Path(folder, "socket"))


class Working:
    """Something a loop does of itself, with no generator."""

    def __init__(self, loop: Loop, work: Callable[[int], Coroutine[Any, Any, object]]) -> None:
        self.loop, self.work = loop, work

    def run(self, n: int) -> Load:
        cpu, start = time.process_time(), time.perf_counter()
        self.loop.run_until_complete(self.work(n))
        return Load(n, time.process_time() - cpu, time.perf_counter() - start)


@contextlib.asynccontextmanager
async def protocol_server(
    loop: Loop, network: Network, path: str, factory: Callable[[], asyncio.BaseProtocol], connections: Connections
) -> AsyncIterator[str]:
    """A stream server; its address."""
    server: Any
    if network == "unix":
        server = await loop.create_unix_server(factory, path, backlog=BACKLOG)
        address = path
    else:
        server = await loop.create_server(factory, "127.0.0.1", 0, backlog=BACKLOG)
        address = "{}:{}".format(*server.sockets[0].getsockname())
    yield address
    await closed(server, connections)


async def closed(server: Any, connections: Connections) -> None:
    server.close()
    await connections.all_gone()
    await asyncio.wait_for(server.wait_closed(), SECONDS_TO_SAY_GOODBYE)
