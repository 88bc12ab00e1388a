"""The other side of the network rows, in C: a load generator and a bare server, both load.c beside this file.

Compiled with the machine's C compiler when it is first needed, and kept in the user's cache folder under the hash of
what it was made from. Nothing here knows an event loop.
"""

import functools
import hashlib
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

SOURCE = Path(__file__).with_name("load.c")
COMPILE = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
SECONDS_TO_COMPILE = 60
SECONDS_BEFORE_THE_GENERATOR_HANGS = 30
"""Longer than its own patience with a server that has stopped answering, which it reports."""

Network = Literal["tcp", "unix", "udp"]
Service = Literal["echo", "once", "sink"]


class NoLoadGenerator(Exception):
    """load.c cannot be compiled or run here; the text says why."""


class LoadFailed(Exception):
    """The load generator or the bare server gave up; the text is its reason."""


@dataclass(frozen=True)
class Load:
    """One round of load, as both sides saw it."""

    operations: int
    """Messages, connections or calls that were done."""
    cpu: float
    """Seconds of processor time that the measured process used, all its threads together."""
    elapsed: float
    """Seconds."""
    p50: float | None = None
    """Seconds from the sending of a message to the last byte of its echo: half of the messages took no longer."""
    p99: float | None = None

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.elapsed


# -- compiling ---------------------------------------------------------------------------------------------------------


def compiler() -> list[str]:
    """The command: $CC, which may have options, or cc. NoLoadGenerator if there is none."""
    command = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise NoLoadGenerator(f"the load generator needs a C compiler, and {command[0]!r} was not found")
    return command


def compiler_version() -> str:
    """The first line of what the compiler says about itself."""
    done = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0] or "unknown"


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/hotloop, or ~/.cache/hotloop (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hotloop")


def compiled(command: Sequence[str], folder: Path) -> Path:
    """The program, made by this compiler and kept in `folder`; NoLoadGenerator if that fails."""
    made_from = [SOURCE.read_text(encoding="utf-8"), *command, *COMPILE, os.uname().machine]
    program = folder / f"load-{hashlib.sha256(chr(0).join(made_from).encode()).hexdigest()[:16]}"
    if program.exists():
        return program
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workshop:
            fresh = Path(workshop, "load")
            arguments = [*command, *COMPILE, "-o", os.fspath(fresh), os.fspath(SOURCE)]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS_TO_COMPILE, check=False)
            if done.returncode:
                said = next((line for line in done.stderr.splitlines() if "error" in line), "it did not say why")
                raise NoLoadGenerator(f"the load generator could not be compiled: {said}")
            fresh.replace(program)  # at once and whole, also if two processes do this
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLoadGenerator(f"the load generator could not be compiled: {error}") from error
    return program


@functools.cache
def _program_or_reason() -> Path | str:
    if not sys.platform.startswith("linux"):
        return f"the load generator needs epoll, and this is {sys.platform}"
    try:
        return compiled(compiler(), cache_folder())
    except NoLoadGenerator as error:
        return str(error)


def program() -> Path:
    """The compiled load.c; NoLoadGenerator with the reason where there can be none."""
    found = _program_or_reason()
    if isinstance(found, str):
        raise NoLoadGenerator(found)
    return found


def unavailable() -> str | None:
    """Why there is no load generator, if there is none."""
    found = _program_or_reason()
    return found if isinstance(found, str) else None


# -- running -----------------------------------------------------------------------------------------------------------


class Helper:
    """A running load.c, which answers each line with one of JSON. To be used as a context manager."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [os.fspath(program()), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.greeting = self.read_answer()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def ask(self, request: object) -> dict[str, Any]:
        """The answer; LoadFailed if it is an error or does not come."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{request}\n")
            self.process.stdin.flush()
        except OSError as error:
            raise LoadFailed(f"the load generator has ended: {error}") from error
        return self.read_answer()

    def read_answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # Not select(), which knows no descriptor above 1023; not a timer, whose thread would be measured too.
        patience = select.poll()
        patience.register(self.process.stdout, select.POLLIN)
        if not patience.poll(SECONDS_BEFORE_THE_GENERATOR_HANGS * 1000):
            raise LoadFailed(f"the load generator gave no answer in {SECONDS_BEFORE_THE_GENERATOR_HANGS} s")
        line = self.process.stdout.readline()
        if not line:
            raise LoadFailed(f"the load generator ended without an answer, with code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LoadFailed(answer["error"])
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


class Generator(Helper):
    """Messages to an echo server, or connections to one that closes after the first byte."""

    def __init__(
        self, network: Network, address: str, connections: int, size: int | None = None, *, waves: bool = False
    ) -> None:
        """Connect. `size` is that of a message in bytes; None: open connections instead.

        In waves, no connection sends its next message before all have the echo of their last one.
        """
        what, *rest = ("open",) if size is None else ("echo", size, *(["waves"] if waves else []))
        super().__init__(what, network, address, connections, *rest)

    def run(self, amount: int | str) -> dict[str, float]:
        """Do so many messages or connections, or go on for a time ("0.5s"): messages, seconds, p50 and p99."""
        return self.ask(amount)


class Idlers(Helper):
    """Connections that only exist, all from one address."""

    def __init__(self, address: str, source: int) -> None:
        """`source`, from 1: they come from 127.0.0.1 + source."""
        super().__init__("idle", address, source)

    def open(self, more: int) -> int:
        """How many there are then."""
        held: int = self.ask(more)["ready"]
        return held


class BareServer(Helper):
    """The limit: an epoll server that does nothing but the service."""

    def __init__(self, network: Network, service: Service, path: str = "") -> None:
        """`path` is where a unix server listens."""
        super().__init__("serve", network, service, *([path] if path else []))
        self.address: str = self.greeting["address"]

    def cpu(self) -> float:
        """Seconds of processor time it has used so far."""
        seconds: float = self.ask("cpu")["cpu"]
        return seconds
