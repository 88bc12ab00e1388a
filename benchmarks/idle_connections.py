"""What does an idle connection cost: in memory, and in the latency of others?

    python benchmarks/idle_connections.py --loop hotloop-c

Two figures for one loop, on this machine's loopback:

- The memory that this process, the server, takes for an idle TCP connection beyond the protocol object (anonymous
  memory). The kernel's memory for the socket is not included.
- The 99th percentile of the latency of some active connections, with and without many idle ones on the same loop.

The clients are separate processes (load.c in hotloop_bench/load). `ulimit -Hn` limits the descriptors of a process:
where it is too low for all idle connections, there are fewer, and the report says so.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from hotloop_bench import load, machine
from hotloop_bench.cli import Parser, loop_name, positive
from hotloop_bench.targets import TARGETS, WrongImplementation, become
from idle import Echo, NotMeasured, anonymous_memory, until_connected

IDLE, ACTIVE, MESSAGE = 20_000, 100, 1024
SECONDS = 1.0
ROUNDS = 5
WARM_UP = 100
"""Connections that are opened before memory is read: what the first ones allocate for all must not count."""
DESCRIPTORS_FOR_ITSELF = 200
OF_ONE_CLIENT = 10_000
"""Idle connections of one client process, which has a source address of its own."""
BATCH = 500
"""Opened at a time, fewer than the backlog."""
BACKLOG = 1024


@dataclass
class Report:
    """Of one loop. Memory in bytes, latencies in seconds."""

    loop: str
    idle: int
    """Connections that were open."""
    idle_wanted: int
    active: int
    memory_of_a_connection: float
    """Beyond the protocol object."""
    memory_of_a_protocol: int
    p99_alone: float
    """Of the active connections, while there are no idle ones: the median of the rounds before and after."""
    p99_with_idle: float

    @property
    def slowdown(self) -> float:
        return self.p99_with_idle / self.p99_alone


def descriptors_raised() -> int:
    """Raise this process's limit on descriptors to the hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


class Experiment:
    """A server on a loop, and its clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stack: ExitStack) -> None:
        self.loop, self.stack = loop, stack
        server: Any = loop.run_until_complete(loop.create_server(Echo, "127.0.0.1", 0, backlog=BACKLOG))
        stack.callback(server.close)
        self.address = "{}:{}".format(*server.sockets[0].getsockname())
        self.sources = iter(range(1, 250))

    def while_serving(self, function: Any, *arguments: object) -> Any:
        """The result of a blocking function, which runs in a thread while the loop runs."""
        return self.loop.run_until_complete(self.loop.run_in_executor(None, function, *arguments))

    def open_idle(self, count: int, stack: ExitStack) -> None:
        """Hold `count` more connections until the stack is closed."""
        for start in range(0, count, OF_ONE_CLIENT):
            client = stack.enter_context(load.Idlers(self.address, next(self.sources)))
            left = min(OF_ONE_CLIENT, count - start)
            while left:
                more = min(BATCH, left)
                wanted = Echo.connections + more
                self.while_serving(client.open, more)
                self.loop.run_until_complete(until_connected(wanted))
                left -= more

    def p99(self, generator: load.Generator, rounds: int, seconds: float) -> list[float]:
        self.while_serving(generator.run, f"{seconds / 4}s")  # warms up
        return [self.while_serving(generator.run, f"{seconds}s")["p99"] for _ in range(rounds)]

    def run(self, name: str, idle: int, active: int, rounds: int, seconds: float) -> Report:
        limit = descriptors_raised()
        others = DESCRIPTORS_FOR_ITSELF + WARM_UP + active
        if limit <= others:
            raise NotMeasured(f"the hard limit on descriptors, ulimit -Hn, is {limit}; more than {others} are needed")
        held = min(idle, limit - others)
        self.open_idle(WARM_UP, self.stack)
        generator = self.stack.enter_context(load.Generator("tcp", self.address, active, MESSAGE))
        alone = self.p99(generator, rounds, seconds)
        gc.collect()
        before = anonymous_memory()
        with ExitStack() as idlers:
            self.open_idle(held, idlers)
            gc.collect()
            protocol = sys.getsizeof(Echo())
            memory = (anonymous_memory() - before) / held - protocol
            with_idle = self.p99(generator, rounds, seconds)
        self.loop.run_until_complete(until_connected(WARM_UP + active))
        alone += self.p99(generator, rounds, seconds)
        p99_alone, p99_with_idle = statistics.median(alone), statistics.median(with_idle)
        return Report(name, held, idle, active, memory, protocol, p99_alone, p99_with_idle)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="idle_connections.py", description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(TARGETS)
    parser.add_argument("--loop", type=loop_name, default="hotloop-c", help=f"one of {names} (default: hotloop-c)")
    parser.add_argument("--idle", type=positive, default=IDLE, help=f"idle connections (default: {IDLE})")
    parser.add_argument("--active", type=positive, default=ACTIVE, help=f"active ones (default: {ACTIVE})")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help=f"of each kind (default: {ROUNDS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a round (default: {SECONDS})")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser.parse_args(argv)


def show(report: Report) -> None:
    for key, value in machine.describe().items():
        print(f"{key + ':':<12} {value}")
    held = f"{report.idle:,}"
    if report.idle < report.idle_wanted:
        held += f" (not {report.idle_wanted:,}: the hard limit on descriptors, ulimit -Hn, allows no more)"
    print(f"loop:        {report.loop}\nidle:        {held}\nactive:      {report.active}\n")
    print(
        f"An idle connection takes {report.memory_of_a_connection:,.0f} bytes beyond its protocol object"
        f" ({report.memory_of_a_protocol} bytes)."
    )
    print(
        f"p99 of the active ones: {report.p99_alone * 1e3:.2f} ms alone, {report.p99_with_idle * 1e3:.2f} ms with the"
        f" idle ones, {report.slowdown:.2f} times that."
    )


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    target = TARGETS[arguments.loop]
    try:
        load.program()
        become(target)
        loop = target.new_event_loop()
        with ExitStack() as stack:
            stack.callback(loop.close)
            experiment = Experiment(loop, stack)
            report = experiment.run(target.name, arguments.idle, arguments.active, arguments.rounds, arguments.seconds)
    except (ImportError, NotMeasured, load.NoLoadGenerator, WrongImplementation) as error:
        print(f"idle_connections.py: {arguments.loop}: not measured: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(asdict(report) | {"slowdown": report.slowdown}, indent=2))
    else:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
