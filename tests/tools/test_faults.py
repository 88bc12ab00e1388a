"""P34: no failed allocation or system call crashes, hangs, loses data silently, leaks, or ends a loop that serves
others.

The tests try a few of the faults of `make fault-test`, always the same ones, and check that each kind of defect is
noticed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults import shim, system_calls
from faults.defects import DEFECTS
from faults.scenarios import SCENARIOS
from faults.shim import Fault
from support import implementations

import hotloop

RUN = Path(shim.HERE) / "run.py"
EXTENSION = Path(hotloop.__file__).parent / "_c"
# Of each allocator, and of the system calls, in each scenario.
FEW = "2"
GROUPS = 4  # of scenarios
HAS_SHIM_POLLER = implementations.expected_backend("c").endswith("-shim")


def run(*arguments):
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if "LD_PRELOAD" in os.environ:
        pytest.skip("another preloaded library has its own malloc()")
    if HAS_SHIM_POLLER:
        pytest.skip("this build's kqueue is the tests' own, which does not handle failing system calls")
    try:
        return shim.build()
    except shim.Unavailable as reason:
        pytest.skip(str(reason))


def expect_nothing_found(done):
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["nothing found"]), done.stdout + done.stderr


@pytest.mark.promise("P34")
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.only("c", "python", reason="asyncio is the measure here, not the subject")
def test_a_few_faults_of_each_scenario(impl, library, group):
    scenarios = [option for name in list(SCENARIOS)[group::GROUPS] for option in ("--scenario", name)]
    expect_nothing_found(run("--impl", impl.name, "--at-most", FEW, "--once", "--minutes", "60", *scenarios))


@pytest.mark.promise("P34")
@pytest.mark.only("c", reason="the others make no libc calls of their own")
def test_each_allocation_of_the_extensions_own(impl, library):
    done = run("--impl", impl.name, "--scenario", "Tcp", "--only", "libc")
    expect_nothing_found(done)
    tried = re.search(r"libc (\d+)/(\d+)", done.stdout)
    assert tried is not None and int(tried[1]) == int(tried[2]) > 0


@pytest.mark.only("c", reason="C code asks for the memory of a longer list")
@pytest.mark.parametrize("first", [130, 132, 134])
def test_a_write_that_cannot_be_kept_for_the_end_of_the_turn(impl, library, first):
    """There is no memory for the traceback of the report, either."""
    fault = f"python:{first}+10"
    expect_nothing_found(run("--impl", impl.name, "--scenario", "Tcp", "--only", fault, "--at-most", "1"))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda cls: cls.__name__)
def test_each_kind_of_defect_is_noticed(library, defect):
    fault, kind = DEFECTS[defect]
    options = ["--impl", "asyncio", "--scenario", defect.__name__, "--only", fault, "--patience", "0.2"]
    done = run(*options)
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.search(rf"^asyncio {defect.__name__} (\S+): {kind}$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    # The report has the command that repeats it; that does.
    assert f"run.py --impl asyncio --scenario {defect.__name__} --only {found[1]}\n" in done.stdout


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm to list the extension's symbols with")
@pytest.mark.skipif(sys.platform != "linux", reason="the shim replaces Linux' system calls")
@pytest.mark.skipif(HAS_SHIM_POLLER, reason="this build's kqueue is the tests' own, with system calls of its own")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's build calls the functions of its library, too")
def test_every_system_call_of_the_extension_can_fail():
    libraries = sorted(EXTENSION.rglob("*.so"))
    assert libraries or "c" not in os.environ.get("HOTLOOP_TEST_IMPLS", "c")
    unknown = {library.name: names for library in libraries if (names := system_calls.uncovered(library))}
    assert not unknown, f"add them to the shim and to ERRORS, or to HARMLESS with the reason: {unknown}"


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm to list the shim's symbols with")
def test_the_shim_stands_before_each_of_them(library):
    command = ["nm", "--dynamic", "--defined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    defined = {line.split()[-1] for line in listed.splitlines()}
    own = {name for name in system_calls.ERRORS if not name.startswith("epoll_ctl_")}
    assert own | set(system_calls.COVERED_AS) | system_calls.ALLOCATORS <= defined


@pytest.mark.parametrize("text", ["python:17", "libc:3+100", "recv:ECONNRESET:2", "send:short:1+100000"])
def test_a_fault_is_written_as_it_is_read(text):
    assert str(Fault.parse(text)) == text


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--scenario", "None"], "run.py: no such scenario: None; there are " + ", ".join(SCENARIOS)),
        (
            ["--impl", "python", "--scenario", "Locks"],
            "run.py: nothing of python is the subject of Locks",
        ),
        (["--only", "frob"], "run.py: error: --only: frob is no fault and no system call that is known here"),
    ],
)
def test_wrong_options_get_one_clear_line(library, arguments, message):
    done = run(*arguments)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, message)


def test_without_a_compiler_it_says_so(tmp_path):
    tests = tmp_path / "tests"
    shutil.copytree(RUN.parent, tests / "faults")
    shutil.copytree(Path(implementations.__file__).parent, tests / "support")
    command = [sys.executable, str(tests / "faults" / "run.py")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "run.py: there is no C compiler: neither cc, gcc nor clang\n")
