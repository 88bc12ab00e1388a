"""`python -m hotloop ps` and `pstree`: the tasks of a running program, once, as a list or as a tree.

The program is asked through its socket if it has opened one (top.py), otherwise through its interpreter (remote.py).
"""

import sys
from pathlib import Path
from typing import Any

from hotloop.cli import remote, top
from hotloop.cli.arguments import UsageError


def run(command: str, arguments: list[str]) -> int:
    """Returns the exit code: 1 if the program cannot be asked."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise UsageError(f"{command} takes the number of a process, or the path of its socket")
    target = arguments[0]
    render = render_list if command == "ps" else render_tree
    try:
        states = _fetch(target)
        texts = [f"{_head(state)}\n{render(state['tasks'])}" for state in states]
    except (remote.NotAvailable, OSError) as error:
        print(f"hotloop: process {target} cannot be asked: {error}", file=sys.stderr)
        return 1
    except (AttributeError, LookupError, TypeError, ValueError):
        print(f"hotloop: process {target} cannot be asked: the answer is none of hotloop's", file=sys.stderr)
        return 1
    print("\n\n".join(texts) if texts else "the process has no event loop of hotloop's")
    return 0


def _fetch(target: str) -> list[dict[str, Any]]:
    if not target.isdecimal():
        return _open_loops([top.fetch(Path(target))])
    from hotloop.instruments.inspection import default_path

    path = default_path(int(target))
    if path.exists():
        top.check_owner(path)
        return _open_loops([top.fetch(path)])
    try:
        return list(top.printable(remote.fetch(int(target))))
    except remote.NotAvailable as error:
        raise remote.NotAvailable(f"{error}; and it has opened no socket, as HOTLOOP_INSPECT=1 has it do") from error


def _open_loops(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [state for state in states if "loop" in state]


def _head(state: dict[str, Any]) -> str:
    count = len(state["tasks"])
    return (
        f"process {state['pid']}, Python {state['python']}, hotloop {state['hotloop']}, {state['loop']}: "
        f"{count:,} {'task' if count == 1 else 'tasks'}"
    )


def _in_order(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By name; Task-9 comes before Task-10."""
    from hotloop.instruments.chains import words_key

    return sorted(tasks, key=lambda task: words_key(task["name"].split("-")))


def _describe(task: dict[str, Any]) -> str:
    return f"task {task['name']!r}, {task['coroutine']}(), {task['state']}"


def render_list(tasks: list[dict[str, Any]]) -> str:
    """Each task with its await chain, the innermost place last, and the tasks that wait for it."""
    names = {task["id"]: repr(task["name"]) for task in tasks}
    lines = []
    for task in _in_order(tasks):
        awaited_by = [names[waiter] for waiter in task["awaited_by"] if waiter in names]
        lines += ["", _describe(task) + (f"; awaited by {', '.join(awaited_by)}" if awaited_by else "")]
        lines += [f'  File "{filename}", line {line}, in {name}' for filename, line, name in task["chain"]]
    return "\n".join(lines)


def render_tree(tasks: list[dict[str, Any]]) -> str:
    """Each task below those that wait for it; where it appears again, its own tree is not repeated."""
    ordered = _in_order(tasks)
    known = {task["id"] for task in tasks}
    awaited: dict[int, list[dict[str, Any]]] = {}
    for task in ordered:
        for waiter in task["awaited_by"]:
            awaited.setdefault(waiter, []).append(task)
    lines: list[str] = []
    shown: set[int] = set()
    # Tasks that wait for each other in a circle are below no other: they come last.
    roots = [task for task in ordered if known.isdisjoint(task["awaited_by"])]
    for root in [*roots, *ordered]:
        if root["id"] not in shown:
            rest = [(root, "", "")]
            while rest:
                task, head, indent = rest.pop()
                again = task["id"] in shown
                shown.add(task["id"])
                lines.append(head + _describe(task) + _at(task) + (" (see above)" if again else ""))
                below = [] if again else awaited.get(task["id"], [])
                for child in reversed(below):
                    last = child is below[-1]
                    rest.append((child, indent + ("└── " if last else "├── "), indent + ("    " if last else "│   ")))
    return "\n".join(lines)


def _at(task: dict[str, Any]) -> str:
    if task["place"] is None:
        return ""
    filename, line, name = task["place"]
    return f" at {filename}:{line} in {name}()"
