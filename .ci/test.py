"""test.py [--all | --rest] [PYTEST-ARG...]: the project's tests and CPython's own; the last line says what ran.

Without an option: the project's tests on both implementations, and CPython's own asyncio and selector suites on the
compiled one. --rest runs what that leaves out: the tests on asyncio itself, which show that they ask for what asyncio
does (marked `oracle`), those that take long (marked `long`), those of TLS as it is where OpenSSL's functions cannot be
called, and CPython's suites on the pure implementation, and on both loops with the compiled objects of hotloop.asyncio
in asyncio's place.
--all runs everything. HOTLOOP_TEST_IMPLS leaves implementations out.

Exit code: 0 if all that was to run has run and passed. A Python that came without its own tests, as some distributions
ship it, is no failure, unless CI is set.
"""

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPORTS = Path("build", "test")
# Of pytest's markers, and on which implementations CPython's suites run.
USUAL = "not conformance and not long and not oracle"
SELECTIONS = {
    "usual": (USUAL, ("c",)),
    "rest": ("not conformance and (long or oracle)", ("python", "c+compiled", "asyncio+compiled")),
    "all": ("not conformance", ("c", "c+compiled", "python", "asyncio+compiled")),
}
# Exit codes of tests/stdlib/run.py: this Python has no test.test_asyncio, or no compiled objects for asyncio.
STDLIB_NOT_RUN, NO_COMPILED_OBJECTS = 3, 4


def run_pytest(name: str, title: str, markers: str, arguments: list[str], **environ: str) -> tuple[bool, str]:
    """Run tests, with these additional environment variables. Returns whether all is well, and the counts in words."""
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-m", markers, f"--junitxml={report}"]
    code = subprocess.run([*command, *arguments], check=False, env=os.environ | environ).returncode
    if not report.is_file():
        return False, f"the {title} did not run"
    counts = ElementTree.parse(report).getroot().find("testsuite")
    assert counts is not None
    total, skipped = int(counts.get("tests", 0)), int(counts.get("skipped", 0))
    failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    text = f"{total - skipped - failed:,} {title} passed, {skipped:,} skipped"
    return code == 0, text + (f", {failed:,} FAILED" if failed else "" if code == 0 else ", pytest FAILED")


def run_stdlib(implementation: str) -> tuple[bool, str]:
    began = time.monotonic()
    command = [sys.executable, "tests/stdlib/run.py", "--impl", implementation]
    code = subprocess.run(command, check=False).returncode
    seconds = time.monotonic() - began
    if code == STDLIB_NOT_RUN:
        return not os.environ.get("CI"), f"CPython's suites on {implementation} NOT RUN: this Python lacks them"
    if code == NO_COMPILED_OBJECTS:
        return True, f"CPython's suites on {implementation} NOT RUN: nothing of asyncio is compiled here"
    verdict = "passed" if code == 0 else "FAILED"
    return code == 0, f"CPython's suites on {implementation} {verdict} ({seconds:.0f} s)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    for option in ("rest", "all"):
        group.add_argument(f"--{option}", dest="selection", action="store_const", const=option, default="usual")
    options, arguments = parser.parse_known_args()
    markers, implementations = SELECTIONS[options.selection]
    REPORTS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    outcomes = [run_pytest("project", "tests", markers, arguments)]
    compiled = "c" in os.environ.get("HOTLOOP_TEST_IMPLS", "c").split(",")
    if options.selection != "usual" and compiled:
        facts = {"HOTLOOP_TLS": "ssl", "HOTLOOP_TEST_IMPLS": "c"}
        outcomes.append(run_pytest("tls", "tests of TLS by the ssl module", USUAL, [*arguments, "tests/tls"], **facts))
    outcomes += map(run_stdlib, implementations)
    seconds = round(time.monotonic() - began)
    took = f"{seconds // 60} min {seconds % 60} s"
    rest = "; not run: what `make test-rest` runs" if options.selection == "usual" else ""
    print("; ".join(text for _, text in outcomes) + f"; {took}{rest}")
    return int(not all(good for good, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
