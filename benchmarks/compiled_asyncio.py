"""How much faster does a program become by `from hotloop import asyncio`?

    python benchmarks/compiled_asyncio.py
    python benchmarks/compiled_asyncio.py --loop uvloop --programs queue,crawler --rounds 15

Runs each program of programs.py on asyncio's own objects and on the compiled ones, by turns, in one process and on one
kind of event loop. Shown are the processor time of each, as the median of the rounds in milliseconds, and the median of
the quotients of rounds that followed each other.
"""

import argparse
import asyncio
import gc
import importlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from programs import PROGRAMS, Program

LOOPS = ("hotloop", "asyncio", "uvloop", "zuvloop", "rloop", "rsloop")


def measured(runner: asyncio.Runner, program: Program, module: Any) -> float:
    """Seconds of processor time."""
    gc.collect()
    before = time.process_time()
    runner.run(program(module))
    return time.process_time() - before


def compare(program: Program, loop: str, rounds: int) -> tuple[list[float], list[float]]:
    """The seconds of each round on asyncio's own objects, and on the compiled ones."""
    compiled = importlib.import_module("hotloop.asyncio")
    own_seconds: list[float] = []
    compiled_seconds: list[float] = []
    with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
        # The first round warms up.
        for number in range(rounds + 1):
            order = [(asyncio, own_seconds), (compiled, compiled_seconds)]
            for module, seconds in order if number % 2 else reversed(order):
                seconds.append(measured(runner, program, module))
    return own_seconds[1:], compiled_seconds[1:]


def names_in(text: str) -> list[str]:
    names = [name for part in text.split(",") for name in PROGRAMS if part in name]
    if not names:
        raise argparse.ArgumentTypeError(f"no program fits {text!r}; there are {', '.join(PROGRAMS)}")
    return list(dict.fromkeys(names))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=LOOPS, default="hotloop", help="the loop to run on (default: hotloop)")
    parser.add_argument("--programs", type=names_in, default=list(PROGRAMS), help="parts of names, separated by commas")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each program (default: 9)")
    parser.add_argument("--json", metavar="FILE", help="also write the seconds of each round to FILE")
    options = parser.parse_args(arguments)
    if importlib.import_module("hotloop.asyncio").Queue is asyncio.Queue:
        print("compiled_asyncio.py: this Python has no compiled layer to measure", file=sys.stderr)
        return 1
    print(f"Python {platform.python_version()}, loop {options.loop}, {options.rounds} rounds\n")
    print(f"{'program':26}{'asyncio':>10}{'compiled':>10}{'speed-up':>10}")
    found = {}
    for name in options.programs:
        own, compiled = compare(PROGRAMS[name], options.loop, options.rounds)
        found[name] = {"asyncio": own, "compiled": compiled}
        quotient = statistics.median(a / b for a, b in zip(own, compiled, strict=True))
        milliseconds = [1000 * statistics.median(seconds) for seconds in (own, compiled)]
        print(f"{name:26}{milliseconds[0]:10.2f}{milliseconds[1]:10.2f}{quotient:10.2f}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"python": platform.python_version(), "loop": options.loop, "seconds": found}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
