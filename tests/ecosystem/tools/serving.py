"""Programs that a test starts, talks to and ends, without leaving a process behind."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from document import with_programs_of

SECONDS_TO_START = 120  # generous: a loaded machine is no failure
SECONDS_TO_END = 60
BODY = bytes(range(256)) * 4096


def free_port() -> int:
    """A port without a listener, and outside the kernel's range for outgoing connections."""
    while True:
        port = random.randrange(15000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Program:
    """A running program with its output so far."""

    def __init__(self, process: subprocess.Popen[str], port: int | None, task: str) -> None:
        self.process = process
        self.port = port
        self.task = task
        self.lines: list[str] = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_until(self, happened: Callable[[], object], what: str) -> Any:
        """The first true result of `happened`, which is called again whenever the program prints, and now and then."""
        for _ in range(SECONDS_TO_START * 10):
            if result := happened():
                return result
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.output}"
            with self.changed:
                self.changed.wait(0.1)
        raise AssertionError(f"{what} did not happen:\n{self.output}")

    def request(self, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body)
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content
            return content

    def facts(self, path: str = "/facts") -> dict[str, Any] | None:
        """The server's report about its loop; None while nothing listens."""
        try:
            return json.loads(self.request(path))
        except ConnectionRefusedError:
            return None

    def check_serving(self) -> None:
        """Check that it answers on hotloop: many requests of one connection, many connections at once, and much
        data."""
        check_facts(self.wait_until(self.facts, "an answer"), self.task)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            for _ in range(50):
                connection.request("GET", "/facts")
                check_facts(json.loads(connection.getresponse().read()), self.task)
        with concurrent.futures.ThreadPoolExecutor(20) as executor:
            for facts in executor.map(lambda _: self.facts(), range(100)):
                check_facts(facts, self.task)
        assert self.request("/echo", BODY) == BODY

    def check_workers(self, count: int) -> None:
        """Check that `count` processes serve the port. A busy one leaves the next connection to another."""
        seen: set[int] = set()

        def all_seen() -> bool:
            with concurrent.futures.ThreadPoolExecutor(4) as executor:
                for facts in executor.map(lambda _: self.facts("/busy"), range(4)):
                    if facts is not None:  # the server listens by now
                        check_facts(facts, self.task)
                        seen.add(facts["pid"])
            return len(seen) == count

        self.wait_until(all_seen, f"answers of {count} workers")

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS_TO_END)
        self.reader.join(SECONDS_TO_END)
        return code


def check_facts(facts: dict[str, Any], task: str = "hotloop") -> None:
    """Check a program's report about its loop, and about the origin of its task (None: there is none)."""
    assert facts["hotloop"] is True, facts
    assert facts["implementation"] == os.environ["HOTLOOP_IMPL"], facts
    assert facts["task"] in (None, task), facts


@contextlib.contextmanager
def started(command: list[str], folder: Path, port: int | None = None, task: str = "hotloop") -> Iterator[Program]:
    """Run a command in `folder`, in a process group of its own, which is killed if it still exists at the end.

    `task` is the package that made the tasks in which it answers.
    """
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    environ = os.environ | {"PYTHONPATH": path, "PATH": with_programs_of(sys.executable), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    program = Program(process, port, task)
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        program.reader.join(SECONDS_TO_END)
        assert process.stdout is not None
        process.stdout.close()


def run(command: list[str], folder: Path) -> str:
    """The output of a command that ends by itself, with exit code 0."""
    with started(command, folder) as program:
        code = program.process.wait(SECONDS_TO_START)
        program.reader.join(SECONDS_TO_END)
        assert code == 0, program.output
        return program.output
