"""Parses the command line.

It does not use argparse, because all arguments after the program's name belong to the program.
"""

from dataclasses import dataclass, field
from typing import Literal

USAGE = """\
usage: python -m hotloop [OPTION ...] PROGRAM.py [ARGUMENT ...]
       python -m hotloop [OPTION ...] -m MODULE [ARGUMENT ...]
       python -m hotloop [OPTION ...] info [--json]
       python -m hotloop top [--once] [--interval SECONDS] PROCESS|SOCKET
       python -m hotloop ps|pstree PROCESS|SOCKET
"""

HELP = f"""\
{USAGE}
Runs PROGRAM.py (or a folder or zip file with a __main__.py) or MODULE as plain python would, with hotloop as
asyncio's event loop and as selectors.DefaultSelector.

  --impl c|python     use the compiled implementation or the one in Python, here and in child processes (sets
                      HOTLOOP_IMPL); without it the compiled one is used where it is installed
  --compiled-asyncio  put hotloop's compiled queues, locks, timeouts, task groups and streams into asyncio, here and
                      in child processes that use hotloop (sets HOTLOOP_COMPILED_ASYNCIO); without the compiled
                      implementation, and on a Python without the GIL, asyncio keeps its own
  --tasks asyncio|hotloop
                      let the loop's tasks and futures be asyncio's own, for tools that look into the process from
                      outside, or hotloop's, here and in child processes that use hotloop (sets HOTLOOP_TASKS)
  --debug             switch asyncio's debug mode on, here and in child processes (sets PYTHONASYNCIODEBUG)
  -h, --help          show this text
  -V, --version       show hotloop's version

  info                show which implementation is in use and why, what of asyncio is compiled, and how TLS is done;
                      --json for programs
  top                 show what the event loop of a running program does; the program must have opened a socket for it
                      by HOTLOOP_INSPECT=1 or hotloop.run(..., inspect=True); --once shows it once, --interval SECONDS
                      says how often
  ps, pstree          show once all tasks of a running program, each with its await chain, or as a tree of which waits
                      for which; the program must have opened a socket, or both must run on the same Python, 3.14 or
                      newer

A program called info, top, ps or pstree is run as ./info and so on.
"""

IMPLEMENTATIONS = ("c", "python")
TASKS = ("asyncio", "hotloop")

Command = Literal["script", "module", "info", "top", "ps", "pstree", "help", "version"]


class UsageError(Exception):
    """The command line is not valid; the text is one line for the user."""


@dataclass
class Invocation:
    command: Command
    target: str = ""  # the script's path or the module's name
    arguments: list[str] = field(default_factory=list)  # what follows the target, untouched
    implementation: str | None = None  # one of IMPLEMENTATIONS, None for hotloop's own choice
    debug: bool = False
    compiled_asyncio: bool = False
    tasks: str | None = None  # one of TASKS, None for hotloop's own choice


def _option_value(option: str, rest: list[str]) -> str:
    """The value of `option`: after its "=", or else the next argument, which is taken from `rest`."""
    _, equals, value = option.partition("=")
    if not equals:
        if not rest:
            raise UsageError(f"{option} needs a value")
        value = rest.pop(0)
    return value


def _command(word: str, rest: list[str]) -> Invocation:
    """The command that begins with `word`, the first argument after hotloop's own options."""
    if word in ("-h", "--help"):
        return Invocation("help")
    if word in ("-V", "--version"):
        return Invocation("version")
    if word.startswith("-m"):
        module = word[2:] or (rest.pop(0) if rest else "")
        if not module:
            raise UsageError("-m needs the name of a module")
        return Invocation("module", module, rest)
    if word.startswith("-"):
        raise UsageError(f"unknown option {word!r}")
    if word in ("info", "top", "ps", "pstree") and not {"-h", "--help"}.isdisjoint(rest):
        return Invocation("help")
    if word in ("top", "ps", "pstree"):
        return Invocation(word, arguments=rest)  # type: ignore[arg-type]
    if word == "info":
        if rest not in ([], ["--json"]):
            raise UsageError(f"info takes no argument but --json, not {' '.join(rest)!r}")
        return Invocation("info", arguments=rest)
    return Invocation("script", word, rest)


def parse(arguments: list[str]) -> Invocation:
    """Parse the arguments after `python -m hotloop`. Raises UsageError."""
    rest = list(arguments)
    implementation: str | None = None
    tasks: str | None = None
    debug = compiled_asyncio = False
    while rest:
        word = rest.pop(0)
        if word.partition("=")[0] == "--impl":
            implementation = _option_value(word, rest)
            if implementation not in IMPLEMENTATIONS:
                raise UsageError(f"--impl must be c or python, not {implementation!r}")
        elif word.partition("=")[0] == "--tasks":
            tasks = _option_value(word, rest)
            if tasks not in TASKS:
                raise UsageError(f"--tasks must be asyncio or hotloop, not {tasks!r}")
        elif word == "--debug":
            debug = True
        elif word == "--compiled-asyncio":
            compiled_asyncio = True
        else:
            invocation = _command(word, rest)
            looks_on = invocation.command in ("top", "ps", "pstree")
            if looks_on and (implementation or debug or compiled_asyncio or tasks):
                raise UsageError(f"{invocation.command} takes its options behind its name")
            invocation.implementation = implementation
            invocation.debug = debug
            invocation.compiled_asyncio = compiled_asyncio
            invocation.tasks = tasks
            return invocation
    raise UsageError("which program is to be run?")
