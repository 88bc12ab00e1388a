"""The examples, started as a user starts them: each a program of its own, on asyncio or through `python -m hotloop`.

Every program started here carries a mark in its environment, which its children inherit, so that a test can show at its
end that none of them is left.
"""

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CRAWLER = "09_aiohttp_crawler.py"
RAW_STAGES = [f"{name}.py" for name in ("01_blocking", "02_process_pool", "03_thread_pool", "04_busy_loop")]
SELECTOR_STAGES = [f"{name}.py" for name in ("05_callbacks", "06_generators", "07_yield_from")]
LOOP_STAGE = "08_async_await.py"
STAGES = [*RAW_STAGES, *SELECTOR_STAGES, LOOP_STAGE]
SECONDS_BEFORE_A_PROGRAM_HANGS = 60
LOOKS = 5  # that must see the same before a program counts as waiting
SITE_PAGES = 40

needs_aiohttp = pytest.mark.skipif(
    importlib.util.find_spec("aiohttp") is None, reason="aiohttp, which the crawler uses, is not installed here"
)
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="only /proc shows which processes were left behind"
)


def restore_signals():
    """A background job of a shell ignores SIGINT, and so would every program that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Programs:
    """Starts examples, and finds those of them and of their children that still run."""

    def __init__(self):
        self.mark = f"HOTLOOP_EXAMPLE_TEST={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.environ = os.environ | {name: value}
        self.environ.pop("HOTLOOP_IMPL", None)
        self.started = []

    def command(self, program, arguments, implementation):
        words = [str(EXAMPLES / program), *map(str, arguments)]
        if implementation == "asyncio":
            return [sys.executable, "-W", "error", *words]
        return [sys.executable, "-W", "error", "-m", "hotloop", "--impl", implementation, *words]

    def start(self, program, *arguments, on="asyncio", **options):
        process = subprocess.Popen(
            self.command(program, arguments, on),
            env=self.environ,
            text=True,
            preexec_fn=restore_signals,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        )
        self.started.append(process)
        return process

    def run(self, program, *arguments, on="asyncio"):
        process = self.start(program, *arguments, on=on)
        out, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def report(self, program, *arguments, on="asyncio"):
        """The report of an example that must succeed without a message."""
        done = self.run(program, "--json", *arguments, on=on)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def failure(self, program, *arguments, on="asyncio"):
        """The exit code and the single line of an example that must fail."""
        done = self.run(program, *arguments, on=on)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith(f"{program}: "), done.stderr
        return done.returncode, done.stderr

    def left_behind(self):
        """The command lines of the processes with this mark."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                    if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def assert_all_gone(self, seconds=20):
        """Helper processes of multiprocessing end shortly after the program that they served."""
        deadline = time.monotonic() + seconds
        while left := self.left_behind():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.02)

    def end(self):
        for process in self.started:
            with process:
                process.kill()


def start_site(programs, *arguments):
    process = programs.start("website.py", *arguments)
    return process, process.stdout.readline().partition(" ")[0]


def split_address(url):
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/", url).groups()
    return host, int(port)


def requests_seen(url):
    connection = http.client.HTTPConnection(*split_address(url))
    with contextlib.closing(connection):
        connection.request("GET", "/stats")
        return json.loads(connection.getresponse().read())


def page_sizes(site, count):
    connection = http.client.HTTPConnection(*split_address(site))
    with contextlib.closing(connection):
        for number in range(count):
            connection.request("GET", f"/page/{number}" if number else "/")
            yield len(connection.getresponse().read())


def check_loop(report, impl):
    assert report["engine"].startswith("asyncio." if impl.is_oracle else "hotloop.")
    assert report["implementation"] == (None if impl.is_oracle else impl.name)


def wait_until(condition):
    deadline = time.monotonic() + SECONDS_BEFORE_A_PROGRAM_HANGS
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.01)


def wait_until_it_waits(process):
    """Wait until every thread of a program sleeps, and has not woken for some looks: it waits for an answer."""
    looks = []

    def sleeps():
        statuses = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/status")]
        # Of one that can run, but does not because the machine is busy, the state is "R".
        asleep = all("\nState:\tS" in status for status in statuses)
        looks.append([line for status in statuses for line in status.splitlines() if "ctxt_switches" in line])
        return asleep and looks[-LOOKS:] == [looks[-1]] * LOOKS

    wait_until(sleeps)


def is_connected_to(url):
    """Whether a client is connected; the site itself would answer as slowly as every other request."""
    _, port = split_address(url)
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in lines)
