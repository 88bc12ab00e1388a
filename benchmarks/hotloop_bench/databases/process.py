"""A server process with a folder of its own. Both are gone when the row ends, and also when this process is killed.

A shell script watches the server. Its standard input is a pipe from this process, so it ends with this process at the
latest; then the script ends the server and removes the folder.

PostgreSQL refuses to run as root, so root runs the servers, and the scripts that watch them, as the user nobody.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

SECONDS_TO_START = 100.0
SECONDS_TO_END = 10.0
SECONDS_BETWEEN_LOOKS = 0.02

# The arguments are the folder and the command. A server that ends by itself leaves the folder, with its log.
WATCH = """
folder=$1
shift
exec 3<&0
"$@" </dev/null >"$folder/log" 2>&1 3<&- &
server=$!
{ read -r end <&3; : >"$folder/ending"; kill -TERM $server; sleep 5; kill -KILL $server; } &
watcher=$!
wait $server
kill $watcher
[ ! -e "$folder/ending" ] || rm -rf "$folder"
"""


class DatabaseFailed(Exception):
    """A server did not start; the text has its own reason."""


def without_root() -> dict[str, Any]:
    """The arguments of subprocess.Popen() for a program that must not run as root."""
    if os.geteuid() != 0:
        return {}
    import pwd  # only here: not every system that has the other rows has it

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that belongs to the user who runs the server."""
    folder = tempfile.mkdtemp(prefix="bench-")
    try:
        user = without_root()
        if user:
            os.chown(folder, user["user"], user["group"])
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a program to its end in the folder; DatabaseFailed with its last line if it fails."""
    done = subprocess.run(
        [*map(str, command)],
        **without_root(),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_TO_START,
        check=False,
    )
    if done.returncode:
        raise DatabaseFailed(f"{command[0]} ended with code {done.returncode}: {last_line(done.stdout)}")


@contextlib.contextmanager
def running(command: Sequence[str | Path], folder: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Run the server while the block runs, which begins when the server is `ready`."""
    watched = subprocess.Popen(
        ["sh", "-c", WATCH, "sh", *map(str, (folder, *command))],
        **without_root(),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for the server: it ends with the row
    )
    try:
        wait_until(ready, watched, str(command[0]), folder / "log")
        yield
    finally:
        end(watched)


def wait_until(ready: Callable[[], bool], watched: subprocess.Popen[bytes], name: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not ready():
        ended = watched.poll() is not None
        if ended or time.monotonic() > deadline:
            how = "ended at once" if ended else f"was not ready in {SECONDS_TO_START:.0f} s"
            said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            raise DatabaseFailed(f"{name} {how}: {last_line(said)}")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def end(watched: subprocess.Popen[bytes]) -> None:
    assert watched.stdin is not None
    watched.stdin.close()
    try:
        watched.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        os.killpg(watched.pid, signal.SIGKILL)
        watched.wait()


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it did not say why"


def free_port() -> int:
    """A port without a listener, for a server that cannot choose one itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
