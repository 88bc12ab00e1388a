"""Scenarios of a loop's work: callbacks, timers, futures, tasks, threads and signals; of loops and of selectors."""

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from typing import Any

from .peers import Client, Echo
from .scenario import Corrupt, Lost, Plain, Scenario

SECONDS_OF_A_THREAD = 60


class Callbacks(Plain):
    """call_soon(): each accepted callback runs once."""

    def calls(self) -> None:
        ran, taken = bytearray(150), bytearray(150)

        def run(number: int) -> None:
            ran[number] += 1

        for number in range(len(ran)):
            if self.attempt(self.loop.call_soon, run, number) is not None:
                taken[number] = 1
        self.turns_until(lambda: ran >= taken or ran == taken)
        if ran != taken:
            raise Corrupt("a callback ran that was refused, or twice")


class Timers(Plain):
    """call_later() and cancel(): each accepted timer that is not cancelled runs once."""

    def calls(self) -> None:
        ran, taken = bytearray(120), bytearray(120)
        handles: list[Any] = [None] * len(ran)

        def run(number: int) -> None:
            ran[number] += 1

        for number in range(len(ran)):
            handles[number] = self.attempt(self.loop.call_later, number % 7 / 10000, run, number)
            taken[number] = handles[number] is not None
        for number in range(0, len(ran), 3):
            if handles[number] is not None:
                with contextlib.suppress(MemoryError):
                    handles[number].cancel()
                taken[number] = 0
        self.turns_until(lambda: all(not wanted or has for has, wanted in zip(ran, taken, strict=True)))
        if ran != taken:
            raise Corrupt("a timer ran that was refused or cancelled, or twice")


class Futures(Plain):
    """Callbacks of futures with each outcome: each accepted one runs once, if the future took its outcome."""

    def calls(self) -> None:
        ran, taken = bytearray(60), bytearray(60)
        futures: list[Any] = []

        def counts(number: int) -> Any:
            def run(future: Any) -> None:
                ran[number] += 1

            return run

        callbacks = [counts(number) for number in range(len(ran))]
        for number in range(20):
            future = self.attempt(self.loop.create_future)
            futures.append(future)
            for place in range(3 * number, 3 * number + 3) if future is not None else ():
                with contextlib.suppress(MemoryError):
                    future.add_done_callback(callbacks[place])
                    taken[place] = 1
        for number, future in enumerate(futures):
            if future is None:
                continue
            ends = (future.set_result, 1), (future.set_exception, ValueError("expected")), (future.cancel,)
            end = ends[number % 3]
            try:
                end[0](*end[1:])
            except MemoryError as error:
                self.harness.report("future", error)
                if not future.done():
                    future.set_result(None)
        self.turns_until(lambda: ran == taken)
        for future in futures:
            if future is not None and not future.cancelled():
                future.exception()


class Threadsafe(Plain):
    """call_soon_threadsafe() from a thread, while the loop runs."""

    async def prepare(self) -> None:
        self.go = threading.Event()
        self.ran, self.taken = bytearray(60), bytearray(60)
        self.has_called_all = False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        self.go.wait()
        for number in range(len(self.ran)):
            try:
                self.loop.call_soon_threadsafe(self.run, number)
                self.taken[number] = 1
            except (MemoryError, OSError) as error:
                self.harness.report("call_soon_threadsafe", error)
        self.has_called_all = True

    def run(self, number: int) -> None:
        self.ran[number] += 1

    def calls(self) -> None:
        while True:
            try:
                self.go.set()
                break
            except MemoryError:
                continue
        self.turns_until(lambda: self.has_called_all and all(map(int.__le__, self.taken, self.ran)))

    async def close(self) -> None:
        self.go.set()
        self.thread.join(SECONDS_OF_A_THREAD)


class ThreadsafeAsleep(Threadsafe):
    """The same with an otherwise idle loop; each call waits until the previous one has run."""

    is_hot = False

    def drive(self) -> None:
        self.harness.arm()
        self.go.set()
        self.run_until(lambda: self.has_called_all)

    def work(self) -> None:
        self.go.wait()
        for number in range(6):
            time.sleep(0.002)
            try:
                self.loop.call_soon_threadsafe(self.run, number)
            except (MemoryError, OSError) as error:
                self.harness.report("call_soon_threadsafe", error)
            else:
                while not self.ran[number] and not self.harness.is_expired:
                    time.sleep(0.0005)
        self.harness.disarm()
        self.has_called_all = True
        if not self.harness.is_expired:
            self.loop.call_soon_threadsafe(self.loop.stop)


class Tasks(Scenario):
    """gather(), TaskGroup, timeout(), Queue, Lock, Condition."""

    is_hot = True

    @property
    def module(self) -> Any:
        """The version of asyncio that is used."""
        return asyncio

    async def act(self) -> None:
        module = self.module

        async def leaf(number: int) -> int:
            await module.sleep(0)
            await module.sleep(0.0001)
            return number

        if await module.gather(*[leaf(number) for number in range(10)]) != list(range(10)):
            raise Corrupt("gather")
        async with module.TaskGroup() as group:
            tasks = [group.create_task(leaf(number)) for number in range(10)]
        if [task.result() for task in tasks] != list(range(10)):
            raise Corrupt("TaskGroup")
        with contextlib.suppress(TimeoutError):
            async with module.timeout(0.001):
                await module.Event().wait()
            raise Lost("timeout")
        queue = module.Queue(2)

        async def produce() -> None:
            for number in range(6):
                await queue.put(number)

        async with module.TaskGroup() as group:
            group.create_task(produce())
            taken = [await queue.get() for _ in range(6)]
        if taken != list(range(6)):
            raise Corrupt("Queue")
        lock, condition = module.Lock(), module.Condition()

        async def locked() -> None:
            async with lock:
                await module.sleep(0)

        async def waiting() -> None:
            async with condition:
                await condition.wait()

        waiters = [self.loop.create_task(waiting()) for _ in range(3)]
        await module.gather(*[locked() for _ in range(4)])
        async with condition:
            condition.notify_all()
        await module.gather(*waiters)
        await self.act_in_turns(module)

    async def act_in_turns(self, module: Any) -> None:
        """Semaphore, wait_for(), PriorityQueue with join()."""
        semaphore, queue = module.Semaphore(2), module.PriorityQueue()

        async def work() -> None:
            async with semaphore:
                await module.wait_for(module.sleep(0), 1)
                queue.put_nowait(1)

        async def consume() -> None:
            for _ in range(4):
                await queue.get()
                queue.task_done()

        await module.gather(*[work() for _ in range(4)])
        await module.gather(queue.join(), consume())
        if not queue.empty():
            raise Lost("PriorityQueue")
        await self.act_on_several(module)

    async def act_on_several(self, module: Any) -> None:
        """shield(), wait(), as_completed()."""

        async def leaf(number: int) -> int:
            await module.sleep(0)
            return number

        if await module.shield(leaf(1)) != 1:
            raise Corrupt("shield")
        tasks = {self.loop.create_task(leaf(number)) for number in range(4)}
        done, pending = await module.wait(tasks, timeout=1)
        if pending or sorted(task.result() for task in done) != list(range(4)):
            raise Corrupt("wait")
        found = [await one for one in module.as_completed([leaf(number) for number in range(4)], timeout=1)]
        if sorted(found) != list(range(4)):
            raise Corrupt("as_completed")


class EagerTasks(Scenario):
    """Tasks that begin at once, which asyncio has from Python 3.12 on."""

    is_hot = True

    async def act(self) -> None:
        async def leaf(number: int) -> int:
            if number % 2:
                await asyncio.sleep(0)
            return number

        try:
            factory: Any = asyncio.create_eager_task_factory(self.impl.Task)
        except AttributeError:
            factory = None
        if factory is None:
            tasks = [self.loop.create_task(leaf(number)) for number in range(6)]
        else:
            tasks = [factory(self.loop, leaf(number)) for number in range(6)]
        if await asyncio.gather(*tasks) != list(range(6)):
            raise Corrupt("eager tasks")


class Cancelling(Scenario):
    is_hot = True

    async def act(self) -> None:
        async def sleep() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0)

        tasks = [self.loop.create_task(sleep()) for _ in range(6)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                raise outcome if isinstance(outcome, BaseException) else Corrupt("cancelled, and has a result")


class Executor(Scenario):
    seconds = 1

    async def act(self) -> None:
        calls = [self.loop.run_in_executor(None, int, number) for number in range(5)]
        if await asyncio.gather(*calls) != list(range(5)):
            raise Corrupt("run_in_executor")

    async def close(self) -> None:
        await self.loop.shutdown_default_executor()


class AsyncGenerators(Scenario):
    async def prepare(self) -> None:
        async def numbers() -> Any:
            try:
                yield 1
                yield 2
            finally:
                await asyncio.sleep(0)

        self.generators = [numbers() for _ in range(3)]
        for generator in self.generators:
            await generator.__anext__()

    async def act(self) -> None:
        self.generators.pop()
        await asyncio.sleep(0)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()

    async def close(self) -> None:
        self.generators.clear()


class Signals(Scenario):
    async def act(self) -> None:
        come = self.loop.create_future()
        self.loop.add_signal_handler(signal.SIGUSR1, lambda: come.done() or come.set_result(None))
        os.kill(os.getpid(), signal.SIGUSR1)
        await come

    async def prepare(self) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # where the handler could not be set

    async def close(self) -> None:
        self.loop.remove_signal_handler(signal.SIGUSR1)


class NewLoop(Plain):
    """A loop is made, runs and is closed; a call that reports a failure is repeated."""

    is_hot = False
    keeps_loop = False

    def calls(self) -> None:
        loop = None
        try:
            loop = self.impl.new_event_loop()
            future = loop.create_future()
            loop.call_soon(future.set_result, 7)
            if loop.run_until_complete(future) != 7:
                raise Corrupt("the result of run_until_complete()")
            loop.call_later(0.0001, loop.stop)
            loop.run_forever()
        finally:
            self.harness.disarm()
            if loop is not None:
                loop.close()


class CloseLoop(Plain):
    """close() of a loop that has a server, connections, timers, callbacks; it is repeated until it reports nothing."""

    is_hot = False
    keeps_loop = False

    async def prepare(self) -> None:
        server = await self.loop.create_server(Echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        self.loop.call_later(3600, print)
        self.connections = [await self.loop.create_connection(Client, *address) for _ in range(3)]
        for transport, protocol in self.connections:
            transport.write(b"x")
            await protocol.until(1)

    def calls(self) -> None:
        for _ in range(5):
            self.attempt(self.loop.call_soon, int)
        while not self.loop.is_closed():
            try:
                self.loop.close()
            except (MemoryError, OSError) as error:
                self.harness.report("close", error)

    async def close(self) -> None:
        self.connections.clear()


class Selector(Plain):
    """hotloop's selector on its own, beside the selectors module's."""

    is_hot = False

    async def prepare(self) -> None:
        self.pairs = [socket.socketpair() for _ in range(5)]

    def calls(self) -> None:
        with self.impl.DefaultSelector() as selector:
            for number, (one, _) in enumerate(self.pairs):
                selector.register(one, selectors.EVENT_READ, number)
            self.pairs[0][1].send(b"x")
            self.pairs[3][1].send(b"y")
            self.expect(selector, [0, 3])
            selector.modify(self.pairs[0][0], selectors.EVENT_READ | selectors.EVENT_WRITE, 7)
            selector.unregister(self.pairs[3][0])
            self.expect(selector, [7])
            if len(selector.get_map()) != 4:
                raise Corrupt("get_map")

    def expect(self, selector: Any, data: list[int]) -> None:
        """select() may raise, but the next select() has to report what the failed one did not."""
        while True:
            try:
                found = sorted(key.data for key, _ in selector.select(1))
                break
            except (MemoryError, OSError) as error:
                self.harness.report("select", error)
        if found != data:
            raise Lost(f"select() has {found}, not {data}")

    async def close(self) -> None:
        for pair in self.pairs:
            for end in pair:
                end.close()
