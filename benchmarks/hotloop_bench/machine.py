"""The machine and the Python of a measurement: without them its numbers cannot be compared with any others."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path


def describe() -> dict[str, str]:
    return {
        "processor": processor(),
        "cores": str(available_cores()),
        "system": platform.platform(),
        "load": load_average(),
        "python": f"{platform.python_implementation()} {platform.python_version()}{build_notes()}",
        "compiler": platform.python_compiler(),
        "commit": commit(file_of_hotloop()) or "unknown",
    }


def processor() -> str:
    """The model's name, which platform.processor() does not know on Linux."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load_average() -> str:
    """Over the last minute. On an idle machine it is below about 0.1 for each core."""
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


def build_notes() -> str:
    free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
    debug = hasattr(sys, "gettotalrefcount")
    return " free-threaded" * free_threaded + " debug build" * debug


def file_of_hotloop() -> Path | None:
    """The file that `import hotloop` would load; None if there is none."""
    spec = importlib.util.find_spec("hotloop")
    return Path(spec.origin) if spec and spec.origin else None


def commit(file: Path | None) -> str | None:
    """The revision of the source tree that has this file, with "-dirty" if changed since; None if no tree does."""
    if file is None:
        return None

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", file.parent, *arguments], capture_output=True, text=True, check=False)
        except OSError:  # no git
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside some other project's repository, in its virtual environment.
    if git("ls-files", "--error-unmatch", file.name) is None:
        return None
    return git("describe", "--always", "--dirty", "--abbrev=12")
