""".ci/check_wheel.py: what it finds in a shared object."""

import importlib.util
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "check_wheel.py"
NAME = "hotloop/_c/runtime/shared_object.so"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only the repository has the checks")


@pytest.fixture
def check_wheel():
    spec = importlib.util.spec_from_file_location("check_wheel", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shared_object(tmp_path):
    """One that needs this machine's libc."""
    if not all(map(shutil.which, ("cc", "readelf"))) or sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("it takes a C compiler, binutils and glibc")
    source, path = tmp_path / "needs.c", tmp_path / "needs.so"
    source.write_text('#include <stdio.h>\nvoid needs(void) { puts("libc"); }\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-s", source, "-o", path], check=True)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("platforms", "problem"),
    [
        ("manylinux_2_99_x86_64", None),
        ("manylinux_2_1_x86_64", "and the tag says 2.1"),
        ("musllinux_1_2_x86_64", "and the tag says musl"),
        ("linux_x86_64", "and the wheel is for linux_x86_64"),
    ],
)
def test_the_libc_must_be_that_of_the_tag(check_wheel, shared_object, platforms, problem):
    found = list(check_wheel.check_elf(NAME, shared_object, platforms))
    if problem is None:
        assert found == []
    else:
        assert len(found) == 1 and found[0].endswith(problem)


def test_a_shared_object_of_macos_may_name_the_systems_libraries(check_wheel):
    data = check_wheel.MACH_O + b"\0/usr/lib/libSystem.B.dylib\0/Users/builder/hotloop.c\0"
    assert list(check_wheel.check_paths(NAME, data, set(), ())) == [f"{NAME} names /Users/builder/hotloop.c"]
    data = check_wheel.ELF + b"\0/usr/lib/libc.so\0"
    assert list(check_wheel.check_paths(NAME, data, set(), ())) == [f"{NAME} names /usr/lib/libc.so"]
