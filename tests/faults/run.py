"""Makes allocations and system calls fail, one after the other, and looks for code that does not handle the failure.

    python tests/faults/run.py                                       all scenarios, both implementations, for 10 minutes
    python tests/faults/run.py --impl c --scenario Tcp --minutes 2
    python tests/faults/run.py --impl c --scenario Tcp --only recv   one call; also python, libc (memory) and system
    python tests/faults/run.py --impl c --scenario Tcp --only recv:ECONNRESET:2    one fault, as a finding names it

A defect is a crash, a hang, an unreported loss, a descriptor that stays open, a loop that ends, spins or no longer
serves others, and an exception that only a mistake can raise; asyncio with the same fault decides which outcomes are
allowed (judging.py). A fault is WHAT:[ERRNO:]N[+COUNT]: the N-th call fails, or COUNT calls from there on.

Exit code: 0 nothing found, 1 defects, 2 it could not be run.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults import judging, memory, shim, system_calls
from faults.judging import Finding
from faults.shim import Fault, Unavailable

HERE = Path(__file__).resolve().parent
IMPLEMENTATIONS = ("c", "python", "asyncio")
PARTS = (*memory.ALLOCATORS, "system")
LOOKED_AT_AGAIN = 3  # of the findings that seem to be one defect
SECOND_LOOK = 10  # times the patience
SHARE_OF_THE_ORACLE = 0.3  # of the time
OCCURRENCES_OF_THE_ORACLE = 12


class Session:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.library = shim.build()
        self.ends = time.monotonic() + 60 * options.minutes
        self.jobs_left = 0

    def ask(self, impl: str, scenarios: list[str], parts: Iterable[str], **request: Any) -> Iterator[dict[str, Any]]:
        """The output lines of a job. Raises Unavailable if it ends with an error."""
        request |= {"impl": impl, "scenarios": scenarios, "parts": list(parts)}
        request.setdefault("patience", self.options.patience)
        # Makes the same allocations each time.
        environ = os.environ | {"LD_PRELOAD": str(self.library), "PYTHONHASHSEED": "0"}
        environ["HOTLOOP_IMPL"] = "" if impl == "asyncio" else impl
        command = [sys.executable, str(HERE / "job.py"), json.dumps(request)]
        with subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        if process.returncode != 0:
            raise Unavailable(f"a job has failed with exit code {process.returncode}: {command[-1]}")

    def seconds(self) -> float:
        """A job's share of the time that is left."""
        left = max(0.0, self.ends - time.monotonic())
        share = left * self.options.processes * (1 - SHARE_OF_THE_ORACLE) / max(1, self.jobs_left)
        self.jobs_left -= 1
        return max(1.0, share)

    def run(self, impl: str, scenarios: list[str]) -> tuple[list[str], list[Finding]]:
        """A line about each scenario, and the defects."""
        options = self.options
        found: dict[str, list[Finding]] = {name: [] for name in scenarios}
        tried: dict[str, list[str]] = {name: [] for name in scenarios}
        limits = {"at_most": options.at_most, "seconds": self.seconds() / len(options.parts)}
        limits["counts"] = memory.COUNTS[:1] if options.once else None
        for line in self.ask(impl, scenarios, options.parts, calls=options.calls, faults=options.faults, **limits):
            name = line["scenario"]
            if "part" in line:
                tried[name].append(f"{line['part']} {line['tried']}/{line['all']}")
            else:
                found[name] += judging.findings(impl, name, Fault.parse(line["fault"]), line["outcome"])
        lines, defects = [], []
        for name in scenarios:
            unexpected = [finding for finding in found[name] if finding.reason is None]
            ours = unexpected if impl == "asyncio" or options.all else self.ours(unexpected)
            shared = [finding for finding in unexpected if finding not in ours]
            verdict = judging.counted(ours) if ours else "no defects"
            verdict += f"; excused: {judging.counted(shared)}" if shared else ""
            lines.append(f"{impl:8} {name:20} {', '.join(tried[name])}: {verdict}")
            defects += ours
        return lines, defects

    def ours(self, found: list[Finding]) -> list[Finding]:
        """The findings, except those that asyncio shares and those that a slow machine explains.

        With few faults, running asyncio would take longer than they do: instead, everything that it could excuse is
        left out.
        """
        if self.options.at_most is not None:
            found = [finding for finding in found if not finding.is_excusable]
        groups: dict[tuple[str, ...], list[Finding]] = {}
        for finding in found:
            groups.setdefault(finding.signature, []).append(finding)
        excusable = [finding for finding in found if finding.is_excusable]
        of_asyncio = self.oracle(excusable)
        defects = []
        for group in groups.values():
            excused = (self.group_of(group[0].fault), group[0].kind) in of_asyncio
            if not excused or not all(finding.is_excusable for finding in group):
                is_certain = group[0].kind not in judging.KINDS_OF_TIME
                if is_certain or any(map(self.is_seen_again, group[:LOOKED_AT_AGAIN])):
                    defects += group
        return defects

    @staticmethod
    def group_of(fault: Fault) -> str:
        """The part of a fault that compares with asyncio, whose numbers differ: memory, or a call and an error."""
        if fault.is_memory:
            return "memory, once" if fault.count == 1 else "memory, in a row"
        return f"{fault.what}:{fault.error}"

    def oracle(self, found: list[Finding]) -> set[tuple[str, str]]:
        """The kinds of asyncio's own findings, with their group_of()."""
        kinds: set[tuple[str, str]] = set()
        if not found:
            return kinds
        scenario = found[0].scenario
        groups = {self.group_of(finding.fault): finding.fault for finding in found}
        requests: list[dict[str, Any]] = []
        for name, counts in (("memory, once", memory.COUNTS[:1]), ("memory, in a row", memory.COUNTS[1:])):
            if groups.pop(name, None) is not None:
                seconds = max(10.0, self.options.minutes * 60 / 40)
                requests.append({"parts": ["python"], "counts": counts, "seconds": seconds})
        faults = [
            str(dataclasses.replace(fault, first=first, count=count))
            for fault in groups.values()
            for first in range(1, OCCURRENCES_OF_THE_ORACLE + 1)
            for count in (*system_calls.COUNTS, system_calls.EVERY_ONE)
        ]
        if faults:
            requests.append({"parts": ["system"], "faults": faults})
        for request in requests:
            for line in self.ask("asyncio", [scenario], **request):
                if "fault" in line:
                    fault = Fault.parse(line["fault"])
                    kinds |= {(self.group_of(fault), kind) for kind in line["outcome"]["kinds"]}
        return kinds

    def is_seen_again(self, finding: Finding) -> bool:
        part = finding.fault.what if finding.fault.is_memory else "system"
        patience = SECOND_LOOK * self.options.patience
        lines = self.ask(finding.impl, [finding.scenario], [part], faults=[str(finding.fault)], patience=patience)
        return any(finding.kind in line["outcome"]["kinds"] for line in lines if "fault" in line)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", action="append", choices=IMPLEMENTATIONS, help="(default: c and python)")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="(default: all)")
    parser.add_argument("--only", help="one fault, one system call, python, libc or system")
    parser.add_argument("--minutes", type=float, default=10, help="for all (default: 10)")
    parser.add_argument("--at-most", type=int, help="faults of each part of a scenario, always the same ones")
    parser.add_argument("--once", action="store_true", help="memory fails once, never several times in a row")
    parser.add_argument("--all", action="store_true", help="also what asyncio shares, which is not asked then")
    parser.add_argument("--patience", type=float, default=1, help="with slow machines, a factor (default: 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.faults = options.calls = None
    options.parts = PARTS
    if options.only in PARTS:
        options.parts = [options.only]
    elif options.only in system_calls.ERRORS:
        options.parts, options.calls = ["system"], [options.only]
    elif options.only:
        try:
            fault = Fault.parse(options.only)
        except (ValueError, AttributeError):
            parser.error(f"--only: {options.only} is no fault and no system call that is known here")
        options.parts = [fault.what if fault.is_memory else "system"]
        options.faults = [options.only]
    return options


def _is_subject(impl: str, name: str) -> bool:
    """Whether the scenario is about code of the implementation; the oracle runs each one."""
    from faults.job import ALL

    return impl == "asyncio" or impl in ALL[name].subjects


def main() -> int:
    options = arguments()
    from faults.job import ALL
    from faults.scenarios import SCENARIOS

    unknown = set(options.scenario or ()) - set(ALL)
    if unknown:
        print(f"run.py: no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    scenarios = options.scenario or list(SCENARIOS)
    impls = options.impl or ["c", "python"]
    if not any(_is_subject(impl, name) for impl in impls for name in scenarios):
        print(f"run.py: nothing of {', '.join(impls)} is the subject of {', '.join(scenarios)}", file=sys.stderr)
        return 2
    defects: list[Finding] = []
    try:
        session = Session(options)
        # Starting a process for each takes longer than a few faults.
        groups = [[name] for name in scenarios] if options.at_most is None else [scenarios]
        work = []
        for group in groups:
            for impl in impls:
                if names := [name for name in group if _is_subject(impl, name)]:
                    work.append((impl, names))
        session.jobs_left = len(work)
        with concurrent.futures.ThreadPoolExecutor(options.processes) as pool:
            jobs = [pool.submit(session.run, *one) for one in work]
            for job in concurrent.futures.as_completed(jobs):
                lines, found = job.result()
                print(*lines, sep="\n", flush=True)
                defects += found
    except Unavailable as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    shown = set()
    for finding in defects:
        if finding.signature not in shown:
            shown.add(finding.signature)
            print(f"\n{finding.text()}")
    print(f"\n{len(shown)} DEFECTS" if shown else "\nnothing found")
    return int(bool(shown))


if __name__ == "__main__":
    sys.exit(main())
