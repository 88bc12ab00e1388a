"""`python -m hotloop top`: shows once a second what an event loop of another process does.

It connects to the socket that the program has opened on request (hotloop.instruments.inspection); there is no other way
in. All tasks that wait at the same place share a line, because a server has thousands of them.
"""

import errno
import json
import os
import shutil
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.cli.arguments import UsageError

_SECONDS_FOR_AN_ANSWER = 10.0
_LONGEST_INTERVAL = 24 * 3600
"""In seconds; time.sleep() has a limit, too."""
_LONGEST_ANSWER = 1 << 28
"""In bytes; enough for about a million tasks."""
_COUNTERS = ("callbacks", "task_steps", "polls", "bytes_received", "bytes_sent")
"""Metrics of a loop that never fall."""
_STACK_AT_MOST = 8
"""In lines; the innermost are shown."""
_CLEAR = "\x1b[H\x1b[J"
_NOT_OURS = "the answer is none of hotloop's"


@dataclass
class Options:
    path: Path
    is_default: bool = False
    """The path was derived from a process id, not given."""
    once: bool = False
    interval: float = 1.0
    """In seconds."""


def parse(arguments: list[str]) -> Options:
    """Parse the arguments after `top`. Raises UsageError."""
    words, target = list(arguments), None
    once, interval = False, 1.0
    while words:
        word = words.pop(0)
        if word == "--once":
            once = True
        elif word == "--interval" and words:
            interval = _seconds(words.pop(0))
        elif word.startswith("-") or target is not None:
            raise UsageError(f"top takes a process or a socket, --once and --interval SECONDS, not {word!r}")
        else:
            target = word
    if target is None:
        raise UsageError("top needs the number of a process, or the path of its socket")
    if target.isdecimal():
        from hotloop.instruments.inspection import default_path

        return Options(default_path(int(target)), True, once, interval)
    return Options(Path(target), False, once, interval)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_INTERVAL:
        raise UsageError(f"--interval must be a positive number of seconds, a day at most, not {text!r}")
    return seconds


def check_owner(path: Path) -> None:
    """PermissionError unless this user owns the socket and its folder: otherwise another user could answer."""
    from hotloop.instruments.inspection import check_private_folder

    check_private_folder(path.parent)
    if path.lstat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "not a socket of this user", os.fspath(path))


def fetch(path: Path) -> dict[str, Any]:
    """The state of the loop behind a socket, without control characters for a terminal. OSError if there is no answer,
    or if it is not hotloop's."""
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_SECONDS_FOR_AN_ANSWER)
        connection.connect(os.fspath(path))
        while chunk := connection.recv(1 << 16):
            answer += chunk
            if len(answer) > _LONGEST_ANSWER:
                raise ConnectionAbortedError("the answer is too long")
    try:
        state = printable(json.loads(answer))
    except (ValueError, RecursionError):
        raise ConnectionAbortedError("the answer is not complete") from None
    if not isinstance(state, dict):
        raise ConnectionAbortedError(_NOT_OURS)
    return state


def printable(value: Any) -> Any:
    """The value with unprintable text escaped: a program may name its tasks and files as it likes."""
    if isinstance(value, dict):
        return {printable(key): printable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [printable(each) for each in value]
    if isinstance(value, str) and not value.isprintable():
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    return value


def run(arguments: list[str]) -> int:
    """Returns the exit code: 1 if the program cannot be asked."""
    options = parse(arguments)
    before: dict[str, Any] | None = None
    since = 0.0  # when the current callback was first seen, by the other process's clock
    try:
        while True:
            if options.is_default:
                check_owner(options.path)
            state = fetch(options.path)
            try:
                earlier = before if _is_same_loop(state, before) else None
                if earlier is None or state.get("progress") != earlier.get("progress"):
                    since = state["time"]
                text = render(state, earlier, state["time"] - since)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                raise ConnectionAbortedError(_NOT_OURS) from None
            size = shutil.get_terminal_size()
            if options.once:
                print(text)
                return 0
            lines = [line[: size.columns] for line in text.splitlines()[: size.lines - 1]]
            print(_CLEAR + "\n".join(lines), flush=True)
            before = state
            time.sleep(options.interval)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        raise  # of the standard output: the program has done nothing wrong
    except OSError as error:
        what = "has ended"
        if before is None:
            what = "cannot be asked: has it opened a socket, as HOTLOOP_INSPECT=1 has it do?"
        print(f"hotloop: the program behind {options.path} {what} ({error})", file=sys.stderr)
        return 1


def _is_same_loop(state: dict[str, Any], before: dict[str, Any] | None) -> bool:
    """False for the first state, and if another program or another loop has taken the path since the state before.

    The number of the process does not suffice: a container's program has the same after each start."""
    if before is None or state["pid"] != before["pid"]:
        return False
    now, earlier = state.get("metrics") or {}, before.get("metrics") or {}
    return all(now[name] >= earlier[name] for name in _COUNTERS if name in now and name in earlier)


def render(state: dict[str, Any], before: dict[str, Any] | None, same_callback: float) -> str:
    """The screen as text. `same_callback` is how long the current callback has been seen to run, in seconds."""
    head = f"process {state['pid']}, Python {state['python']}, hotloop {state['hotloop']}"
    if "loop" not in state:
        return f"{head}\nits event loop was closed"
    lines = [f"{head}, {state['loop']}", *_activity(state, before), _doing(state, same_callback)]
    if state["progress"] >= 0:
        lines += state["stack"][-_STACK_AT_MOST:]
    tasks = state["tasks"]
    lines += ["", f"{len(tasks):,} {'task' if len(tasks) == 1 else 'tasks'}", f"{'count':>9}  {'state':5}  where"]
    places = Counter((task["state"], task["coroutine"], _place(task)) for task in tasks)
    for (doing, coroutine, place), count in sorted(places.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"{count:>9,}  {doing:5}  {coroutine}(){place}")
    return "\n".join(lines)


def _place(task: dict[str, Any]) -> str:
    if task["place"] is None:
        return ""
    filename, line, name = task["place"]
    return f", at {filename}:{line}" + (f" in {name}()" if name != task["coroutine"] else "")


def _doing(state: dict[str, Any], same_callback: float) -> str:
    if state["progress"] < 0:
        return "waiting"
    what = "a callback" if state["task"] is None else f"task {state['task']!r}"
    return f"running {what}" + (f", the same for {same_callback:.1f} s" if same_callback else "")


def _activity(state: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    """Rates since the previous screen; on the first one, since the loop was made."""
    metrics = state.get("metrics")
    if metrics is None:
        return []
    earlier = ((before or {}).get("metrics")) or {}
    gained = {name: metrics[name] - earlier.get(name, 0) for name in metrics if isinstance(metrics[name], int)}
    seconds = (gained["busy_ns"] + gained["idle_ns"]) / 1e9
    if not seconds:
        return []
    return [
        f"busy {gained['busy_ns'] / seconds / 1e7:.1f} %, callbacks {gained['callbacks'] / seconds:,.0f}/s, "
        f"task steps {gained['task_steps'] / seconds:,.0f}/s, polls {gained['polls'] / seconds:,.0f}/s, "
        f"in {gained['bytes_received'] / seconds / 1e6:,.2f} MB/s, out {gained['bytes_sent'] / seconds / 1e6:,.2f} MB/s"
    ]
