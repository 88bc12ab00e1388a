"""What a scenario is: something done while something fails, in the public terms of asyncio.

A scenario is made anew for each fault. `prepare()` and `close()` run without it, and so does `serve()`, which asks what
the scenario has set up whether it still works; `act()` runs with it. `act()` accounts for what it does: it raises the
exception that it was told of, or Lost where something is missing, or Corrupt where something else has come than was
sent. Lost is a defect where nothing told of it: no exception, no call of a handler, no message in a log.
"""

import asyncio
import contextlib
from typing import Any, ClassVar


class Lost(Exception):
    """What was taken did not arrive, or did not run."""


class Corrupt(Exception):
    """What arrived is not what was sent."""


class Expired(KeyboardInterrupt):
    """The scenario's time is over. A KeyboardInterrupt, because those leave run_forever() wherever they are raised."""


class Scenario:
    """A coroutine, `act()`, on a loop that must serve others afterwards."""

    seconds: ClassVar[float] = 0.5  # at a first look; what takes longer is looked at again with more
    is_hot: ClassVar[bool] = False  # whether memory may be missing for a while here, not just once
    keeps_loop: ClassVar[bool] = True  # whether the loop is there to be asked afterwards

    def __init__(self, impl: Any, loop: asyncio.SelectorEventLoop, harness: Any) -> None:
        self.impl = impl
        self.loop = loop
        self.harness = harness
        self.is_over = False
        self.exits = contextlib.AsyncExitStack()

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
        """Run the loop, which stop() ends, until it is so."""
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
        """The same where nothing calls stop(); to set a timer may be what fails."""
        while not condition():
            try:
                timer = self.loop.call_later(0.001, self.loop.stop)
            except MemoryError as error:
                self.harness.told("call_later", error)
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
        """What it returns, or None if it says that there is no memory: then it must have done nothing."""
        try:
            return function(*args)
        except MemoryError as error:
            self.harness.told(getattr(function, "__name__", "call"), error)
            return None
