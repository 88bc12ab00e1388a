"""Does anything grow? Everything a loop takes is taken and given back, over and over.

    python benchmarks/soak.py --loop hotloop-c --minutes 60

A round runs every scenario of soak_scenarios.py once: lifecycles of loops, tasks, threads, executors, connections over
TCP, Unix sockets and TLS, datagrams, subprocesses, pipes, signals; with cancellations, refusals and resets. After each
round the script collects garbage and counts what the process has:

- descriptors, threads and children, which must return to their numbers;
- objects that the garbage collector tracks, and blocks that Python has allocated (sys.getallocatedblocks());
- resident size, as the kernel reports it.

The first rounds are a warm-up, in which caches fill. Of the other rounds, the minimum of the last third is compared
with the minimum of the first third, because garbage of a round may live a little longer. What has grown by more than
its bound (--help lists them) has leaked. So the longer the run, the smaller the leaks that it finds: with 300 rounds
after the warm-up, one lost object a round is twice the bound.

Exit code: 0 nothing has grown, 1 something has, 2 the script or a part of it could not run.
"""

import argparse
import faulthandler
import gc
import os
import sys
import sysconfig
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from hotloop_bench import identity, machine
from hotloop_bench.cli import Parser, loop_name, positive
from hotloop_bench.targets import TARGETS, WrongImplementation, become
from soak_scenarios import ALL, NEED_A_CERTIFICATE, Ground, Scenario

MINUTES = 10.0
WARM_UP = 5
FEWEST = 6
"""Rounds after the warm-up: two in each third."""
TIMES = 5
SECONDS_BEFORE_A_ROUND_HANGS = 600
MIB = 1 << 20
NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
IMMORTALIZES = NO_GIL and sys.version_info < (3, 14)
"""https://docs.python.org/3.13/howto/free-threading-python.html#immortalization"""


@dataclass(frozen=True)
class Usage:
    """The resources of the process after a round."""

    descriptors: int
    threads: int
    children: int
    objects: int
    blocks: int
    resident: int
    """Bytes."""


BOUNDS = Usage(descriptors=0, threads=0, children=0, objects=100, blocks=400, resident=6 * MIB)
"""The growth that each may have."""


def measure() -> Usage:
    # A finalizer may make more garbage.
    for _ in range(3):
        gc.collect()
    return Usage(
        descriptors=len(os.listdir("/proc/self/fd")) - 1,  # the last one is the listing's own
        threads=threading.active_count(),
        children=children(),
        objects=len(gc.get_objects()),
        blocks=sys.getallocatedblocks(),
        resident=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
    )


def children() -> int:
    """The number of processes that this one has started and not waited for."""
    return len(Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split())


def growth(usages: Sequence[Usage]) -> Usage:
    """From the minimum of the first third to the minimum of the last."""
    third = len(usages) // 3
    if third < 1:
        raise ValueError(f"{len(usages)} rounds have no thirds")

    def least(part: Sequence[Usage], name: str) -> int:
        return min(int(getattr(usage, name)) for usage in part)

    names = [field.name for field in fields(Usage)]
    return Usage(**{name: least(usages[-third:], name) - least(usages[:third], name) for name in names})


def excesses(grown: Usage) -> list[str]:
    """A sentence for each resource that has grown beyond its bound."""
    found = []
    for field in fields(Usage):
        by, bound = getattr(grown, field.name), getattr(BOUNDS, field.name)
        if by > bound:
            found.append(f"{field.name} have grown by {by:,}, and may by {bound:,}")
    return found


def soak(
    scenarios: Sequence[Scenario],
    ground: Ground,
    go_on: Callable[[int], bool],
    *,
    warm_up: int = WARM_UP,
    seen: Callable[[int, float, Usage], None] = lambda number, seconds, usage: None,
) -> list[Usage]:
    """Run rounds while `go_on(rounds so far)`; returns the usage after each round that follows the warm-up.

    `seen` gets the number, the seconds and the usage after every round; those of the warm-up have numbers up to 0.
    """
    # Numbers in an array, not objects: the history must not count as growth.
    history = array("q")
    number = -warm_up
    while number < 0 or go_on(number):
        began = time.monotonic()
        faulthandler.dump_traceback_later(SECONDS_BEFORE_A_ROUND_HANGS, exit=True)
        try:
            for scenario in scenarios:
                scenario(ground)
        finally:
            faulthandler.cancel_dump_traceback_later()
        usage = measure()
        number += 1
        if number > 0:
            history.extend(astuple(usage))
        seen(number, time.monotonic() - began, usage)
    width = len(fields(Usage))
    return [Usage(*history[at : at + width]) for at in range(0, len(history), width)]


# -- the command -------------------------------------------------------------------------------------------------------


def scenarios_named(text: str) -> list[Scenario]:
    known = {scenario.__name__: scenario for scenario in ALL}
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no scenario is called {name!r}; there are {', '.join(known)}")
    return [known[name] for name in known if name in names]


def minutes(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time to run")
    return value


def parse(argv: Sequence[str]) -> argparse.Namespace:
    bounds = ", ".join(f"{field.name} {getattr(BOUNDS, field.name):,}" for field in fields(Usage))
    parser = Parser(prog="soak.py", description=(__doc__ or "").partition("\n")[0], epilog=f"bounds: {bounds}")
    names = ", ".join(TARGETS)
    parser.add_argument("--loop", type=loop_name, default="hotloop-c", help=f"one of {names} (default: hotloop-c)")
    parser.add_argument("--minutes", type=minutes, default=MINUTES, help=f"(default: {MINUTES:g})")
    parser.add_argument("--rounds", type=positive, help="this many after the warm-up, however long they take")
    parser.add_argument("--times", type=positive, default=TIMES, help=f"each thing in a round (default: {TIMES})")
    parser.add_argument("--scenarios", type=scenarios_named, default=list(ALL), help="their names (default: all)")
    arguments = parser.parse_args(argv)
    if arguments.rounds is not None and arguments.rounds < FEWEST:
        parser.error(f"--rounds: fewer than {FEWEST} tell nothing")
    return arguments


def show(number: int, seconds: float, usage: Usage) -> None:
    print(
        f"{number if number > 0 else 'warm-up':>7} {seconds:7.1f} {usage.descriptors:11} {usage.threads:7}"
        f" {usage.children:8} {usage.objects:9,} {usage.blocks:9,} {usage.resident / MIB:8.1f} MiB",
        flush=True,
    )


def run(arguments: argparse.Namespace, ground: Ground, scenarios: Sequence[Scenario]) -> list[Usage]:
    end = time.monotonic() + 60 * arguments.minutes

    def go_on(done: int) -> bool:
        if arguments.rounds is not None:
            return done < int(arguments.rounds)
        return done < FEWEST or time.monotonic() < end

    return soak(scenarios, ground, go_on, seen=show)


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    target = TARGETS[arguments.loop]
    try:
        become(target)
        if measure().blocks == 0:
            raise OSError("Python does not count blocks of memory that are not its own (PYTHONMALLOC)")
        if IMMORTALIZES:
            raise OSError(
                "without the GIL CPython 3.13 keeps all classes and functions that a program with threads makes"
            )
    except (ImportError, OSError, WrongImplementation) as error:
        print(f"soak.py: {arguments.loop}: not run: {error}", file=sys.stderr)
        return 2
    scenarios, reason = arguments.scenarios, identity.unavailable()
    left_out = [scenario for scenario in scenarios if reason and scenario in NEED_A_CERTIFICATE]
    for key, value in machine.describe().items():
        print(f"{key + ':':<12} {value}")
    print(f"loop:        {target.name}\nscenarios:   {', '.join(scenario.__name__ for scenario in scenarios)}\n")
    print("  round seconds descriptors threads children   objects    blocks     resident")
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(target.new_event_loop, Path(folder), arguments.times)
        if reason is None:
            identity.make(ground.certificate)
        usages = run(arguments, ground, [scenario for scenario in scenarios if scenario not in left_out])
    grown = growth(usages)
    print("\ngrown by: " + ", ".join(f"{field.name} {getattr(grown, field.name):,}" for field in fields(Usage)))
    found = excesses(grown)
    for excess in found:
        print(f"LEAK: {excess}")
    for scenario in left_out:
        print(f"NOT RUN: {scenario.__name__}: {reason}")
    if not found:
        print(f"nothing {'else ' * bool(left_out)}has grown in {len(usages)} rounds")
    return 1 if found else 2 if left_out else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
