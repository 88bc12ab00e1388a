"""Decides which of a child's reports are defects.

asyncio in the same scenario with the same fault is the measure: an outcome that asyncio shares is no defect of hotloop.
But allocations are numbered differently there. So where the extension's own code got no memory, asyncio excuses only
open failures: an exception out of run_forever(), or a task that waits while the exception handler knows why. EXPECTED
names the other outcomes that are no defects, with the reason.
"""

import dataclasses
import fnmatch
import functools
import re
import subprocess
from collections import Counter
from typing import Any

from .shim import Fault

# (implementation, scenario, fault, kind, text in its details or its reports): reason. The first four are patterns of
# fnmatch.
EXPECTED: dict[tuple[str, str, str, str, str], str] = {
    ("*", "*", "python:*", "raises TypeError", "MemoryError\n\nThe above exception was the direct cause"): (
        "Cython and CPython raise this for any failure of `await`"
    ),
    ("python", "*", "python:*", "raises SystemError", "error return without exception set"): (
        "no Python code can; the interpreter does if it has no memory for an exception or a frame"
    ),
    ("python", "*", "python:*", "raises SystemError", "returned NULL without setting an exception"): (
        "no Python code can; the interpreter does if it has no memory for an exception or a frame"
    ),
    ("c", "*", "python:*", "raises SystemError", ", in resumed_wait.py: __await__"): (
        "the same, in the part of the compiled asyncio that is Python code"
    ),
    ("*", "*", "python:*", "raises KeyError", "in _delete\n    del _active[get_ident()]"): (
        "a CPython Thread that had no memory to begin deletes its entry before it exists"
    ),
    ("python", "Executor", "send:*", "stuck in silence", ""): (
        "asyncio's _write_to_self() also loses the wake-up that the self-pipe refuses; the pure loop writes fewer, so "
        "all of them may fail"
    ),
    ("*", "*", "python:*", "raises AttributeError", "'StreamWriter' object has no attribute '_transport'"): (
        "StreamWriter.__del__() of an object whose __init__() had no memory"
    ),
    ("python", "*", "python:*", "raises AttributeError", "Transport' object has no attribute '_closing'"): (
        "__del__() of a transport of asyncio's whose __init__() had no memory"
    ),
    ("*", "*", "python:*", "leaks a descriptor", "Exception in callback StreamReaderProtocol.connection_made("): (
        "if connection_made() could not be called, the connection stays open until its peer closes it, as on asyncio: "
        "the handler has the report, and only the protocol would have closed it"
    ),
    ("python", "*", "python:*", "leaks a descriptor", "BaseSelectorEventLoop._accept_connection("): (
        "asyncio's _accept_connection() loses a connection if it cannot make a task for it"
    ),
    ("python", "*", "python:*", "ends the loop", "hotloop/_pure/loop/loop_core.py"): (
        "an iteration is Python code, where each line may run out of memory, in asyncio's base_events.py as well"
    ),
    ("*", "TcpBuffered", "python:*", "raises AttributeError", "'BufferedEcho' object has no attribute 'buffer'"): (
        "the scenario's own protocol, whose connection_made() had no memory for its buffer"
    ),
    ("*", "HalfClosed", "python:*", "raises AttributeError", "'server_protocol' object has no attribute"): (
        "the scenario's own protocol, whose connection_made() had no memory"
    ),
    ("*", "Threadsafe*", "python:*", "serves no longer", "in set\n    with self._cond:"): (
        "the scenario's own Event: its wait() in the other thread has died with its lock"
    ),
    ("*", "Subprocess", "python:*", "leaks a descriptor", "MemoryError(), in subprocess.py: "): (
        "subprocess.Popen, which asyncio calls, keeps unusable pipes open"
    ),
    ("*", "Subprocess", "python:*", "leaks a descriptor", "MemoryError(), in contextlib.py: __exit__"): (
        "the same, in the context manager of Popen's that closes pipes"
    ),
    ("*", "Subprocess", "python:*", "leaks a descriptor", "MemoryError(), in base_subprocess.py: __init__"): (
        "asyncio's BaseSubprocessTransport keeps the process' pipes open if it cannot connect them"
    ),
    ("*", "Subprocess", "python:*", "raises AttributeError", "'_UnixSubprocessTransport' object has no attribute"): (
        "__repr__() or __del__() of asyncio's transport whose __init__() had no memory"
    ),
    ("*", "*", "python:*", "raises SystemError", "<function SSLObject.unwrap at "): (
        "the interpreter has no memory for the exception that a function of ssl.py raises"
    ),
    ("*", "*", "python:*", "raises SystemError", "<class 'ssl.SSLError'> returned a result with an exception set"): (
        "CPython's _ssl makes its exception while a MemoryError is set"
    ),
    ("*", "Subprocess", "*", "stuck*", "_wait:"): (
        "if a pipe cannot be connected, asyncio's subprocess_exec() waits for the end of the process, which comes "
        "only when all pipes have been connected"
    ),
}

# Kinds that a second look, with much more time, may put down to a slow machine.
KINDS_OF_TIME = ("stuck", "stuck in silence", "serves no longer", "spins")

# Kinds that asyncio excuses wherever they come from.
KINDS_IN_THE_OPEN = ("stuck", "ends the loop", "raises *")
# After a failed system call asyncio does not excuse these, even if it does the same.
KINDS_NEVER_EXCUSED = ("dies by *", "hangs", "corrupt", "spins")


@dataclasses.dataclass(frozen=True)
class Finding:
    impl: str
    scenario: str
    fault: Fault
    kind: str
    details: str
    reports: tuple[str, ...]
    stack: str

    @property
    def signature(self) -> tuple[str, str, str, str]:
        """Findings with the same signature are likely one defect."""
        what = self.fault.what if self.fault.is_memory else str(dataclasses.replace(self.fault, first=1, count=1))
        return self.scenario, what, self.kind, self.place

    @property
    def place(self) -> str:
        """The extension's innermost function on the stack at the failure or the crash."""
        for line in self.stack.splitlines():
            if match := re.match(r"(.*/hotloop/_c/\S+\.so)\(\+(0x[0-9a-f]+)\)", line):
                return _function(*match.groups())
        return ""

    @property
    def is_excusable(self) -> bool:
        """Whether the finding is excused if asyncio has the same one."""
        if self._is_of(KINDS_IN_THE_OPEN):
            return True
        if not self.fault.is_memory:
            return not self._is_of(KINDS_NEVER_EXCUSED)
        stack = self.details if self._is_of(("dies by *",)) else self.stack
        return "/hotloop/_c/" not in stack.partition("_PyEval_EvalFrameDefault")[0]

    def _is_of(self, kinds: tuple[str, ...]) -> bool:
        return any(fnmatch.fnmatchcase(self.kind, kind) for kind in kinds)

    @property
    def reason(self) -> str | None:
        """The reason why this is no defect, or None."""
        for (impl, scenario, fault, kind, text), reason in EXPECTED.items():
            mine = ((self.impl, impl), (self.scenario, scenario), (str(self.fault), fault), (self.kind, kind))
            if text in "\n".join((self.details, *self.reports)) and all(fnmatch.fnmatchcase(*pair) for pair in mine):
                return reason
        return None

    def command(self) -> str:
        return f"python tests/faults/run.py --impl {self.impl} --scenario {self.scenario} --only {self.fault}"

    def text(self) -> str:
        lines = [f"{self.impl} {self.scenario} {self.fault}: {self.kind}", f"    {self.command()}"]
        if self.place:
            lines.append(f"    failed in {self.place}")
        lines += [f"    | {line}" for line in self.details.strip().splitlines()[-25:]]
        lines += [f"    reports: {line}" for line in self.reports[:6]]
        return "\n".join(lines)


@functools.cache
def _function(library: str, offset: str) -> str:
    """The function's name, if the compiler's tools can find it."""
    try:
        done = subprocess.run(["addr2line", "-f", "-e", library, offset], capture_output=True, text=True, check=False)
        name = done.stdout.splitlines()[0]
    except (FileNotFoundError, IndexError):
        name = "??"
    module = library.rpartition("/")[2].partition(".")[0]
    return f"{module}: {re.sub(r'^__pyx_[a-z]+_7hotloop_2_c_[0-9]+[a-z]+_[0-9]+', '', name)}+{offset}"


def findings(impl: str, scenario: str, fault: Fault, outcome: dict[str, Any]) -> list[Finding]:
    reports, stack = tuple(outcome["reports"]), outcome.get("stack", "")
    return [Finding(impl, scenario, fault, kind, text, reports, stack) for kind, text in outcome["kinds"].items()]


def counted(all_findings: list[Finding]) -> str:
    """The number of findings of each kind."""
    return ", ".join(f"{kind} {count}" for kind, count in Counter(found.kind for found in all_findings).most_common())
