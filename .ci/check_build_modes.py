"""check_build_modes.py SDIST: what HOTLOOP_BUILD_EXT and HOTLOOP_PROFILE promise where no C compiler works."""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NOTICE = "THE COMPILED EXTENSION WAS NOT BUILT"
# What the compiler says that does not work: a build without Cython ends in the same way, and does not get to it.
CALLED = "this compiler does not work"


def build(source: Path, **environment: str) -> tuple[int, str, list[str]]:
    """Exit code, output and the names of the wheels of a build from `source`."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation"]
        run = subprocess.run([*pip, "-w", folder, source], env=os.environ | environment, capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr, [path.name for path in Path(folder).iterdir()]


def pure(wheels: list[str]) -> bool:
    return len(wheels) == 1 and wheels[0].endswith("-py3-none-any.whl")


def main(sdist: str) -> int:
    problems = []

    def expect(case: str, true: bool, output: str) -> None:
        print(f"{'ok' if true else 'FAILED':<7} {case}", flush=True)
        if not true:
            problems.append(case)
            print(output)

    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        broken = Path(folder, "broken-compiler")
        broken.write_text(f"#!/bin/sh\necho {CALLED} >&2\nexit 1\n", encoding="utf-8")
        broken.chmod(0o755)
        no_compiler = {"CC": str(broken), "CXX": str(broken)}
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="auto", **no_compiler)
        expect("auto, no compiler: the pure wheel", code == 0 and pure(wheels) and CALLED in output, output)
        expect("auto, no compiler: a loud notice", NOTICE in output and CALLED in output, output)
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="no", **no_compiler)
        expect("no: the pure wheel without a notice", code == 0 and pure(wheels) and NOTICE not in output, output)
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="yes", **no_compiler)
        expect("yes, no compiler: an error", code != 0 and not wheels and CALLED in output, output)
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="yes", HOTLOOP_PROFILE="yes", **no_compiler)
        message = "hotloop: HOTLOOP_PROFILE=yes cannot be met: the C compiler is not GCC"
        expect("a profile, no compiler: an error that says so", code != 0 and message in output, output)
        failing = Path(folder, "failing-gcc")
        failing.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec gcc "$@" ;; esac\nexit 1\n', encoding="utf-8")
        failing.chmod(0o755)
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="auto", HOTLOOP_PROFILE="yes", CC=str(failing))
        message = "hotloop: HOTLOOP_PROFILE=yes cannot be met: "
        expect("a profile, a compiler that fails: an error that says so", code != 0 and message in output, output)
        code, output, wheels = build(source, HOTLOOP_BUILD_EXT="maybe")
        message = "hotloop: HOTLOOP_BUILD_EXT must be one of yes, no, auto; it is 'maybe'"
        expect("any other value: an error that says so", code != 0 and message in output, output)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
