"""Stage 2: the same blocking code, in a pool of processes.

If one program can only wait for one answer, run ten programs. The operating system has always been good at that: while
one process sleeps in recv(), another one runs. `fetch` is stage 1's, unchanged; the waits now overlap, and ten pages
take little more time than one.

The limit is the price of a process: milliseconds to start it, megabytes to keep it, and everything that goes in or out
of it is pickled. Ten are fine, a thousand are not, and a crawler wants thousands of connections that mostly wait.
"""

import contextlib
import importlib
import multiprocessing
import signal

import common

# A file whose name starts with a digit cannot stand in an import statement.
fetch = importlib.import_module("01_blocking").fetch

MAX_PROCESSES = 10


def prepare_worker() -> None:
    """Let a worker end by SIGTERM, which its pool sends, but not by Ctrl-C, which terminals send to every process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    with contextlib.ExitStack() as stack:
        with common.held_back(signal.SIGINT, signal.SIGTERM):
            pool = stack.enter_context(multiprocessing.Pool(min(len(paths), MAX_PROCESSES), prepare_worker))
        responses = pool.starmap(fetch, [(target, path) for path in paths], chunksize=1)
    return dict(zip(paths, responses, strict=True))


if __name__ == "__main__":
    common.main(fetch_all)
