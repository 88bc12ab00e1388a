"""The parent of the workers.

Every round of a row goes once around all loops. So a disturbance of the machine meets all loops alike, and a loop is
compared with others that ran in the same second.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from .load import Load
from .results import Measurement, NotMeasured, Outcome
from .rows import NotOffered, Row
from .targets import BARE_C, Target, check

USUAL_SECONDS = 0.15
"""Of a round of one loop."""
SECONDS_BEFORE_A_WORKER_HANGS = 150
"""Longer than a worker itself waits for a database to start or a certificate to be made: it can say what failed."""
VARIABLES_OF_LOOPS = (
    "HOTLOOP_IMPL",
    "HOTLOOP_TASKS",
    "HOTLOOP_TLS",
    "HOTLOOP_NAME_THREADS",
    "HOTLOOP_COMPILED_ASYNCIO",
    "HOTLOOP_INSPECT",
    "HOTLOOP_STALL_AFTER",
    "HOTLOOP_DUMP_TASKS_ON",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
)
"""Environment variables that change a loop: a worker has those of its target, and not those of this process."""


class WorkerLost(Exception):
    """A worker did not answer and is gone; the text says how."""


class RequestFailed(Exception):
    """A worker could not do what it was asked; the text is its reason."""


@dataclass(frozen=True)
class Settings:
    rounds: int
    seconds: float
    """How long one round of one loop should take."""

    def seconds_of(self, row: Row) -> float:
        """Network rows take twice as long: their rounds begin and end with a wake-up of other processes."""
        return self.seconds * 2 if row.subject == "network" else self.seconds

    def request_for(self, row: Row) -> dict[str, Any]:
        """The request that makes a worker begin with the row."""
        request = {"row": row.name, "seconds": self.seconds_of(row)}
        if row.in_a_round is not None:
            request["operations"] = max(1, round(row.in_a_round * min(1.0, self.seconds / USUAL_SECONDS)))
        return request


class Worker:
    """A running worker process. `facts` says what it runs; `missing` says why it cannot run its loop."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # until stop()
        self.process = subprocess.Popen(
            command_line(target.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment(target),
            text=True,
        )
        try:
            greeting = self.read_reply()
        except WorkerLost as error:
            greeting = {"missing": str(error)}
        self.facts: dict[str, str] = greeting.get("facts", {})
        self.missing: str | None = greeting.get("missing")

    def request(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerLost(self.last_words()) from error
        answer = self.read_reply()
        if "error" in answer:
            raise RequestFailed(answer["error"])
        if "not_offered" in answer:
            raise NotOffered(answer["not_offered"])
        return answer

    def read_reply(self) -> dict[str, Any]:
        """The next line from the worker, which is killed if it does not come in time."""
        assert self.process.stdout is not None
        hung = threading.Event()

        def give_up() -> None:
            hung.set()
            self.process.kill()

        timer = threading.Timer(SECONDS_BEFORE_A_WORKER_HANGS, give_up)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if hung.is_set():
            raise WorkerLost(f"no answer in {SECONDS_BEFORE_A_WORKER_HANGS} s")
        if not line:
            raise WorkerLost(self.last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"its process ended with code {code}" + (f": {said}" if said else "")

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hotloop_bench.worker", *arguments]


def environment(target: Target) -> dict[str, str]:
    """This process's environment with its module search path, and without the variables that would change a loop."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES_OF_LOOPS}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return inherited | {"PYTHONPATH": path} | dict(target.environment)


class Crew:
    """The workers of a run. One that is lost is replaced when the next row begins."""

    def __init__(self, targets: Iterable[Target], start: Callable[[Target], Worker] = Worker) -> None:
        self.start = start
        self.workers: dict[str, Worker] = {}
        self.facts: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}
        with ExitStack() as self.stack:  # stops them all if one runs the wrong implementation
            for target in targets:
                worker = self.hire(target)
                if worker.missing is not None:
                    self.missing[target.name] = worker.missing
                    del self.workers[target.name]
                else:
                    check(target, worker.facts)
                    self.facts[target.name] = worker.facts
            self.stack = self.stack.pop_all()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stack.close()

    def hire(self, target: Target) -> Worker:
        worker = self.start(target)
        self.stack.callback(worker.stop)
        self.workers[target.name] = worker
        return worker

    def measure(self, row: Row, settings: Settings) -> dict[str, Outcome]:
        """The outcome of a row for each loop, and for the bare C server in network rows."""
        outcomes: dict[str, Outcome] = {}
        unavailable = row.unavailable()
        for name in list(self.workers):
            target = self.workers[name].target
            if target is BARE_C and row.subject != "network":
                continue
            if unavailable is not None:
                outcomes[name] = NotMeasured("unavailable", unavailable)
            elif reason := not_applicable(row, target):
                outcomes[name] = NotMeasured("not applicable", reason)
            elif answer := self.ask(name, outcomes, **settings.request_for(row)):
                outcomes[name] = Measurement(answer["operations"], [])
        for number in range(settings.rounds + 1):
            # Another loop begins each round: none always runs after the same one.
            for name, measurement in rotated(measured(outcomes), number):
                answer = self.ask(name, outcomes, round=True)
                if answer and number > 0:  # the first round warms up
                    record(measurement, answer)
        for name, _ in measured(outcomes):
            self.ask(name, outcomes, close=True)
        return outcomes

    def ask(self, name: str, outcomes: dict[str, Outcome], **request: Any) -> dict[str, Any] | None:
        """A worker's answer. A failure becomes its outcome of the row, and a lost worker is replaced."""
        worker = self.workers[name]
        try:
            return worker.request(**request)
        except NotOffered as error:
            outcomes[name] = NotMeasured("not offered", str(error))
            return None
        except (RequestFailed, WorkerLost) as error:
            outcomes[name] = NotMeasured("failed", str(error))
            if isinstance(error, WorkerLost):
                self.hire(worker.target)
            return None


def not_applicable(row: Row, target: Target) -> str | None:
    """The reason why there is nothing to measure; None if there is something."""
    if row.subject == "selector" and target.selector_module is None:
        return "it has no selector"
    if target.aiofastnet and not (row.subject == "network" and row.on_transports):
        return "aiofastnet has no part in it"
    if target is BARE_C and row.bare is None:
        return "there is no bare C server for it"
    return None


def record(measurement: Measurement, answer: Mapping[str, Any]) -> None:
    """Add a worker's answer for one round."""
    if "load" in answer:
        load = Load(**answer["load"])
        measurement.loads.append(load)
        measurement.seconds.append(load.cpu / load.operations)
    else:
        measurement.seconds.append(answer["seconds"] / measurement.operations)


Named = tuple[str, Measurement]
Item = TypeVar("Item")


def measured(outcomes: Mapping[str, Outcome]) -> list[Named]:
    return [(name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, Measurement)]


def rotated(items: list[Item], by: int) -> list[Item]:
    start = by % len(items) if items else 0
    return items[start:] + items[:start]


def measure_rows(
    crew: Crew, rows: Iterable[Row], settings: Settings, started: Callable[[Row], None]
) -> Mapping[str, Mapping[str, Outcome]]:
    """The outcomes by row and loop; calls `started` with each row that begins."""
    outcomes = {}
    for row in rows:
        started(row)
        outcomes[row.name] = crew.measure(row, settings)
    return outcomes
