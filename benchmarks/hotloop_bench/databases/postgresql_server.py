"""A PostgreSQL server with a new, empty database that need not survive a crash."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .process import DatabaseFailed, free_port, own_folder, run, running

USER = "bench"
"""The superuser, who needs no password."""
DEBIAN = Path("/usr/lib/postgresql")
PROGRAMS = ("initdb", "postgres")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "max_connections": "50",
    # Nothing that writes or cleans up while rounds are measured.
    "fsync": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


def programs() -> Path | None:
    """The folder of PostgreSQL's programs. Debian has one for each major version, not on the PATH."""
    versions = sorted(DEBIAN.glob("[0-9]*"), key=lambda path: [*map(int, path.name.split("."))], reverse=True)
    candidates = [path / "bin" for path in versions]
    if (postgres := shutil.which("postgres")) is not None:
        candidates.append(Path(postgres).resolve().parent)
    for candidate in candidates:
        if all(os.access(candidate / program, os.X_OK) for program in PROGRAMS):
            return candidate
    return None


def unavailable() -> str | None:
    """The reason why there is no PostgreSQL server on this machine; None if there is one."""
    if programs() is None:
        return "it needs PostgreSQL's server, which is not installed (Debian: apt-get install postgresql)"
    return None


@contextlib.contextmanager
def postgresql_server() -> Iterator[int]:
    """Yields the port, on 127.0.0.1."""
    found = programs()
    if found is None:
        raise DatabaseFailed("there is no PostgreSQL server")
    with own_folder() as folder:
        data, port = folder / "data", free_port()
        run([found / "initdb", "--no-sync", "--auth=trust", f"--username={USER}", f"--pgdata={data}"], folder)
        settings = SETTINGS | {"port": str(port), "unix_socket_directories": str(folder)}
        options = (f"--{name}={value}" for name, value in settings.items())
        with running([found / "postgres", "-D", data, *options], folder, lambda: is_ready(data)):
            yield port


def is_ready(data: Path) -> bool:
    """Whether the server has written into its PID file that it accepts connections, as pg_ctl looks for it."""
    with contextlib.suppress(OSError):
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        return len(lines) > 7 and lines[7].strip() == "ready"
    return False
