"""check_sdist.py SDIST: fail unless the sdist holds every file of the repository, and nothing that is generated."""

import subprocess
import sys
import tarfile

# What serves only the repository itself.
REPOSITORY_ONLY = (".github/", ".gitignore")
# What setuptools adds.
METADATA = ("PKG-INFO", "setup.cfg", "src/hotloop.egg-info/")


def main(sdist: str) -> int:
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive if member.isfile()}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tracked = {name for name in listed.split("\0") if name and not name.startswith(REPOSITORY_ONLY)}
    packed = {name for name in packed if not name.startswith(METADATA)}
    for name in sorted(tracked - packed):
        print(f"missing from the sdist (MANIFEST.in): {name}")
    for name in sorted(packed - tracked):
        print(f"not in the repository, but in the sdist: {name}")
    print(f"{len(packed)} files in the sdist")
    return int(not packed or packed != tracked)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
