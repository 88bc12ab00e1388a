#!/usr/bin/env python3
"""Run other tools on hotloop as docs/ecosystem.md says, for real: servers, test runners, a kernel, a cluster.

The tools are installed, at the releases in requirements.txt, into a virtual environment of their own, which is kept in
build/ecosystem. The tested hotloop is the one that this interpreter imports; the tools load it only in the ways that
the page describes.

Exit code: 0 everything works as the page says; 1 something does not, or could not be installed; 2 wrong usage.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "upstream"))

from harness.catalog import NotAvailable
from harness.environment import Environment
from harness.loop_under_test import inherited, package_folder

HERE = Path(__file__).parent
TOOLS = HERE / "tools"
CACHE = HERE.parents[1] / "build" / "ecosystem"
OK, FAILED = 0, 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", choices=("c", "python"), default="c", help="the implementation (default: c)")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests that match this, as pytest's -k understands it")
    parser.add_argument("--cache", metavar="FOLDER", type=Path, default=CACHE, help="what is kept between runs")
    return parser.parse_args(arguments)


def prepare_signals() -> None:
    # Background jobs of a shell ignore it, and so would the servers that the tests end by it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    prepare_signals()
    environment = Environment("ecosystem", HERE / "requirements.txt", options.cache.absolute())
    try:
        hotloop = package_folder("hotloop")
        environment.prepare()
    except NotAvailable as reason:
        print(f"the tools could not be tried: {reason}")
        return FAILED
    with tempfile.TemporaryDirectory(prefix="ecosystem-") as folder:
        (Path(folder) / "hotloop").symlink_to(hotloop)
        command = [str(environment.python), "-m", "pytest", f"--confcutdir={TOOLS}", "-p", "no:cacheprovider"]
        command += ["-c", str(TOOLS / "pytest.ini"), "--durations=5", *(["-k", options.only] if options.only else [])]
        variables = {"PYTHONPATH": folder, "HOTLOOP_IMPL": options.impl, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*command, str(TOOLS)], env=inherited() | variables, stdin=subprocess.DEVNULL)
    return OK if done.returncode == 0 else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
