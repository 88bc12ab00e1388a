"""Prints judged verdicts."""

from typing import Protocol

from conformance.expected import Judgement
from conformance.pool import Verdict


class Run(Protocol):
    """Information about a run that is printed beside its judgement."""

    verdicts: dict[str, Verdict]
    no_suite: str | None
    seconds: float


def counts(judgements: list[Judgement]) -> str:
    passed, failed, expected, asyncio_too, skipped = (
        sum(len(getattr(judgement, kind)) for judgement in judgements)
        for kind in ("passed", "problems", "expected", "asyncio_too", "skipped")
    )
    parts = [f"{passed} passed", f"{failed} failed", f"{expected} expected failures"]
    if asyncio_too:
        parts.append(f"{asyncio_too} failed with asyncio too")
    return ", ".join([*parts, f"{skipped} skipped"])


def report(suite: str, judgement: Judgement, run: Run) -> None:
    if run.no_suite is not None:
        print(f"{suite:<24} NOT RUN: {run.no_suite}", flush=True)
        return
    if not run.verdicts and not judgement.problems:
        return
    print(f"{suite:<24} {counts([judgement])}; {judgement.total} in all, {run.seconds:.1f} s", flush=True)
    for name in judgement.asyncio_too:
        print(f"  fails with asyncio too: {suite}.{name}", flush=True)
    for name, problem in judgement.problems.items():
        lines = "\n    ".join(problem.splitlines())
        print(f"  FAILED {suite}.{name}\n    {lines}", flush=True)
