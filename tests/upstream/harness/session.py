"""Runs a suite on one implementation and sorts the verdicts."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from conformance.expected import Expectations, Judgement

from harness.catalog import NotAvailable, Suite
from harness.workplace import Run, Workplace, open_workplace

EXPECTED = Path(__file__).parent.parent / "expected.toml"


def run_suite(suite: Suite, impl: str, cache: Path, pattern: str | None = None) -> tuple[Judgement, Run]:
    """The suite's judged verdicts; if there are none, `no_suite` of the Run has the reason."""
    logs = cache / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{suite.name}-{impl}.log"
    try:
        with open_workplace(suite, cache) as workplace:
            run = workplace.run(impl, log, pattern=pattern)
            judgement = judge(suite, impl, run, complete=pattern is None, versions=workplace.access.versions)
            ask_asyncio(workplace, impl, judgement, run, log.with_suffix(".asyncio-too.log"))
            return judgement, run
    except NotAvailable as reason:
        return Judgement(), Run({}, no_suite=str(reason))


def judge(
    suite: Suite,
    impl: str,
    run: Run,
    *,
    complete: bool,
    versions: Mapping[str, tuple[int, ...]] = MappingProxyType({}),  # of the servers
    expected: str | None = None,
) -> Judgement:
    """Compare the verdicts with expected.toml, and check that the run was one of the whole suite on the loop under
    test."""
    text = EXPECTED.read_text(encoding="utf-8") if expected is None else expected
    complete = complete and run.incomplete is None
    judgement = Expectations(impl, text, others=versions).judge(suite.name, run, complete=complete)
    if run.incomplete is not None:
        judgement.problems["(suite)"] = run.incomplete
    elif complete and len(judgement.passed) < suite.passed:
        judgement.problems["(suite)"] = f"{len(judgement.passed)} tests passed, where at least {suite.passed} should"
    if run.verdicts and not any(verdict.loops for verdict in run.verdicts.values()):
        judgement.problems["(loop)"] = "no test made a loop under test"
    for name, count in run.others.items():
        judgement.problems[f"(loop) {name}"] = f"made {count} loops that are not those under test"
    return judgement


def ask_asyncio(workplace: Workplace, impl: str, judgement: Judgement, run: Run, log: Path) -> None:
    """Separate the failures that asyncio has on this machine, too."""
    failed = [name for name in judgement.problems if name in run.verdicts and run.verdicts[name].bad]
    if impl == "asyncio" or not failed:
        return
    for name, verdict in workplace.run("asyncio", log, only=failed).verdicts.items():
        if verdict.bad and name in failed:
            judgement.asyncio_too[name] = judgement.problems.pop(name)
