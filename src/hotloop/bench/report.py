"""The results as text for people and as JSON for programs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .results import (
    Comparison,
    Measurement,
    NotMeasured,
    Outcome,
    Outcomes,
    best_other,
    comparisons,
    geometric_mean,
    speed,
    speed_over_best_other,
)
from .rows import Row

JSON_FORMAT = 1

Ratio = Callable[[Outcomes], float | None]


@dataclass(frozen=True)
class Run:
    """A whole run of the benchmark."""

    machine: Mapping[str, str]
    facts: Mapping[str, Mapping[str, str]]
    """By loop that was measured."""
    missing: Mapping[str, str]
    """By loop that was not: the reason."""
    baseline: str
    rounds: int
    seconds: float
    rows: Sequence[Row]
    outcomes: Mapping[str, Outcomes]
    """By row."""

    @property
    def loops(self) -> list[str]:
        """Those that were measured."""
        return list(self.facts)


@dataclass(frozen=True)
class Section:
    """The rows that share a table, since they have the same subject and so the same rivals."""

    title: str
    rows: Sequence[Row]
    loops: Sequence[str]
    names: Mapping[str, str]
    baseline: str


def text(run: Run) -> str:
    parts = [header(run)]
    for section in sections(run):
        parts.append(f"{section.title}: time for one operation, median of {run.rounds} rounds")
        parts.append(table(times(run, section)))
        parts.append(
            f"{section.title}: speed, {section.names[section.baseline]} = 1; higher is faster\n"
            "(noise: of the row's noisiest loop, the spread of the middle half of its rounds)"
        )
        parts.append(table(speeds(run, section)))
    parts.append("\n".join(notes(run)))
    return "\n\n".join(part for part in parts if part) + "\n"


def header(run: Run) -> str:
    lines = [f"{key + ':':<16} {value}" for key, value in run.machine.items()]
    for name, facts in run.facts.items():
        classes = "; ".join(f"{key} {facts[key]}" for key in ("core", "loop", "task", "selector") if key in facts)
        lines.append(f"{name + ':':<16} {facts['version']}; {classes}")
    lines += [f"{name + ':':<16} NOT MEASURED: {reason}" for name, reason in run.missing.items()]
    return "\n".join(lines)


def sections(run: Run) -> list[Section]:
    found = []
    on_loops = [row for row in run.rows if row.subject == "event loop"]
    if on_loops:
        names = {name: name for name in run.loops}
        found.append(Section("Event loops", on_loops, run.loops, names, run.baseline))
    on_selectors = [row for row in run.rows if row.subject == "selector"]
    with_selector = [name for name in run.loops if "selector" in run.facts[name]]
    if on_selectors and with_selector:
        names = {name: "selectors" if name == "asyncio" else name for name in with_selector}
        baseline = "asyncio" if "asyncio" in with_selector else with_selector[0]
        found.append(Section("Selectors", on_selectors, with_selector, names, baseline))
    return found


def times(run: Run, section: Section) -> list[list[str]]:
    lines = [["", *(section.names[name] for name in section.loops)]]
    for row in section.rows:
        outcomes = run.outcomes[row.name]
        lines.append([row.name, *(time_cell(outcomes[name]) for name in section.loops)])
    return lines


def speeds(run: Run, section: Section) -> list[list[str]]:
    against_baseline = {
        section.names[name]: partial(speed, loop=name, reference=section.baseline) for name in section.loops
    }
    standing = standing_ratios(section)
    lines = [["", *against_baseline, "best other", *standing, "noise"]]
    for row in section.rows:
        outcomes = run.outcomes[row.name]
        best = best_other(outcomes)
        left = [ratio_cell(ratio(outcomes)) for ratio in against_baseline.values()]
        right = [ratio_cell(ratio(outcomes)) for ratio in standing.values()]
        lines.append([row.name, *left, section.names[best] if best else "-", *right, noise_cell(outcomes)])
    if len(section.rows) > 1:
        tables = [run.outcomes[row.name] for row in section.rows]
        left = [ratio_cell(geometric_mean(map(ratio, tables))) for ratio in against_baseline.values()]
        right = [ratio_cell(geometric_mean(map(ratio, tables))) for ratio in standing.values()]
        lines.append(["geometric mean", *left, "", *right, ""])
    return lines


def standing_ratios(section: Section) -> dict[str, Ratio]:
    """The ratios that decide about hotloop, whatever the baseline is."""
    found: dict[str, Ratio] = {}
    if "hotloop-c" in section.loops:
        found["hotloop-c/best"] = partial(speed_over_best_other, loop="hotloop-c")
    if {"hotloop-python", "asyncio"} <= set(section.loops):
        title = f"hotloop-python/{section.names['asyncio']}"
        found[title] = partial(speed, loop="hotloop-python", reference="asyncio")
    return found


def table(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns as wide as they need to be; the first `left` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def aligned(line: Sequence[str]) -> str:
        cells = [cell.ljust(width) for cell, width in zip(line[:left], widths[:left], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(line[left:], widths[left:], strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(aligned, lines))


def time_cell(outcome: Outcome) -> str:
    if isinstance(outcome, NotMeasured):
        return "-" if outcome.kind == "not applicable" else "failed"
    return duration(outcome.median)


def duration(seconds: float) -> str:
    """With three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def three_digits(number: float) -> str:
    decimals = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{decimals}f}"


def ratio_cell(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def noise_cell(outcomes: Outcomes) -> str:
    spreads = [outcome.spread for outcome in outcomes.values() if isinstance(outcome, Measurement)]
    return f"{max(spreads):.0%}" if spreads else "-"


def notes(run: Run) -> Iterable[str]:
    for comparison in comparisons(run.outcomes, run.loops):
        yield sentence(comparison)
    for name, outcomes in run.outcomes.items():
        for loop, outcome in outcomes.items():
            if isinstance(outcome, NotMeasured) and outcome.kind == "failed":
                yield f"FAILED: {name} on {loop}: {outcome.reason}"


def sentence(comparison: Comparison) -> str:
    reference = "the best other" if comparison.reference == "best other" else comparison.reference
    rows = "row" if comparison.rows == 1 else "rows"
    return (
        f"{comparison.loop} is {comparison.mean:.2f} times as fast as {reference} in the geometric mean of"
        f" {comparison.rows} {rows}, at least {comparison.lowest:.2f} ({comparison.lowest_row})"
    )


def as_json(run: Run) -> dict[str, Any]:
    loops = {name: dict(facts) for name, facts in run.facts.items()}
    return {
        "format": JSON_FORMAT,
        "machine": dict(run.machine),
        "settings": {"rounds": run.rounds, "seconds_per_round": run.seconds, "baseline": run.baseline},
        "loops": loops | {name: {"missing": reason} for name, reason in run.missing.items()},
        "rows": [row_as_json(row, run.outcomes[row.name]) for row in run.rows],
        "comparisons": [vars(comparison) for comparison in comparisons(run.outcomes, run.loops)],
    }


def row_as_json(row: Row, outcomes: Outcomes) -> dict[str, Any]:
    return {
        "name": row.name,
        "question": row.question,
        "subject": row.subject,
        "best_other": best_other(outcomes),
        "results": {name: outcome_as_json(outcome) for name, outcome in outcomes.items()},
    }


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """Times are seconds for one operation, one for each round."""
    if isinstance(outcome, NotMeasured):
        return {"kind": outcome.kind, "reason": outcome.reason}
    return {
        "kind": "measured",
        "operations": outcome.operations,
        "seconds": outcome.seconds,
        "median": outcome.median,
        "spread": outcome.spread,
    }
