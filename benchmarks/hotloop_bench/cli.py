"""The options of compare.py."""

import argparse
import fnmatch
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from . import machine, packages, plot, report, saved
from .results import OURS, NotMeasured
from .rows import ROWS, Row
from .runner import USUAL_SECONDS, Crew, Settings, measure_rows
from .targets import BARE_C, BASELINES, TARGETS, WrongImplementation

ROUNDS = 7
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.02


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line, not the whole usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def usual_rows() -> list[Row]:
    return [row for row in ROWS.values() if not row.on_request]


def rows_matching(patterns: str, *, all_rows: bool = False) -> list[Row]:
    """The rows that the patterns name, each a whole name, a wildcard pattern of one or a part of one.

    Rows that are measured only on request count only with `all_rows`, or where a pattern or part fits no other row.
    """
    usual = [row.name for row in usual_rows()]
    found: set[str] = set()
    for pattern in patterns.split(","):
        fits = {pattern} & ROWS.keys()
        for names in ([] if all_rows else usual), list(ROWS):
            fits = fits or set(fnmatch.filter(names, pattern))
            fits = fits or {name for name in names if pattern and pattern in name}
        if not fits:
            raise argparse.ArgumentTypeError(f"no row fits {pattern!r}; --list names them")
        found |= fits
    return [row for name, row in ROWS.items() if name in found]


def loop_name(text: str) -> str:
    name = text.strip().replace(" ", "-")
    if name not in TARGETS:
        raise argparse.ArgumentTypeError(f"no loop is called {text!r}; there are {', '.join(TARGETS)}")
    return name


def loop_names(text: str) -> list[str]:
    return list(dict.fromkeys(map(loop_name, text.split(","))))


def positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def parser() -> Parser:
    result = Parser(
        prog="compare.py",
        description="Measures this machine's event loops side by side: each in a process of its own, rounds going from"
        " one to the next, medians and ratios in the end. `make bench` installs the other loops."
        " Network rows compare processor time of a server whose clients are a program in C, compiled when first needed"
        " (by cc, or $CC; with OpenSSL's headers for the rows over TLS); the same server in C, bare-c, is shown beside"
        " them as the limit.",
    )

    def add(option: str, help: str, **keywords: Any) -> None:
        result.add_argument(option, help=help, **keywords)

    on_request = sum(row.on_request for row in ROWS.values())
    add("--rows", "names, parts of names or wildcard patterns, separated by commas", metavar="ROWS")
    add(
        "--all",
        f"also the {on_request} rows that are measured only on request: the whole grid of echo servers by network,"
        " interface, connections and size",
        action="store_true",
    )
    add(
        "--loops",
        "separated by commas, of " + ", ".join(TARGETS) + " (default: all that run)",
        type=loop_names,
        metavar="LOOPS",
    )
    preferred = " or ".join(BASELINES)
    add("--baseline", f"the loop whose speed is 1 (default: {preferred})", type=loop_name, metavar="LOOP")
    add("--rounds", f"rounds of each row (default: {ROUNDS})", type=positive, metavar="N")
    add("--quick", f"{QUICK_ROUNDS} short rounds, to see that everything runs; too few to compare", action="store_true")
    add("--json", "also write all results to FILE; -: to the standard output in place of the table", metavar="FILE")
    add("--plot", "also draw the speeds into FILE, an SVG; -: as --json does", metavar="FILE.svg")
    add(
        "--from",
        "measure nothing; show or draw what --json has saved in FILE; --rows, --loops and --baseline choose from it",
        metavar="FILE",
        dest="saved",
    )
    add("--list", "list the rows with their questions and measure nothing", action="store_true")
    return result


def run(argv: Sequence[str]) -> int:
    options = parser()
    arguments = options.parse_args(argv)
    # Measuring leaves out the rows on request unless they are asked for; a saved result shows all that it has.
    all_rows = arguments.all or arguments.saved is not None
    try:
        rows = chosen_rows(arguments.rows, all_rows=all_rows)
    except argparse.ArgumentTypeError as error:
        options.error(f"argument --rows: {error}")
    if arguments.list:
        print(report.table([[row.name, row.question] for row in rows], left=2))
        return 0
    wanted = arguments.loops or list(TARGETS)
    if arguments.baseline and arguments.baseline not in wanted:
        options.error(f"argument --baseline: {arguments.baseline} is not among the loops to measure")
    if arguments.json == arguments.plot == "-":
        options.error("argument --plot: the standard output is already --json's")
    for option, path in (("--json", arguments.json), ("--plot", arguments.plot)):
        if problem := cannot_be_written(path):
            options.error(f"argument {option}: {problem}")
    if arguments.saved is not None:
        write(from_file(options, arguments, rows), arguments.json, arguments.plot)
        return 0
    try:
        result = measure(wanted, rows, settings(arguments), arguments.baseline)
    except (Unusable, WrongImplementation) as error:
        print(f"{options.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    write(result, arguments.json, arguments.plot)
    return exit_code(result, arguments.loops or ())


def settings(arguments: argparse.Namespace) -> Settings:
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    return Settings(rounds, QUICK_SECONDS if arguments.quick else USUAL_SECONDS)


def from_file(options: Parser, arguments: argparse.Namespace, rows: Collection[Row]) -> report.Run:
    """The saved results of these rows and of the loops that are asked for; exits with code 2 if there are none."""
    if arguments.rounds or arguments.quick:
        options.error("argument --from: there is nothing to measure, so no --rounds and no --quick")
    try:
        everything = saved.read(arguments.saved)
        kept = saved.part_of(everything, {row.name for row in rows}, arguments.loops)
        running = [name for name in kept.facts if name != BARE_C.name]
        asked = arguments.baseline or (everything.baseline if everything.baseline in running else None)
        baseline = choose_baseline(asked, running)
    except (saved.Unreadable, Unusable) as error:
        options.error(f"argument --from: {error}")
    if not kept.rows:
        options.error(f"argument --from: {arguments.saved} has none of these rows")
    return replace(kept, baseline=baseline)


def chosen_rows(patterns: str | None, *, all_rows: bool) -> list[Row]:
    if patterns is not None:
        return rows_matching(patterns, all_rows=all_rows)
    return list(ROWS.values()) if all_rows else usual_rows()


def cannot_be_written(path: str | None) -> str | None:
    """The reason, if it cannot: known before the measuring, not after it."""
    if path is not None and path != "-":
        try:
            open(path, "a").close()  # appending: an older result survives a run that is interrupted
        except OSError as error:
            return str(error)
    return None


class Unusable(Exception):
    """There is nothing to measure or to compare with."""


def measure(wanted: Sequence[str], rows: Sequence[Row], settings: Settings, baseline: str | None) -> report.Run:
    conditions = machine.describe() | packages.versions(rows)
    targets = [TARGETS[name] for name in wanted]
    if any(row.bare is not None for row in rows):
        targets.append(BARE_C)
    with Crew(targets) as crew:
        for name, reason in crew.missing.items():
            print(f"{name}: not measured: {reason}", file=sys.stderr)
        chosen = choose_baseline(baseline, [name for name in crew.facts if name != BARE_C.name])
        total = iter(range(1, len(rows) + 1))

        def started(row: Row) -> None:
            print(f"{next(total)}/{len(rows)} {row.name}", file=sys.stderr)

        outcomes = measure_rows(crew, rows, settings, started)
    return report.Run(conditions, crew.facts, crew.missing, chosen, settings.rounds, settings.seconds, rows, outcomes)


def choose_baseline(asked: str | None, running: Collection[str]) -> str:
    if not running:
        raise Unusable("none of the loops can be measured")
    if asked and asked not in running:
        raise Unusable(f"the baseline, {asked}, cannot be measured")
    candidates = (asked,) if asked else (*BASELINES, *running)
    return next(name for name in candidates if name in running)


def write(result: report.Run, json_path: str | None, plot_path: str | None) -> None:
    if "-" not in (json_path, plot_path):
        print(report.text(result), end="")
    if json_path is not None:
        write_document(json.dumps(report.as_json(result), indent=2) + "\n", json_path)
    if plot_path is not None:
        write_document(plot.svg(result), plot_path)


def write_document(text: str, path: str) -> None:
    if path == "-":
        print(text, end="")
    else:
        Path(path).write_text(text, encoding="utf-8")


def exit_code(result: report.Run, asked_for: Collection[str]) -> int:
    """1 if a loop that was asked for by name is missing, or if hotloop failed in a row or does not offer it."""
    ours = [outcomes[name] for outcomes in result.outcomes.values() for name in OURS if name in outcomes]
    failed = any(isinstance(outcome, NotMeasured) and outcome.kind in ("failed", "not offered") for outcome in ours)
    return int(failed or any(name in result.missing for name in asked_for))
