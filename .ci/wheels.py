"""Build the wheels for every Python at hand as the release does, and install and test each in a new environment.

What is built and how is read from [tool.cibuildwheel] of pyproject.toml, as the release reads it: from the sdist, which
must build from itself, and on Linux repaired by auditwheel. check_wheel.py says what a wheel must hold. The pure wheel
is tested on this Python and on PyPy. A Python that is not here is named as not built, and is no failure.

HOTLOOP_EXTRA_PYTHONS names more interpreters, separated by semicolons; each is a command, whose last word is the
interpreter and what comes before it is the way there: "/opt/py314/bin/python3.14;some-chroot run pypy3", where the
chroot shares this folder.

Exit code: 0 all is well; 1 something failed; 2 wrong usage. Everything is in build/wheels: the wheels in wheelhouse,
and logs for each Python. A wheel is not built again if nothing that it is made from has changed.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interpreters
from interpreters import Interpreter

CI = Path(__file__).parent.absolute()
ROOT = CI.parent
OUT = ROOT / "build" / "wheels"
REQUIREMENTS = CI / "wheel-requirements.txt"
WHEELHOUSE = OUT / "wheelhouse"
# A copy of what the tests need, in a folder from which src/ cannot be imported.
ELSEWHERE = OUT / "elsewhere"
# The parts of the sdist that a wheel is made from.
WHEEL_SOURCES = (
    *("src/", "ext/", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"),
    ".ci/build-requirements.txt",
)
# A bit of everything: what is compiled and what it is chosen by, and each kind of transport.
SELECTION = (CI / "wheel-tests.txt").read_text().split()
# What a developer has set must not decide what is built or tested.
UNSET = re.compile(r"HOTLOOP_.*|PYTHON.*|PYTEST_ADDOPTS|C(PP)?FLAGS|LDFLAGS|LDSHARED")
NOTHING: Mapping[str, str] = {}


class Failed(Exception):
    """A step that did not do what it had to; the text is for the table."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """[tool.cibuildwheel], as far as this script follows it. What it does not know is an error and not passed over."""

    environment: dict[str, str]
    repair: str
    extras: tuple[str, ...]
    sources: tuple[str, ...]
    test_command: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Configuration":
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
        linux = table.pop("linux", {})
        table.pop("build")  # interpreters.released_versions() reads it
        if table.pop("build-frontend") != "build":
            raise SystemExit("wheels: only the frontend `build` is understood")
        table.pop("test-environment")  # it takes back what only the build gets here
        environment = table.pop("environment")
        if sys.platform == "linux":
            # As in cibuildwheel, the system's takes the place of the general one.
            environment = linux.pop("environment", environment)
        configuration = cls(
            environment=environment,
            repair=linux.pop("repair-wheel-command") if sys.platform == "linux" else "",
            extras=tuple(table.pop("test-extras")),
            sources=tuple(table.pop("test-sources")),
            test_command=tuple(shlex.split(table.pop("test-command"))),
        )
        if unknown := [*table, *(linux if sys.platform == "linux" else ())]:
            raise SystemExit(f"wheels: not understood in [tool.cibuildwheel]: {', '.join(unknown)}")
        if configuration.test_command[0] != "python":
            raise SystemExit("wheels: the test-command must begin with python")
        return configuration


@dataclass(slots=True)
class Row:
    """A line of the table."""

    python: str
    wheel: str = "-"
    size: str = "-"
    verdict: str = "passed"
    tests: str = "-"

    def measured(self, wheel: Path) -> None:
        self.wheel = wheel.name
        self.size = f"{wheel.stat().st_size / 1e6:.2f} MB"


def run(
    log: Path, what: str, command: list[str], *, cwd: Path = ROOT, environment: Mapping[str, str] = NOTHING
) -> None:
    """Run `command` with its output in `log`; raise Failed, which names `what`, unless it succeeds."""
    inherited = {name: value for name, value in os.environ.items() if not UNSET.fullmatch(name)}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    with log.open("a", encoding="utf-8") as file:
        print(f"\n+ {shlex.join(command)}", file=file, flush=True)
        code = subprocess.call(
            command,
            cwd=cwd,
            env={**inherited, **quiet, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    if code != 0:
        raise Failed(f"{what}: exit code {code}, see {log.relative_to(ROOT)}")


def step(name: str, text: str) -> None:
    print(f"{name}: {text}", flush=True)


def empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def prepare_tools(log: Path) -> Path:
    """The folder of the programs that build and repair, of pinned versions, for this Python."""
    folder = OUT / f"tools-{interpreters.this_one().version}"
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_bytes() != REQUIREMENTS.read_bytes():
        run(log, "making the tools' environment", [sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run(log, "installing the tools", [*pip, "--requirement", str(REQUIREMENTS)])
        shutil.copy(REQUIREMENTS, installed)
    return folder / "bin"


def build_sdist(log: Path, tools: Path) -> Path:
    folder = OUT / "sdist"
    run(log, "building the sdist", [str(tools / "python"), str(CI / "sdist.py"), str(folder)])
    (sdist,) = folder.iterdir()
    return sdist


def copy_tests(sources: tuple[str, ...]) -> None:
    empty(ELSEWHERE)
    for name in sources:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, ELSEWHERE / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, ELSEWHERE / name)


def fingerprint(source: Path, *others: object) -> str:
    """Of everything that decides what is in a wheel."""
    digest = hashlib.sha256(repr(others).encode())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        name = path.relative_to(source).as_posix()
        if name.startswith(WHEEL_SOURCES):
            digest.update(repr((name, path.read_bytes())).encode())
    return digest.hexdigest()


def counted(report: Path) -> str:
    suites = list(ElementTree.parse(report).iter("testsuite"))
    total, skipped = (sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "skipped"))
    return f"{total - skipped} passed, {skipped} skipped"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all wheels have in common."""

    configuration: Configuration
    options: argparse.Namespace
    tools: Path
    sdist: Path

    def build(self, log: Path, python: Interpreter, source: Path, environment: Mapping[str, str]) -> Path:
        """One wheel, as `python` builds it and as it is before its repair."""
        folder = log.parent
        venv = python.venv(folder / "build-venv")
        run(log, "making an environment", [*python.command, "-m", "venv", "--clear", str(folder / "build-venv")])
        (build,) = (line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("build=="))
        run(log, "installing build", [*venv, "-m", "pip", "install", "--quiet", build])
        built = empty(folder / "built")
        command = [*venv, "-m", "build", "--wheel", "--outdir", str(built), str(source)]
        run(log, "building", command, environment=environment)
        (wheel,) = built.iterdir()
        return wheel

    def repair(self, log: Path, wheel: Path, destination: Path) -> Path:
        if not self.configuration.repair or wheel.name.endswith("-any.whl"):
            return Path(shutil.copy(wheel, destination))
        words = shlex.split(self.configuration.repair)
        command = [word.format(dest_dir=destination, wheel=wheel) for word in words]
        path = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        run(log, "repairing", command, environment={"PATH": path})
        (repaired,) = destination.iterdir()
        return repaired

    def make_wheel(self, name: str, tags: str, python: Interpreter, environment: Mapping[str, str]) -> Path:
        """Build, repair and check the wheel for `name`, unless the one that is there is still the same."""
        folder = OUT / name
        log, key, repaired = folder / "build.log", folder / "fingerprint", folder / "repaired"
        with tarfile.open(self.sdist) as archive:
            archive.extractall(empty(folder / "source"), filter="data")
        (source,) = (folder / "source").iterdir()
        made_from = fingerprint(source, python.full_version, sorted(environment.items()), self.configuration.repair)
        wheels = list(repaired.glob("*.whl"))
        if len(wheels) == 1 and key.exists() and key.read_text() == made_from:
            step(name, f"{wheels[0].name} is there already")
        else:
            step(name, "building")
            key.unlink(missing_ok=True)
            log.unlink(missing_ok=True)
            wheels = [self.repair(log, self.build(log, python, source, environment), empty(repaired))]
            key.write_text(made_from)
        (wheel,) = wheels
        if f"-{tags}" not in wheel.name:
            raise Failed(f"{wheel.name} is not for {tags}")
        # Run in the folder that it was built in, because that is the one that no module may name.
        checks = [sys.executable, str(CI / "check_wheel.py"), str(self.sdist), str(wheel)]
        run(log, "what is in the wheel", checks, cwd=source)
        shutil.copy(wheel, WHEELHOUSE)
        return wheel

    def test(self, name: str, python: Interpreter, wheel: Path) -> str:
        """Install `wheel` into a new environment and run the tests there; what became of them."""
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        log, report, environment = folder / "test.log", folder / "tests.xml", folder / "test-venv"
        log.unlink(missing_ok=True)
        report.unlink(missing_ok=True)
        own = "python" if wheel.name.endswith("-any.whl") else "c"
        # Of those that are there, which "c" is not with the pure wheel.
        wanted = [own, *(other for other in ("python", "asyncio") if self.options.all and other != own)]
        step(name, f"testing {wheel.name}")
        venv = python.venv(environment)
        run(log, "making an environment", [*python.command, "-m", "venv", "--clear", str(environment)])
        requirement = f"{wheel}[{','.join(self.configuration.extras)}]"
        # Sooner an older release of what the tests need than a compiler for its newest.
        run(log, "installing", [*venv, "-m", "pip", "install", "--quiet", "--prefer-binary", requirement])
        run(log, "what is installed", [*venv, str(CI / "check_install.py"), str(ROOT), own], cwd=ELSEWHERE)
        command = [*venv, *self.configuration.test_command[1:]]
        command += [f"--junitxml={report}", f"--numprocesses={self.options.processes}"]
        if not self.options.all:
            command += SELECTION
        run(log, "the tests", command, cwd=ELSEWHERE, environment={"HOTLOOP_TEST_IMPLS": ",".join(wanted)})
        run(log, "what was tested", [sys.executable, str(CI / "check_junit.py"), str(report), *wanted])
        return counted(report)

    def compiled_row(self, version: str, python: Interpreter) -> Row:
        row = Row(f"CPython {python.full_version}")
        digits = version.replace(".", "")
        try:
            environment = self.configuration.environment | python.linking
            wheel = self.make_wheel(version, f"cp{digits.rstrip('t')}-cp{digits}-", python, environment)
            row.measured(wheel)
            row.tests = self.test(version, python, wheel)
        except Failed as failure:
            row.verdict = f"FAILED: {failure}"
        return row

    def pure_rows(self, found: list[Interpreter]) -> list[Row]:
        """The wheel that is built once, on each of `found`, whose first builds it."""
        rows = [Row(f"{python.name} {python.full_version}") for python in found]
        try:
            environment = self.configuration.environment | {"HOTLOOP_BUILD_EXT": "no", "HOTLOOP_PROFILE": "no"}
            wheel = self.make_wheel("pure", "py3-none-any", found[0], environment)
        except Failed as failure:
            return [Row("every Python", verdict=f"FAILED: {failure}")]
        for python, row in zip(found, rows, strict=True):
            row.measured(wheel)
            try:
                row.tests = self.test(f"pure-{python.name.lower()}-{python.version}", python, wheel)
            except Failed as failure:
                row.verdict = f"FAILED: {failure}"
        return rows


def print_table(rows: list[Row]) -> None:
    lines = [Row("Python", "wheel", "size", "verdict", "tests"), *rows]
    cells = [(row.python, row.wheel, row.size, row.tests, row.verdict) for row in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def parse(arguments: list[str], choices: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(choices)
    parser.add_argument("wheels", nargs="*", metavar="WHEEL", help=f"what to build, of {names} (default: all)")
    parser.add_argument("--all", action="store_true", help="run all tests on every implementation, not a selection")
    parser.add_argument("--processes", type=int, default=3, metavar="N", help="for the tests (default: 3)")
    options = parser.parse_args(arguments)
    if unknown := set(options.wheels) - set(choices):
        parser.error(f"no such wheel: {', '.join(sorted(unknown))}; there are {names}")
    return options


def make_all(workshop: Workshop, wanted: list[str]) -> list[Row]:
    versions = tuple(version for version in interpreters.released_versions() if version in wanted)
    found, pypies = interpreters.discover(versions)
    rows = []
    for version in versions:
        if version in found:
            rows.append(workshop.compiled_row(version, found[version]))
        else:
            rows.append(Row(f"CPython {version}", verdict="NOT BUILT: not found"))
    if "pure" in wanted:
        rows += workshop.pure_rows([interpreters.this_one(), *pypies])
        if not pypies:
            rows.append(Row("PyPy", verdict="NOT TESTED: not found"))
    return rows


def main(arguments: list[str]) -> int:
    configuration = Configuration.read(ROOT / "pyproject.toml")
    choices = [*interpreters.released_versions(), "pure"]
    options = parse(arguments, choices)
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "sdist.log"
    log.unlink(missing_ok=True)
    step("sdist", "building, and again from itself")
    try:
        tools = prepare_tools(log)
        sdist = build_sdist(log, tools)
    except Failed as failure:
        print(f"FAILED: {failure}")
        return 1
    shutil.copy(sdist, empty(WHEELHOUSE))
    copy_tests(configuration.sources)
    rows = make_all(Workshop(configuration, options, tools, sdist), options.wheels or choices)
    print_table(rows)
    failed = sum(row.verdict.startswith("FAILED") for row in rows)
    passed = sum(row.verdict == "passed" for row in rows)
    left = len(rows) - passed - failed
    print(f"{passed} passed, {failed} failed, {left} not run; the wheels are in {WHEELHOUSE.relative_to(ROOT)}")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
