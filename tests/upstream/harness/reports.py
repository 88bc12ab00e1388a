"""Reads what pytest wrote as JUnit XML, with the properties that plug/loops_seen.py adds to each test."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from conformance.pool import Verdict

BAD = ("error", "failure")
TEXT_KEPT = 4000  # characters of a failure's text, the last ones


def read(path: Path) -> dict[str, Verdict]:
    """The verdicts by node id. A test that fails and whose fixture then breaks as well is in the report twice."""
    verdicts: dict[str, Verdict] = {}
    for name, case in _cases(path):
        verdict = _verdict(case)
        if (earlier := verdicts.get(name)) is not None:
            outcome = "failed" if earlier.bad or verdict.bad else verdict.outcome
            text = f"{earlier.text}\n{verdict.text}".strip()
            verdict = Verdict(outcome, text, earlier.seconds + verdict.seconds, earlier.loops + verdict.loops)
        verdicts[name] = verdict
    return verdicts


def others(path: Path) -> dict[str, int]:
    """The number of loops not under test that each test made, for those that made any."""
    counts = ((name, int(_properties(case).get("others", 0))) for name, case in _cases(path))
    return {name: count for name, count in counts if count}


def _cases(path: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    """Each test by its node id, or by class and name if it has none: a file not imported, a process that died."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    # Of two entries for one test only the second has properties.
    ids = {_class_and_name(case): nodeid for case in cases if (nodeid := _properties(case).get("nodeid"))}
    for case in cases:
        yield ids.get(_class_and_name(case), "::".join(filter(None, _class_and_name(case)))), case


def _class_and_name(case: ElementTree.Element) -> tuple[str, str]:
    return case.get("classname", ""), case.get("name", "")


def _properties(case: ElementTree.Element) -> dict[str, str]:
    return {element.get("name", ""): element.get("value", "") for element in case.iter("property")}


def _verdict(case: ElementTree.Element) -> Verdict:
    seconds, loops = float(case.get("time", 0)), int(_properties(case).get("ours", 0))
    bad = [element for element in case if element.tag in BAD]
    skipped = case.find("skipped")
    if bad:
        texts = (f"{element.get('message') or ''}\n{element.text or ''}".strip() for element in bad)
        return Verdict("failed", "\n".join(texts)[-TEXT_KEPT:], seconds, loops)
    if skipped is not None:
        return Verdict("skipped", skipped.get("message") or "", seconds, loops)
    return Verdict("passed", "", seconds, loops)
