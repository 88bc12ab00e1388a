"""Programs that choose an event loop by themselves: a server that can be told is told to take hotloop's. For any other
one, a line at the end says that its loop was another."""

import contextlib
import os
import sys

from hotloop import loop

_LOOP = "hotloop:new_event_loop"
_OTHERS = ("uvloop", "rloop", "rsloop", "zuvloop", "winloop")


def name_our_loop(program: str) -> None:
    """Name hotloop's loop to `program`, a module or the path of a script, if it chooses its loop but can be told.

    uvicorn takes its options from variables as well, from 0.36 on also the place of a loop. An option or a variable of
    the user's stays in effect."""
    if os.path.basename(program) == "uvicorn" and _uvicorn_takes_any_loop():
        os.environ.setdefault("UVICORN_LOOP", _LOOP)


def _uvicorn_takes_any_loop() -> bool:
    from importlib import metadata  # takes longer to import than the command line

    try:
        major, minor = metadata.version("uvicorn").split(".")[:2]
        return (int(major), int(minor)) >= (0, 36)
    except (metadata.PackageNotFoundError, ValueError):
        return False


def report_another_loop() -> None:
    """Say so on the standard error if the program made no loop of hotloop's but loaded another's module."""
    loaded = [name for name in _OTHERS if name in sys.modules]
    if loaded and not loop.any_was_made and sys.stderr is not None:
        what = f"the program made no loop of hotloop's, but loaded {loaded[0]}"
        with contextlib.suppress(Exception):  # the program may have closed it, or replaced it by an object that fails
            print(f"hotloop: {what}: name {_LOOP} where it takes a loop", file=sys.stderr)
