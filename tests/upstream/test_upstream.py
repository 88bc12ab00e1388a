"""Tests of the runner of other projects' suites: it brings the loop in, sees every outcome, and never reports a test as
passed that did not run."""

import dataclasses
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "stdlib"))
sys.path.insert(0, str(Path(__file__).parent))

from conformance import binding
from conformance.pool import Verdict
from harness import catalog, environment, loop_under_test, reports, servers, session, sources
from harness.catalog import NotAvailable, Suite
from harness.workplace import Run, Workplace

HERE = Path(__file__).parent
SUITE = Suite("s", version="1.0", sha256="", package="s", tests=("tests",), passed=1, minutes=1)
LISTED = """
[[failing]]
suite = "s"
tests = ["test_x.py::test_x[1-*]", "test_x.py::test_y[a]"]
reason = "cannot pass"
"""
SAMPLE = """
import asyncio
import subprocess
import sys

import pytest

@pytest.fixture
def broken():
    yield
    raise RuntimeError("broken fixture")

def make_loop(cls=None):
    (cls or asyncio.new_event_loop)().close()

@pytest.mark.parametrize("number", [1, 2])
def test_loops(number):
    for _ in range(number):
        make_loop()

def test_subclass():
    make_loop(type("Loop", (asyncio.SelectorEventLoop,), {}))

def test_other_loop():
    make_loop(type("Other", (asyncio.BaseEventLoop,), {}))

def test_in_a_program():
    code = "import asyncio, sys; loop = asyncio.new_event_loop(); loop.close(); sys.exit(type(loop).__module__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr.strip() == type(asyncio.new_event_loop()).__module__

def test_fails(broken):
    assert not "on purpose"

def test_passes_with(broken):
    pass

def test_skips():
    pytest.skip("on purpose")

@pytest.mark.xfail
def test_is_expected_to_fail():
    assert False

@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly():
    pass
"""


@pytest.fixture
def sample_report(impl, tmp_path):
    """The JUnit report of SAMPLE on an implementation."""
    (tmp_path / "test_sample.py").write_text(SAMPLE, encoding="utf-8")
    variables = loop_under_test.plug_in(impl.name, tmp_path / "plug")
    command = [sys.executable, "-m", "pytest", "-p", "loops_seen", "-p", "no:cacheprovider", "--junitxml=report.xml"]
    run = subprocess.run([*command, "test_sample.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    return tmp_path / "report.xml"


def test_report_of_a_suite_on_each_loop(sample_report):
    verdicts = reports.read(sample_report)
    summary = {name.removeprefix("test_sample.py::test_"): verdict.outcome for name, verdict in verdicts.items()}
    assert summary == {
        "loops[1]": "passed",
        "loops[2]": "passed",
        "subclass": "passed",
        "other_loop": "passed",
        "in_a_program": "passed",
        "fails": "failed",
        "passes_with": "failed",
        "skips": "skipped",
        "is_expected_to_fail": "skipped",
        "passes_unexpectedly": "failed",
    }
    failure = verdicts["test_sample.py::test_fails"].text
    assert "on purpose" in failure
    assert "broken fixture" in failure


def test_loops_are_counted_for_each_test(sample_report):
    loops = {name.rpartition("_")[2]: verdict.loops for name, verdict in reports.read(sample_report).items()}
    assert (loops["loops[1]"], loops["loops[2]"], loops["subclass"], loops["loop"]) == (1, 2, 1, 0)
    assert reports.others(sample_report) == {"test_sample.py::test_other_loop": 1}


@pytest.mark.parametrize("loop", ["c", "asyncio"])
def test_compiled_asyncio_is_in_every_program(tmp_path, loop):
    if reason := binding.why_nothing_is_compiled():
        pytest.skip(reason)
    variables = loop_under_test.plug_in(f"{loop}+compiled", tmp_path / "plug")
    check = (
        "import asyncio, hotloop.asyncio; "
        "print(asyncio.Queue is hotloop.asyncio.Queue, asyncio.SelectorEventLoop.__module__)"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {check!r}])"
    run = subprocess.run([sys.executable, "-c", child], env=variables, capture_output=True, text=True)
    home = "hotloop.loop" if loop == "c" else "asyncio.unix_events"
    assert (run.stdout, run.stderr) == (f"True {home}\n", "")


def test_program_of_a_missing_loop_does_not_start(tmp_path):
    variables = loop_under_test.plug_in("asyncio", tmp_path / "plug") | {"HOTLOOP_UPSTREAM": "c"}
    run = subprocess.run([sys.executable, "-c", "print('ran')"], env=variables, capture_output=True, text=True)
    if "ran" in run.stdout:
        pytest.skip("hotloop is among this interpreter's packages, so no folder lacks it")
    assert run.returncode == 1
    assert "the loop under test does not load" in run.stderr


def test_settings_of_the_caller_do_not_reach_the_tests(monkeypatch, tmp_path):
    for name in ("PYTEST_ADDOPTS", "HOTLOOP_IMPL", "PGHOST", "https_proxy", "CI", "UNRELATED"):
        monkeypatch.setenv(name, "x")
    variables = loop_under_test.plug_in("asyncio", tmp_path / "plug")
    assert [
        name for name in ("PYTEST_ADDOPTS", "HOTLOOP_IMPL", "PGHOST", "https_proxy", "CI") if name in variables
    ] == []
    assert variables["UNRELATED"] == "x"


def judge(verdicts, *, expected="", **options):
    run = Run({name: Verdict(*verdict) for name, verdict in verdicts.items()}, **options)
    return session.judge(SUITE, "c", run, complete=True, expected=expected)


GOOD = {"test_x.py::test_good": ("passed", "", 0.0, 1)}


def test_names_with_brackets_are_matched_as_they_stand():
    verdicts = {"test_x.py::test_x[1-a]": ("failed",), "test_x.py::test_y[a]": ("failed",), **GOOD}
    # In a pattern, brackets hold a set of characters.
    assert judge(verdicts, expected=LISTED.replace("test_x[1-*]", "test_x[[]1-*]")).problems == {}
    assert list(judge(verdicts, expected=LISTED).problems) == [
        "test_x.py::test_x[1-a]",
        "[[failing]] test_x.py::test_x[1-*]",
    ]


def test_listed_test_that_passes_is_a_problem():
    listed = LISTED.replace('"test_x.py::test_x[1-*]", ', "")
    assert (
        "unexpected pass"
        in judge({"test_x.py::test_y[a]": ("passed", "", 0.0, 1)}, expected=listed).problems["test_x.py::test_y[a]"]
    )


@pytest.mark.parametrize(("version", "applies"), [((7, 0, 15), True), ((8, 0, 0), False)])
def test_entry_of_some_versions_of_a_server(version, applies):
    run = Run({name: Verdict(*verdict) for name, verdict in {**GOOD, "test_x.py::test_y[a]": ("failed",)}.items()})
    listed = LISTED.replace('"test_x.py::test_x[1-*]", ', "") + 'redis = "<7.2"'
    judgement = session.judge(SUITE, "c", run, complete=True, versions={"redis": version}, expected=listed)
    assert bool(judgement.problems) is not applies


def test_run_that_is_not_whole_is_a_problem():
    assert judge(GOOD).problems == {}
    assert judge(GOOD, incomplete="did not end").problems == {"(suite)": "did not end"}
    assert judge({}, incomplete="did not start").problems == {"(suite)": "did not start"}
    assert "at least 1" in judge({"test_x.py::test_skips": ("skipped", "", 0.0, 1)}).problems["(suite)"]


def test_run_on_other_loops_is_a_problem():
    assert list(judge({"test_x.py::test_good": ("passed",)}).problems) == ["(loop)"]
    assert list(judge(GOOD, others={"test_x.py::test_good": 2}).problems) == ["(loop) test_x.py::test_good"]


def test_every_suite_is_pinned():
    for suite in catalog.suites().values():
        lines = (HERE / "requirements" / f"{suite.name}.txt").read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert suite.requirement in pins
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", pin) for pin in pins)
        assert re.fullmatch(r"[0-9a-f]{64}", suite.sha256)
        assert set(suite.servers) <= set(servers.KINDS)


def test_sources_are_used_only_if_their_content_is_pinned(tmp_path):
    class Pip:
        def pip(self, *arguments, purpose):
            (tmp_path / "sdists" / "s-1.0.tar.gz").write_bytes(b"something else")

    with pytest.raises(NotAvailable, match="with the pinned hash"):
        sources.fetch(SUITE, Pip(), tmp_path)


def test_unpacked_sources_are_without_the_package(tmp_path):
    for name in ("s", "tests"):
        (tmp_path / "s-1.0" / name).mkdir(parents=True)
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        archive.add(tmp_path / "s-1.0", "s-1.0")
    root = sources.unpack(SUITE, tmp_path / "s.tar", tmp_path / "unpacked")
    assert [path.name for path in root.iterdir()] == ["tests"]


def test_cause_of_a_failed_download():
    no_network = (
        "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError: unreachable': /simple/s/\n"
        "ERROR: Could not find a version that satisfies the requirement s==1.0\n"
    )
    assert environment.what_pip_says(no_network) == "NewConnectionError: unreachable"
    assert environment.what_pip_says("Looking\nERROR: no such version\nERROR: and so on\n") == "no such version"
    assert environment.what_pip_says("") == "no output"


def program(folder, name, script):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_server_that_does_not_start(monkeypatch, tmp_path):
    program(tmp_path / "bin", "redis-server", "echo '1:M 1 Jan # Failed listening on port 6379'; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with (
        pytest.raises(NotAvailable, match="ended with exit code 1 on port 6379: Failed listening"),
        servers.redis(tmp_path / "redis"),
    ):
        pass


def test_newest_postgresql_that_is_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert servers.postgresql_folder(tmp_path) is None
    for version in ("9.6", "15", "17"):
        for name in servers.POSTGRESQL_PROGRAMS[: 2 if version == "17" else None]:
            program(tmp_path / version / "bin", name, "")
    assert servers.postgresql_folder(tmp_path) == tmp_path / "15" / "bin"


@pytest.mark.parametrize(
    "shown", ["Redis server v=7.0.15 sha=0:0 malloc=jemalloc-5.2.1", "postgres (PostgreSQL) 7.0.15"]
)
def test_version_of_a_server(tmp_path, shown):
    program(tmp_path, "server", f"echo '{shown}'")
    assert servers.version_of(str(tmp_path / "server")) == (7, 0, 15)


@pytest.fixture
def workplace(tmp_path):
    """Returns a function that opens a workplace where a shell script stands in for Python."""

    def open_workplace(script, **fields):
        program(tmp_path, "python", script)
        stand_in = SimpleNamespace(python=tmp_path / "python")
        return Workplace(dataclasses.replace(SUITE, **fields), stand_in, tmp_path, tmp_path, servers.Access())

    return open_workplace


def test_suite_that_does_not_end(workplace, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    script = f'[ "$1" = -c ] && exit; echo $$ > {tmp_path}/pid; read never <> {tmp_path}/fifo'
    run = workplace(script, minutes=0.02).run("asyncio", tmp_path / "log")
    assert run.incomplete.startswith("did not end within 0.02 minutes")
    if (tmp_path / "pid").exists():  # false if the machine was too busy to get that far
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)


def test_suite_that_pytest_refuses(workplace, tmp_path):
    run = workplace('[ "$1" = -c ] || { echo wrong option; exit 4; }').run("asyncio", tmp_path / "log")
    assert run.incomplete == "pytest ended with exit code 4\nwrong option"


def test_loop_that_does_not_load(workplace, tmp_path):
    with pytest.raises(loop_under_test.LoopMissing, match="asyncio cannot be tested: no such loop"):
        workplace("echo no such loop >&2; exit 1").run("asyncio", tmp_path / "log")


def test_failures_that_asyncio_has_too_are_set_apart(tmp_path):
    class OnAsyncio:
        def run(self, impl, log, only):
            assert (impl, only) == ("asyncio", ["test_x.py::test_both", "test_x.py::test_ours"])
            return Run({"test_x.py::test_both": Verdict("failed"), "test_x.py::test_ours": Verdict("passed")})

    verdicts = {"test_x.py::test_both": ("failed",), "test_x.py::test_ours": ("failed",), **GOOD}
    judgement = judge(verdicts)
    run = Run({name: Verdict(*verdict) for name, verdict in verdicts.items()})
    session.ask_asyncio(OnAsyncio(), "c", judgement, run, tmp_path / "log")
    assert list(judgement.asyncio_too) == ["test_x.py::test_both"]
    assert list(judgement.problems) == ["test_x.py::test_ours"]


def run_py(*arguments, **variables):
    command = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def test_unknown_suite():
    run = run_py("djang")
    assert run.returncode == 2
    assert "invalid choice: 'djang'" in run.stderr


def test_missing_server(tmp_path):
    run = run_py("redis", "--impl=asyncio", f"--cache={tmp_path}", PATH=str(tmp_path))
    assert run.returncode == 3
    assert "redis 8.1.0" in run.stdout
    assert "NOT RUN: there is no redis-server on the PATH" in run.stdout


def test_missing_network(tmp_path):
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    run = run_py("uvicorn", "--impl=asyncio", f"--cache={tmp_path}", **nowhere)
    assert run.returncode == 3
    assert "NOT RUN: pip could not install uvicorn.txt: Could not find a version" in run.stdout
