"""A worker process: it has one event loop for its whole life, which stays warm, and times rows on request.

Requests and replies are one line of JSON each, on the standard input and output.

    {"row": NAME, "seconds": S}    make the row's subject and calibrate a round to S seconds: {"operations": N};
                                   with "operations": N in the request, a round is that and nothing is calibrated
    {"round": true}                time one round: {"seconds": S}; of a network row {"load": ...}, a Load's fields
    {"close": true}                end the row: {"closed": NAME}

The first line comes unasked: {"facts": ...}, or {"missing": REASON} and the worker ends. The reply to a request that
failed is {"error": REASON}, and {"not_offered": KIND} where the loop does not implement what the row measures; the
worker goes on after both.
"""

import contextlib
import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import IO, Any

from .placement import on_one_core
from .rows import ROWS, NotOffered, Row
from .rows.registry import Maker
from .targets import BARE_C, TARGETS, Target, facts, hide_aiofastnet
from .timing import calibrated, sample


class Session:
    """The requests of one parent."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.stack = ExitStack()
        self.row: Row
        self.subject: Any
        self.operations = 0

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "row" in request:
            return self.open(ROWS[request["row"]], request["seconds"], request.get("operations"))
        if "round" in request:
            found = sample(self.row.run, self.subject, self.operations)
            return {"seconds": found.elapsed} if found.load is None else {"load": vars(found.load)}
        if "close" in request:
            self.stack.close()
            return {"closed": self.row.name}
        raise ValueError(f"no such request: {request}")

    def open(self, row: Row, seconds: float, operations: int | None) -> dict[str, Any]:
        gc.collect()  # so that this row does not pay for the garbage of the row before
        self.row = row
        self.subject = self.stack.enter_context(opened(row, self.target))
        self.operations = operations or row.operations
        if row.calibrated and operations is None:
            self.operations = calibrated(lambda n: sample(row.run, self.subject, n).elapsed, seconds)
        return {"operations": self.operations}

    def forget_row(self) -> None:
        """Clean up after a row that failed. Its loop may be in any state, so errors of the clean-up say nothing new."""
        with contextlib.suppress(Exception):
            self.stack.close()


@contextlib.contextmanager
def opened(row: Row, target: Maker) -> Iterator[Any]:
    """The row's subject on this target, on one core where the row asks for that."""
    with on_one_core() if row.in_turns else contextlib.nullcontext(), subject_of(row, target) as subject:
        yield subject


def subject_of(row: Row, target: Maker) -> AbstractContextManager[Any]:
    if target is not BARE_C:
        return row.opened(target)
    if row.bare is None:
        raise LookupError("there is no bare C server for it")
    return row.bare()


@contextlib.contextmanager
def replies_apart_from_prints() -> Iterator[IO[str]]:
    """Keep the standard output for replies: prints of a loop's module go to the standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        yield replies


def serve(target: Target) -> None:
    with replies_apart_from_prints() as replies:

        def reply(answer: Mapping[str, Any]) -> None:
            print(json.dumps(answer), file=replies, flush=True)

        try:
            target.prepare()
            found = facts(target)
        # Where a loop's module does not fit the machine it may raise anything: that is why the loop is missing.
        except Exception as error:
            reply({"missing": describe(error)})
            return
        reply({"facts": found})
        session = Session(target)
        for line in sys.stdin:
            try:
                answer = session.answer(json.loads(line))
            except NotOffered as error:
                session.forget_row()
                answer = {"not_offered": str(error)}
            # A row may raise anything, too, on a loop that lacks what the row needs.
            except Exception as error:
                session.forget_row()
                answer = {"error": describe(error)}
            reply(answer)


def run_once(target: Target, row: Row, operations: int) -> None:
    """Do a row's operations once and print the facts, for a profiler that watches the whole process."""
    target.prepare()
    print(json.dumps(facts(target)), flush=True)
    with opened(row, target) as subject:
        row.run(subject, operations)


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def main() -> None:
    """python -m hotloop_bench.worker TARGET [ROW OPERATIONS]: serve a parent, or do a row's operations once."""
    target = (TARGETS | {BARE_C.name: BARE_C})[sys.argv[1]]
    if not target.aiofastnet:
        hide_aiofastnet()
    if sys.argv[2:]:
        run_once(target, ROWS[sys.argv[2]], int(sys.argv[3]))
    else:
        serve(target)


if __name__ == "__main__":
    main()
