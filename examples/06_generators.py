"""Stage 6: generators as coroutines, with a Future and a Task of twenty lines.

A generator is a function that can stop in the middle and go on later, its local variables intact: just what callbacks
lack. So let `fetch` be a generator that *yields* whenever it has to wait, and let other code wake it up.

Two small classes do that. A **Future** stands for a result that is not there yet, and keeps callbacks for when it is. A
**Task** drives one generator: it runs it to the next `yield`, gets a Future there, and asks that Future to call the
task's `step` when it is resolved. The callbacks have not gone away, but they are all alike now and hidden in one place;
`fetch` reads from top to bottom again, with a `while` loop, local variables and a `with` statement, as in stage 1.

The limit: `fetch` itself still makes the futures, registers with the selector and unregisters. A generator that called
another one would have to pass on by hand everything the inner one yields, so no part of this can be moved out and used
again. That is what stage 7 is for.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Generator
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any

import common


class Future:
    """A result to come."""

    def __init__(self) -> None:
        self.result: Any = None
        self.callbacks: list[Callable[[Future], None]] = []

    def add_done_callback(self, callback: Callable[["Future"], None]) -> None:
        self.callbacks.append(callback)

    def set_result(self, result: Any) -> None:
        self.result = result
        for callback in self.callbacks:
            callback(self)


class Task:
    """Runs a generator from one future that it yields to the next."""

    def __init__(self, coroutine: Generator[Future, Any, None]) -> None:
        self.coroutine = coroutine
        self.step(Future())

    def step(self, future: Future) -> None:
        try:
            awaited = self.coroutine.send(future.result)
        except StopIteration:
            return
        awaited.add_done_callback(self.step)


def fetch(
    selector: DefaultSelector, target: common.Target, path: str, pages: dict[str, bytes]
) -> Generator[Future, Any, None]:
    with socket.socket(target.family) as sock:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the connection is under way
            sock.connect(target.address)
        writable = Future()
        selector.register(sock, EVENT_WRITE, lambda: writable.set_result(None))
        yield writable
        selector.unregister(sock)
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))

        sock.send(target.request(path))  # short enough for the empty buffer of a new connection
        chunks = []
        while True:
            received = Future()
            selector.register(sock, EVENT_READ, lambda future=received: future.set_result(sock.recv(4096)))
            chunk = yield received
            selector.unregister(sock)
            if not chunk:
                break
            chunks.append(chunk)
    pages[path] = b"".join(chunks)


def run_until_idle(selector: DefaultSelector) -> None:
    while selector.get_map():
        ready = selector.select(common.TIMEOUT)
        if not ready:
            raise TimeoutError(f"no socket became ready for {common.TIMEOUT:g} s")
        for key, _ in ready:
            key.data()


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    pages: dict[str, bytes] = {}
    with DefaultSelector() as selector:
        common.note_engine(selector)
        coroutines = [fetch(selector, target, path, pages) for path in paths]
        try:
            for coroutine in coroutines:
                Task(coroutine)
            run_until_idle(selector)
        finally:
            for coroutine in coroutines:
                coroutine.close()  # if an error has left it waiting, it closes its socket now
    return pages


if __name__ == "__main__":
    common.main(fetch_all)
