"""Stage 5: callbacks on a selector, with an event loop made by hand.

The call that stage 4 missed is called select, poll, epoll or kqueue, and `selectors.DefaultSelector` is the best one
that the platform has: register any number of sockets, sleep in select() until at least one is ready, get the list of
those that are. With each socket we register a function to call when the socket is ready. The loop that does no more
than "sleep until something is ready, call what was registered" is an event loop, the heart of asyncio, Node.js and
nginx. One thread, no locks, ten pages in the time of one, and the processor is idle meanwhile.

The limit is in the code, not in the machine: one page used to be five lines read from top to bottom (stage 1), now it
is three methods. What used to be a local variable became an attribute, what used to be a `while` became "register me
again", and an exception in `readable` has no idea which call of `fetch` it belongs to: the stack below it holds only
the event loop. Add a login and a retry, and the code cannot be followed any more.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

import common


class EventLoop:
    def __init__(self) -> None:
        self.selector = DefaultSelector()
        common.note_engine(self.selector)

    def call_when(self, event: int, sock: socket.socket, callback: Callable[[], None]) -> None:
        self.selector.register(sock, event, callback)

    def forget(self, sock: socket.socket) -> None:
        self.selector.unregister(sock)

    def run(self) -> None:
        """Call back until no socket is registered any more."""
        while self.selector.get_map():
            ready = self.selector.select(common.TIMEOUT)
            if not ready:
                raise TimeoutError(f"no socket became ready for {common.TIMEOUT:g} s")
            for key, _ in ready:
                key.data()


class Fetcher:
    """Fetches one page; `fetch` starts it, the loop calls the rest."""

    def __init__(self, loop: EventLoop, target: common.Target, path: str, pages: dict[str, bytes]) -> None:
        self.loop = loop
        self.target = target
        self.path = path
        self.pages = pages  # where the response goes in the end
        self.chunks: list[bytes] = []
        self.sock = socket.socket(target.family)

    def fetch(self) -> None:
        self.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the connection is under way
            self.sock.connect(self.target.address)
        # The socket becomes writable when it is connected, and when connecting has failed.
        self.loop.call_when(EVENT_WRITE, self.sock, self.connected)

    def connected(self) -> None:
        self.loop.forget(self.sock)
        if error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        self.sock.send(self.target.request(self.path))  # short enough for the empty buffer of a new connection
        self.loop.call_when(EVENT_READ, self.sock, self.readable)

    def readable(self) -> None:
        chunk = self.sock.recv(4096)
        if chunk:
            self.chunks.append(chunk)
            return
        self.loop.forget(self.sock)
        self.sock.close()
        self.pages[self.path] = b"".join(self.chunks)


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    pages: dict[str, bytes] = {}
    loop = EventLoop()
    fetchers = [Fetcher(loop, target, path, pages) for path in paths]
    try:
        for fetcher in fetchers:
            fetcher.fetch()
        loop.run()
    finally:
        # Another price of callbacks: no `with` statement spans a whole fetch, so nothing closes a socket on errors.
        for fetcher in fetchers:
            fetcher.sock.close()
        loop.selector.close()
    return pages


if __name__ == "__main__":
    common.main(fetch_all)
