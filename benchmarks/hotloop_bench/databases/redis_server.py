"""A Redis server that keeps nothing on disk."""

import contextlib
import shutil
from collections.abc import Iterator

from .process import DatabaseFailed, free_port, own_folder, running


def unavailable() -> str | None:
    """The reason why there is no Redis server on this machine; None if there is one."""
    if shutil.which("redis-server") is None:
        return "it needs redis-server, which is not installed (Debian: apt-get install redis-server)"
    return None


@contextlib.contextmanager
def redis_server() -> Iterator[int]:
    """Yields the port, on 127.0.0.1."""
    program = shutil.which("redis-server")
    if program is None:
        raise DatabaseFailed("there is no redis-server")
    with own_folder() as folder:
        port = free_port()
        # The file of a Unix socket shows that this server, and not another one at that port, is listening.
        socket = folder / "socket"
        listening = ("--bind", "127.0.0.1", "--port", str(port), "--unixsocket", socket)
        with running([program, *listening, "--dir", folder, "--save", ""], folder, socket.exists):
            yield port
