"""The servers that the benchmarks start: they answer, and nothing of them is left."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from hotloop_bench import runner
from hotloop_bench.databases import postgresql_server, process, redis_server
from hotloop_bench.databases.process import DatabaseFailed
from hotloop_bench.targets import TARGETS

SECONDS_TO_VANISH = 60


def runs(pid):
    """Whether the process still runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition):
    deadline = time.monotonic() + SECONDS_TO_VANISH
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# A server that says which process it is, and then does nothing.
SERVER = ["sh", "-c", "echo $$ >started; mv started pid; exec sleep 1000"]

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")


@needs_proc
def test_a_server_ends_with_its_block():
    with process.own_folder() as folder:
        with process.running(SERVER, folder, (folder / "pid").exists):
            server = int((folder / "pid").read_text())
            assert runs(server)
        assert not runs(server)
    assert not folder.exists()


OWNER = f"""
import signal
from hotloop_bench.databases import process
with process.own_folder() as folder, process.running({SERVER!r}, folder, (folder / "pid").exists):
    print((folder / "pid").read_text().strip(), folder, flush=True)
    signal.pause()
"""


@needs_proc
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_server_ends_with_the_process_that_started_it(end):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=runner.environment(TARGETS["asyncio"]),
        text=True,
    )
    with owner:
        server, folder = owner.stdout.readline().split()
        assert runs(server)
        owner.send_signal(end)
        owner.wait()
    wait_until(lambda: not runs(server) and not os.path.exists(folder))


def test_a_server_that_does_not_start_says_why():
    with process.own_folder() as folder:
        failure = pytest.raises(DatabaseFailed, match=r"^sh ended at once: no room$")
        with failure, process.running(["sh", "-c", "echo first; echo no room; exit 3"], folder, lambda: False):
            pass
    assert not folder.exists()


def test_a_server_that_is_never_ready_is_ended(monkeypatch):
    monkeypatch.setattr(process, "SECONDS_TO_START", 0.05)
    failure = pytest.raises(DatabaseFailed, match=r"^sh was not ready in 0 s: it did not say why$")
    with process.own_folder() as folder, failure, process.running(SERVER, folder, lambda: False):
        pass


def test_a_program_that_fails_says_why():
    with process.own_folder() as folder, pytest.raises(DatabaseFailed, match=r"^sh ended with code 3: no room$"):
        process.run(["sh", "-c", "echo no room; exit 3"], folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root must run them as another user")
def test_root_runs_servers_as_another_user():
    with process.own_folder() as folder:
        process.run(["sh", "-c", "id -u >user"], folder)
        assert (folder / "user").read_text().strip() == str(process.without_root()["user"]) != "0"


def test_missing_servers_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(postgresql_server, "DEBIAN", tmp_path)
    assert redis_server.unavailable().startswith("it needs redis-server, which is not installed")
    assert postgresql_server.unavailable().startswith("it needs PostgreSQL's server, which is not installed")
    for server in (redis_server.redis_server, postgresql_server.postgresql_server):
        with pytest.raises(DatabaseFailed, match="there is no"), server():
            pass


def test_the_newest_postgresql_that_is_whole_is_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(postgresql_server, "DEBIAN", tmp_path)
    for version, names in (("9.6", ("initdb", "postgres")), ("15", ("initdb", "postgres")), ("17", ("postgres",))):
        (tmp_path / version / "bin").mkdir(parents=True)
        for name in names:
            (tmp_path / version / "bin" / name).touch(0o755)
    assert postgresql_server.programs() == tmp_path / "15" / "bin"


@pytest.mark.skipif(redis_server.unavailable() is not None, reason=str(redis_server.unavailable()))
def test_a_redis_server_answers():
    with (
        redis_server.redis_server() as port,
        socket.create_connection(("127.0.0.1", port), 60) as client,
        client.makefile("rb") as answers,
    ):
        client.sendall(b"PING\r\n")
        assert answers.readline() == b"+PONG\r\n"


@pytest.mark.skipif(postgresql_server.unavailable() is not None, reason=str(postgresql_server.unavailable()))
def test_a_postgresql_server_answers():
    """To a request for SSL, with which clients begin: no."""
    with postgresql_server.postgresql_server() as port, socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(bytes.fromhex("0000000804d2162f"))
        assert client.recv(1) == b"N"
