"""A virtual environment with pinned requirements, and the folder that brings the loop under test into every Python
started there."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.catalog import NotAvailable

HERE = Path(__file__).parent.parent
# Settings of a developer or a CI service must not influence the tests.
UNWANTED = re.compile(
    r"(HOTLOOP|PYTHON|PYTEST|COVERAGE|COV_CORE|PG|REDIS|UVICORN|AIOHTTP)\w*|USE_UVLOOP|WEB_CONCURRENCY|FORWARDED_ALLOW_IPS"
    r"|CI|GITHUB_\w+|\w+_proxy|\w+_COLOR",
    re.IGNORECASE,
)


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
                raise NotAvailable(f"no virtual environment could be made: {_last_line(making.stdout + making.stderr)}")
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


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "no output"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock: two runs may want the same environment at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def without_root() -> list[str]:
    """A command prefix that runs a program without root: in a user namespace root has another number, and its own
    files."""
    if os.geteuid() != 0:
        return []
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
        return command
    raise NotAvailable("it is not to be run as root, and unshare makes no user namespace here: use another user")


def plug_in(impl: str, folder: Path) -> dict[str, str]:
    """Fill `folder` with the files that make `impl` the event loop of each Python started with the returned variables.

    The tested hotloop is the one that this interpreter imports, without other packages from its location.
    """
    folder.mkdir()
    binding = HERE.parent / "stdlib" / "conformance"
    for source in (*(HERE / "plug").glob("*.py"), binding):
        (folder / source.name).symlink_to(source)
    if impl != "asyncio":
        (folder / "hotloop").symlink_to(package_folder("hotloop"))
    return inherited() | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "HOTLOOP_UPSTREAM": impl}


def inherited() -> dict[str, str]:
    """The environment variables that the tests may see."""
    return {name: value for name, value in os.environ.items() if not UNWANTED.fullmatch(name)}


def package_folder(name: str) -> Path:
    """The folder of a package of this interpreter. Raises NotAvailable if it has none."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotAvailable(f"{sys.executable} has no {name} to test")
    return Path(spec.origin).parent


def check_loop(environment: Environment, impl: str, variables: dict[str, str]) -> None:
    """Raise LoopMissing unless Python starts in the environment and its loops are those of `impl`."""
    code = "import asyncio, loops_seen; loop = asyncio.new_event_loop(); assert loops_seen.is_ours(loop); loop.close()"
    run = subprocess.run([environment.python, "-c", code], env=variables, capture_output=True, text=True)
    if run.returncode:
        raise LoopMissing(f"{impl} cannot be tested: {_last_line(run.stderr)}")


class LoopMissing(Exception):
    """The requested implementation does not load: a failure, unlike a suite that is not available."""
