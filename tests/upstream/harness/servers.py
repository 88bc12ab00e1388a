"""The servers that suites need: started for one run, on ports and in folders of its own, and stopped after it."""

import contextlib
import dataclasses
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.catalog import NotAvailable

START_SECONDS = 60.0  # for a server to answer on a busy machine
PORT = 6379  # of the Redis server: some tests accept no other
SENTINELS = 3
MASTER = "redis-py-test"  # the name under which redis-py's tests ask the sentinels for the server
POSTGRESQL_PROGRAMS = ("initdb", "pg_basebackup", "pg_config", "pg_ctl", "postgres")


@dataclasses.dataclass
class Access:
    """The access of a suite to its servers."""

    versions: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    options: list[str] = dataclasses.field(default_factory=list)  # for pytest
    variables: dict[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Access]:
    """A Redis server and the sentinels that watch it."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotAvailable("there is no redis-server on the PATH (Debian: apt-get install redis-server)")
    with contextlib.ExitStack() as stack:
        # The tests have the server return errors of their choice.
        settings = 'save ""\nenable-debug-command local\n'
        stack.enter_context(_redis_server(program, folder / "server", PORT, settings))
        sentinel_ports = free_ports(SENTINELS)
        for port in sentinel_ports:
            watch = f"sentinel monitor {MASTER} 127.0.0.1 {PORT} 2\n"
            stack.enter_context(_redis_server(program, folder / str(port), port, watch, "--sentinel"))
        sentinels = ",".join(f"localhost:{port}" for port in sentinel_ports)
        options = [f"--redis-url=redis://localhost:{PORT}/0", f"--sentinels={sentinels}", f"--master-service={MASTER}"]
        yield Access({"redis": version_of(program)}, options)


@contextlib.contextmanager
def _redis_server(program: str, folder: Path, port: int, settings: str, *arguments: str) -> Iterator[None]:
    folder.mkdir(parents=True)
    configuration = folder / "redis.conf"  # a sentinel writes into its configuration
    configuration.write_text(f"port {port}\nbind 127.0.0.1 -::1\ndir {folder}\n{settings}", encoding="utf-8")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, str(configuration), *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        _wait_for_answer(process, port, log)
        yield
    finally:
        process.kill()
        process.wait()


def _wait_for_answer(process: subprocess.Popen, port: int, log: Path) -> None:
    """Wait until this process answers, and make sure that it is this one: the tests empty the server's databases."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"INFO server\r\n")
            answer = b""
            while received := connection.recv(65536):  # times out if another process answers
                answer += received
                if f"process_id:{process.pid}\r\n".encode() in answer:
                    return
        time.sleep(0.05)
    how = "did not answer" if process.returncode is None else f"ended with exit code {process.returncode}"
    raise NotAvailable(f"redis-server {how} on port {port}: {_last_warning(log.read_text(errors='replace'))}")


def _last_warning(log: str) -> str:
    """Redis marks its warnings with a #; the last such line before it ends is the cause."""
    warnings = [line.partition(" # ")[2] for line in log.splitlines() if " # " in line]
    return warnings[-1] if warnings else "no reason given"


def version_of(program: str) -> tuple[int, ...]:
    """The version in the output of `program --version`: Redis server v=7.0.15 ..., postgres (PostgreSQL) 15.18 ..."""
    shown = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"\d+(?:\.\d+)+", shown)
    if found is None:
        raise NotAvailable(f"{program} --version prints no version: {shown.strip() or 'nothing'}")
    return tuple(int(part) for part in found[0].split("."))


def free_ports(count: int) -> list[int]:
    """Ports without a listener; all are held at once so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[Access]:
    """asyncpg's tests start and stop servers themselves; a variable names the folder of the programs."""
    programs = postgresql_folder(Path("/usr/lib/postgresql"))
    if programs is None:
        raise NotAvailable("there is no PostgreSQL server on this machine (Debian: apt-get install postgresql)")
    version = version_of(str(programs / "postgres"))
    yield Access({"postgresql": version}, variables={"PGINSTALLATION": str(programs)})


def postgresql_folder(debian: Path) -> Path | None:
    """The folder with PostgreSQL's programs. Debian has one for each major version below `debian`, not on the PATH."""
    versions = sorted(debian.glob("[0-9]*"), key=lambda path: [*map(int, path.name.split("."))], reverse=True)
    candidates = [path / "bin" for path in versions]
    if (postgres := shutil.which("postgres")) is not None:
        candidates.append(Path(postgres).resolve().parent)
    for candidate in candidates:
        if all(os.access(candidate / program, os.X_OK) for program in POSTGRESQL_PROGRAMS):
            return candidate
    return None


KINDS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Access]]] = {
    "redis": redis,
    "postgresql": postgresql,
}
