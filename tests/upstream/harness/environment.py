"""A virtual environment with pinned requirements, in which the tests of a suite run."""

import contextlib
import fcntl
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.catalog import NotAvailable


class Environment:
    """A virtual environment for one version of Python, made again when its requirements change."""

    def __init__(self, name: str, requirements: Path, cache: Path):
        self.requirements = requirements
        self.folder = cache / "venvs" / f"{name}-{sys.implementation.cache_tag}"
        self.python = self.folder / "bin" / "python"

    def prepare(self) -> None:
        wanted = hashlib.sha256(self.requirements.read_bytes() + sys.version.encode()).hexdigest()
        stamp = self.folder / "prepared"
        with _locked(self.folder.with_suffix(".lock")):
            if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
                return
            making = subprocess.run(
                [sys.executable, "-m", "venv", "--clear", str(self.folder)], capture_output=True, text=True
            )
            if making.returncode:
                raise NotAvailable(f"no virtual environment could be made: {last_line(making.stdout + making.stderr)}")
            self.pip("install", "--requirement", str(self.requirements), purpose=f"install {self.requirements.name}")
            stamp.write_text(wanted, encoding="utf-8")

    def pip(self, *arguments: str, purpose: str) -> None:
        # With its defaults pip waits minutes for a dead network.
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--retries=2", "--timeout=30"]
        run = subprocess.run([*pip, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if run.returncode:
            raise NotAvailable(f"pip could not {purpose}: {what_pip_says(run.stdout + run.stderr)}")


def what_pip_says(output: str) -> str:
    """The first cause that pip names: a failed connection comes before the version that pip did not find because of
    it."""
    for pattern in (r"connection broken by '(.*)'", r"^ERROR: (.*)", r"^(?=.*\S)(.*)"):
        if found := re.search(pattern, output, re.MULTILINE):
            return found[1][:300]
    return "no output"


def last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "no output"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock: two runs may want the same environment at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
