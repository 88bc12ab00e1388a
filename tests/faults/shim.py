"""The preloaded library that makes calls fail (shim.h), and the faults that it can make.

Python's allocators are wrapped by the shim's own functions, not by _testcapi.set_nomemory(): many Pythons have no
_testcapi, and that function knows neither the number of allocations nor which one failed.
"""

import ctypes
import dataclasses
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent.parent / "build" / "faults"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
SHORT = -1  # in place of an errno: a transfer of several bytes moves only one
MEMORY_DOMAINS = 3  # PYMEM_DOMAIN_RAW, _MEM, _OBJ


class Unavailable(Exception):
    """The shim cannot be built or used here; the text says why."""


def build(folder: Path = OUTPUT) -> Path:
    """The shared library in `folder`, compiled again only if its sources have changed. Raises Unavailable."""
    if sys.platform != "linux":
        raise Unavailable("the shim stands before Linux' system calls")
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise Unavailable("there is no C compiler: neither cc, gcc nor clang")
    library, sources = folder / "shim.so", sorted(HERE.glob("shim*.c"))
    newest = max(source.stat().st_mtime for source in [*sources, HERE / "shim.h"])
    if library.exists() and library.stat().st_mtime > newest:
        return library
    folder.mkdir(parents=True, exist_ok=True)
    made = library.with_suffix(f".{os.getpid()}")  # another process may be making it as well
    command = [*compiler.split(), *FLAGS, *map(str, sources), "-o", str(made), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{compiler} has failed: {done.stderr.strip()}")
    made.replace(library)
    return library


@dataclasses.dataclass(frozen=True)
class Fault:
    """`count` calls of `what`, from the `first` on, fail with `error`.

    `what` is a system call, or "python" or "libc" for an allocation, which has no `error`.
    """

    what: str
    first: int
    count: int = 1
    error: int = 0

    def __str__(self) -> str:
        name = {0: "", SHORT: "short:"}.get(self.error) if self.error <= 0 else f"{errno.errorcode[self.error]}:"
        return f"{self.what}:{name}{self.first}" + (f"+{self.count}" if self.count != 1 else "")

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault whose __str__() is `text`. Raises ValueError."""
        match = re.fullmatch(r"(\w+):(?:(E\w+|short):)?(\d+)(?:\+(\d+))?", text)
        if match is None:
            raise ValueError(f"not a fault: {text}")
        what, error, first, count = match.groups()
        number = 0 if error is None else SHORT if error == "short" else getattr(errno, error)
        return cls(what, int(first), int(count or 1), number)

    @property
    def is_memory(self) -> bool:
        return self.what in ("python", "libc")


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class Shim:
    """The shim that this process was started with."""

    KINDS: ClassVar[dict[str, int]] = {"python": 1, "libc": 2}
    SYSTEM_CALL, CENSUS = 3, 4

    def __init__(self) -> None:
        if "/shim.so" not in os.environ.get("LD_PRELOAD", ""):
            raise Unavailable("this process was started without the shim")
        library = ctypes.CDLL(None)
        self._set = library.shim_set
        self._set.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int]
        self._wrap = library.shim_wrap_allocator
        self._arm, self._disarm, self._report_to = library.shim_arm, library.shim_disarm, library.shim_report_to
        for function in (self._set, self._wrap, self._arm, self._disarm, self._report_to):
            function.restype = None
        self._calls = library.shim_calls
        self._calls.restype, self._calls.argtypes = ctypes.c_long, [ctypes.c_char_p]
        self.seen, self.failed, self.polls = library.shim_seen, library.shim_failed, library.shim_polls
        for function in (self.seen, self.failed, self.polls):
            function.restype = ctypes.c_long
            function.argtypes = []

    def wrap_allocators(self) -> None:
        """Call it once, before any fault."""
        for domain in range(MEMORY_DOMAINS):
            original, wrapped = _Allocator(), _Allocator()
            ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(original))
            self._wrap(domain, ctypes.byref(original), ctypes.byref(wrapped))
            ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(wrapped))

    def report_to(self, fd: int) -> None:
        """Write the C stack of the first failure, and that of a crash, to `fd`."""
        self._report_to(fd)

    def count_calls(self) -> None:
        """Let nothing fail, and count the system calls once armed."""
        self._set(self.CENSUS, b"", 0, 0, 0)

    def calls(self, name: str) -> int:
        return self._calls(name.encode())

    def set(self, fault: Fault) -> None:
        self._set(
            self.KINDS.get(fault.what, self.SYSTEM_CALL), fault.what.encode(), fault.first, fault.count, fault.error
        )

    def arm(self) -> None:
        self._arm()

    def disarm(self) -> None:
        # The call needs memory itself, so it may fail as well; but the number of failures is limited.
        while True:
            try:
                return self._disarm()
            except MemoryError:
                continue
