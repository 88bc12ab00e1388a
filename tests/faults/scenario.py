"""The base of scenarios: actions during a fault, in the public terms of asyncio.

A scenario is made anew for each fault. `prepare()` and `close()` run without it, and so does `serve()`, which checks
that everything the scenario has set up still works; `act()` runs with the fault. `act()` accounts for its actions: it
raises the exception that it got, or Lost if something is missing, or Corrupt if something else arrived than was sent.
Lost is a defect if nothing reported it: no exception, no call of a handler, no message in a log.
"""

import asyncio
import contextlib
from typing import Any, ClassVar


class Lost(Exception):
    """Accepted data did not arrive, or an accepted callback did not run."""


class Corrupt(Exception):
    """The data that arrived is not the data that was sent."""


class Expired(KeyboardInterrupt):
    """The scenario's time is over. A KeyboardInterrupt, because that leaves run_forever() wherever it is raised."""


class Scenario:
    """A coroutine, `act()`, on a loop that must serve others afterwards."""

    seconds: ClassVar[float] = 0.5  # at a first look; slower findings get a second look with more
    is_hot: ClassVar[bool] = False  # whether memory may be missing for a while here, not just once
    keeps_loop: ClassVar[bool] = True  # whether the loop still exists to be checked afterwards
    subjects: ClassVar[tuple[str, ...]] = ("c", "python")  # the implementations whose code it is about

    def __init__(self, impl: Any, loop: asyncio.SelectorEventLoop, harness: Any) -> None:
        self.impl = impl
        self.loop = loop
        self.harness = harness
        self.is_over = False
        self.exits = contextlib.AsyncExitStack()

    @classmethod
    def new_event_loop(cls, impl: Any) -> asyncio.SelectorEventLoop:
        return impl.new_event_loop()

    async def prepare(self) -> None: ...
    async def act(self) -> None: ...
    async def serve(self) -> None: ...

    async def close(self) -> None:
        await self.exits.aclose()

    def drive(self) -> None:
        """Run `act()` with the fault, whatever run_forever() may raise meanwhile."""

        async def armed() -> None:
            self.harness.arm()
            await self.act()

        task = self.loop.create_task(armed())
        task.add_done_callback(lambda task: self.is_over or self.loop.stop())
        self.run_until(task.done)
        if task.cancelled():
            raise Lost("the task was cancelled")
        task.result()

    def run_until(self, condition: Any) -> None:
        """Run the loop, again after each stop(), until the condition holds."""
        while not condition():
            self.run_on()

    def run_on(self) -> None:
        try:
            self.loop.run_forever()
        except Exception as error:
            self.harness.ended(error)
            if isinstance(error, RuntimeError):  # it cannot run again
                raise

    def turns_until(self, condition: Any) -> None:
        """The same where nothing calls stop(): a timer does, and setting it may be the call that fails."""
        while not condition():
            try:
                timer = self.loop.call_later(0.001, self.loop.stop)
            except MemoryError as error:
                self.harness.report("call_later", error)
                continue
            try:
                self.run_on()
            finally:
                timer.cancel()


class Plain(Scenario):
    """Calls of methods, outside of a running loop where they have to be repeated one by one."""

    is_hot = True

    def calls(self) -> None:
        raise NotImplementedError

    def drive(self) -> None:
        self.harness.arm()
        self.calls()

    def attempt(self, function: Any, *args: Any) -> Any:
        """The function's result, or None if it raised MemoryError: then it must have done nothing."""
        try:
            return function(*args)
        except MemoryError as error:
            self.harness.report(getattr(function, "__name__", "call"), error)
            return None
