"""Stage 2: the same blocking code, in a pool of processes.

If one program can wait for one answer only, run ten programs. The operating system has always been good at that:
while one process sleeps in recv(), another one runs. `fetch` is stage 1's, unchanged; the waits now overlap, and ten
pages take little more than the time of one.

The limit is the price of a process: milliseconds to start it, megabytes to keep it, and everything that goes in or
out of it is pickled. Ten are fine, a thousand are not, and a crawler wants thousands of connections that mostly wait.
"""

import importlib
import multiprocessing
import signal

import common

# A file whose name starts with a digit cannot stand in an import statement.
fetch = importlib.import_module("01_blocking").fetch

MAX_PROCESSES = 10


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    # The terminal sends Ctrl-C to every process. The workers must not react to it: leaving the `with` block ends them.
    # Processes that multiprocessing starts indirectly may not inherit the held-back Ctrl-C, hence the initializer.
    with common.ctrl_c_held_back():
        pool = multiprocessing.Pool(
            min(len(paths), MAX_PROCESSES), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        )
    with pool:
        responses = pool.starmap(fetch, [(target, path) for path in paths], chunksize=1)
        return dict(zip(paths, responses, strict=True))


if __name__ == "__main__":
    common.main(fetch_all)
