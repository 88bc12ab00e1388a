"""The results as text for people and as JSON for programs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

from .results import (
    LIMIT,
    Comparison,
    Measurement,
    NotMeasured,
    Outcome,
    Outcomes,
    Ratio,
    best_other,
    comparisons,
    geometric_mean,
    mean_over,
    processor_time_over_limit,
    speed,
    speed_over_best_other,
)
from .rows import Row, Table

JSON_FORMAT = 1

NETWORKS: tuple[Table, ...] = get_args(Table)
"""The tables of network rows."""


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
        """The loops that were measured."""
        return [name for name in self.facts if name != LIMIT]

    def loops_on(self, rows: Iterable[Row]) -> list[str]:
        """The loops that at least one of the rows applies to."""
        tables = [self.outcomes[row.name] for row in rows]
        return [name for name in self.loops if any(applies(outcomes[name]) for outcomes in tables)]

    def rows_on(self, *subjects: str, table: Table = "Network") -> list[Row]:
        """Of network rows, those of one table."""
        return [row for row in self.rows if row.subject in subjects and row.table == table]

    def outcomes_of(self, rows: Iterable[Row]) -> dict[str, Outcomes]:
        return {row.name: self.outcomes[row.name] for row in rows}


def applies(outcome: Outcome) -> bool:
    return not (isinstance(outcome, NotMeasured) and outcome.kind == "not applicable")


@dataclass(frozen=True)
class Section:
    """The rows of one table: they have the same subject, and so the same rivals."""

    title: str
    rows: Sequence[Row]
    loops: Sequence[str]
    names: Mapping[str, str]
    baseline: str
    measured: str = "time for one operation"
    faster: str = "speed"
    with_load: bool = False
    """Network rows: the bare C server, rates and latencies are shown too."""
    times_of_bare_c: Mapping[str, float] = field(default_factory=dict)
    """By row: the result of times_of_bare_c()."""


def text(run: Run) -> str:
    parts = [header(run)]
    for section in sections(run):
        parts.append(f"{section.title}: {section.measured}, median of {run.rounds} rounds")
        parts.append(table(times(run, section)))
        for title, cells in load_tables(run, section) if section.with_load else ():
            parts += [f"{section.title}: {title}", table(cells)]
        bare = "; CPU/bare-c: hotloop-c's processor time over the bare C server's" if section.times_of_bare_c else ""
        parts.append(
            f"{section.title}: {section.faster}, {section.names[section.baseline]} = 1; higher is faster\n"
            f"(noise: of the row's noisiest loop, the spread of the middle half of its rounds{bare})"
        )
        parts.append(table(speeds(run, section)))
    parts.append("\n".join(notes(run)))
    return "\n\n".join(part for part in parts if part) + "\n"


def header(run: Run) -> str:
    lines = [f"{key + ':':<16} {value}" for key, value in run.machine.items()]
    for name, facts in run.facts.items():
        known = ("core", "loop", "task", "selector", "transport", "TLS")
        classes = [f"{key} {facts[key]}" for key in known if key in facts]
        lines.append(f"{name + ':':<16} {'; '.join([facts['version'], *classes])}")
    lines += [f"{name + ':':<16} NOT MEASURED: {reason}" for name, reason in run.missing.items()]
    return "\n".join(lines)


def sections(run: Run) -> list[Section]:
    found = []
    own_names = {name: name for name in run.loops}
    on_loops = run.rows_on("event loop")
    if loops := run.loops_on(on_loops):
        found.append(Section("Event loops", on_loops, loops, own_names, run.baseline))
    on_selectors = run.rows_on("selector")
    with_selector = [name for name in run.loops if "selector" in run.facts[name]]
    if on_selectors and with_selector:
        names = {name: "selectors" if name == "asyncio" else name for name in with_selector}
        baseline = "asyncio" if "asyncio" in with_selector else with_selector[0]
        found.append(Section("Selectors", on_selectors, with_selector, names, baseline))
    for title in NETWORKS:
        on_network = run.rows_on("network", table=title)
        if loops := run.loops_on(on_network):
            measured = "processor time of the measured process for one operation"
            faster = "operations for the same processor time"
            common = (on_network, loops, own_names, run.baseline, measured, faster)
            found.append(Section(title, *common, with_load=True, times_of_bare_c=times_of_bare_c(run, title)))
    return found


def times(run: Run, section: Section) -> list[list[str]]:
    return columns(run, section, time_cell)


def columns(run: Run, section: Section, cell: Callable[[Outcome], str]) -> list[list[str]]:
    """A column for each loop, and one for the bare C server where it was measured."""
    names = [*section.loops, *([LIMIT] if section.with_load and LIMIT in run.facts else [])]
    lines = [["", *(section.names.get(name, name) for name in names)]]
    for row in section.rows:
        outcomes = run.outcomes[row.name]
        lines.append([row.name, *(cell(outcomes[name]) for name in names)])
    return lines


def load_tables(run: Run, section: Section) -> Iterable[tuple[str, list[list[str]]]]:
    yield "operations a second, median of the rounds", columns(run, section, rate_cell)
    with_clients = [row for row in section.rows if has_latencies(run.outcomes[row.name])]
    if with_clients:
        of_those = replace(section, rows=with_clients)
        yield "latency for the clients, p50 / p99, median of the rounds", columns(run, of_those, latency_cell)


def has_latencies(outcomes: Outcomes) -> bool:
    return any(isinstance(outcome, Measurement) and outcome.p50 is not None for outcome in outcomes.values())


def speeds(run: Run, section: Section) -> list[list[str]]:
    against_baseline = {
        section.names[name]: partial(speed, loop=name, reference=section.baseline) for name in section.loops
    }
    standing = standing_ratios(section)
    factors = section.times_of_bare_c
    bare = ["CPU/bare-c"] if factors else []
    lines = [["", *against_baseline, "best other", *standing, *bare, "noise"]]
    for row in section.rows:
        outcomes = run.outcomes[row.name]
        best = best_other(outcomes)
        left = [ratio_cell(ratio(outcomes)) for ratio in against_baseline.values()]
        right = [ratio_cell(ratio(outcomes)) for ratio in standing.values()]
        right += [ratio_cell(factors.get(row.name))] if bare else []
        lines.append([row.name, *left, section.names[best] if best else "-", *right, noise_cell(outcomes)])
    if len(section.rows) > 1:
        tables = [run.outcomes[row.name] for row in section.rows]
        left = [ratio_cell(mean_over(tables, section.baseline, ratio)) for ratio in against_baseline.values()]
        right = [ratio_cell(mean_over(tables, section.baseline, ratio)) for ratio in standing.values()]
        right += [ratio_cell(geometric_mean(factors.values()))] if bare else []
        lines.append(["geometric mean", *left, "", *right, ""])
    return lines


def standing_ratios(section: Section) -> dict[str, Ratio]:
    """The ratios that are shown with every baseline."""
    found: dict[str, Ratio] = {}
    if "hotloop-c" in section.loops:
        found["hotloop-c/best"] = partial(speed_over_best_other, loop="hotloop-c")
    if {"hotloop-compiled", "hotloop-c"} <= set(section.loops):
        found["hotloop-compiled/hotloop-c"] = partial(speed, loop="hotloop-compiled", reference="hotloop-c")
    if {"hotloop-python", "asyncio"} <= set(section.loops):
        title = f"hotloop-python/{section.names['asyncio']}"
        found[title] = partial(speed, loop="hotloop-python", reference="asyncio")
    return found


def times_of_bare_c(run: Run, title: Table) -> dict[str, float]:
    """hotloop-c's processor time divided by the bare C server's, by row, for the rows that have it as their limit."""
    limited = run.outcomes_of(row for row in run.rows_on("network", table=title) if row.limited)
    found = {name: processor_time_over_limit(outcomes, "hotloop-c") for name, outcomes in limited.items()}
    return {name: times for name, times in found.items() if times is not None}


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
        return "failed" if outcome.kind == "failed" else "-"
    return duration(outcome.median)


def rate_cell(outcome: Outcome) -> str:
    if isinstance(outcome, NotMeasured) or outcome.rate is None:
        return "-"
    return f"{outcome.rate:,.0f}" if outcome.rate >= 99.95 else three_digits(outcome.rate)


def latency_cell(outcome: Outcome) -> str:
    if isinstance(outcome, NotMeasured) or outcome.p50 is None or outcome.p99 is None:
        return "-"
    return f"{duration(outcome.p50)} / {duration(outcome.p99)}"


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
    for comparison in comparisons(run.outcomes_of(run.rows_on("event loop", "selector")), run.loops):
        yield sentence(comparison)
    for title in NETWORKS:
        for comparison in comparisons(run.outcomes_of(run.rows_on("network", table=title)), run.loops):
            yield f"{title}: {sentence(comparison)}"
        if factors := times_of_bare_c(run, title):
            highest = max(factors, key=factors.__getitem__)
            yield (
                f"{title}: hotloop-c takes {geometric_mean(factors.values()):.2f} times the processor time of the bare"
                f" C server in the geometric mean of {number_of_rows(len(factors), 'protocol ')}, at most"
                f" {factors[highest]:.2f} ({highest})"
            )
    for reason, names in not_measured_here(run).items():
        yield f"NOT MEASURED: {', '.join(names)}: {reason}"
    for (loop, kind), names in not_offered(run).items():
        yield f"NOT OFFERED: {loop} has no {kind}: {', '.join(names)}"
    for name, outcomes in run.outcomes.items():
        for loop, outcome in outcomes.items():
            if isinstance(outcome, NotMeasured) and outcome.kind == "failed":
                yield f"FAILED: {name} on {loop}: {outcome.reason}"


def not_measured_here(run: Run) -> dict[str, list[str]]:
    """Rows that this machine cannot measure on any loop, by the reason."""
    found: dict[str, list[str]] = {}
    for row in run.rows:
        reasons = {
            outcome.reason
            for outcome in run.outcomes[row.name].values()
            if isinstance(outcome, NotMeasured) and outcome.kind == "unavailable"
        }
        for reason in reasons:
            found.setdefault(reason, []).append(row.name)
    return found


def not_offered(run: Run) -> dict[tuple[str, str], list[str]]:
    """Rows by the loop that does not offer them and what it lacks."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in run.rows:
        for loop, outcome in run.outcomes[row.name].items():
            if isinstance(outcome, NotMeasured) and outcome.kind == "not offered":
                found.setdefault((loop, outcome.reason), []).append(row.name)
    return found


def number_of_rows(count: int, kind: str = "") -> str:
    return f"{count} {kind}{'row' if count == 1 else 'rows'}"


def sentence(comparison: Comparison) -> str:
    reference = "the best other" if comparison.reference == "best other" else comparison.reference
    return (
        f"{comparison.loop} is {comparison.mean:.2f} times as fast as {reference} in the geometric mean of"
        f" {number_of_rows(comparison.rows)}, at least {comparison.lowest:.2f} ({comparison.lowest_row})"
    )


def as_json(run: Run) -> dict[str, Any]:
    loops = {name: dict(facts) for name, facts in run.facts.items()}
    return {
        "format": JSON_FORMAT,
        "machine": dict(run.machine),
        "settings": {"rounds": run.rounds, "seconds_per_round": run.seconds, "baseline": run.baseline},
        "loops": loops | {name: {"missing": reason} for name, reason in run.missing.items()},
        "rows": [row_as_json(row, run.outcomes[row.name]) for row in run.rows],
        "comparisons": compared(run, "event loop", "selector"),
        "network_comparisons": compared(run, "network"),
        "tls_comparisons": compared(run, "network", table="TLS"),
        "library_comparisons": compared(run, "network", table="Libraries"),
        "times_of_bare_c": {name: times for title in NETWORKS for name, times in times_of_bare_c(run, title).items()},
    }


def compared(run: Run, *subjects: str, table: Table = "Network") -> list[dict[str, Any]]:
    rows = run.rows_on(*subjects, table=table)
    return [vars(comparison) for comparison in comparisons(run.outcomes_of(rows), run.loops)]


def row_as_json(row: Row, outcomes: Outcomes) -> dict[str, Any]:
    return {
        "name": row.name,
        "question": row.question,
        "subject": row.subject,
        "table": row.table,
        "best_other": best_other(outcomes),
        "results": {name: outcome_as_json(outcome) for name, outcome in outcomes.items()},
    }


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """Times are seconds for one operation, one for each round; of a network row, seconds of processor time."""
    if isinstance(outcome, NotMeasured):
        return {"kind": outcome.kind, "reason": outcome.reason}
    found = {
        "kind": "measured",
        "operations": outcome.operations,
        "seconds": outcome.seconds,
        "median": outcome.median,
        "spread": outcome.spread,
    }
    if outcome.loads:
        found["load"] = {
            "operations_per_second": [load.rate for load in outcome.loads],
            "p50": [load.p50 for load in outcome.loads],
            "p99": [load.p99 for load in outcome.loads],
        }
    return found
