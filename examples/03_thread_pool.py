"""Stage 3: the same blocking code, in a pool of threads.

Threads live in one process: they start in microseconds instead of milliseconds and share its memory, so nothing is
pickled. That CPython runs Python code in one thread at a time (the global interpreter lock) does not hurt here: a
thread that waits in a system call releases the lock, and these threads do nothing but wait.

The limit is still low: each thread has a stack and a place in the kernel's scheduler, and switching
among thousands of them costs more than their work. And they may be interrupted between any two bytecodes, so whatever
they share (a queue, a set of addresses seen, a counter) needs a lock, and a forgotten lock shows up once a month.
"""

import importlib
from concurrent.futures import ThreadPoolExecutor

import common

# A file whose name starts with a digit cannot stand in an import statement.
fetch = importlib.import_module("01_blocking").fetch

MAX_THREADS = 10


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        # When an error or Ctrl-C ends this line early, map() cancels the calls that have not begun.
        responses = pool.map(lambda path: fetch(target, path), paths)
        return dict(zip(paths, responses, strict=True))


if __name__ == "__main__":
    common.main(fetch_all)
