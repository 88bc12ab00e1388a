"""check_sdist_rebuilds.py SDIST: fail unless an sdist built from the unpacked one holds the same files."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


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


def main(sdist: str) -> int:
    first = contents(Path(sdist))
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        out = Path(folder, "again")
        subprocess.run([sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", out, source], check=True)
        (again,) = out.iterdir()
        second = contents(again)
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            where = "differs" if name in first and name in second else f"only in the {1 if name in first else 2}. sdist"
            print(f"{name}: {where}")
    if again.name != Path(sdist).name:
        print(f"the second is called {again.name}")
    print(f"{len(second)} files in an sdist built from the sdist")
    return int(not first or first != second or again.name != Path(sdist).name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
