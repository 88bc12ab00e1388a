"""The other side of the network rows, in C: a load generator and a bare server in one program, which load.c describes.

The machine's C compiler compiles it when it is first needed. The user's cache folder keeps it, under a hash of its
sources and of the command. There are two builds: one without TLS, and one with OpenSSL. Where OpenSSL's headers are
missing, only the rows over TLS are left out. Nothing here uses an event loop.
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

SOURCES = Path(__file__).parent
COMMON = ("load.h", "load.c", "channel.c", "generator.c", "websocket.c", "server.c")
COMPILE = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
SECONDS_TO_COMPILE = 60
SECONDS_BEFORE_THE_GENERATOR_HANGS = 30
"""Longer than STALLED_SECONDS in load.h, after which the generator itself reports a server that does not answer."""

Network = Literal["tcp", "unix", "udp", "tls"]
"""TLS is over TCP."""
Service = Literal["echo", "once", "sink", "http", "download"]


class NoLoadGenerator(Exception):
    """The program cannot be compiled or run here; the text says why."""


class LoadFailed(Exception):
    """The load generator or the bare server gave up; the text is its reason."""


@dataclass(frozen=True)
class Load:
    """One round of load, as both sides saw it."""

    operations: int
    """How many messages, connections or calls."""
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


@dataclass(frozen=True)
class Program:
    """One of the two builds of these sources."""

    name: str
    sources: Sequence[str]
    libraries: Sequence[str] = ()
    needs: str = ""
    """What to install where it cannot be compiled."""

    def made_from(self) -> list[str]:
        """The text of each source."""
        return [SOURCES.joinpath(name).read_text(encoding="utf-8") for name in self.sources]

    def arguments(self) -> list[str]:
        """The compiler's, after its options."""
        compiled = [os.fspath(SOURCES / name) for name in self.sources if name.endswith(".c")]
        return [*compiled, *self.libraries]


PLAIN = Program("load", (*COMMON, "plain.c"))
TLS = Program("load-tls", (*COMMON, "tls.c"), ("-lssl", "-lcrypto"), "; it needs OpenSSL's headers (libssl-dev)")


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


def compiled(command: Sequence[str], folder: Path, program: Program = PLAIN) -> Path:
    """The program, made by this compiler and kept in `folder`; NoLoadGenerator if that fails."""
    made_from = [*program.made_from(), *command, *COMPILE, *program.libraries, os.uname().machine]
    path = folder / f"{program.name}-{hashlib.sha256(chr(0).join(made_from).encode()).hexdigest()[:16]}"
    if path.exists():
        return path
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as workshop:
            fresh = Path(workshop, program.name)
            arguments = [*command, *COMPILE, "-o", os.fspath(fresh), *program.arguments()]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS_TO_COMPILE, check=False)
            if done.returncode:
                raise NoLoadGenerator(f"{could_not_be(program)}: {first_error(done.stderr)}{program.needs}")
            fresh.replace(path)  # atomic: two processes may do this at the same time
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLoadGenerator(f"{could_not_be(program)}: {error}") from error
    return path


def could_not_be(program: Program) -> str:
    return f"the load generator{' with TLS' if program is TLS else ''} could not be compiled"


def first_error(stderr: str) -> str:
    """The compiler's first error, without the folder of the source."""
    found = next((line for line in stderr.splitlines() if "error" in line or "cannot find" in line), None)
    return "it did not say why" if found is None else found.strip().replace(f"{SOURCES}{os.sep}", "")


@functools.cache
def _program_or_reason(program: Program) -> Path | str:
    if not sys.platform.startswith("linux"):
        return f"the load generator needs epoll, and this is {sys.platform}"
    try:
        return compiled(compiler(), cache_folder(), program)
    except NoLoadGenerator as error:
        return str(error)


def program(kind: Program = PLAIN) -> Path:
    """The compiled program; NoLoadGenerator with the reason where there can be none."""
    found = _program_or_reason(kind)
    if isinstance(found, str):
        raise NoLoadGenerator(found)
    return found


def unavailable(kind: Program = PLAIN) -> str | None:
    """The reason why there is no load generator of that kind; None if there is one."""
    found = _program_or_reason(kind)
    return found if isinstance(found, str) else None


# -- running -----------------------------------------------------------------------------------------------------------


class Helper:
    """A running load generator or server, which answers each line with a line of JSON. Use it as a context manager."""

    def __init__(self, *arguments: object, kind: Program = PLAIN) -> None:
        self.process = subprocess.Popen(
            [os.fspath(program(kind)), *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
        # Not select(): it takes no descriptor above 1023. Not a timer: its thread would be measured too.
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


def spoken(network: Network, path: str) -> tuple[str, Program]:
    """The network's name for the program, and the program that knows it."""
    return (f"tls:{path}", TLS) if network == "tls" else (network, PLAIN)


class Generator(Helper):
    """Messages to an echo server, or connections to one that closes after the first byte."""

    def __init__(
        self,
        network: Network,
        address: str,
        connections: int,
        size: int | None = None,
        *,
        waves: bool = False,
        websocket: bool = False,
        identity: str = "",
    ) -> None:
        """Connect. `size` is that of a message in bytes; None: open connections instead.

        In waves, no connection sends its next message before all have the echo of their last one. By WebSocket, each
        message is a frame. `identity` is the path of a TLS server's certificate. Over TLS and by WebSocket the server
        must run while the generator connects.
        """
        what, *rest = ("open",) if size is None else ("echo", size, *(["waves"] if waves else []))
        what = "websocket" if websocket else what
        name, kind = spoken(network, identity)
        super().__init__(what, name, address, connections, *rest, kind=kind)

    def run(self, amount: int | str) -> dict[str, float]:
        """Do that number of messages or connections, or run for a time ("0.5s"): messages, seconds, p50 and p99."""
        return self.ask(amount)


class Downloader(Helper):
    """One connection, on which the server sends what the client asks for."""

    def __init__(self, network: Network, address: str, *, identity: str = "") -> None:
        name, kind = spoken(network, identity)
        super().__init__("download", name, address, kind=kind)

    def run(self, mebibytes: int) -> dict[str, float]:
        """Download that many MiB: messages, which are those MiB, and seconds."""
        return self.ask(mebibytes)


class Idlers(Helper):
    """Idle connections, all from one address."""

    def __init__(self, address: str, source: int) -> None:
        """They come from the address 127.0.0.1 + `source`, which is 1 or more."""
        super().__init__("idle", address, source)

    def open(self, more: int) -> int:
        """Open that many more; returns how many there are now."""
        held: int = self.ask(more)["ready"]
        return held


class BareServer(Helper):
    """The limit: an epoll server in C that does nothing but the service."""

    def __init__(self, network: Network, service: Service, path: str = "") -> None:
        """`path` is the address of a Unix server, or the file with the certificate and key of a TLS server."""
        name, kind = spoken(network, path)
        super().__init__("serve", name, service, *([path] if network == "unix" else []), kind=kind)
        self.address: str = self.greeting["address"]

    def cpu(self) -> float:
        """Seconds of processor time it has used so far."""
        seconds: float = self.ask("cpu")["cpu"]
        return seconds
