"""The fuzz targets in tests/fuzz: they build, some thousand inputs pass, and each detects its own kinds of defects.

`make fuzz` runs them for longer, with new inputs each time.
"""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
TARGETS = ["tls_records", "address_from_kernel", "address_from_text"]
RUNS = 5000

# Changes to a header, with the target that must notice: (target, header, original, changed).
DEFECTS = {
    "a record may be one byte longer": ("tls_records", "tls/records.h", "<= TLS_MAX_RECORD", "<= TLS_MAX_RECORD + 1"),
    "reading past the bytes": ("tls_records", "tls/records.h", "while (taken < size)", "while (taken <= size)"),
    "a path without an end": ("address_from_kernel", "system/address.h", "*size > ADDRESS_PATH_SIZE", "0"),
    "a zone that is too long": (
        "address_from_text",
        "system/address.h",
        "size >= sizeof(digits)",
        "size > sizeof(digits)",
    ),
    "a path that is too long": (
        "address_from_text",
        "system/address.h",
        "size + zero > ADDRESS_PATH_SIZE",
        "size > 126",
    ),
}


@pytest.fixture
def fuzzing(monkeypatch):
    monkeypatch.syspath_prepend(FUZZ)
    module = importlib.import_module("fuzz")
    if not module.SOURCES.is_dir():
        pytest.skip("tests of an installed package have no sources of the extension")
    yield module
    for name in ("fuzz", "seeds"):
        sys.modules.pop(name, None)


@pytest.fixture
def compiler(fuzzing, tmp_path):
    try:
        return fuzzing.find_compiler(tmp_path)
    except fuzzing.Unavailable as reason:
        pytest.skip(str(reason))


def test_every_target_is_known(fuzzing):
    sources = {path.stem for path in FUZZ.glob("*.c")} - {"driver"}
    assert sources == set(fuzzing.TARGETS) == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_some_thousand_inputs(fuzzing, compiler, tmp_path, target):
    program = fuzzing.build(target, compiler, tmp_path)
    assert fuzzing.fuzz(program, target, compiler, tmp_path, [f"-runs={RUNS}", "-seed=1"]) == 0


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(fuzzing, compiler, tmp_path, defect, capfd):
    target, header, right, wrong = DEFECTS[defect]
    text = (fuzzing.SOURCES / header).read_text()
    assert text.count(right) == 1
    changed = tmp_path / header
    changed.parent.mkdir()
    changed.write_text(text.replace(right, wrong))
    program = fuzzing.build(target, compiler, tmp_path, sources=tmp_path)
    assert fuzzing.fuzz(program, target, compiler, tmp_path, [f"-runs={20 * RUNS}", "-seed=1"]) != 0
    assert [path.name for path in tmp_path.glob(f"{target}-crash-*")], capfd.readouterr().err[-2000:]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["none"], "no such target: none; there are tls_records, address_from_kernel, address_from_text"),
        (["--seconds", "0"], "--seconds must be at least 1, it is 0"),
        (["tls_records", "--input", "missing"], "--input takes a file and one target"),
    ],
)
def test_wrong_options_get_one_clear_line(arguments, message):
    command = [sys.executable, str(FUZZ / "fuzz.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"fuzz.py: error: {message}"


def test_without_a_compiler_it_says_so(tmp_path):
    copy = tmp_path / "tests" / "fuzz"
    shutil.copytree(FUZZ, copy)
    command = [sys.executable, str(copy / "fuzz.py")]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "fuzz.py: there is no C compiler: neither clang nor cc\n"
