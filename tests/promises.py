"""Make docs/promises.md of promises.toml and of the tests marked with a promise's number, or check that it is current.

`python tests/promises.py` writes the page and `--check` only compares it. Either way it is an error if a promise has no
test on one of hotloop's implementations, or if a test is marked with a number without a promise. The collected tests
depend neither on the build nor on HOTLOOP_TEST_IMPLS: pytest collects the tests, but runs none.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PAGE = ROOT / "docs" / "promises.md"
COMMAND = "python tests/promises.py"
OURS = ("c", "python")
EVERYWHERE = (*OURS, "asyncio")

HEAD = """# Promises

Users of fast event loops have had problems before. Each promise below is one sentence that a test can check; most of
them answer a public thread about such a problem. The tests marked with a promise's number check it. Unless the table
says otherwise, a test runs on both of hotloop's implementations and on asyncio itself, which is the oracle: a test that
asyncio fails needs a reason. Where the reason is a fault of asyncio's transports, which the pure implementation uses,
too, the test skips them when it runs, and says so then.

`make promises` makes this page, and a test fails when it is not current. Where a promise names a number of operations,
an ordinary run of the tests makes fewer; `make promises-test` makes them all.
"""


@dataclasses.dataclass
class Test:
    """A test function that is marked with a promise's number."""

    name: str
    file: str  # relative to the repository
    implementations: set[str] = dataclasses.field(default_factory=set)
    reasons: list[str] = dataclasses.field(default_factory=list)  # why it runs on these alone

    def cell(self) -> str:
        names = [name for name in EVERYWHERE if name in self.implementations]
        if names in ([], list(EVERYWHERE)):
            return f"`{self.name}`"
        return f"`{self.name}`, only on {' and '.join(names)}: {'; '.join(self.reasons)}"


class Collector:
    """A pytest plugin. `tests` has the collected ones, by promise, in the order of the files."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[tuple[str, str], Test]] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            name = getattr(item, "originalname", item.name)
            file = item.path.relative_to(ROOT).as_posix()
            for promise in item.iter_markers("promise"):
                tests = self.tests.setdefault(promise.args[0], {})
                test = tests.setdefault((file, name), Test(name, file))
                if hasattr(item, "callspec") and "impl" in item.callspec.params:
                    test.implementations.add(item.callspec.params["impl"])
                for marker in item.iter_markers("only"):
                    if marker.kwargs["reason"] not in test.reasons:
                        test.reasons.append(marker.kwargs["reason"])


def collect() -> dict[str, list[Test]]:
    """The marked tests by promise. Raises SystemExit if pytest cannot collect them."""
    import pytest

    os.environ["HOTLOOP_TEST_IMPLS"] = ",".join(EVERYWHERE)
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    collector = Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(
            ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not conformance", str(TESTS)], plugins=[collector]
        )
    if code != pytest.ExitCode.OK:
        _, _, cause = output.getvalue().partition("= ERRORS =")
        raise SystemExit(f"{cause}\nthe tests could not be collected")
    return {number: [tests[key] for key in sorted(tests)] for number, tests in collector.tests.items()}


def problems(promises: dict[str, Any], tests: dict[str, list[Test]]) -> Iterator[str]:
    for number in promises:
        missing = set(OURS)
        for test in tests.get(number, []):
            missing -= test.implementations or set(OURS)
        if missing:
            sentence = " ".join(promises[number]["promise"].split())
            yield f"{number} has no test on {' and '.join(sorted(missing))}: {sentence}"
        for file, _ in promises[number].get("also", []):
            if not (ROOT / file).exists():
                yield f"{number} names a file that is not there: {file}"
    for number in sorted(set(tests) - set(promises)):
        yield f"{number} is promised nowhere, but checked by {tests[number][0].name}"


def section(number: str, promise: dict[str, Any], tests: list[Test]) -> Iterator[str]:
    yield f"\n## {number}\n"
    yield promise["promise"].strip()
    if threads := promise.get("threads"):
        links = (f"[{name}](https://github.com/{name.replace('#', '/issues/')})" for name in threads)
        yield f"\nThreads: {', '.join(links)}."
    yield "\n| file | tests |\n|---|---|"
    for file in dict.fromkeys(test.file for test in tests):
        yield f"| `{file}` | {'<br>'.join(test.cell() for test in tests if test.file == file)} |"
    yield from (f"| `{file}` | {what} |" for file, what in promise.get("also", []))


def page(promises: dict[str, Any], tests: dict[str, list[Test]]) -> str:
    lines = [HEAD.rstrip()]
    for number, promise in promises.items():
        lines += section(number, promise, tests.get(number, []))
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not current")
    options = parser.parse_args(arguments)
    promises = tomllib.loads((TESTS / "promises.toml").read_text(encoding="utf-8"))
    tests = collect()
    found = list(problems(promises, tests))
    text = page(promises, tests)
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        found.append(f"{PAGE.relative_to(ROOT)} is not current: {COMMAND}")
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
