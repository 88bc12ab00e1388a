"""Writes the state of all loops of this process to a file, for a process that has made this one run the call.

`python -m hotloop ps` does so, by sys.remote_exec().
"""

import contextlib
import json
import logging
import os
import threading
import time

from hotloop._asyncio.shared_items import copy_of
from hotloop.instruments.loop_state import describe
from hotloop.instruments.stacks import stack_of_thread
from hotloop.instruments.threads import InstrumentThread
from hotloop.loop import alive

_SECONDS_TO_RETURN = 1.0
"""How long to wait for the call to be off the main thread's stack."""

logger = logging.getLogger("hotloop.inspection")


def write(path: str) -> None:
    """Write a JSON list with the state of each open loop: see loop_state.describe().

    The call comes between any two instructions of the program, so a thread does the work when the call has returned: it
    sees the calling thread's stack without it. The file appears when it is complete. Errors are logged.
    """
    caller = threading.get_ident()
    InstrumentThread(lambda: _write(path, caller), "hotloop-snapshot").start()


def _write(path: str, caller: int) -> None:
    end = time.monotonic() + _SECONDS_TO_RETURN
    while any(frame.f_code is write.__code__ for frame, _ in stack_of_thread(caller)) and time.monotonic() < end:
        time.sleep(0.001)
    try:
        states = [describe(loop) for loop in copy_of(alive)]
        incomplete = f"{path}.incomplete"
        # A new file of this user, not a link that another has put there.
        descriptor = os.open(incomplete, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            json.dump([state for state in states if "loop" in state], file)
        os.rename(incomplete, path)
    except Exception as error:
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.incomplete")
        logger.warning("the state of the event loops could not be written: %s", error)
