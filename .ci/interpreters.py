"""The Pythons of this machine: on the PATH, from pyenv, and those HOTLOOP_EXTRA_PYTHONS names.

Run as a program it prints a line for each version of CPython that has wheels: the version, and the command if it is
here.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

QUERY = """
import importlib.util, json, os, platform, sys, sysconfig
headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(json.dumps({
    "name": platform.python_implementation(),
    "version": "{}.{}".format(*sys.version_info) + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "full_version": platform.python_version(),
    "recent": sys.version_info[:2] >= (3, 11),
    "environments": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "headers": headers,
    "linker": sysconfig.get_config_var("LDSHARED") or "",
}))
"""


def released_versions() -> tuple[str, ...]:
    """The versions of CPython that have wheels, as Interpreter.version has them: cp314t is 3.14t."""
    text = Path(__file__).absolute().parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    builds = tomllib.loads(text)["tool"]["cibuildwheel"]["build"].split()
    return tuple(f"{build[2]}.{build.removesuffix('-*')[3:]}" for build in builds)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One that can make virtual environments: a command, and what it has said about itself."""

    command: tuple[str, ...]
    name: str
    # 3.13, or 3.14t for one without the GIL.
    version: str
    full_version: str
    linker: str

    def venv(self, folder: Path) -> list[str]:
        """The Python of a virtual environment made by this one, which is only usable the same way."""
        return [*self.command[:-1], str(folder / "bin" / "python")]

    @property
    def linking(self) -> dict[str, str]:
        """Some are told at their own build where their library is, and pass that folder on into every extension."""
        words = shlex.split(self.linker)
        kept = [word for word in words if not word.startswith(("-Wl,-rpath", "-L"))]
        return {"LDSHARED": shlex.join(kept)} if kept != words else {}


def query(command: list[str]) -> dict[str, object] | None:
    """What it says about itself; None where there is none, as behind a shim of pyenv."""
    try:
        run = subprocess.run(
            [*command, "-c", QUERY], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
        )
        answer = json.loads(run.stdout) if run.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return answer if isinstance(answer, dict) else None


def described(command: list[str], answer: dict[str, object]) -> Interpreter:
    fields = {name: str(answer[name]) for name in ("name", "version", "full_version", "linker")}
    return Interpreter(tuple(command), **fields)


def this_one() -> Interpreter:
    answer = query([sys.executable])
    assert answer is not None, "it runs this"
    return described([sys.executable], answer)


def candidates(versions: tuple[str, ...]) -> Iterator[list[str]]:
    yield [sys.executable]
    names = [*(f"python{version}" for version in versions), "pypy3"]
    yield from ([path] for name in names if (path := shutil.which(name)))
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        for name in names:
            yield from ([str(path)] for path in sorted(Path(root, "versions").glob(f"*/bin/{name}"), reverse=True))
    for extra in os.environ.get("HOTLOOP_EXTRA_PYTHONS", "").split(";"):
        if extra.strip():
            yield shlex.split(extra)


def discover(versions: tuple[str, ...]) -> tuple[dict[str, Interpreter], list[Interpreter]]:
    """The first CPython of each of `versions` that has all a build needs, and the first PyPy of each version."""
    found: dict[str, Interpreter] = {}
    pypies: dict[str, Interpreter] = {}
    for command in candidates(versions):
        answer = query(command)
        if answer is None or not answer["recent"]:
            continue
        # Distributions package an interpreter in parts.
        lacking = [what for what in ("environments", "headers") if not answer[what]]
        compiles = answer["name"] == "CPython"
        if "environments" in lacking or (compiles and lacking):
            print(f"{shlex.join(command)}: lacks {' and '.join(lacking)}; looking for another", file=sys.stderr)
            continue
        kind = found if compiles and answer["version"] in versions else pypies if answer["name"] == "PyPy" else {}
        kind.setdefault(str(answer["version"]), described(command, answer))
    return found, list(pypies.values())


def main() -> None:
    versions = released_versions()
    found, _ = discover(versions)
    for version in versions:
        print(version, *(found[version].command if version in found else ()))


if __name__ == "__main__":
    main()
