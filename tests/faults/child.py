"""One scenario with one fault, in a process of its own; returns the outcome as a dictionary.

`kinds` names possible defects, with details; judging.py decides. `reports` has everything that reported the fault.
"""

import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from .peers import Client, Echo
from .scenario import Corrupt, Expired, Lost, Scenario
from .shim import Fault, Shim

SECONDS_TO_BE_SERVED = 4.0
SECONDS_BEFORE_THE_END = 15.0
POLLS_OF_AN_IDLE_LOOP = 40
MOST_REPORTS = 30

# A program cannot expect these: they are mistakes in the code that raised them.
MISTAKES = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    SystemError,
    TypeError,
    asyncio.InvalidStateError,
    RecursionError,
)


class Harness(logging.Handler):
    """Arms the fault, and receives every report. It must not itself fail without memory."""

    def __init__(self, shim: Shim) -> None:
        super().__init__(logging.WARNING)
        self.shim = shim
        self.is_expired = self._is_reported = False
        self._stderr = _Stderr()
        self.texts: list[str] = []
        self.kinds: dict[str, str] = {}
        self.arm, self.disarm = shim.arm, shim.disarm

    @property
    def is_reported(self) -> bool:
        return self._is_reported or self._stderr.has_more()

    def report(self, where: str, error: object) -> None:
        self._is_reported = True
        with contextlib.suppress(MemoryError):
            if len(self.texts) < MOST_REPORTS:
                self.texts.append(f"{where}: {error!r}"[:300] + _origin(error))
            if isinstance(error, MISTAKES):
                text = "".join(traceback.format_exception(error))
                self.kinds.setdefault(f"raises {type(error).__name__}", f"{where}: {text[-1500:]}")

    def ended(self, error: BaseException) -> None:
        self.report("run_forever", error)
        with contextlib.suppress(MemoryError):
            text = "".join(traceback.format_exception(error))
            self.kinds.setdefault("ends the loop", text[-1500:])

    def emit(self, record: logging.LogRecord) -> None:
        self.report("log", record.exc_info[1] if record.exc_info else record.getMessage())

    def handle_exception(self, loop: Any, context: dict[str, Any]) -> None:
        self.report(str(context.get("message")), context.get("exception"))

    def listen(self) -> None:
        logger = logging.getLogger("asyncio")
        logger.propagate = False
        logger.handlers = [self]
        sys.unraisablehook = lambda hooked: self.report(f"unraisable, {hooked.err_msg}", hooked.exc_value)
        threading.excepthook = lambda hooked: self.report("thread", hooked.exc_value)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        def expire(*_: Any) -> None:
            self.is_expired = True
            raise Expired

        self.is_expired = False
        signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _origin(error: object) -> str:
    """The innermost function in its traceback."""
    traceback = getattr(error, "__traceback__", None)
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f", in {code.co_filename.rpartition('/')[2]}: {code.co_name}"


class _Stderr:
    """Counts the interpreter's own output as a report, e.g. of exceptions that it cannot raise without memory."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("stderr")
        os.dup2(self.fd, 2)

    def has_more(self) -> bool:
        return os.fstat(self.fd).st_size > 0


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _leaked(before: dict[str, str]) -> dict[str, str]:
    return {name: target for name, target in _descriptors().items() if before.get(name) != target}


async def _serve_others(loop: asyncio.SelectorEventLoop) -> None:
    """The services of a loop: callbacks, timers, tasks, other threads, and connections."""
    called = loop.create_future()
    loop.call_soon(called.set_result, None)
    await called
    await asyncio.gather(asyncio.sleep(0.0005), asyncio.sleep(0))
    woken = loop.create_future()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(woken.set_result, None))
    thread.start()
    await woken
    thread.join()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    try:
        transport, client = await loop.create_connection(Client, *server.sockets[0].getsockname())
        transport.write(b"hello")
        await client.until(5)
        transport.close()
        await client.lost
        if client.received != b"hello":
            raise Corrupt(repr(client.received))
    finally:
        server.close()
        await asyncio.sleep(0)


def _drive(harness: Harness, scenario: Scenario, seconds: float) -> None:
    """Run the scenario itself, with the fault."""
    try:
        with harness.within(seconds):
            scenario.drive()
    except Expired:
        harness.disarm()
        kind = "stuck" if harness.is_reported else "stuck in silence"
        tasks = asyncio.all_tasks(scenario.loop) if not scenario.loop.is_closed() else set()
        harness.kinds[kind] = "; ".join(sorted(_where(task) for task in tasks))
    except Lost as error:
        harness.disarm()
        if not harness.is_reported:
            harness.kinds["lost in silence"] = str(error)
    except Corrupt as error:
        harness.disarm()
        harness.kinds["corrupt"] = str(error)
    except Exception as error:
        harness.disarm()
        harness.report("act", error)
    finally:
        harness.disarm()
        scenario.is_over = True
        # run_forever() is asyncio's own, and resetting this needs memory at its end.
        asyncio._set_running_loop(None)


def _where(task: Any) -> str:
    """Where a task waits."""
    coroutine, names = task.get_coro(), []
    while coroutine is not None and getattr(coroutine, "cr_frame", None) is not None:
        names.append(f"{coroutine.cr_code.co_name}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return ">".join(names)


def _check_idle(harness: Harness, loop: asyncio.SelectorEventLoop) -> None:
    """Check that a loop with nothing to do does nothing."""
    before = harness.shim.polls()
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    polls = harness.shim.polls() - before
    if polls > POLLS_OF_AN_IDLE_LOOP:
        harness.kinds["spins"] = f"{polls} polls in 10 ms"


def _after(harness: Harness, scenario: Scenario, seconds: float) -> None:
    """Check that the loop still serves."""
    loop = scenario.loop
    step = "idle"
    try:
        with harness.within(seconds):
            _check_idle(harness, loop)
            step = "cancelled"
            # A task whose step failed waits forever, and has reported so.
            for task in (tasks := asyncio.all_tasks(loop)):
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=seconds / 10))
            step = "others"
            loop.run_until_complete(_serve_others(loop))
            step = "itself"
            loop.run_until_complete(scenario.serve())
    except (Expired, Exception) as error:
        harness.kinds["serves no longer"] = f"{step}: {traceback.format_exc()[-1500:]}"
        del error


def _run(harness: Harness, impl: Any, cls: type[Scenario], seconds: float) -> None:
    before = _descriptors()
    loop = cls.new_event_loop(impl)
    loop.set_exception_handler(harness.handle_exception)
    asyncio.set_event_loop(loop)
    scenario = cls(impl, loop, harness)
    loop.run_until_complete(scenario.prepare())
    _drive(harness, scenario, seconds)
    if cls.keeps_loop:
        _after(harness, scenario, SECONDS_TO_BE_SERVED + seconds)
    try:
        with harness.within(SECONDS_TO_BE_SERVED + seconds):
            if not loop.is_closed():
                loop.run_until_complete(scenario.close())
                loop.close()
    except (Expired, Exception):
        harness.kinds.setdefault("serves no longer", f"closing: {traceback.format_exc()[-1500:]}")
        with contextlib.suppress(Expired, Exception):
            loop.close()
    asyncio.set_event_loop(None)
    del scenario, loop
    for _ in range(2):
        gc.collect()
    if leaked := _leaked(before):
        harness.kinds["leaks a descriptor"] = repr(leaked)


def run_here(shim: Shim, impl: Any, cls: type[Scenario], fault: Fault | None, seconds: float) -> dict[str, Any]:
    """Run the scenario in this process. Without a fault, count the system calls."""
    harness = Harness(shim)
    harness.listen()
    if fault is None:
        shim.count_calls()
    else:
        shim.set(fault)
    _run(harness, impl, cls, seconds)
    return {"kinds": harness.kinds, "reports": harness.texts, "seen": shim.seen(), "failed": shim.failed()}


def _tell(fd: int, outcome: dict[str, Any]) -> None:
    data = json.dumps(outcome).encode()
    while data:
        data = data[os.write(fd, data) :]


def run(
    shim: Shim, impl: Any, cls: type[Scenario], fault: Fault | None, seconds: float, names: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Run the scenario in a forked child. With `names`, the outcome's `calls` has the number of each of these system
    calls."""
    source, target = os.pipe()
    report = os.memfd_create("report")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(source)
            shim.report_to(report)
            faulthandler.enable(report)
            outcome = run_here(shim, impl, cls, fault, seconds)
            outcome["calls"] = {name: count for name in names if (count := shim.calls(name))}
            _tell(target, outcome)
            code = 0
        except BaseException:
            shim.disarm()
            _tell(target, {"kinds": {"the harness has failed": traceback.format_exc()[-1500:]}, "reports": []})
        finally:
            os._exit(code)
    os.close(target)
    # Each step of the child has its own time limit; the child ends by itself unless C code loops endlessly.
    deadline = time.monotonic() + 3 * (SECONDS_TO_BE_SERVED + seconds) + SECONDS_BEFORE_THE_END
    data, hung = b"", False
    while True:
        if not select.select([source], [], [], max(0, deadline - time.monotonic()))[0]:
            if hung:
                os.kill(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGABRT)  # faulthandler reports where the child is
            hung, deadline = True, time.monotonic() + SECONDS_BEFORE_THE_END
        elif part := os.read(source, 1 << 16):
            data += part
        else:
            break
    os.close(source)
    _, status = os.waitpid(child, 0)
    with os.fdopen(report, "rb") as file:
        file.seek(0)
        stderr = file.read().decode(errors="replace")
    if hung:
        outcome = {"kinds": {"hangs": stderr[-3000:]}, "reports": []}
    elif os.WIFSIGNALED(status):
        outcome = {"kinds": {f"dies by {signal.Signals(os.WTERMSIG(status)).name}": stderr[-3000:]}, "reports": []}
    else:
        outcome = json.loads(data)
    outcome["stack"] = stderr[:4000]
    return outcome
