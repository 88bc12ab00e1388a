"""How many instructions does one operation of a row take? Callgrind counts them, so a busy machine does not matter.

    python benchmarks/instructions.py --rows call_soon --loops hotloop-c,zuvloop

Every loop runs a row twice, each time in a new process under callgrind: first n operations, then three times as many.
The difference is 2 n operations and nothing else: the interpreter's start, imports, warm-up and clean-up cancel out.
README.md beside this file says how far to trust such a number.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hotloop_bench import report
from hotloop_bench.cli import Parser, loop_names, rows_matching, usual_rows
from hotloop_bench.rows import Row
from hotloop_bench.runner import command_line, environment, not_applicable
from hotloop_bench.targets import TARGETS, Target, check

MORE = 3
"""The second run does this many times the operations of the first."""


class RunFailed(Exception):
    """A process under callgrind ended with an error; the text is its last line."""


def instructions_per_operation(target: Target, row: Row, operations: int) -> float:
    few = instructions(target, row, operations)
    many = instructions(target, row, MORE * operations)
    return (many - few) / ((MORE - 1) * operations)


def instructions(target: Target, row: Row, operations: int) -> int:
    """The instructions of a whole process that runs a row once."""
    return total(profile(target, row, operations))


def profile(target: Target, row: Row, operations: int, *options: str) -> str:
    """Callgrind's output, with these options, for a whole process that runs a row once."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "callgrind.out")
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--callgrind-out-file={written}", *options),
                *command_line(target.name, row.name, str(operations)),
            ],
            env=environment(target) | {"PYTHONHASHSEED": "0"},  # or sets and dicts of strings differ from run to run
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RunFailed(last_line(done.stderr))
        check(target, json.loads(done.stdout.splitlines()[0]))
        return written.read_text()


def last_line(stderr: str) -> str:
    """The program's last line, without valgrind's own lines (==PID==)."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("==")]
    return lines[-1].strip() if lines else "it said nothing"


def total(profile: str) -> int:
    """The number of instructions in a callgrind profile."""
    found = re.search(r"^(?:totals|summary): (\d+)", profile, re.MULTILINE)
    if found is None:
        raise RunFailed("callgrind's profile has no totals")
    return int(found[1])


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="instructions.py", description=(__doc__ or "").partition("\n")[0])
    rows, loops = usual_rows(), ["asyncio", "hotloop-c"]
    parser.add_argument("--rows", type=rows_matching, default=rows, help="parts of names or patterns, with commas")
    parser.add_argument("--loops", type=loop_names, default=loops, help=f"with commas (default: {','.join(loops)})")
    parser.add_argument("--operations", type=int, metavar="N", help="of the first run (default: the row's own number)")
    arguments = parser.parse_args(argv)
    if arguments.operations is not None and arguments.operations < 1:
        parser.error(f"argument --operations: {arguments.operations} is not a positive number")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    return arguments


def cell(target: Target, row: Row, operations: int) -> tuple[str, str | None]:
    """The cell of the table, and the reason if it is not a number."""
    if not_applicable(row, target):
        return "-", None
    if not row.calibrated:
        return "-", "it goes on for a time and not for a number of operations"
    if reason := row.unavailable():
        return "-", reason
    try:
        return f"{instructions_per_operation(target, row, operations):,.0f}", None
    except RunFailed as error:
        return "failed", str(error)


def main(argv: Sequence[str]) -> int:
    arguments = parse(argv)
    lines = [["instructions for one operation", *arguments.loops]]
    failures = []
    for row in arguments.rows:
        cells = []
        for name in arguments.loops:
            shown, reason = cell(TARGETS[name], row, arguments.operations or row.operations)
            cells.append(shown)
            if reason:
                what = "FAILED" if shown == "failed" else "NOT MEASURED"
                failures.append(f"{what}: {row.name} on {name}: {reason}")
        lines.append([row.name, *cells])
        print(" ".join([row.name, *cells]), file=sys.stderr)
    print(report.table(lines))
    print(*failures, sep="\n", end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
