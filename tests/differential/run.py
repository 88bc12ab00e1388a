"""Random programs on hotloop and on asyncio, new ones in each round, until time is up.

A round runs all tests marked `differential`, with a seed of its own. Every second round runs beside busy processes,
because some differences show only on a loaded machine. A program that differs is shrunk and printed by Hypothesis, and
ends the search. Exit code 0: at least one round was finished, and none found a difference.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
BUSY = "while True: pass"


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Run beside so many processes that only consume processor time."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def play_round(seed: int, implementations: str, rest: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-m", "differential", "-q", "-p", "no:cacheprovider"]
    command += [f"--hypothesis-seed={seed}", *(rest or [str(TESTS)])]
    environment = {"HYPOTHESIS_PROFILE": "round", "HOTLOOP_TEST_IMPLS": implementations, "HOTLOOP_TEST_SECONDS": "1800"}
    return subprocess.run([*command, "-o", "faulthandler_timeout=1800"], env=os.environ | environment).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="no round begins later (default: 5)")
    parser.add_argument("--impl", default="c,python", help="implementations to compare (default: c,python)")
    parser.add_argument("--busy", type=int, default=3, help="processes beside every second round (default: 3)")
    parser.add_argument("--seed", type=int, help="of the first round, to repeat it (default: a new one)")
    options, rest = parser.parse_known_args()
    end = time.monotonic() + 60 * options.minutes
    seed = random.randrange(2**32) if options.seed is None else options.seed
    rounds = 0
    while rounds == 0 or time.monotonic() < end:
        busy = options.busy if rounds % 2 else 0
        print(f"round {rounds + 1}, --seed={seed}, beside {busy} busy processes", flush=True)
        with load(busy):
            if code := play_round(seed, options.impl, rest):
                return code
        rounds += 1
        seed += 1
    print(f"{rounds} rounds without a difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
