"""Whole programs that use asyncio as programs do: for compiled_asyncio.py, which runs each on two versions of asyncio.

Each is a coroutine function whose first argument is the module to use as `asyncio`. The async_tree programs follow
pyperformance's benchmark of that name, in a smaller tree.
"""

import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Program = Callable[[Any], Coroutine[Any, Any, None]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


# -- one operation of asyncio's, many times ----------------------------------------------------------------------------


async def child() -> None:
    pass


@program
async def gather_100(asyncio: Any) -> None:
    for _ in range(100):
        await asyncio.gather(*[child() for _ in range(100)])


@program
async def task_group_100(asyncio: Any) -> None:
    for _ in range(100):
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(child())


@program
async def task_group_failing(asyncio: Any) -> None:
    """Two tasks; one fails, and the other is cancelled for it."""

    async def fail() -> None:
        raise ValueError

    for _ in range(1_000):
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))
                group.create_task(fail())


@program
async def queue(asyncio: Any) -> None:
    """A producer and a consumer, and ten places between them."""
    items = asyncio.Queue(10)

    async def produce() -> None:
        for item in range(8_000):
            await items.put(item)

    producer = asyncio.create_task(produce())
    for _ in range(8_000):
        await items.get()
        items.task_done()
    await producer


@program
async def queue_subclass(asyncio: Any) -> None:
    """With a container of its own, as most subclasses have; nothing waits."""

    class Own(asyncio.Queue):  # type: ignore[misc]  # the module is an argument
        def _put(self, item: object) -> None:
            self._queue.append(item)

        def _get(self) -> object:
            return self._queue.popleft()

    items = Own()
    for item in range(8_000):
        await items.put(item)
        await items.get()


@program
async def queue_subclass_full(asyncio: Any) -> None:
    """With its own idea of how many items there may be; nothing waits."""

    class Own(asyncio.Queue):  # type: ignore[misc]  # the module is an argument
        def full(self) -> bool:
            return len(self._queue) > 10

        def empty(self) -> bool:
            return not self._queue

    items = Own()
    for item in range(8_000):
        await items.put(item)
        await items.get()


@program
async def lock(asyncio: Any) -> None:
    """Four tasks that take turns."""
    held = asyncio.Lock()

    async def work() -> None:
        for _ in range(1_500):
            async with held:
                await asyncio.sleep(0)

    await asyncio.gather(*[work() for _ in range(4)])


@program
async def lock_uncontended(asyncio: Any) -> None:
    held = asyncio.Lock()
    for _ in range(20_000):
        async with held:
            pass


@program
async def lock_subclass(asyncio: Any) -> None:
    """With an acquire() of its own, as locks have that log or count; nothing waits."""

    class Own(asyncio.Lock):  # type: ignore[misc]  # the module is an argument
        async def acquire(self) -> bool:
            return bool(await super().acquire())

    held = Own()
    for _ in range(10_000):
        async with held:
            pass


@program
async def semaphore(asyncio: Any) -> None:
    """Ten tasks, and room for five."""
    room = asyncio.Semaphore(5)

    async def work() -> None:
        for _ in range(600):
            async with room:
                await asyncio.sleep(0)

    await asyncio.gather(*[work() for _ in range(10)])


@program
async def event(asyncio: Any) -> None:
    for _ in range(400):
        start = asyncio.Event()
        waiting = [asyncio.create_task(start.wait()) for _ in range(20)]
        await asyncio.sleep(0)
        start.set()
        for task in waiting:
            await task


@program
async def condition(asyncio: Any) -> None:
    changed, turns = asyncio.Condition(), 0

    async def take_turns(mine: int) -> None:
        nonlocal turns

        def is_my_turn() -> bool:
            return turns % 2 == mine

        for _ in range(1_000):
            async with changed:
                await changed.wait_for(is_my_turn)
                turns += 1
                changed.notify_all()

    await asyncio.gather(take_turns(0), take_turns(1))


@program
async def sleep_0(asyncio: Any) -> None:
    for _ in range(30_000):
        await asyncio.sleep(0)


@program
async def wait_for(asyncio: Any) -> None:
    async def finish_in_time() -> None:
        await asyncio.sleep(0)

    for _ in range(4_000):
        await asyncio.wait_for(finish_in_time(), 60)


@program
async def timeout(asyncio: Any) -> None:
    for _ in range(4_000):
        async with asyncio.timeout(60):
            await asyncio.sleep(0)


@program
async def shield(asyncio: Any) -> None:
    for _ in range(5_000):
        await asyncio.shield(child())


@program
async def shield_cancelled(asyncio: Any) -> None:
    """The waiting task is cancelled; what it has waited for goes on."""
    loop = asyncio.get_running_loop()

    async def wait(future: Any) -> None:
        await asyncio.shield(future)

    for _ in range(2_000):
        future = loop.create_future()
        waiting = asyncio.create_task(wait(future))
        await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        future.set_result(None)


@program
async def wait_100(asyncio: Any) -> None:
    for _ in range(80):
        await asyncio.wait([asyncio.create_task(child()) for _ in range(100)])


@program
async def wait_first(asyncio: Any) -> None:
    """For a message or the end, as many servers do: the first of two, with a timeout."""
    end = asyncio.get_running_loop().create_future()
    for _ in range(3_000):
        message = asyncio.create_task(child())
        await asyncio.wait({message, end}, timeout=60, return_when=asyncio.FIRST_COMPLETED)


@program
async def as_completed_100(asyncio: Any) -> None:
    for _ in range(40):
        for finished in asyncio.as_completed([child() for _ in range(100)]):
            await finished


# -- crawlers ----------------------------------------------------------------------------------------------------------


@program
async def crawler(asyncio: Any) -> None:
    """Twenty workers with a queue, a semaphore and timeouts; a page is there after a few turns of the loop."""
    addresses = asyncio.Queue()
    connections = asyncio.Semaphore(10)
    seen = {0}

    async def fetch(address: int) -> list[int]:
        for _ in range(3):
            await asyncio.sleep(0)
        return [2 * address + 1, 2 * address + 2]

    async def work() -> None:
        while True:
            address = await addresses.get()
            async with connections, asyncio.timeout(60):
                links = await fetch(address)
            for link in links:
                if link < 2_000 and link not in seen:
                    seen.add(link)
                    addresses.put_nowait(link)
            addresses.task_done()

    addresses.put_nowait(0)
    workers = [asyncio.create_task(work()) for _ in range(20)]
    await addresses.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert len(seen) == 2_000


@program
async def crawler_streams(asyncio: Any) -> None:
    """The same over ten connections that are kept alive, to a server in the same process."""

    async def serve(reader: Any, writer: Any) -> None:
        while line := await reader.readline():
            address = int(line)
            page = f"{2 * address + 1} {2 * address + 2}".encode()
            writer.write(b"%d\n%b" % (len(page), page))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = asyncio.Queue()
    for _ in range(10):
        connections.put_nowait(await asyncio.open_connection(*server.sockets[0].getsockname()))
    addresses = asyncio.Queue()
    seen = {0}

    async def fetch(address: int) -> list[int]:
        reader, writer = connection = await connections.get()
        try:
            writer.write(b"%d\n" % address)
            await writer.drain()
            length = int(await reader.readline())
            return [int(link) for link in (await reader.readexactly(length)).split()]
        finally:
            connections.put_nowait(connection)

    async def work() -> None:
        while True:
            address = await addresses.get()
            for link in await asyncio.wait_for(fetch(address), 60):
                if link < 1_000 and link not in seen:
                    seen.add(link)
                    addresses.put_nowait(link)
            addresses.task_done()

    addresses.put_nowait(0)
    workers = [asyncio.create_task(work()) for _ in range(20)]
    await addresses.join()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    while not connections.empty():
        _, writer = connections.get_nowait()
        writer.close()
        await writer.wait_closed()
    server.close()
    assert len(seen) == 1_000


# -- echo servers over streams, clients in the same process ------------------------------------------------------------


async def echo(asyncio: Any, read: Callable[[Any], Awaitable[bytes]]) -> None:
    async def serve(reader: Any, writer: Any) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while message := await read(reader):
                writer.write(message)
                await writer.drain()
        writer.close()

    async def talk(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(300):
            writer.write(b"x" * 99 + b"\n")
            await writer.drain()
            assert len(await read(reader)) == 100
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    await asyncio.gather(*[talk(server.sockets[0].getsockname()) for _ in range(8)])
    server.close()


@program
async def echo_readline(asyncio: Any) -> None:
    await echo(asyncio, lambda reader: reader.readline())


@program
async def echo_readexactly(asyncio: Any) -> None:
    await echo(asyncio, lambda reader: reader.readexactly(100))


# -- async_tree --------------------------------------------------------------------------------------------------------

LEVELS, BRANCHES = 5, 6


async def grow(asyncio: Any, leaf: Callable[[], Awaitable[object]], *, group: bool = False) -> None:
    async def branch(level: int) -> None:
        if level == 0:
            await leaf()
        elif group:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(BRANCHES):
                    tasks.create_task(branch(level - 1))
        else:
            await asyncio.gather(*[branch(level - 1) for _ in range(BRANCHES)])

    await branch(LEVELS)


@program
async def async_tree_none(asyncio: Any) -> None:
    await grow(asyncio, child)


@program
async def async_tree_tg(asyncio: Any) -> None:
    await grow(asyncio, child, group=True)


@program
async def async_tree_io(asyncio: Any) -> None:
    await grow(asyncio, lambda: asyncio.sleep(0.001))


@program
async def async_tree_memoization(asyncio: Any) -> None:
    known: dict[int, object] = {}
    numbers = random.Random(0)

    async def remember() -> object:
        number = numbers.randint(1, 100)
        if number not in known:
            await asyncio.sleep(0.001)
            known[number] = number
        return known[number]

    await grow(asyncio, remember)


@program
async def async_tree_cpu_io_mixed(asyncio: Any) -> None:
    numbers = random.Random(0)

    async def compute_or_sleep() -> None:
        if numbers.random() < 0.5:
            sum(range(200))
        else:
            await asyncio.sleep(0.001)

    await grow(asyncio, compute_or_sleep)


@program
async def async_tree_eager(asyncio: Any) -> None:
    """async_tree_tg with eager tasks (Python 3.12 and later; before, with others)."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))
    try:
        await grow(asyncio, child, group=True)
    finally:
        loop.set_task_factory(None)
