"""The faults of some scenarios on one implementation, in a process that was started with the shim.

    python tests/faults/job.py REQUEST

REQUEST is JSON made by Session.ask() of run.py. The output is JSON lines: one for each fault with a possible defect,
and one for each part of a scenario at its end.
"""

import concurrent.futures.thread  # noqa: F401, the loops import it when they need it
import contextlib
import encodings.idna  # noqa: F401
import gc
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import implementations

from faults import child, memory, system_calls
from faults.defects import DEFECTS
from faults.peers import contexts
from faults.scenario import Scenario
from faults.scenarios import SCENARIOS
from faults.shim import Fault, Shim

ALL = SCENARIOS | {cls.__name__: cls for cls in DEFECTS}
PARTS = (*memory.ALLOCATORS, "system")
NEVER = 1 << 60
SECONDS_WITHOUT_A_FAULT = 60


class Job:
    def __init__(self, request: dict[str, Any]) -> None:
        self.impl = implementations.load(request["impl"])
        self.request = request
        self.patience: float = request.get("patience", 1)
        self.shim = Shim()
        self.shim.wrap_allocators()
        if any(getattr(ALL[name], "is_tls", False) or "Tls" in name for name in request["scenarios"]):
            contexts()
        gc.collect()
        gc.freeze()

    def outcome(self, cls: type[Scenario], fault: Fault) -> dict[str, Any]:
        return child.run(self.shim, self.impl, cls, fault, cls.seconds * self.patience)

    def counted(self, cls: type[Scenario], fault: Fault | None, names: tuple[str, ...] = ()) -> dict[str, Any]:
        """Run without a failure: then nothing may go wrong, however slow the machine is."""
        counted = child.run(self.shim, self.impl, cls, fault, SECONDS_WITHOUT_A_FAULT, names)
        if counted["kinds"] or counted["reports"]:
            raise SystemExit(f"{cls.__name__} fails without a fault: {counted['kinds']} {counted['reports']}")
        return counted

    def faults(self, cls: type[Scenario], part: str) -> list[Fault]:
        """All faults that the scenario can meet, in the order in which they are tried."""
        if given := self.request.get("faults"):
            return [fault for fault in map(Fault.parse, given) if self.part_of(fault) == part]
        if part == "system":
            counted = self.counted(cls, None, tuple(system_calls.ERRORS))
            found = [fault for name, calls in counted["calls"].items() for fault in system_calls.faults(name, calls)]
            wanted = self.request.get("calls")
            found = [fault for fault in found if not wanted or fault.what in wanted]
            return [found[place - 1] for place in memory.spread(len(found))]
        counted = self.counted(cls, Fault(part, NEVER))
        counts = self.request.get("counts") or (memory.COUNTS if cls.is_hot else memory.COUNTS[:1])
        return list(memory.faults(part, counted["seen"], counts))

    @staticmethod
    def part_of(fault: Fault) -> str:
        return fault.what if fault.is_memory else "system"

    def run(self) -> Iterator[dict[str, Any]]:
        for name in self.request["scenarios"]:
            for part in self.request["parts"]:
                faults = self.faults(ALL[name], part)
                began, tried = time.monotonic(), 0
                for fault in faults[: self.request.get("at_most")]:
                    if time.monotonic() - began > self.request.get("seconds", NEVER):
                        break
                    tried += 1
                    outcome = self.outcome(ALL[name], fault)
                    if outcome["kinds"]:
                        yield {"scenario": name, "fault": str(fault), "outcome": outcome}
                yield {"scenario": name, "part": part, "tried": tried, "all": len(faults)}


def main() -> None:
    warnings.simplefilter("ignore")  # about objects dropped open: leaks are detected in another way
    with contextlib.suppress(BrokenPipeError):
        for line in Job(json.loads(sys.argv[1])).run():
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
