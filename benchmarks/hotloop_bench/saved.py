"""Makes a Run of the results that `--json` has saved, to show them again, whole or in part, or to draw them."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .load import Load
from .report import JSON_FORMAT, Run
from .results import LIMIT, Measurement, NotMeasured, Outcome
from .rows import ROWS, Row


class Unreadable(Exception):
    """The file has no results, or none that this version can show; the text says why."""


def read(path: str) -> Run:
    """The Run that a file was written from. Raises Unreadable."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(str(error)) from error
    except ValueError as error:
        raise Unreadable(f"{path} is not JSON: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != JSON_FORMAT:
        raise Unreadable(f"{path} was not written by compare.py --json in format {JSON_FORMAT}")
    try:
        return run_from(document)
    except UnknownRow as error:
        raise Unreadable(f"{path} has results of {error}, a row that this version does not have") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{path} is not complete: {error!r}") from error


class UnknownRow(Exception):
    """A row of another version."""


def run_from(document: Mapping[str, Any]) -> Run:
    settings = document["settings"]
    loops: Mapping[str, Mapping[str, str]] = document["loops"]
    return Run(
        machine=document["machine"],
        facts={name: facts for name, facts in loops.items() if "missing" not in facts},
        missing={name: facts["missing"] for name, facts in loops.items() if "missing" in facts},
        baseline=settings["baseline"],
        rounds=settings["rounds"],
        seconds=settings["seconds_per_round"],
        rows=[row_called(row["name"]) for row in document["rows"]],
        outcomes={
            row["name"]: {name: outcome_from(result) for name, result in row["results"].items()}
            for row in document["rows"]
        },
    )


def row_called(name: str) -> Row:
    try:
        return ROWS[name]
    except KeyError:
        raise UnknownRow(name) from None


def outcome_from(result: Mapping[str, Any]) -> Outcome:
    if result["kind"] != "measured":
        return NotMeasured(result["kind"], result["reason"])
    return Measurement(result["operations"], list(result["seconds"]), list(loads_from(result)))


def loads_from(result: Mapping[str, Any]) -> Iterable[Load]:
    """The file has a load's rate and not its elapsed time, which is computed here."""
    load = result.get("load")
    if load:
        operations = result["operations"]
        columns = (result["seconds"], load["operations_per_second"], load["p50"], load["p99"])
        for seconds, rate, p50, p99 in zip(*columns, strict=True):
            yield Load(operations, seconds * operations, operations / rate, p50, p99)


def part_of(run: Run, rows: Collection[str] | None, loops: Collection[str] | None) -> Run:
    """The part of the run with these rows and loops; None: all. Names that the run does not have are ignored."""
    kept = [row for row in run.rows if rows is None or row.name in rows]
    wanted = [*run.facts, *run.missing] if loops is None else [*loops, LIMIT]
    return replace(
        run,
        facts={name: facts for name, facts in run.facts.items() if name in wanted},
        missing={name: reason for name, reason in run.missing.items() if name in wanted},
        rows=kept,
        outcomes={
            row.name: {name: outcome for name, outcome in run.outcomes[row.name].items() if name in wanted}
            for row in kept
        },
    )
