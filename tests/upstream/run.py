#!/usr/bin/env python3
"""Run pinned releases of other projects' test suites with hotloop as the event loop, or on asyncio to compare.

The tests come from the projects' source distributions, unchanged, and run in a virtual environment made for each of
them; both are kept in build/upstream. The loop is swapped beneath them: every Python that starts there returns the loop
under test wherever asyncio would return its own (plug/). expected.toml lists the tests that cannot pass, with the
reason. A failure that is not listed is tried on asyncio, and is no failure of hotloop's if asyncio fails too. The
tested hotloop is the one that this interpreter imports.

c+compiled and asyncio+compiled are hotloop's loop and asyncio's, each with the compiled objects of hotloop.asyncio in
asyncio's place, as `python -m hotloop --compiled-asyncio` puts them there.

Exit code: 0 all as expected; 1 something is not; 2 wrong usage; 3 NOT RUN, in whole or in part, for a reason printed;
4 NOT RUN because hotloop has no compiled objects for asyncio on this Python.
"""

import argparse
import dataclasses
import json
import platform
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "stdlib"))
sys.path.insert(0, str(Path(__file__).parent))

from conformance import binding
from conformance.expected import Judgement
from conformance.report import counts, report
from harness import catalog, session
from harness.loop_under_test import LoopMissing
from harness.workplace import Run

OK, FAILED, WRONG_USAGE, NOT_RUN, NO_COMPILED_OBJECTS = 0, 1, 2, 3, 4
CACHE = Path(__file__).parents[2] / "build" / "upstream"

Results = dict[str, tuple[Judgement, Run]]


def parse(arguments: list[str], names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="+", choices=[*names, "all"], help="the suites to run")
    parser.add_argument("--impl", choices=binding.IMPLEMENTATIONS, default="c", help="what to run on (default: c)")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests that match this, as pytest's -k understands it")
    parser.add_argument("--json", metavar="FILE", help="write every verdict to FILE")
    parser.add_argument("--cache", metavar="FOLDER", type=Path, default=CACHE, help="what is kept between runs")
    return parser.parse_args(arguments)


def save(path: str, impl: str, suites: dict[str, catalog.Suite], results: Results) -> None:
    documents = {
        name: dataclasses.asdict(judgement)
        | {"version": suites[name].version, "not_run": run.no_suite, "seconds": round(run.seconds, 1)}
        | {"durations": {test: round(verdict.seconds, 3) for test, verdict in run.verdicts.items()}}
        for name, (judgement, run) in results.items()
    }
    document = {"python": platform.python_version(), "impl": impl, "suites": documents}
    Path(path).write_text(json.dumps(document, indent=1), encoding="utf-8")


def exit_code(results: Results) -> int:
    if any(judgement.problems for judgement, _ in results.values()):
        return FAILED
    if any(run.no_suite is not None for _, run in results.values()):
        return NOT_RUN
    if not any(run.verdicts for _, run in results.values()):
        print("no test matches")
        return WRONG_USAGE
    return OK


def prepare_signals() -> None:
    # Background jobs of a shell ignore these, and so would the programs that tests interrupt.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # The signals end the servers and tests on the way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def main(arguments: list[str]) -> int:
    suites = catalog.suites()
    options = parse(arguments, list(suites))
    if options.impl.endswith("+compiled") and (reason := binding.why_nothing_is_compiled()):
        print(f"NOT RUN: hotloop has no compiled objects for asyncio here: {reason}")
        return NO_COMPILED_OBJECTS
    prepare_signals()
    wanted = suites if "all" in options.suite else dict.fromkeys(options.suite)
    print(f"CPython {platform.python_version()}, implementation {options.impl}", flush=True)
    results: Results = {}
    for name in wanted:
        try:
            results[name] = session.run_suite(suites[name], options.impl, options.cache.absolute(), options.only)
        except LoopMissing as reason:
            print(reason)
            return FAILED
        report(f"{name} {suites[name].version}", *results[name])
    if options.json:
        save(options.json, options.impl, suites, results)
    print(counts([judgement for judgement, _ in results.values()]))
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
