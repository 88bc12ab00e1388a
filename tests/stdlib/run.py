#!/usr/bin/env python3
"""Run CPython's own asyncio and selector tests on hotloop, or on asyncio itself to see how they do on this machine.

Every mixin and parametrised class of the running interpreter's test.test_asyncio and test.test_selectors is bound to
hotloop's EventLoop, Future, Task and selectors (conformance/bind); all other tests there run with hotloop's loop as the
default. Each test has its own verdict; one that hangs is ended and reported. Tests that cannot pass are listed, with
the reason, in conformance/expected.toml. A failure that is not listed is tried on asyncio, and is no failure of
hotloop's if asyncio fails too. The tested hotloop is the one that this interpreter imports.

c+compiled and asyncio+compiled are hotloop's loop and asyncio's, each with the compiled objects of hotloop.asyncio in
asyncio's place, as `python -m hotloop --compiled-asyncio` puts them there.

Exit code: 0 all as expected; 1 something is not; 2 wrong usage; 3 NOT RUN, in whole or in part, for a reason printed;
4 NOT RUN because hotloop has no compiled objects for asyncio on this Python.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import platform
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from conformance import binding, catalog, pool
from conformance.expected import Expectations, Judgement
from conformance.report import counts, report

# The suites that take longest begin first, so that none of them runs alone in the end.
LONG_SUITES = ("test_tasks", "test_events", "test_subprocess", "test_ssl")

OK, FAILED, WRONG_USAGE, NOT_RUN, NO_COMPILED_OBJECTS = 0, 1, 2, 3, 4


class Session:
    """All suites of this interpreter on one implementation."""

    def __init__(self, impl: str, *, timeout: float = 45.0, only: str | None = None):
        self.impl = impl
        self.timeout = timeout
        self.only = only
        self.expectations = Expectations(impl)
        self._modules = catalog.suites(self.expectations.unbound_suites())

    def suites(self) -> list[str]:
        """The suites to run. If a pattern starts with a suite's name, the others are not searched for it."""
        named = [suite for suite in self._modules if self.only and self.only.partition(".")[0] == suite]
        return named or list(self._modules)

    def tests(self, suite: str) -> list[str]:
        """The suite's tests to run, as Class.test."""
        return pool.names_of(self._job(suite))

    def run_suite(self, suite: str) -> tuple[Judgement, pool.Run]:
        run = pool.run_suite(self._job(suite))
        judgement = self.expectations.judge(suite, run, complete=self.only is None)
        if not run.verdicts and run.no_suite is None and self.only is None:
            judgement.problems["(suite)"] = "no test was run"
        self._ask_asyncio(suite, judgement)
        return judgement, run

    def _ask_asyncio(self, suite: str, judgement: Judgement) -> None:
        """Separate the failures that asyncio has on this machine, too."""
        if self.impl == "asyncio" or not judgement.problems:
            return
        job = dataclasses.replace(self._job(suite), impl="asyncio", only=list(judgement.problems))
        for name, verdict in pool.run_suite(job).verdicts.items():
            if verdict.bad and name in judgement.problems:
                judgement.asyncio_too[name] = judgement.problems.pop(name)

    def _job(self, suite: str) -> pool.Job:
        unbound = sorted(self.expectations.unbound_classes(suite))
        return pool.Job(self._modules[suite], self.impl, unbound, self.timeout, pattern=self.only)


def run_all(session: Session, processes: int) -> dict[str, tuple[Judgement, pool.Run]]:
    results = {}
    with concurrent.futures.ThreadPoolExecutor(processes) as executor:
        suites = sorted(session.suites(), key=lambda suite: suite not in LONG_SUITES)
        pending = {executor.submit(session.run_suite, suite): suite for suite in suites}
        for future in concurrent.futures.as_completed(pending):
            suite = pending[future]
            results[suite] = future.result()
            report(suite, *results[suite])
    return dict(sorted(results.items()))


def save(path: str, session: Session, results: dict[str, tuple[Judgement, pool.Run]]) -> None:
    suites = {
        suite: dataclasses.asdict(judgement)
        | {"not_run": run.no_suite, "seconds": round(run.seconds, 1)}
        | {"durations": {name: round(verdict.seconds, 3) for name, verdict in run.verdicts.items()}}
        for suite, (judgement, run) in results.items()
    }
    document = {"python": platform.python_version(), "impl": session.impl, "suites": suites}
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", choices=binding.IMPLEMENTATIONS, default="c", help="what to bind (default: c)")
    parser.add_argument("--only", metavar="PATTERN", help="tests whose suite.Class.test contains or matches PATTERN")
    parser.add_argument("--list", action="store_true", help="print the names of the tests and run none")
    parser.add_argument("--json", metavar="FILE", help="write every verdict to FILE")
    parser.add_argument("--timeout", type=float, default=45.0, help="seconds until a test counts as hung (default: 45)")
    parser.add_argument("-j", type=int, default=4, metavar="N", help="suites to run at a time (default: 4)")
    return parser.parse_args(arguments)


def exit_code(results: dict[str, tuple[Judgement, pool.Run]]) -> int:
    if any(judgement.problems for judgement, _ in results.values()):
        return FAILED
    if not any(run.verdicts or run.no_suite for _, run in results.values()):
        print("no test matches")
        return WRONG_USAGE
    return NOT_RUN if any(run.no_suite for _, run in results.values()) else OK


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts this in the background makes it ignore SIGINT: tests of Ctrl-C would hang.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.impl.endswith("+compiled") and (reason := binding.why_nothing_is_compiled()):
        print(f"NOT RUN: hotloop has no compiled objects for asyncio here: {reason}")
        return NO_COMPILED_OBJECTS
    try:
        session = Session(options.impl, timeout=options.timeout, only=options.only)
    except catalog.NotAvailable as reason:
        print(f"NOT RUN: {reason}")
        return NOT_RUN
    try:
        session.tests(session.suites()[0])  # makes one clear failure now instead of one in each suite
        if options.list:
            for suite in session.suites():
                for test in session.tests(suite):
                    print(f"{suite}.{test}")
            return OK
    except pool.WorkerFailed as reason:
        print(f"{options.impl} cannot be tested: {reason}")
        return FAILED
    print(f"CPython {platform.python_version()}, implementation {options.impl}", flush=True)
    results = run_all(session, options.j)
    if options.json:
        save(options.json, session, results)
    print(counts([judgement for judgement, _ in results.values()]))
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
