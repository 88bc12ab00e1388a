"""Random programs on executors, calls from other threads and signal handlers: their results, and the order of calls,
are asyncio's.

An executor has one thread, which waits at a gate that the program opens. So it is certain which jobs have begun. Jobs
run in other turns than on asyncio: a program waits for them before it compares.
"""

import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import os
import signal
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import SECONDS_BEFORE_A_PROGRAM_HANGS, step
from support.endpoints import turns
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers on loops"),
]

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)

variable = contextvars.ContextVar("variable", default=0)

job_kinds = st.sampled_from(["value", "error", "calls", "stop_iteration", "cancels_itself", "submits"])
indexes = st.integers(0, 5)
signals = st.sampled_from(SIGNALS)
steps = st.one_of(
    step("submit", st.tuples(st.sampled_from(["run_in_executor", "wrap_future", "to_thread"]), job_kinds)),
    step("submit", st.tuples(st.sampled_from(["run_in_executor", "wrap_future", "to_thread"]), job_kinds)),
    step("cancel", indexes),
    step("cancel_below", indexes),
    step("open_gate"),
    step("close_gate"),
    step("collect"),
    step("set_variable"),
    step("call_from_thread", st.integers(1, 5)),
    step("handle", st.tuples(signals, st.sampled_from(["note", "error", "remove"]))),
    step("unhandle", signals),
    step("send", st.lists(signals, min_size=1, max_size=3).map(tuple)),
    step("send_from_thread", signals),
    step("turns", st.integers(0, 3)),
)
programs = st.lists(steps, max_size=14)


class ThreadsStage:
    def __init__(self, program):
        self.program = program
        self.trace = []
        self.begun = []  # jobs, in the thread
        self.calls = collections.defaultdict(list)  # that each job has the loop make
        self.reports = []
        self.jobs = []
        self.below = []
        self.handlers = {}
        self.gates = []

    def note(self, *what):
        self.trace.append(what)

    def report(self, loop, context):
        self.reports.append(repr(context.get("exception")))

    async def play(self):
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(self.report)
        self.executor = concurrent.futures.ThreadPoolExecutor(1)
        self.loop.set_default_executor(self.executor)
        try:
            async with asyncio.timeout(SECONDS_BEFORE_A_PROGRAM_HANGS):
                for one in self.program:
                    await getattr(self, one.name)(*([] if one.argument is None else [one.argument]))
                await self.collect()
        finally:
            for gate in self.gates:
                gate.set()
            for number in list(self.handlers):
                self.loop.remove_signal_handler(number)
        return self.trace

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def submit(self, arguments):
        how, kind = arguments
        number = len(self.jobs)
        job = functools.partial(self.job, number, kind)
        if how == "run_in_executor":
            future = self.loop.run_in_executor(None, job)
        elif how == "wrap_future":
            self.below.append(self.executor.submit(job))
            future = asyncio.wrap_future(self.below[-1])
        else:
            future = self.loop.create_task(asyncio.to_thread(job))
            await asyncio.sleep(0)
        self.jobs.append(future)

    def job(self, number, kind):
        self.begun.append((number, variable.get()))
        calls = self.calls[number]
        if kind == "error":
            raise ValueError(number)
        if kind == "stop_iteration":
            # Before 3.13 asyncio's future refuses it, and the program waits for ever.
            raise StopIteration(number) if sys.version_info >= (3, 13) else ValueError(number)
        if kind == "cancels_itself":
            raise concurrent.futures.CancelledError
        if kind == "calls":
            for call in range(3):
                self.loop.call_soon_threadsafe(calls.append, call)
        if kind == "submits":
            self.loop.call_soon_threadsafe(self.loop.call_soon, calls.append, "submitted")
        return number

    async def cancel(self, index):
        if self.gates and self.jobs:  # nothing but the gate runs
            self.note("cancelled", self.jobs[index % len(self.jobs)].cancel())
            await self.turns(3)  # a callback of the future cancels the executor's

    async def cancel_below(self, index):
        if self.gates and self.below:
            self.note("cancelled below", self.below[index % len(self.below)].cancel())

    async def close_gate(self):
        """Have the thread wait; what was submitted before has ended then."""
        if not self.gates:
            await self.collect()
            gate, begun = threading.Event(), self.loop.create_future()
            self.gates.append(gate)
            self.executor.submit(self.wait_at, gate, begun)
            await begun

    def wait_at(self, gate, begun):
        self.loop.call_soon_threadsafe(begun.set_result, None)
        gate.wait()

    async def open_gate(self):
        while self.gates:
            self.gates.pop().set()

    async def collect(self):
        await self.open_gate()
        results = await asyncio.gather(*self.jobs, return_exceptions=True)
        # The calls of a job come before its result; those that they make come in the turns after that.
        await self.turns(3)
        self.note("results", [repr(result) for result in results])
        calls = {number: calls.copy() for number, calls in self.calls.items()}
        self.note("until now", self.begun.copy(), calls, self.reports.copy())

    async def set_variable(self):
        variable.set(variable.get() + 1)

    async def call_from_thread(self, count):
        done = self.loop.create_future()
        calls = []

        def call():
            for number in range(count):
                self.loop.call_soon_threadsafe(calls.append, number)
            self.loop.call_soon_threadsafe(done.set_result, None)

        thread = threading.Thread(target=call)
        thread.start()
        await done
        thread.join()
        self.note("from a thread", calls)

    # -- signals -------------------------------------------------------------------------------------------------------

    async def handle(self, arguments):
        number, what = arguments
        self.loop.add_signal_handler(number, self.handler, number, what)
        self.handlers[number] = what

    async def unhandle(self, number):
        self.handlers.pop(number, None)
        self.note("removed", self.loop.remove_signal_handler(number))

    def handler(self, number, what):
        self.note("handled", number, what)
        if what == "error":
            raise ValueError(number)
        if what == "remove":
            self.handlers.pop(number)
            self.note("removed", self.loop.remove_signal_handler(number))

    async def send(self, numbers):
        """The kernel delivers a signal to the only thread that has not blocked it before kill() returns; Python has
        written it to the loop's socket by then."""
        sent = [number for number in dict.fromkeys(numbers) if number in self.handlers]
        before = len(self.trace)
        for number in sent:
            signal.raise_signal(number)
        while sum(what[0] == "handled" for what in self.trace[before:]) < len(sent):
            await asyncio.sleep(0)

    async def send_from_thread(self, number):
        if number in self.handlers:
            before = len(self.trace)
            thread = threading.Thread(target=os.kill, args=(os.getpid(), number))
            thread.start()
            while len(self.trace) == before:
                await asyncio.sleep(0.0001)
            thread.join()

    turns = staticmethod(turns)


@hypothesis.given(program=programs)
def test_any_program_of_threads_and_signals_is_asyncios(load_implementation, impl, program):
    actual = impl.run(ThreadsStage(program).play())
    expected = load_implementation("asyncio").run(ThreadsStage(program).play())
    assert actual == expected
