"""How many times as fast as another loop could any loop be? Counted by callgrind, row by row.

    python benchmarks/floor.py --rows queue_put_get,gather_100

Much of a row is not the loop's work: the row's own coroutine, and asyncio's code in Python (gather(), Queue,
wait_for(), TaskGroup), which is the same on every loop. This script splits the instructions of a row on hotloop-c in
two. Each belongs to its nearest caller that is either a function of hotloop's compiled modules or the interpreter's
evaluation loop:

- The loop's part: its modules, and all that they call until Python code runs: allocation, contexts, reference counts.
- Python's part: the evaluation loop, and all that it calls until hotloop's modules run. That includes the methods that
  hotloop inherits from asyncio (run_in_executor()).

A loop without any cost would leave the second part. So the floor of a row, the instructions of the other loop divided
by that part, is the factor that no loop can exceed there. It is a safe limit: setting up the frame of a Python function
that the loop calls counts as the loop's, and so does freeing a finished coroutine of which the loop drops the last
reference.

A loop cannot save all of the first part: calling a function, entering a context, making a tuple and stepping a
coroutine are the interpreter's functions, on every loop. So there is a second, nearer limit: the factor that hotloop
would reach if the code of its own modules took no instructions, and the functions that it calls as many as now.

Instructions are not time (README.md beside this file). With --results, the JSON of a run of compare.py on the same
machine and Python, the same is shown in time: hotloop's speed in that run, and what it would be without the loop's
part.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop_bench import report
from hotloop_bench.cli import Parser, loop_name, rows_matching, usual_rows
from hotloop_bench.results import geometric_mean
from hotloop_bench.rows import Row
from hotloop_bench.targets import TARGETS
from instructions import MORE, RunFailed, instructions_per_operation, profile

OURS = "hotloop-c"
OF_THE_LOOP = "/hotloop/_c/"
"""In the path of an object file."""
EVALUATION = "_PyEval_EvalFrameDefault"
CALLERS = 4
"""The number of callers in which the nearest of the two is searched."""
TARGET = 2.5
"""The factor over uvloop that hotloop aims at in the geometric mean."""


@dataclass(frozen=True)
class Split:
    """Instructions by the part that they belong to."""

    own: float
    """Of the loop's modules themselves."""
    called: float
    """Of what they call."""
    python: float
    unknown: float
    """None of the callers is either: mostly what threads do before they run Python code."""

    @property
    def total(self) -> float:
        return self.own + self.called + self.python + self.unknown

    @property
    def part_of_python(self) -> float:
        """Unknown instructions count as the loop's."""
        return self.python / self.total


def self_costs(text: str) -> Iterator[tuple[str, list[str], int]]:
    """(object file, function and its callers, instructions of its own) of each line of a profile.

    The format: https://valgrind.org/docs/manual/cl-format.html. A name is written once, with its number.
    """
    names: dict[tuple[bool, str], str] = {}
    current = {True: "", False: ""}  # by "is an object file"
    calling = False
    for line in text.splitlines():
        if line and (line[0].isdigit() or line[0] in "+-*"):
            if calling:
                calling = False  # the inclusive cost of the call above
            else:
                function, *callers = (part for part in current[False].split("'") if not part.isdigit())
                yield current[True], [function, *callers], int(line.split()[1])
        elif line.startswith("calls="):
            calling = True
        elif found := re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line):
            callee, kind, number, name = found.groups()
            is_object = kind == "ob"
            if name is not None:
                names[is_object, number] = name
            if not callee:
                current[is_object] = names[is_object, number]


def split(text: str) -> Split:
    """The parts of a profile that was taken with --separate-callers."""
    costs = list(self_costs(text))
    of_the_loop = {chain[0] for path, chain, _ in costs if OF_THE_LOOP in path}
    found = dict.fromkeys(("own", "called", "python", "unknown"), 0)
    for path, chain, cost in costs:
        found["own" if OF_THE_LOOP in path else owner(chain, of_the_loop)] += cost
    return Split(**found)


def owner(chain: Sequence[str], of_the_loop: set[str]) -> str:
    for function in chain:
        if function == EVALUATION:
            return "python"
        if function in of_the_loop:
            return "called"
    return "unknown"


def split_per_operation(row: Row, operations: int) -> Split:
    """As instructions.py counts: the difference of two runs."""
    few, many = (
        split(profile(TARGETS[OURS], row, times * operations, f"--separate-callers={CALLERS}")) for times in (1, MORE)
    )
    parts = ((getattr(many, name) - getattr(few, name)) / ((MORE - 1) * operations) for name in vars(few))
    return Split(*parts)


@dataclass(frozen=True)
class Floor:
    """One row."""

    row: str
    other: float
    """Instructions of the other loop."""
    ours: Split
    speed: float | None
    """hotloop's speed divided by the other loop's in the given results; None without results."""

    @property
    def now(self) -> float:
        return self.other / self.ours.total if self.speed is None else self.speed

    def with_own(self, kept: float) -> float:
        """The factor if hotloop's own code took that share of its instructions, and what it calls as many as now."""
        return self.now * self.ours.total / (self.ours.total - (1 - kept) * self.ours.own)

    @property
    def highest(self) -> float:
        """The factor that a loop without any cost would reach."""
        return self.now / self.ours.part_of_python

    def cells(self) -> list[str]:
        ours = self.ours
        counts = (self.other, ours.total, ours.own, ours.called + ours.unknown, ours.python)
        factors = (self.now, self.with_own(0), self.highest)
        return [self.row, *(f"{count:,.0f}" for count in counts), *(f"{factor:.2f}" for factor in factors)]


def conclusion(floors: Sequence[Floor], other: str) -> list[str]:
    limited = [floor for floor in floors if floor.highest < TARGET]
    free = len(floors) - len(limited)
    now, highest = (geometric_mean(getattr(floor, name) for floor in floors) for name in ("now", "highest"))
    without_own = geometric_mean(floor.with_own(0) for floor in floors)
    unit = "time" if all(floor.speed is not None for floor in floors) else "instructions"
    lines = [
        f"Geometric mean of {len(floors)} rows, in {unit}: {now:.2f} times {other} now, "
        f"{without_own:.2f} without the loop's own code, {highest:.2f} at the floor."
    ]
    share = share_of_own(floors)
    if share is None:
        lines.append(f"Without its own code hotloop would not reach {TARGET}.")
    elif share < 1:
        lines.append(f"hotloop would reach {TARGET} if its own code took {share:.0%} of its instructions.")
    if limited:
        names = ", ".join(floor.row for floor in limited)
        at_floor = geometric_mean(floor.highest for floor in limited)
        lines.append(
            f"By that no loop can reach {TARGET} in {names}: {at_floor:.2f} in the geometric mean is their floor."
        )
        if free and at_floor is not None:
            needed = (TARGET ** len(floors) / at_floor ** len(limited)) ** (1 / free)
            has = geometric_mean(floor.now for floor in floors if floor not in limited)
            lines.append(f"With these there, {TARGET} over all takes {needed:.2f} in the other {free}, now {has:.2f}.")
    return lines


def share_of_own(floors: Sequence[Floor]) -> float | None:
    """The share of its own code's instructions with which hotloop reaches the target; None: not even with none."""
    for percent in range(100, -1, -1):
        factor = geometric_mean(floor.with_own(percent / 100) for floor in floors)
        if factor is not None and factor >= TARGET:
            return percent / 100
    return None


def speeds(path: Path | None, other: str) -> dict[str, float]:
    """hotloop's speed over the other loop's by row, from the JSON of compare.py."""
    if path is None:
        return {}
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    medians = {
        row["name"]: {name: found["median"] for name, found in row["results"].items() if "median" in found}
        for row in document["rows"]
    }
    return {row: found[other] / found[OURS] for row, found in medians.items() if {other, OURS} <= found.keys()}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="floor.py", description=(__doc__ or "").partition("\n")[0])
    rows = usual_rows()
    parser.add_argument("--rows", type=rows_matching, default=rows, help="parts of names or patterns, with commas")
    parser.add_argument("--other", type=loop_name, default="uvloop", help="the loop to compare with (default: uvloop)")
    parser.add_argument("--operations", type=int, metavar="N", help="of the first run (default: the row's own number)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="the JSON of a run of compare.py")
    arguments = parser.parse_args(argv)
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    arguments.timed = speeds(arguments.results, arguments.other)
    arguments.rows = [row for row in arguments.rows if row.subject == "event loop"]
    if not arguments.rows:
        parser.error("argument --rows: none of these rows is an event loop's")
    if arguments.timed:
        arguments.rows = [row for row in arguments.rows if row.name in arguments.timed]
        if not arguments.rows:
            parser.error(f"argument --results: {arguments.results} has none of these rows")
    return arguments


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    floors = []
    for row in arguments.rows:
        operations = arguments.operations or row.operations
        try:
            ours = split_per_operation(row, operations)
            other = instructions_per_operation(TARGETS[arguments.other], row, operations)
        except RunFailed as error:
            print(f"floor.py: {row.name}: {error}", file=sys.stderr)
            return 1
        floors.append(Floor(row.name, other, ours, arguments.timed.get(row.name)))
        print(*floors[-1].cells(), file=sys.stderr)
    title = ["instructions for one operation", arguments.other, OURS, "the loop's own", "what it calls", "Python's"]
    print(report.table([[*title, "factor", "without own", "floor"], *(floor.cells() for floor in floors)]))
    print(*conclusion(floors, arguments.other), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
