"""Stage 7: the same, taken apart with `yield from` into connect, read and read_all.

`yield from inner()` runs the generator `inner` inside the present one. The values that `inner` yields go straight out
to the task, the values that the task sends go straight in, exceptions pass through, and the return value of `inner` is
the value of the whole expression. So coroutines can call coroutines, and waiting for a socket becomes a function like
any other: `connect` and `read` know the selector, `read_all` is a loop around `read`, and `fetch` knows neither futures
nor selectors. A Future gets an `__iter__`, so that `yield from future` waits for it the same way.

This is how asyncio itself was written in Python 3.4. Its problem is that a generator that is a coroutine looks just
like one that is an iterator, and forgetting `yield from` gives a silent no-op. Python 3.5 solved it: `async def` and
`await` are these very mechanics with names of their own, and they are stage 8. A limit of this toy loop that asyncio
does not have: an exception in one task ends everything, and nothing can be cancelled or timed out singly.
"""

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

    def __iter__(self) -> Generator["Future", None, Any]:
        yield self  # the task comes back here when the result is there
        return self.result


Coroutine = Generator[Future, None, Any]


class Task:
    """Runs a coroutine from one future that it waits for to the next."""

    def __init__(self, coroutine: Coroutine) -> None:
        self.coroutine = coroutine
        self.step()

    def step(self, _: Future | None = None) -> None:
        try:
            awaited = next(self.coroutine)
        except StopIteration:
            return
        awaited.add_done_callback(self.step)


class EventLoop:
    def __init__(self) -> None:
        self.selector = DefaultSelector()
        common.note_engine(self.selector)

    def wait_until(self, event: int, sock: socket.socket) -> Coroutine:
        ready = Future()
        self.selector.register(sock, event, ready)
        yield from ready
        self.selector.unregister(sock)

    def run(self) -> None:
        """Resolve futures until no socket is waited for any more."""
        while self.selector.get_map():
            ready = self.selector.select(common.TIMEOUT)
            if not ready:
                raise TimeoutError(f"no socket became ready for {common.TIMEOUT:g} s")
            for key, _ in ready:
                key.data.set_result(None)


def connect(loop: EventLoop, sock: socket.socket, address: tuple[Any, ...]) -> Coroutine:
    sock.setblocking(False)
    try:
        sock.connect(address)
    except BlockingIOError:
        yield from loop.wait_until(EVENT_WRITE, sock)
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))


def read(loop: EventLoop, sock: socket.socket) -> Coroutine:
    yield from loop.wait_until(EVENT_READ, sock)
    return sock.recv(4096)


def read_all(loop: EventLoop, sock: socket.socket) -> Coroutine:
    chunks = []
    while chunk := (yield from read(loop, sock)):
        chunks.append(chunk)
    return b"".join(chunks)


def fetch(loop: EventLoop, target: common.Target, path: str, pages: dict[str, bytes]) -> Coroutine:
    with socket.socket(target.family) as sock:
        yield from connect(loop, sock, target.address)
        sock.send(target.request(path))  # short enough for the empty buffer of a new connection
        pages[path] = yield from read_all(loop, sock)


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    pages: dict[str, bytes] = {}
    loop = EventLoop()
    with loop.selector:
        coroutines = [fetch(loop, target, path, pages) for path in paths]
        try:
            for coroutine in coroutines:
                Task(coroutine)
            loop.run()
        finally:
            for coroutine in coroutines:
                coroutine.close()  # if an error has left it waiting, it closes its socket now
    return pages


if __name__ == "__main__":
    common.main(fetch_all)
