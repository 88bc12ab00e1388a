"""What the network rows share: a service on a loop, and the load from another process.

The loop runs only during rounds. No message is under way between two rounds, so each begins and ends at rest.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from .. import identity
from ..load import BareServer, Downloader, Generator, Load, LoadFailed, Network, Service
from .descriptors import descriptors_allowed
from .registry import NetworkSubject, NotOffered

BACKLOG = 1024
"""The servers' backlog: all connections of a row may arrive at once."""
SECONDS_TO_SAY_GOODBYE = 5.0

Loop = asyncio.AbstractEventLoop
Serve = Callable[[Loop, Network, str], AbstractAsyncContextManager[str]]
"""serve(loop, network, path) starts a server and yields its address; the path is that of place_for()."""
Result = TypeVar("Result")


class Connections:
    """Counts the open connections of a server."""

    def __init__(self) -> None:
        self.open = 0

    async def all_gone(self) -> None:
        """Wait until the server has seen the end of all connections, some seconds at most: no row measures it."""
        deadline = time.monotonic() + SECONDS_TO_SAY_GOODBYE
        while self.open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)


Driver = Generator | Downloader


class Errors:
    """The first error of the server, which is why the generator gets no answer. The server's tasks are not awaited."""

    def __init__(self, loop: Loop) -> None:
        self.first: BaseException | None = None
        self.generator: Driver | None = None
        loop.set_exception_handler(self.handle)

    def handle(self, loop: Loop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            self.note(error)

    def note(self, error: BaseException) -> None:
        self.first = self.first or error
        if self.generator is not None:
            self.generator.process.kill()  # which waits for an answer that does not come

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """If the generator fails, raise the server's own error where there is one."""
        try:
            yield
        except LoadFailed as error:
            if self.first is not None:
                raise self.first from error
            raise


class Served:
    """A server on a loop under the load of a generator."""

    def __init__(self, loop: Loop, generator: Driver, errors: Errors) -> None:
        self.loop, self.generator, self.errors = loop, generator, errors

    def run(self, n: int) -> Load:
        before = time.process_time()
        with self.errors.blamed():
            found = while_running(self.loop, self.generator.run, n)
        return load_of(found, time.process_time() - before)


def while_running(loop: Loop, function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of the function, which runs in another thread while the loop runs in this one."""
    return loop.run_until_complete(loop.run_in_executor(None, function, *arguments))


def load_of(found: Mapping[str, float], cpu: float) -> Load:
    """The generator's results, with the seconds of processor time that the server used meanwhile."""
    return Load(int(found["messages"]), cpu, found["seconds"], found.get("p50"), found.get("p99"))


class BareServed:
    """The bare server under the same load."""

    def __init__(self, server: BareServer, generator: Driver) -> None:
        self.server, self.generator = server, generator

    def run(self, n: int) -> Load:
        before = self.server.cpu()
        found = self.generator.run(n)
        return load_of(found, self.server.cpu() - before)


Drive = Callable[[str, str], Driver]
"""drive(address, path) connects a generator to the server at this address."""
Opener = Callable[[Loop], AbstractContextManager[NetworkSubject]]
BareOpener = Callable[[], AbstractContextManager[BareServed]]


def messages(network: Network, connections: int, size: int | None, *, waves: bool = False) -> Drive:
    def drive(address: str, path: str) -> Generator:
        return Generator(network, address, connections, size, waves=waves, identity=path)

    return drive


def served(serve: Serve, network: Network, connections: int, size: int | None, *, waves: bool = False) -> Opener:
    """A row's `opened`: the server on a loop, and its generator with these connections and messages."""
    return driven(serve, network, connections, messages(network, connections, size, waves=waves))


def driven(serve: Serve, network: Network, connections: int, drive: Drive) -> Opener:
    """Like served(), with any generator."""

    @contextlib.contextmanager
    def opened(loop: Loop) -> Iterator[Served]:
        errors = Errors(loop)
        with descriptors_allowed(connections), started(serve, loop, network) as (address, path):
            try:
                with errors.blamed():
                    generator = while_running(loop, drive, address, path)
                with generator:
                    errors.generator = generator
                    yield Served(loop, generator, errors)
            finally:
                errors.generator = None

    return opened


@contextlib.contextmanager
def started(serve: Serve, loop: Loop, network: Network) -> Iterator[tuple[str, str]]:
    """Run the server while the block runs; yields its address and the path of place_for()."""
    with place_for(network) as path:
        server = serve(loop, network, path)
        with offered(network):
            address = loop.run_until_complete(server.__aenter__())
        try:
            yield address, path
        finally:
            loop.run_until_complete(server.__aexit__(None, None, None))


def bare(service: Service, network: Network, connections: int, size: int | None, *, waves: bool = False) -> BareOpener:
    """A row's `bare`: the same service by the bare C server."""
    return bare_driven(service, network, messages(network, connections, size, waves=waves))


def bare_driven(service: Service, network: Network, drive: Drive) -> BareOpener:
    """Like bare(), with any generator."""

    @contextlib.contextmanager
    def opened() -> Iterator[BareServed]:
        with (
            place_for(network) as path,
            BareServer(network, service, path) as server,
            drive(server.address, path) as generator,
        ):
            yield BareServed(server, generator)

    return opened


@contextlib.contextmanager
def place_for(network: Network) -> Iterator[str]:
    """The path at which a Unix server listens, or the file with a TLS server's certificate and key."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder, "socket"))
        if network == "tls":
            identity.make(path)
        yield path


NEEDED: dict[Network, str] = {"tcp": "TCP", "unix": "Unix sockets", "udp": "UDP", "tls": "TLS"}


@contextlib.contextmanager
def offered(network: Network) -> Iterator[None]:
    """NotOffered where the loop does not implement starting such a server; any other error is a failure."""
    try:
        yield
    except NotImplementedError as error:
        raise NotOffered(NEEDED[network]) from error


class Working:
    """Work that a loop does by itself, without a generator."""

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
    """Run a stream server; yields its address."""
    server: Any
    if network == "unix":
        server = await loop.create_unix_server(factory, path, backlog=BACKLOG)
        address = path
    else:
        server = await loop.create_server(factory, "127.0.0.1", 0, backlog=BACKLOG, ssl=context_of(network, path))
        address = "{}:{}".format(*server.sockets[0].getsockname())
    yield address
    await closed(server, connections)


def context_of(network: Network, path: str) -> Any:
    """The `ssl` argument of a server."""
    return identity.server_context(path) if network == "tls" else None


async def closed(server: Any, connections: Connections) -> None:
    server.close()
    await connections.all_gone()
    await asyncio.wait_for(server.wait_closed(), SECONDS_TO_SAY_GOODBYE)
