"""Stage 4: one thread, non-blocking sockets, and a loop that asks each of them again and again.

A non-blocking socket never puts the program to sleep. connect() returns at once with the connection still under way,
send() and recv() raise BlockingIOError if they would have had to wait. So one thread can hold any number of
connections: it goes round and tries each one. Ten pages arrive in the time of one, without a second thread.

The limit is the going round. Between two bytes from the network the loop asks "now?" hundreds of thousands of times,
each time with a system call: see how the processor time of this stage nears its wall time, while in stages 1 to 3 it
was close to nothing. The missing piece is one call that sleeps until *any* of the sockets is ready.
"""

import contextlib
import errno
import socket
import time

import common


class Conversation:
    """One page on its way: first a request to send, then a response to collect."""

    def __init__(self, target: common.Target, path: str) -> None:
        self.target = target
        self.path = path
        self.unsent = target.request(path)
        self.chunks: list[bytes] = []
        self.sock = socket.socket(target.family)

    def connect(self) -> None:
        self.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # as usual: the connection is under way
            self.sock.connect(self.target.address)

    def advance(self) -> bool:
        """Do what can be done without waiting; True when the response is complete."""
        try:
            if self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
                return False
            chunk = self.sock.recv(4096)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.ENOTCONN:  # BSD and macOS, while a connection is under way
                return False
            raise
        self.chunks.append(chunk)
        return not chunk


def finish(conversations: list[Conversation]) -> None:
    waiting = set(conversations)
    deadline = time.monotonic() + common.TIMEOUT
    while waiting:
        for conversation in list(waiting):
            if conversation.advance():
                waiting.remove(conversation)
                deadline = time.monotonic() + common.TIMEOUT
        if time.monotonic() > deadline:
            raise TimeoutError(f"no page arrived for {common.TIMEOUT:g} s")


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    conversations = [Conversation(target, path) for path in paths]
    try:
        for conversation in conversations:
            conversation.connect()
        # A function, not a loop in place: on CPython 3.13.0, Ctrl-C at the end of a turn of a `while` that spins like
        # this one would go past the `finally` around it.
        finish(conversations)
    finally:
        for conversation in conversations:
            conversation.sock.close()
    return {conversation.path: b"".join(conversation.chunks) for conversation in conversations}


if __name__ == "__main__":
    common.main(fetch_all)
