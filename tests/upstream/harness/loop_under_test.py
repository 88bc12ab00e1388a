"""Brings the loop under test into every Python that is started with certain environment variables (plug/)."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from harness.catalog import NotAvailable
from harness.environment import Environment, last_line

HERE = Path(__file__).parent.parent
# Settings of a developer or a CI service must not influence the tests.
UNWANTED = re.compile(
    r"(HOTLOOP|PYTHON|PYTEST|COVERAGE|COV_CORE|PG|REDIS|UVICORN|AIOHTTP)\w*|USE_UVLOOP|WEB_CONCURRENCY|FORWARDED_ALLOW_IPS"
    r"|CI|GITHUB_\w+|\w+_proxy|\w+_COLOR",
    re.IGNORECASE,
)


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
        raise LoopMissing(f"{impl} cannot be tested: {last_line(run.stderr)}")


class LoopMissing(Exception):
    """The requested implementation does not load: a failure, unlike a suite that is not available."""
