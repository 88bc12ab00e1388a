"""test_installed.py HOTLOOP IMPLEMENTATIONS REPORT [TEST...]: install hotloop into this environment and test it there.

HOTLOOP is a wheel or a folder of sources. IMPLEMENTATIONS are separated by commas: tests must have passed on each, and
hotloop must choose the first one by itself. REPORT is the file for pytest's JUnit XML. The tests are those of the
current folder: all of them, or the files named.
"""

import os
import subprocess
import sys
from pathlib import Path

CI = Path(__file__).absolute().parent


def main(hotloop: str, implementations: str, report: str, *tests: str) -> int:
    names = implementations.split(",")
    run = [sys.executable]
    pytest = ["-m", "pytest", "-m", "not conformance", "--numprocesses=3", f"--junitxml={report}", *tests]
    os.environ["HOTLOOP_TEST_IMPLS"] = implementations
    for command in (
        [*run, "-m", "pip", "install", "--quiet", f"{hotloop}[test,examples]"],
        [*run, str(CI / "check_install.py"), str(CI.parent), names[0]],
        [*run, *pytest],
        [*run, str(CI / "check_junit.py"), report, *names],
    ):
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
