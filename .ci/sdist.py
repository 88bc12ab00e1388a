"""sdist.py FOLDER: build the sdist into an empty folder, and fail unless it is complete and builds itself.

It must hold every file of the repository and nothing that is generated, and an sdist built from the unpacked one must
hold the same files. This Python needs the package `build`.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).absolute().parents[1]
# What serves only the repository itself.
REPOSITORY_ONLY = (".github/", ".gitignore")
# What setuptools adds.
METADATA = ("PKG-INFO", "setup.cfg", "src/hotloop.egg-info/")


def build(source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True)
    (sdist,) = folder.iterdir()
    return sdist


def is_complete(sdist: Path) -> bool:
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive if member.isfile()}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    tracked = {name for name in listed.split("\0") if name and not name.startswith(REPOSITORY_ONLY)}
    packed = {name for name in packed if not name.startswith(METADATA)}
    for name in sorted(tracked - packed):
        print(f"missing from the sdist (MANIFEST.in): {name}")
    for name in sorted(packed - tracked):
        print(f"not in the repository, but in the sdist: {name}")
    print(f"{len(packed)} files in the sdist")
    return bool(packed) and packed == tracked


def contents(sdist: Path) -> dict[str, tuple[int, bytes]]:
    with tarfile.open(sdist) as archive:
        found = {
            member.name: (member.mode, file.read())
            for member in archive
            if member.isfile() and (file := archive.extractfile(member)) is not None
        }
    # setuptools adds setup.cfg to an sdist, and to the list of its files when it finds one there.
    return {
        name: (mode, data.replace(b"\nsetup.cfg\n", b"\n") if name.endswith(".egg-info/SOURCES.txt") else data)
        for name, (mode, data) in found.items()
    }


def builds_itself(sdist: Path) -> bool:
    first = contents(sdist)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        again = build(source, Path(folder, "again"))
        second = contents(again)
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            where = "differs" if name in first and name in second else f"only in the {1 if name in first else 2}. sdist"
            print(f"{name}: {where}")
    if again.name != sdist.name:
        print(f"the second is called {again.name}")
    print(f"{len(second)} files in an sdist built from the sdist")
    return bool(first) and first == second and again.name == sdist.name


def main(folder: str) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    sdist = build(ROOT, Path(folder))
    # An unpacked sdist has no other list of its files than itself.
    complete = is_complete(sdist) if (ROOT / ".git").exists() else True
    return int(not (builds_itself(sdist) and complete))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
