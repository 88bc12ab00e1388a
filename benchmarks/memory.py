"""What does one of each thing cost in memory that a program has many of: connections, tasks, timers, queues?

    python benchmarks/memory.py
    python benchmarks/memory.py --loops hotloop-c,uvloop --things timer,task-that-sleeps --rounds 1
    python benchmarks/memory.py --loops asyncio,hotloop-compiled --things queue,lock,task-in-queue-get

A process of its own makes one loop and many of one thing, and divides what its anonymous memory has grown by (heaps of
Python, libc and, over TLS, OpenSSL; not the kernel's part). Pages of files do not count, so other processes do not
disturb a figure. The median of some such processes is shown. Exit code: 0, or 1 if nothing could be measured.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import idle_connections
import tls_memory
from hotloop_bench import load, machine, report
from hotloop_bench.cli import Parser, loop_names, positive
from hotloop_bench.runner import environment
from hotloop_bench.targets import TARGETS, Target, become
from idle import Echo, NotMeasured, anonymous_memory

ROUNDS = 3
LOOPS = "asyncio,uvloop,rloop,rsloop,zuvloop,hotloop-c,hotloop-python"
NEVER = 24 * 3600
"""Seconds: a timer that does not fire while it is measured."""
WARM_UP = 50
"""Made before memory is read: what the first ones allocate for all must not count."""


# What is measured: each function returns the bytes for one.


def of_a_loop(target: Target, count: int) -> float:
    """The first, with what its package imports."""
    before = anonymous_memory()
    target.prepare()
    loop = target.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    return anonymous_memory() - before


def of_each(make: Callable[[asyncio.AbstractEventLoop], object]) -> Callable[[Target, int], float]:
    """What `make` returns is kept."""

    def measure(target: Target, count: int) -> float:
        loop = checked_loop(target)
        kept: list[object] = [None] * (WARM_UP + count)

        async def fill(start: int, end: int) -> None:
            for number in range(start, end):
                kept[number] = make(loop)
            # The tasks run until they wait.
            await asyncio.sleep(0)
            gc.collect()

        loop.run_until_complete(fill(0, WARM_UP))
        before = anonymous_memory()
        loop.run_until_complete(fill(WARM_UP, WARM_UP + count))
        return (anonymous_memory() - before) / count

    return measure


async def wait_for_a_future() -> None:
    await asyncio.get_running_loop().create_future()


def of_a_connection(target: Target, count: int) -> float:
    """Beyond its protocol object."""
    load.program()
    loop = checked_loop(target)
    if (limit := idle_connections.descriptors_raised()) < count + WARM_UP + 200:
        raise NotMeasured(f"the hard limit on descriptors, ulimit -Hn, is {limit}")
    with ExitStack() as stack:
        experiment = idle_connections.Experiment(loop, stack)
        experiment.open_idle(WARM_UP, stack)
        gc.collect()
        before = anonymous_memory()
        experiment.open_idle(count, stack)
        gc.collect()
        return (anonymous_memory() - before) / count - sys.getsizeof(Echo())


def of_a_tls_connection(target: Target, count: int) -> float:
    """Beyond its protocol object, after its handshake and the echo of a byte."""
    loop = checked_loop(target)
    with ExitStack() as stack:
        experiment = tls_memory.Experiment(loop, "TLSv1_3", stack)
        experiment.tell(f"open {WARM_UP}", WARM_UP)
        experiment.tell("burst 65536", WARM_UP)
        before = anonymous_memory()
        experiment.tell(f"open {count}", WARM_UP + count)
        return (anonymous_memory() - before) / count - sys.getsizeof(Echo())


@dataclass(frozen=True)
class Thing:
    measure: Callable[[Target, int], float]
    count: int


THINGS = {
    "loop": Thing(of_a_loop, 1),
    "timer": Thing(of_each(lambda loop: loop.call_later(NEVER, int)), 100_000),
    "future": Thing(of_each(lambda loop: loop.create_future()), 100_000),
    "task-that-awaits-a-future": Thing(of_each(lambda loop: loop.create_task(wait_for_a_future())), 100_000),
    "task-that-sleeps": Thing(of_each(lambda loop: loop.create_task(asyncio.sleep(NEVER))), 100_000),
    "queue": Thing(of_each(lambda loop: asyncio.Queue()), 20_000),
    "lock": Thing(of_each(lambda loop: asyncio.Lock()), 100_000),
    "semaphore": Thing(of_each(lambda loop: asyncio.Semaphore()), 100_000),
    "event": Thing(of_each(lambda loop: asyncio.Event()), 50_000),
    "condition": Thing(of_each(lambda loop: asyncio.Condition()), 50_000),
    # With the object that they wait for.
    "task-in-queue-get": Thing(of_each(lambda loop: loop.create_task(asyncio.Queue().get())), 20_000),
    "task-in-semaphore-acquire": Thing(of_each(lambda loop: loop.create_task(asyncio.Semaphore(0).acquire())), 50_000),
    "connection": Thing(of_a_connection, 10_000),
    "tls-connection": Thing(of_a_tls_connection, 1_000),
}


def checked_loop(target: Target) -> asyncio.AbstractEventLoop:
    become(target)
    return target.new_event_loop()


def work(thing: str, loop: str, count: int) -> None:
    """What a process of its own does: print a line, the bytes or the reason why there are none."""
    try:
        answer: dict[str, object] = {"bytes": THINGS[thing].measure(TARGETS[loop], count)}
    except NotMeasured as reason:
        answer = {"reason": str(reason)}
    except Exception as error:  # the loop's own, too
        answer = {"reason": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
    # What is pending, and there are many, stays so.
    os._exit(0)


def measure(thing: str, loop: str, count: int) -> float:
    command = [sys.executable, os.path.abspath(__file__), "--work", thing, loop, str(count)]
    done = subprocess.run(command, env=environment(TARGETS[loop]), stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"reason": f"exit code {done.returncode}"}
    if "bytes" not in answer:
        raise NotMeasured(answer["reason"])
    return float(answer["bytes"])


def things(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in THINGS:
            raise argparse.ArgumentTypeError(f"nothing is called {name!r}; there are {', '.join(THINGS)}")
    return names


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="memory.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loops", type=loop_names, default=LOOPS, help=f"default: {LOOPS}")
    parser.add_argument("--things", type=things, default=",".join(THINGS), help=f"default: {','.join(THINGS)}")
    parser.add_argument("--count", type=positive, help="of each thing (default: 100,000, and fewer connections)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--work"]:
        work(argv[1], argv[2], int(argv[3]))
    arguments = parse(argv)
    figures: dict[str, dict[str, float]] = {}
    for thing in arguments.things:
        figures[thing] = {}
        for loop in arguments.loops:
            count = arguments.count or THINGS[thing].count
            try:
                rounds = [measure(thing, loop, count) for _ in range(arguments.rounds)]
            except NotMeasured as reason:
                print(f"memory.py: {loop}: {thing}: not measured: {reason}", file=sys.stderr)
            else:
                figures[thing][loop] = statistics.median(rounds)
    code = int(not any(figures.values()))
    if arguments.json:
        print(json.dumps({"machine": machine.describe(), "bytes": figures}, indent=2))
        return code
    for key, value in machine.describe().items():
        print(f"{key + ':':<12} {value}")
    lines = [["bytes for one", *arguments.loops]]
    for thing, found in figures.items():
        lines.append([thing, *(f"{found[loop]:,.0f}" if loop in found else "-" for loop in arguments.loops)])
    print(f"\n{report.table(lines)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
