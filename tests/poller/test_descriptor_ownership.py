"""P01: whenever operations are cancelled while descriptors are being reused, the loop touches no descriptor that it no
longer owns.

Workers start operations and cancel them after a random number of turns. In between they open bystanders: pipes with
data in them, which take the numbers of descriptors that were closed a moment ago. A loop that closes, reads or writes a
descriptor after it was closed does so to a bystander, and the test detects it.
"""

import asyncio
import contextlib
import os
import random
import socket
import sys

import pytest
from support.endpoints import file_identity, reports_of, settle, turns, until

pytestmark = [
    pytest.mark.promise("P01"),
    pytest.mark.skipif(not hasattr(os, "set_blocking"), reason="Windows has no such pipes"),
]

# Operations per worker; the promise speaks of 10^5. This many take about two seconds on asyncio, with eight workers;
# HOTLOOP_OWNERSHIP_ROUNDS=12500 makes it 10^5.
ROUNDS = int(os.environ.get("HOTLOOP_OWNERSHIP_ROUNDS", "1000"))
WORKERS = 8

# https://github.com/python/cpython/issues/153761: earlier, asyncio's sock_accept() accepts for a future that was
# cancelled in the same turn, and the connection is lost in an InvalidStateError.
ASYNCIOS_ACCEPT_MAY_BE_CANCELLED_ANY_TIME = sys.version_info >= (3, 14, 10)


class Bystander:
    """A pipe with data in it that only its owner may touch."""

    def __init__(self, content):
        self.content = content
        self.ends = os.pipe()
        for end in self.ends:
            os.set_blocking(end, False)
        os.write(self.ends[1], content)
        self.owners = [file_identity(end) for end in self.ends]

    def check_and_close(self):
        try:
            assert [file_identity(end) for end in self.ends] == self.owners, "closed meanwhile; the number is reused"
            assert os.read(self.ends[0], 1000) == self.content, "it was read or written to"
            with pytest.raises(BlockingIOError):
                os.read(self.ends[0], 1)
        finally:
            for end in self.ends:
                os.close(end)


class Ours(asyncio.Protocol):
    """The protocol of transports that are closed as soon as they are made. `alive` has the protocols that still wait
    for their end."""

    alive = set()  # noqa: RUF012 - of all of them on purpose

    def connection_made(self, transport):
        self.alive.add(self)

    def connection_lost(self, error):
        self.alive.remove(self)


class Worker:
    """Starts operations on a loop and cancels most of them."""

    def __init__(self, impl, loop, address, path, seed):
        self.loop = loop
        self.accept_may_be_cancelled = impl.name == "c" or ASYNCIOS_ACCEPT_MAY_BE_CANCELLED_ANY_TIME
        self.address = address
        self.path = path
        self.random = random.Random(seed)
        self.done = self.cancelled = 0

    async def run(self):
        operations = [
            self.sock_connect,
            self.sock_connect_unix,
            self.create_connection,
            self.create_unix_connection,
            self.sock_accept,
            self.connect_read_pipe,
            self.connect_write_pipe,
            self.sock_recv,
            self.sock_sendall,
            self.watched,
        ]
        for number in range(ROUNDS):
            await self.random.choice(operations)(b"%d" % number)

    async def finish(self, awaitable, content):
        """Cancel it after some turns, unless it is done by then; return its result, or None."""
        task = asyncio.ensure_future(awaitable)
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        bystanders = [Bystander(content) for _ in range(self.random.randrange(3))]
        task.cancel()
        result = None
        try:
            result = await task
            self.done += 1
        except asyncio.CancelledError:
            self.cancelled += 1
        bystanders += [Bystander(content) for _ in range(self.random.randrange(3))]
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        for bystander in bystanders:
            bystander.check_and_close()
        return result

    async def sock_connect(self, content):
        with socket.socket() as sock:
            sock.setblocking(False)
            await self.finish(self.loop.sock_connect(sock, self.address), content)
        Bystander(content).check_and_close()

    async def sock_connect_unix(self, content):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # the listener's queue is full
                await self.finish(self.loop.sock_connect(sock, self.path), content)

    async def create_connection(self, content):
        if made := await self.finish(self.loop.create_connection(Ours, *self.address), content):
            made[0].abort()

    async def create_unix_connection(self, content):
        if made := await self.finish(self.loop.create_unix_connection(Ours, self.path), content):
            made[0].abort()

    async def sock_accept(self, content):
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            listener.setblocking(False)
            client.setblocking(False)
            accepting = asyncio.ensure_future(self.loop.sock_accept(listener))
            if self.random.random() < 0.5:
                client.connect_ex(listener.getsockname())
                if not self.accept_may_be_cancelled:
                    accepted, _ = await accepting
                    accepted.close()
                    return
            if made := await self.finish(accepting, content):
                made[0].close()

    async def connect_pipe(self, connect, end, content):
        ends = os.pipe()
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(os.fdopen(fd, mode, 0)) for fd, mode in zip(ends, ("rb", "wb"), strict=True)]
            if made := await self.finish(connect(Ours, files[end]), content):
                made[0].close()
            await turns(3)  # a transport that was made closes the file in connection_lost()

    async def connect_read_pipe(self, content):
        await self.connect_pipe(self.loop.connect_read_pipe, 0, content)

    async def connect_write_pipe(self, content):
        await self.connect_pipe(self.loop.connect_write_pipe, 1, content)

    async def sock_recv(self, content):
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            if self.random.random() < 0.3:
                other.send(content)
            received = await self.finish(self.loop.sock_recv(one, 100), content)
            assert received in (None, content)

    async def sock_sendall(self, content):
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            await self.finish(self.loop.sock_sendall(one, content + bytes(1_000_000)), content)
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # cancelled before it began
                assert other.recv(len(content)) == content

    async def watched(self, content):
        """A reader is removed in time, and its descriptor closed."""
        one, other = socket.socketpair()
        with one, other:
            seen = []
            self.loop.add_reader(one, seen.append, "event")
            other.send(content)
            await self.finish(asyncio.sleep(0), content)
            assert self.loop.remove_reader(one) is True
            del seen[:]
            await asyncio.sleep(0)
            assert seen == [] and one.recv(100) == content


def test_nothing_is_done_to_descriptors_of_others(impl, loop, tmp_path):
    async def main():
        path = str(tmp_path / "socket")
        server = await loop.create_server(Ours, "127.0.0.1", 0, backlog=1000)
        unix = await loop.create_unix_server(Ours, path, backlog=1000)
        address = server.sockets[0].getsockname()
        workers = [Worker(impl, loop, address, path, seed) for seed in range(WORKERS)]
        await asyncio.gather(*(worker.run() for worker in workers))
        for one in (server, unix):
            one.close()
        assert min(worker.done for worker in workers) > ROUNDS / 10, "too few came to their end"
        assert min(worker.cancelled for worker in workers) > ROUNDS / 10, "too few were cancelled"
        await until(lambda: not Ours.alive)
        await settle()

    with reports_of(loop) as reports:
        loop.run_until_complete(main())
    assert reports == []


def test_an_aborted_transport_does_not_touch_its_old_number(loop):
    """After abort() with data queued, another file gets the number; old handles may still be queued."""

    async def main():
        for _ in range(100):
            one, other = socket.socketpair()
            transport, _ = await loop.create_connection(Ours, sock=one)
            transport.write(bytes(1_000_000))
            other.send(b"x")
            transport.abort()
            while one.fileno() != -1:
                await asyncio.sleep(0)
            bystander = Bystander(b"mine")
            transport.write(b"late")
            transport.close()
            transport.abort()
            other.close()
            await turns(3)
            bystander.check_and_close()

    loop.run_until_complete(main())
