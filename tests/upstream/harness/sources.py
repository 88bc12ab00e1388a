"""Source distributions, fetched by pip with its user's configuration and used only if their content is the pinned
one."""

import hashlib
import tarfile
from pathlib import Path

from harness.catalog import NotAvailable, Suite
from harness.environment import Environment


def fetch(suite: Suite, environment: Environment, cache: Path) -> Path:
    """The suite's source distribution, from the cache if it is there."""
    folder = cache / "sdists"
    kept = _intact(suite, folder)
    if kept is None:
        folder.mkdir(parents=True, exist_ok=True)
        pinned = folder / f"{suite.name}.txt"
        pinned.write_text(f"{suite.requirement} --hash=sha256:{suite.sha256}\n", encoding="utf-8")
        environment.pip(
            *("download", "--no-deps", "--no-binary", suite.name, "--require-hashes"),
            *("--dest", str(folder), "--requirement", str(pinned)),
            purpose=f"fetch the sources of {suite.requirement}",
        )
        kept = _intact(suite, folder)
    if kept is None:
        raise NotAvailable(f"pip fetched no source distribution of {suite.requirement} with the pinned hash")
    return kept


def _intact(suite: Suite, folder: Path) -> Path | None:
    # A source distribution's name is normalized: https://peps.python.org/pep-0625/
    for path in sorted(folder.glob(f"{suite.name.replace('-', '_')}-{suite.version}.tar.*")):
        if hashlib.sha256(path.read_bytes()).hexdigest() == suite.sha256:
            return path
    return None


def unpack(suite: Suite, sdist: Path, destination: Path) -> Path:
    """Unpack into `destination` and return the root, without the package: the tests must import the installed one."""
    with tarfile.open(sdist) as archive:
        archive.extractall(destination, filter="data")
    [root] = destination.iterdir()
    (root / suite.package).rename(destination / "left-out")
    return root
