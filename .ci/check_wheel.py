"""check_wheel.py SDIST WHEEL...: fail unless each wheel holds all that an install needs, and nothing else.

The files must be those of the sdist's src/, with the shared object of ext/'s modules unless the wheel is the pure one,
and RECORD must have every file's digest and size. The bill of materials must name the wheel's version, and Cython if
there is a shared object. It must have each module's initialisation, and may not name a folder of the machine it was
built on; one in ELF must be stripped, and must not need another libc than the wheel's platform tag says, nor a newer
one (`readelf` of binutils tells).
"""

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SOURCES = re.compile(r"src/(?P<file>hotloop/.*\.(py|pyi|typed))")
MODULES = re.compile(r"ext/(?P<stem>hotloop/_c/\w+/\w+)\.pyx")
COMPILED = re.compile(r"(?P<stem>[\w/]+)\.[\w-]+\.so")
SHARED_OBJECT = "hotloop/_c/runtime/shared_object"
TAGS = re.compile(r"[^-]+-(?P<version>[^-]+)-(?P<python>\w+)-(?P<abi>\w+)-(?P<platforms>[\w.]+)\.whl")
BILL = "sboms/hotloop.cdx.json"
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE", BILL}
# A path with two parts at least, where a string begins or after what options and messages have before one.
ABSOLUTE_PATH = re.compile(rb"(?<![\w./+~*<>-])/[\w.+-]+(?:/[\w.+-]+)+")
# What programs find at run time, on every machine.
SYSTEM_PATHS = (b"/dev/", b"/proc/", b"/sys/", b"/run/")
# Where the libraries of macOS are, by which a shared object of Mach-O names them.
SYSTEM_LIBRARIES = (b"/usr/lib/", b"/System/Library/")
SYMBOL_TABLES = re.compile(r" \.(symtab|debug_\w+|zdebug_\w+) ")
GLIBC = re.compile(r"GLIBC_2\.(\d+)")
MANYLINUX = re.compile(r"manylinux_2_(\d+)_\w+")
RUN_PATH = re.compile(r"\((?:RPATH|RUNPATH)\).*")
ELF, MACH_O = b"\x7fELF", b"\xcf\xfa\xed\xfe"


def expected_files(sdist: str) -> tuple[set[str], set[str]]:
    """The files of the package, and the compiled modules, without their suffixes."""
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    files = {match["file"] for name in names if (match := SOURCES.fullmatch(name))}
    return files, {match["stem"] for name in names if (match := MODULES.fullmatch(name))}


def check_files(names: set[str], files: set[str], modules: set[str]) -> Iterator[str]:
    shared_objects = [match["stem"] for name in names if (match := COMPILED.fullmatch(name))]
    package = {name for name in names if name.startswith("hotloop/") and not COMPILED.fullmatch(name)}
    others = {name for name in names if not name.startswith("hotloop/")}
    yield from (f"{name} is missing" for name in files - package)
    yield from (f"{name} does not belong here" for name in package - files)
    if shared_objects != ([SHARED_OBJECT] if modules else []):
        yield f"its shared objects are {shared_objects}"
    yield from (f"{stem} has no stub" for stem in modules if f"{stem}.pyi" not in names)
    yield from () if "hotloop/py.typed" in names else ("py.typed is missing",)
    for name in sorted(others):
        folder, _, rest = name.partition("/")
        # auditwheel adds a list of what it has looked at.
        if not folder.endswith(".dist-info") or (rest not in METADATA and not rest.startswith("sboms/")):
            yield f"{name} does not belong here"
    yield from (f"{name} of .dist-info is missing" for name in METADATA - {name.partition("/")[2] for name in others})


def check_record(wheel: zipfile.ZipFile) -> Iterator[str]:
    names = [name for name in wheel.namelist() if not name.endswith("/")]
    (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(wheel.read(record).decode().splitlines()))
    listed = {name: (digest, size) for name, digest, size in rows}
    if len(rows) != len(listed) or len(names) != len(set(names)):
        yield "a file is in it more than once"
    yield from (f"RECORD has no {name}" for name in set(names) - set(listed))
    yield from (f"RECORD has {name}, which is not there" for name in set(listed) - set(names))
    for name in set(names) & set(listed) - {record}:
        data = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if listed[name] != (f"sha256={digest}", str(len(data))):
            yield f"RECORD does not have the digest or the size of {name}"


def check_bill(wheel: zipfile.ZipFile, version: str, *, pure: bool) -> Iterator[str]:
    (name,) = (name for name in wheel.namelist() if name.endswith(f".dist-info/{BILL}"))
    bill = json.loads(wheel.read(name))
    if (bill["bomFormat"], bill["specVersion"]) != ("CycloneDX", "1.6"):
        yield f"{name} is not CycloneDX 1.6"
    if bill["metadata"]["component"]["purl"] != f"pkg:pypi/hotloop@{version}":
        yield f"{name} is not about hotloop {version}"
    if [part["name"] for part in bill["components"]] != ([] if pure else ["Cython"]):
        yield f"{name} does not name the parts of this wheel"


def check_modules(name: str, shared_object: bytes, modules: set[str]) -> Iterator[str]:
    functions = {stem: f"PyInit_{PurePosixPath(stem).name}\0".encode() for stem in modules}
    yield from (f"{name} has no {stem}" for stem in sorted(modules) if functions[stem] not in shared_object)


def check_paths(name: str, shared_object: bytes, modules: set[str], builder: tuple[bytes, ...]) -> Iterator[str]:
    # Cython compresses strings: a byte that is no character may stand in the middle of a module's own relative path.
    own = b"\n".join(f"ext/{stem}.pyx".encode() for stem in modules)
    system = SYSTEM_PATHS + SYSTEM_LIBRARIES if shared_object.startswith(MACH_O) else SYSTEM_PATHS
    found = {path for path in ABSOLUTE_PATH.findall(shared_object) if not path.startswith(system)}
    found = {path for path in found if path not in own} | {path for path in builder if path in shared_object}
    yield from (f"{name} names {path.decode(errors='replace')}" for path in sorted(found))


def check_elf(name: str, shared_object: bytes, platforms: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(shared_object)
        file.flush()
        command = ["readelf", "--wide", "--sections", "--dynamic", "--version-info", file.name]
        # Its messages are in the language of the user.
        text = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}
        ).stdout
    yield from (f"{name} is not stripped: it has .{table}" for table in sorted(set(SYMBOL_TABLES.findall(text))))
    yield from (f"{name} looks for libraries in a folder of its own: {path}" for path in RUN_PATH.findall(text))
    allowed = [int(minor) for minor in MANYLINUX.findall(platforms)]
    needed = max((int(minor) for minor in GLIBC.findall(text)), default=0)
    if "musllinux" in platforms:
        if needed:
            yield f"{name} needs glibc 2.{needed}, and the tag says musl"
    elif not allowed:
        yield f"{name} is in ELF, and the wheel is for {platforms}"
    elif needed > min(allowed):
        yield f"{name} needs glibc 2.{needed}, and the tag says 2.{min(allowed)}"


def check(path: Path, files: set[str], modules: set[str], builder: tuple[bytes, ...]) -> list[str]:
    tags = TAGS.fullmatch(path.name)
    if tags is None:
        return ["its name is not one of a wheel"]
    pure = (tags["python"], tags["abi"], tags["platforms"]) == ("py3", "none", "any")
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        problems = [*check_files(names, files, set() if pure else modules), *check_record(wheel)]
        if f"hotloop-{tags['version']}.dist-info/{BILL}" in names:
            problems += check_bill(wheel, tags["version"], pure=pure)
        (metadata,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        # A platform tag of more than one part is a line for each.
        wanted = {f"{tags['python']}-{tags['abi']}-{platform}" for platform in tags["platforms"].split(".")}
        listed = set(re.findall(r"^Tag: (\S+)$", wheel.read(metadata).decode(), re.MULTILINE))
        if listed != wanted:
            problems.append(f"WHEEL says {', '.join(sorted(listed))}")
        if not pure and tags["python"] != tags["abi"].rstrip("t"):
            problems.append(f"{tags['abi']} is no ABI of {tags['python']}")
        for name in sorted(name for name in names if COMPILED.fullmatch(name)):
            shared_object = wheel.read(name)
            # cp313-cp313 is in its suffix as cpython-313, and cp314-cp314t as cpython-314t.
            if f".cpython-{tags['abi'].removeprefix('cp')}-" not in PurePosixPath(name).name:
                problems.append(f"{name} is not for {tags['abi']}")
            problems += check_modules(name, shared_object, modules)
            problems += check_paths(name, shared_object, modules, builder)
            problems += check_elf(name, shared_object, tags["platforms"]) if shared_object.startswith(ELF) else []
    return problems


def main(sdist: str, *wheels: str) -> int:
    files, modules = expected_files(sdist)
    builder = tuple(os.fsencode(folder) for folder in {str(Path.home()), os.getcwd()} if folder.count("/") > 1)
    failed = not wheels or not files or not modules
    for wheel in map(Path, wheels):
        problems = check(wheel, files, modules, builder)
        failed |= bool(problems)
        with zipfile.ZipFile(wheel) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {unpacked:,} unpacked, {len(problems)} problem(s)")
        print("".join(f"  {problem}\n" for problem in problems), end="")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
