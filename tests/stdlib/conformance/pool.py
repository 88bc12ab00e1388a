"""Runs a suite in a worker process of its own, and starts another for the rest when a test hangs or kills it."""

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = Path(__file__).parent.parent / "worker.py"

# The worker's own watchdog ends a hanging test, with a traceback; this many seconds later the pool kills the worker.
GRACE = 15.0
# A broken loop can hang every test of a suite. After this many hangs the remaining tests get less time each,
# and after this many dead workers the rest is not run at all.
HANGS_BEFORE_IMPATIENCE = 3
IMPATIENT_TIMEOUT = 8.0
DEATHS_BEFORE_GIVING_UP = 25

OUTPUT_KEPT = 6000  # characters of a dead worker's output


@dataclasses.dataclass
class Verdict:
    """The outcome of one test. outcome: passed, failed, skipped, hung or crashed; text: the traceback or the reason."""

    outcome: str
    text: str = ""
    seconds: float = 0.0
    loops: int = 0  # loops under test that were made while it ran
    own: bool = True  # whether its class is one of the bindings rather than CPython's as it is

    @property
    def bad(self) -> bool:
        return self.outcome in ("failed", "hung", "crashed")


@dataclasses.dataclass
class Job:
    """The job of the workers of one suite."""

    module: str
    impl: str
    unbound: list[str]  # classes to leave out
    timeout: float  # seconds before a test counts as hung
    only: list[str] | None = None  # the tests to run, as Class.test; None: all
    pattern: str | None = None  # run those whose suite.Class.test contains or matches this
    names_only: bool = False  # report the tests' names and run none


class WorkerFailed(Exception):
    """A worker could not even load its suite."""


@dataclasses.dataclass
class Run:
    """The verdicts of a suite by Class.test, or why there is nothing to run."""

    verdicts: dict[str, Verdict]
    no_suite: str | None = None
    seconds: float = 0.0


class Worker:
    """One worker process and its events."""

    def __init__(self, job: Job, done: list[str], folder: str):
        self.timeout = job.timeout
        self.running: str | None = None  # the test that has started and not ended
        self.started = time.monotonic()
        self.finished = False
        self.no_suite: str | None = None
        self.names: list[str] = []
        self.verdicts: dict[str, Verdict] = {}
        self.output = ""
        self._log = Path(folder, "log")
        self._partial = b""
        self._start(dataclasses.asdict(job) | {"done": done, "log": str(self._log)}, folder)

    @property
    def ended_well(self) -> bool:
        return self.finished and self.process.returncode == 0

    def _start(self, job: dict, folder: str) -> None:
        self._events, write_end = os.pipe()
        os.set_blocking(self._events, False)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), str(write_end)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
                cwd=folder,  # CPython's tests make files in the current folder
                env=_environment(),
                start_new_session=True,  # one signal then reaches every process that the tests started
            )
        os.close(write_end)
        with self.process.stdin as stdin:
            stdin.write(json.dumps(job).encode())

    def follow(self) -> None:
        """Read events until the process has ended, by itself or because it had to be killed."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._events, selectors.EVENT_READ)
                deadline = time.monotonic() + self.timeout + GRACE
                while self.process.poll() is None and time.monotonic() < deadline:
                    if selector.select(0.2) and self._read():
                        deadline = time.monotonic() + self.timeout + GRACE
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of the session is left
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._read()
            os.close(self._events)
            self.output = self._log.read_text(errors="replace")[-OUTPUT_KEPT:]

    def _read(self) -> bool:
        """Take the available events; return whether there were any."""
        taken = False
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._events, 65536):
                *lines, self._partial = (self._partial + chunk).split(b"\n")
                for line in lines:
                    self._take(**json.loads(line))
                    taken = True
            time.sleep(0.05)  # the end of the pipe is always readable: do not spin until the process has exited
        return taken

    def _take(self, event: str, test: str = "", **details) -> None:
        if event == "start":
            self.running, self.started = test, time.monotonic()
        elif event == "end":
            self.verdicts[test] = Verdict(seconds=time.monotonic() - self.started, **details)
            self.running = None
        elif event == "names":
            self.names, self.finished = details["names"], True
        elif event == "no suite":
            self.no_suite, self.finished = details["reason"], True
        elif event == "finished":
            self.finished = True

    def epitaph(self) -> tuple[str, Verdict]:
        """The verdict on the test that ended the process, or on the process if no test was running."""
        status = self.process.returncode
        hung = "Timeout (" in self.output or status == -signal.SIGKILL
        how = f"no end after {self.timeout:g} s" if hung else f"the process died with exit status {status}"
        where = self.running or ("(interpreter exit)" if self.finished else "(interpreter start)")
        verdict = Verdict("hung" if hung else "crashed", f"{how}\n{self.output}", time.monotonic() - self.started)
        return where, verdict


def _environment() -> dict[str, str]:
    environ = dict(os.environ)
    if path := environ.get("PYTHONPATH"):  # the worker has another current folder
        environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep) if entry)
    return environ


def run_suite(job: Job) -> Run:
    """Run every test of the suite to a verdict."""
    run = Run({})
    started = time.monotonic()
    for _ in range(DEATHS_BEFORE_GIVING_UP):
        hangs = sum(verdict.outcome == "hung" for verdict in run.verdicts.values())
        if hangs >= HANGS_BEFORE_IMPATIENCE:
            job = dataclasses.replace(job, timeout=min(job.timeout, IMPATIENT_TIMEOUT))
        worker = _run_worker(job, list(run.verdicts))
        run.verdicts |= worker.verdicts
        run.no_suite = worker.no_suite
        if worker.ended_well:
            break
        where, verdict = worker.epitaph()
        run.verdicts[where] = verdict
        if worker.running is None:
            break
    else:
        run.verdicts["(rest)"] = Verdict("crashed", f"not run, after {DEATHS_BEFORE_GIVING_UP} workers had died")
    run.seconds = time.monotonic() - started
    return run


def names_of(job: Job) -> list[str]:
    """The names of the suite's tests, as Class.test."""
    worker = _run_worker(dataclasses.replace(job, names_only=True), [])
    if not worker.ended_well:
        raise WorkerFailed(worker.epitaph()[1].text)
    return worker.names


def _run_worker(job: Job, done: list[str]) -> Worker:
    with tempfile.TemporaryDirectory(prefix="hotloop-stdlib-", ignore_cleanup_errors=True) as folder:
        worker = Worker(job, done, folder)
        worker.follow()
        return worker
