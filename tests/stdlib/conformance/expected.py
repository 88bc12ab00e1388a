"""Compares the verdicts with expected.toml: the tests that cannot pass, and the classes that cannot be bound.

The list is checked both ways. A listed test that passes is a failure, and so is a listed name that does not exist: an
entry whose test some version lacks must name its versions. Of an [[unstable]] test only the name is checked: it passes
or fails by chance, on asyncio as well.
"""

import dataclasses
import fnmatch
import operator
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from conformance.pool import Run, Verdict

FILE = Path(__file__).with_name("expected.toml")
COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One table of the file."""

    suite: str
    names: tuple[str, ...]
    reason: str

    def matches(self, name: str) -> bool:
        return any(found(pattern, [name]) for pattern in self.names)


@dataclasses.dataclass
class Judgement:
    """A suite's verdicts sorted by their meaning; the values are the reasons, or the problems' texts."""

    passed: list[str] = dataclasses.field(default_factory=list)
    expected: dict[str, str] = dataclasses.field(default_factory=dict)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    asyncio_too: dict[str, str] = dataclasses.field(default_factory=dict)  # not listed, but asyncio fails them as well
    problems: dict[str, str] = dataclasses.field(default_factory=dict)  # of tests, classes and entries of the list

    @property
    def total(self) -> int:
        kinds = (self.passed, self.expected, self.skipped, self.asyncio_too, self.problems)
        return sum(len(kind) for kind in kinds)


class Expectations:
    """The entries of expected.toml for one implementation on this interpreter."""

    def __init__(
        self,
        impl: str,
        text: str | None = None,
        version: tuple[int, ...] = sys.version_info[:3],
        others: Mapping[str, tuple[int, ...]] = MappingProxyType({}),  # versions of other programs, by name
    ):
        tables = tomllib.loads(FILE.read_text(encoding="utf-8") if text is None else text)
        versions = {**others, "python": version}
        self.failing, self.unstable, self.unbound = (
            [_entry(table, key) for table in tables.get(kind, []) if _applies(table, impl, versions)]
            for kind, key in (("failing", "tests"), ("unstable", "tests"), ("unbound", "classes"))
        )

    def unbound_suites(self) -> set[str]:
        return {entry.suite for entry in self.unbound if entry.names == ("*",)}

    def unbound_classes(self, suite: str) -> set[str]:
        return {name for entry in self.unbound if entry.suite == suite for name in entry.names}

    def judge(self, suite: str, run: Run, *, complete: bool) -> Judgement:
        """Sort the verdicts; `complete` means that the whole suite ran, so that absent tests do not exist."""
        judgement = Judgement()
        for name, verdict in run.verdicts.items():
            self._judge_test(judgement, suite, name, verdict)
        if complete and run.no_suite is None:
            self._judge_absent(judgement, suite, run)
            _judge_unused(judgement, run)
        return judgement

    def _judge_test(self, judgement: Judgement, suite: str, name: str, verdict: Verdict) -> None:
        failing, unstable = (
            [entry.reason for entry in entries if entry.suite == suite and entry.matches(name)]
            for entries in (self.failing, self.unstable)
        )
        if verdict.outcome == "skipped":
            judgement.skipped[name] = verdict.text
        elif verdict.bad and (failing or unstable):
            judgement.expected[name] = (failing or unstable)[0]
        elif verdict.bad:
            judgement.problems[name] = f"{verdict.outcome}: {verdict.text}"
        elif failing:
            judgement.problems[name] = f"unexpected pass; it is listed to fail because it {failing[0]}"
        else:
            judgement.passed.append(name)

    def _judge_absent(self, judgement: Judgement, suite: str, run: Run) -> None:
        for kind, entries in (("failing", self.failing), ("unstable", self.unstable)):
            for pattern in (name for entry in entries if entry.suite == suite for name in entry.names):
                if not found(pattern, run.verdicts):
                    judgement.problems[f"[[{kind}]] {pattern}"] = "no such test here: tie the entry to versions"


def found(pattern: str, names: Iterable[str]) -> bool:
    """Whether a name of the list is among `names`: literally, with its brackets, or as a pattern."""
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in names)


def _judge_unused(judgement: Judgement, run: Run) -> None:
    """Report a class of CPython's that ran without making a loop under test: it has tested nothing of hotloop."""
    by_class: dict[str, list[Verdict]] = {}
    for name, verdict in run.verdicts.items():
        if not verdict.own and verdict.outcome == "passed":
            by_class.setdefault(name.partition(".")[0], []).append(verdict)
    for cls, verdicts in by_class.items():
        if not any(verdict.loops for verdict in verdicts):
            judgement.problems[f"{cls} (class)"] = "makes no loop under test: bind it, or list it as unbound"


def _entry(table: dict, key: str) -> Entry:
    assert table[key] and table["reason"], f"an entry needs {key} and a reason: {table}"
    return Entry(table["suite"], tuple(table[key]), table["reason"])


def _applies(table: dict, impl: str, versions: dict[str, tuple[int, ...]]) -> bool:
    specs = ((spec, versions[name]) for name in versions for spec in filter(None, table.get(name, "").split(",")))
    # What cannot pass on a loop cannot pass there with the compiled layer either.
    names = {impl, impl.removesuffix("+compiled")}
    return not names.isdisjoint(table.get("impl", [impl])) and all(
        _version_matches(spec, version) for spec, version in specs
    )


def _version_matches(spec: str, version: tuple[int, ...]) -> bool:
    """`spec` is one comparison such as ">=3.13.4"; only as many parts as it gives are compared."""
    match = re.fullmatch(r"\s*([<>=!]+)\s*([\d.]+)\s*", spec)
    assert match, f"not a comparison with a version: {spec}"
    wanted = tuple(map(int, match[2].split(".")))
    return COMPARE[match[1]](version[: len(wanted)], wanted)
