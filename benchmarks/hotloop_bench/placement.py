"""Rows in which two threads or processes take turns run on one core.

The two never work at the same time, so a second core only adds the waking of an idle core for each turn. That costs
several times what any loop does in between: on a small virtual machine 3 us a message on one core, 38 us on two. The
kernel's scheduler is free to use one core or two, so without this a row would measure how often it chose which.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keep all threads of this process, and what they start meanwhile, on one core that it may use.

    Does nothing where the system has no sched_setaffinity(2).
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    place_threads({min(cores)})
    try:
        yield
    finally:
        place_threads(cores)


def place_threads(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)
