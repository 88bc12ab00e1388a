"""Where rows run in which two threads or processes take turns: on one core.

They have nothing to do at the same time, so a second core brings nothing but the waking of an idle one, for each turn.
That costs several times what any loop does in between (3 us a message on one core, 38 us on two, on a small virtual
machine), and the scheduler chooses between the two as it likes: without this, a row would tell how often it did which.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """All threads of this process, and whatever they start meanwhile, on one of the cores it may use.

    Nothing where the system cannot say. See sched_setaffinity(2)."""
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
