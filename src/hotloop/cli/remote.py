"""Asks another process for the state of its event loops: its interpreter runs a line for us (PEP 768).

The interpreter runs the line where its main thread next looks for signals. A thread that waits in a system call does
not look, so it is interrupted there, on Linux as a debugger would do it: ptrace(2) with PTRACE_INTERRUPT stops it
without a signal, after which epoll_wait(2) fails with EINTR and the interpreter looks.
"""

import contextlib
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_SECONDS_FOR_AN_ANSWER = 10.0
_SECONDS_BETWEEN_LOOKS = 0.02
_LOOKS_PER_INTERRUPTION = 10
_LINE = (
    '__import__("hotloop.instruments.snapshot", fromlist=["*"]).write({path!r}) '
    'if "hotloop.loop" in __import__("sys").modules '
    'else (lambda file: (file.write("[]"), file.close()))(open({path!r}, "x"))\n'
)
"""An expression, because a statement's names would stay in the program's __main__ module."""

# From linux/ptrace.h
_PTRACE_DETACH = 17
_PTRACE_SEIZE = 0x4206
_PTRACE_INTERRUPT = 0x4207
_WALL = 0x40000000


class NotAvailable(Exception):
    """The process cannot be asked in this way; the text says why."""


def fetch(pid: int) -> list[Any]:
    """The states of the process's loops. Raises NotAvailable, or OSError if there is no such process or no answer."""
    if not hasattr(sys, "remote_exec"):
        raise NotAvailable("this Python has no sys.remote_exec(), which came with 3.14")
    os.kill(pid, 0)
    with tempfile.TemporaryDirectory(prefix="hotloop-") as folder:
        answer, script = Path(folder, "answer"), Path(folder, "script.py")
        script.write_text(_LINE.format(path=os.fspath(answer)))
        _give_to_owner_of(pid, folder, script)
        try:
            sys.remote_exec(pid, os.fspath(script))
        except (RuntimeError, OSError) as error:
            # Another version, an interpreter that forbids it, no permission
            raise NotAvailable(str(error)) from error
        _wait_for(answer, pid)
        states = json.loads(answer.read_bytes())
    if not isinstance(states, list):
        raise ConnectionAbortedError("the answer is none of hotloop's")
    return states


def _give_to_owner_of(pid: int, *paths: Any) -> None:
    """If the superuser asks another user's process, let it read the script and write the answer."""
    with contextlib.suppress(OSError):
        owner = Path(f"/proc/{pid}").stat()
        if owner.st_uid != os.geteuid():
            for path in paths:
                os.chown(path, owner.st_uid, owner.st_gid)


def _wait_for(answer: Path, pid: int) -> None:
    for look in range(round(_SECONDS_FOR_AN_ANSWER / _SECONDS_BETWEEN_LOOKS)):
        if answer.exists() and answer.stat().st_size:
            return
        os.kill(pid, 0)
        if look % _LOOKS_PER_INTERRUPTION == _LOOKS_PER_INTERRUPTION - 1 and sys.platform == "linux":
            _interrupt(pid)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    raise TimeoutError(f"its main thread has run no Python code for {_SECONDS_FOR_AN_ANSWER:g} s")


def _interrupt(pid: int) -> None:
    """End a system call that the process's main thread waits in. Does nothing if ptrace() is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(_PTRACE_SEIZE, pid, None, None) < 0:
        return
    if libc.ptrace(_PTRACE_INTERRUPT, pid, None, None) == 0:
        os.waitpid(pid, _WALL)
    libc.ptrace(_PTRACE_DETACH, pid, None, None)
