"""Scenarios of asyncio's objects that hotloop compiles, each one in its own: waiters that wake, fail and are cancelled.

A scenario's objects are made before the fault and serve afterwards: what a failed call leaves behind must not lock
others out. The objects are hotloop.asyncio's, on hotloop's loop and on asyncio's; for the oracle they are asyncio's.
"""

import asyncio
import contextlib
import importlib
import sys
from collections.abc import Coroutine
from typing import Any

from .connections import Streams
from .loops import Tasks
from .scenario import Corrupt, Lost, Scenario


class HighLevel(Scenario):
    """Coroutines that wait for one another, through `module`."""

    is_hot = True
    subjects = ("c",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tasks: list[Any] = []

    @property
    def module(self) -> Any:
        """The version of asyncio that is used."""
        return importlib.import_module("hotloop.asyncio") if self.impl.name == "c" else asyncio

    async def prepare(self) -> None:
        assert self.module  # it is imported before the fault

    async def still_serves(self) -> None: ...

    async def serve(self) -> None:
        # A task whose step could not begin, which the exception handler was told, keeps what it holds.
        if all(task.done() for task in self.tasks):
            await self.still_serves()

    async def started(self, *coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
        """Tasks that have each run up to where they wait."""
        tasks = []
        for coroutine in coroutines:
            tasks.append(task := self.loop.create_task(coroutine))
            self.tasks.append(task)
            task.add_done_callback(self.report)
        await asyncio.sleep(0)
        return tasks

    def report(self, task: Any) -> None:
        """Others may wait for what the task can no longer do, so that nothing asks for its exception."""
        if not task.cancelled() and isinstance(error := task.exception(), MemoryError):
            self.harness.report("task", error)

    async def ended(self, tasks: list[Any]) -> list[Any]:
        """The tasks' outcomes, of which a cancellation that was asked for is one; everything else is raised."""
        outcomes = []
        for task in tasks:
            try:
                outcomes.append(await task)
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
                outcomes.append(asyncio.CancelledError)
        return outcomes


class Locks(HighLevel):
    async def prepare(self) -> None:
        self.lock = self.module.Lock()
        self.inside = 0

    async def hold(self) -> None:
        is_inside = False
        try:
            async with self.lock:
                is_inside = True
                self.inside += 1
                try:
                    if self.inside > 1:
                        raise Corrupt("two tasks hold the lock")
                    await asyncio.sleep(0)
                finally:
                    self.inside -= 1
        except MemoryError:
            # Without memory for its coroutine, __aexit__() is not called.
            if is_inside and self.lock.locked():
                self.lock.release()
            raise

    async def act(self) -> None:
        tasks = await self.started(*[self.hold() for _ in range(5)])
        tasks[2].cancel()
        outcomes = await self.ended(tasks)
        if outcomes != [None, None, asyncio.CancelledError, None, None]:
            raise Corrupt(f"{outcomes}")
        await self.lock.acquire()
        self.lock.release()

    async def still_serves(self) -> None:
        await self.lock.acquire()
        self.lock.release()


class Conditions(HighLevel):
    async def prepare(self) -> None:
        self.condition = self.module.Condition()
        self.number = 0

    async def wait(self) -> None:
        async with self.condition:
            await self.condition.wait()
            if not self.condition.locked():
                raise Corrupt("wait() returns without the lock")

    async def wait_for(self) -> None:
        async with self.condition:
            await self.condition.wait_for(lambda: self.number)

    async def notify(self, count: int) -> None:
        async with self.condition:
            self.number += 1
            self.condition.notify(count)

    async def notify_all(self) -> None:
        async with self.condition:
            self.condition.notify_all()

    async def act(self) -> None:
        tasks = await self.started(self.wait(), self.wait(), self.wait_for(), self.wait())
        tasks[1].cancel()
        await self.notify(1)
        await self.notify_all()
        outcomes = await self.ended(tasks)
        if outcomes != [None, asyncio.CancelledError, None, None]:
            raise Corrupt(f"{outcomes}")

    async def still_serves(self) -> None:
        (task,) = await self.started(self.wait())
        await self.notify_all()
        await task


class Semaphores(HighLevel):
    async def prepare(self) -> None:
        self.semaphores = [self.module.Semaphore(2), self.module.BoundedSemaphore(1)]

    @staticmethod
    async def hold(semaphore: Any) -> None:
        await semaphore.acquire()
        try:
            await asyncio.sleep(0)
        finally:
            semaphore.release()

    async def act(self) -> None:
        for semaphore in self.semaphores:
            tasks = await self.started(*[self.hold(semaphore) for _ in range(5)])
            tasks[3].cancel()
            outcomes = await self.ended(tasks)
            if outcomes != [None, None, None, asyncio.CancelledError, None]:
                raise Corrupt(f"{outcomes}")
        async with self.module.Semaphore(1):
            pass

    async def still_serves(self) -> None:
        for semaphore in self.semaphores:
            await self.hold(semaphore)


class Events(HighLevel):
    async def prepare(self) -> None:
        self.event = self.module.Event()

    async def act(self) -> None:
        tasks = await self.started(*[self.event.wait() for _ in range(4)])
        tasks[1].cancel()
        self.event.set()
        outcomes = await self.ended(tasks)
        if outcomes != [True, asyncio.CancelledError, True, True]:
            raise Corrupt(f"{outcomes}")
        await self.event.wait()
        self.event.clear()

    async def still_serves(self) -> None:
        self.event.clear()
        (task,) = await self.started(self.event.wait())
        self.event.set()
        await task


class Queues(HighLevel):
    async def prepare(self) -> None:
        self.queues = [self.module.Queue(2), self.module.PriorityQueue(2), self.module.LifoQueue(2)]
        self.put: list[int] = []
        self.got: list[int] = []

    async def produce(self, queue: Any, numbers: range) -> None:
        for number in numbers:
            await queue.put(number)
            self.put.append(number)

    async def consume(self, queue: Any, count: int) -> None:
        for _ in range(count):
            self.got.append(await queue.get())
            queue.task_done()

    async def act(self) -> None:
        for queue in self.queues:
            await self.act_on(queue)
        queue = self.module.Queue(1)
        if sys.version_info >= (3, 13):
            getters = await self.started(queue.get(), queue.get())
            queue.shutdown()
            for getter in getters:
                with contextlib.suppress(asyncio.QueueShutDown):
                    await getter
                    raise Lost("QueueShutDown")

    async def act_on(self, queue: Any) -> None:
        getters = await self.started(queue.get(), self.consume(queue, 1))
        getters[0].cancel()
        putters = await self.started(*[self.produce(queue, range(first, first + 2)) for first in (0, 2, 4)])
        await self.consume(queue, 5)
        outcomes = await self.ended([*getters, *putters])
        if outcomes != [asyncio.CancelledError, None, None, None, None]:
            raise Corrupt(f"{outcomes}")
        await queue.join()
        if sorted(self.got) != sorted(self.put):
            raise Corrupt(f"{self.got} of {self.put}")
        (putter,) = await self.started(self.produce(queue, range(3)))
        putter.cancel()
        await self.ended([putter])
        while not queue.empty():
            queue.get_nowait()
            queue.task_done()
        self.put.clear()
        self.got.clear()

    async def still_serves(self) -> None:
        for queue in self.queues:
            while not queue.empty():
                queue.get_nowait()
            (getter,) = await self.started(queue.get())
            await queue.put(7)
            if await getter != 7:
                raise Corrupt("another item")


async def _number(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def _fails() -> None:
    await asyncio.sleep(0)
    raise ValueError("expected")


class Sleeping(HighLevel):
    """Each sleep ends or is cancelled."""

    async def act(self) -> None:
        if await self.module.sleep(0, 1) != 1 or await self.module.sleep(0.0001, 2) != 2:
            raise Corrupt("sleep")
        tasks = await self.started(*[self.module.sleep(3600) for _ in range(3)], self.module.sleep(0.0001))
        for task in tasks[:3]:
            task.cancel()
        outcomes = await self.ended(tasks)
        if outcomes != [asyncio.CancelledError] * 3 + [None]:
            raise Corrupt(f"{outcomes}")


class Gathering(HighLevel):
    async def act(self) -> None:
        gather = self.module.gather
        if await gather(*[_number(number) for number in range(4)]) != list(range(4)):
            raise Corrupt("gather")
        outcomes = await gather(_number(1), _fails(), return_exceptions=True)
        if outcomes[0] != 1 or not isinstance(outcomes[1], ValueError):
            raise outcomes[1]
        try:
            await gather(_fails(), _number(2))
        except ValueError:
            pass
        else:
            raise Lost("the exception")
        sleeping = await self.started(asyncio.sleep(3600), asyncio.sleep(3600))
        gathered = gather(*sleeping)
        gathered.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gathered
            raise Lost("the cancellation")
        await self.ended(sleeping)


class TaskGroups(HighLevel):
    async def act(self) -> None:
        async with self.module.TaskGroup() as group:
            tasks = [group.create_task(_number(number)) for number in range(4)]
        if [task.result() for task in tasks] != list(range(4)):
            raise Corrupt("TaskGroup")
        try:
            async with self.module.TaskGroup() as group:
                sleeping = group.create_task(asyncio.sleep(3600))
                group.create_task(_fails())
                await asyncio.sleep(3600)
        except BaseExceptionGroup as error:
            for one in error.exceptions:
                if not isinstance(one, ValueError):
                    raise one from None
        else:
            raise Lost("the exception")
        if not sleeping.cancelled():
            raise Corrupt("a task outlives its group")
        (task,) = await self.started(self.group())
        task.cancel()
        await self.ended([task])

    async def group(self) -> None:
        async with self.module.TaskGroup() as outer, self.module.TaskGroup() as inner:
            inner.create_task(asyncio.sleep(3600))
            outer.create_task(asyncio.sleep(3600))


class Timeouts(HighLevel):
    """timeout(), timeout_at(), wait_for()."""

    async def act(self) -> None:
        module = self.module
        async with module.timeout(3600) as timeout:
            await asyncio.sleep(0)
            timeout.reschedule(self.loop.time() + 1800)
        async with module.timeout(None):
            await asyncio.sleep(0)
        await self.expires(module.timeout(0.0001))
        await self.expires(module.timeout_at(self.loop.time() - 1))
        if await module.wait_for(_number(3), 3600) != 3:
            raise Corrupt("wait_for")
        for seconds in (0.0001, 0):
            with contextlib.suppress(TimeoutError):
                await module.wait_for(asyncio.sleep(3600), seconds)
                raise Lost("TimeoutError")
        (task,) = await self.started(module.wait_for(asyncio.sleep(3600), 3600))
        task.cancel()
        await self.ended([task])

    async def expires(self, timeout: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with timeout:
                await self.loop.create_future()
            raise Lost("TimeoutError")
        if not timeout.expired():
            raise Corrupt("expired()")


class Waiting(HighLevel):
    """wait() and as_completed()."""

    async def act(self) -> None:
        module = self.module
        for when in (asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED):
            tasks = [*await self.started(_number(1), _fails()), self.loop.create_future()]
            done, pending = await module.wait(tasks, return_when=when, timeout=0.002)
            if len(done) + len(pending) != len(tasks) or tasks[2] not in pending:
                raise Corrupt("wait")
            tasks[2].cancel()
            await module.wait(tasks)
            if tasks[0].result() != 1:
                raise Corrupt("the result")
            if not isinstance(error := tasks[1].exception(), ValueError):
                raise error
        found = [await one for one in module.as_completed([_number(number) for number in range(4)], timeout=3600)]
        if sorted(found) != list(range(4)):
            raise Corrupt("as_completed")
        if sys.version_info >= (3, 13):
            numbers = await self.started(*[_number(number) for number in range(4)])
            async for task in module.as_completed(numbers):
                numbers.remove(task)
            if numbers:
                raise Lost("a task")
        sleeping = await self.started(asyncio.sleep(3600))
        with contextlib.suppress(TimeoutError):
            for one in module.as_completed(sleeping, timeout=0.0001):
                await one
            raise Lost("TimeoutError")
        sleeping[0].cancel()
        await self.ended(sleeping)


class Shielding(HighLevel):
    async def act(self) -> None:
        if await self.module.shield(_number(1)) != 1:
            raise Corrupt("shield")
        with contextlib.suppress(ValueError):
            await self.module.shield(_fails())
            raise Lost("the exception")
        go = self.loop.create_future()
        (inner,) = await self.started(self.wait(go))
        (outer,) = await self.started(self.shield(inner))
        outer.cancel()
        await self.ended([outer])
        go.set_result(5)
        if await inner != 5:
            raise Corrupt("the result of the shielded task")

    @staticmethod
    async def wait(future: Any) -> Any:
        return await future

    async def shield(self, task: Any) -> Any:
        return await self.module.shield(task)


class ReadersAndWriters(HighLevel, Streams):
    """The methods of StreamReader and StreamWriter."""

    seconds = 1
    LINE = b"a line\n"
    LONG_LINE = b"m" * 7999 + b"\n"
    LONG_LINES = 50

    async def prepare(self) -> None:
        self.server = await self.module.start_server(self.answer, "127.0.0.1", 0, limit=1 << 14)
        address = self.server.sockets[0].getsockname()
        self.open = lambda: self.module.open_connection(*address)

    async def exchange(self, reader: Any, writer: Any) -> None:
        line = self.LINE
        for read in (reader.readline, lambda: reader.readuntil(b"\n"), lambda: reader.readexactly(len(line))):
            writer.write(line)
            self.expect(await read(), line)
        writer.writelines([line, bytearray(line)])
        for _ in range(2):
            self.expect(await reader.readline(), line)
        (waiting,) = await self.started(reader.readline())
        waiting.cancel()
        await self.ended([waiting])
        await asyncio.gather(self.write(writer), self.read(reader))
        writer.write(line)
        writer.write_eof()
        self.expect(await reader.read(), line)
        if not reader.at_eof():
            raise Corrupt("at_eof()")

    async def still_serves(self) -> None:
        await self.converse()

    @staticmethod
    def expect(answer: bytes, expected: bytes) -> None:
        if answer != expected:
            raise ConnectionResetError("EOF") if expected.startswith(answer) else Corrupt(repr(answer))

    async def write(self, writer: Any) -> None:
        """More than the connection holds: drain() waits."""
        for _ in range(self.LONG_LINES):
            writer.write(self.LONG_LINE)
            await writer.drain()

    async def read(self, reader: Any) -> None:
        left = self.LONG_LINES * len(self.LONG_LINE)
        while left:
            data = await reader.read(left)
            if not data:
                raise ConnectionResetError("EOF")
            left -= len(data)


class CompiledTasks(HighLevel, Tasks):
    """Several of them in one program."""


class OnAsyncio(HighLevel):
    """A scenario whose futures and tasks are asyncio's."""

    @classmethod
    def new_event_loop(cls, impl: Any) -> asyncio.SelectorEventLoop:
        return asyncio.SelectorEventLoop()


def _on_asyncio(cls: type[HighLevel]) -> type[HighLevel]:
    return type(f"{cls.__name__}OnAsyncio", (OnAsyncio, cls), {"__doc__": cls.__doc__})


OBJECTS = (
    Locks,
    Conditions,
    Semaphores,
    Events,
    Queues,
    Sleeping,
    Gathering,
    TaskGroups,
    Timeouts,
    Waiting,
    Shielding,
    ReadersAndWriters,
)
ALL: tuple[type[HighLevel], ...] = (*OBJECTS, CompiledTasks, *map(_on_asyncio, OBJECTS))
