"""Random programs that send more through sock_sendall() than a socket takes: everything arrives, once and in order.

Both ends of a connection send and receive at the same time, each receiver in several ways in turns. How the data comes
in pieces is the kernel's. A receive that is cancelled loses no data, except on asyncio, and on the pure implementation,
which reads as asyncio does (docs/differences.md): there nothing is cancelled that may have its data.
"""

import asyncio
import contextlib
import socket
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import SECONDS_BEFORE_A_PROGRAM_HANGS, counted
from support.endpoints import turns
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform == "win32", reason="asyncio's loop there has no add_reader()"),
]

SMALL_BUFFER = 4096  # bytes

sendings = st.lists(
    st.tuples(
        st.sampled_from(["bytes", "bytearray", "memoryview", "cancelled"]), st.sampled_from([0, 1, 5000, 300_000])
    ),
    max_size=3,
)
receivings = st.lists(
    st.tuples(
        st.sampled_from(["recv", "recv_into", "recvfrom", "callback", "cancelled", "timed", "turns"]),
        st.sampled_from([100, 5001, 70_002, (1 << 20) + 3]),
    ),
    max_size=5,
)


def connection(kind):
    if kind == "unix":
        ends = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            ends = client, listener.accept()[0]
    for end in ends:
        end.setblocking(False)
    return ends


class End:
    def __init__(self, sock, sendings, receivings, *, cancels):
        self.loop = asyncio.get_running_loop()
        self.sock = sock
        self.sendings = sendings
        self.receivings = receivings
        self.cancels = cancels
        self.sent = 0
        self.received = bytearray()

    async def send(self):
        """Send what is planned, up to a sending that is cancelled: how much of that has left is not known."""
        for kind, size in self.sendings:
            data = counted(self.sent, size, 251)
            self.sent += size
            if kind == "cancelled":
                sending = self.loop.create_task(self.loop.sock_sendall(self.sock, data))
                await asyncio.sleep(0)
                sending.cancel()
                await asyncio.wait([sending])
                break
            convert = {"bytes": bytes, "bytearray": bytearray, "memoryview": memoryview}[kind]
            await self.loop.sock_sendall(self.sock, convert(data))
        self.sock.shutdown(socket.SHUT_WR)

    async def receive(self):
        while True:
            for kind, size in (*self.receivings, ("recv", 70_000)):
                data = await getattr(self, kind)(size)
                if data == b"":
                    return
                self.received += data or b""

    async def recv(self, size):
        return await self.loop.sock_recv(self.sock, size)

    async def recv_into(self, size):
        buffer = bytearray(size)
        return buffer[: await self.loop.sock_recv_into(self.sock, buffer)]

    async def recvfrom(self, size):
        return (await self.loop.sock_recvfrom(self.sock, size))[0]

    async def callback(self, size):
        readable = self.loop.create_future()
        self.loop.add_reader(self.sock, lambda: readable.done() or readable.set_result(None))
        await readable
        self.loop.remove_reader(self.sock)
        return self.sock.recv(size)

    async def cancelled(self, size):
        if not self.cancels:
            return await self.recv(size)
        receiving = self.loop.create_task(self.loop.sock_recv(self.sock, size))
        await self.turns(size)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await receiving

    async def timed(self, size):
        if not self.cancels:
            return await self.recv(size)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self.loop.sock_recv(self.sock, size), 0.0001)

    async def turns(self, size):
        await turns(size % 4)


async def exchange(kind, small, plans, cancels):
    one, other = connection(kind)
    with one, other:
        ends = [End(sock, *plan, cancels=cancels) for sock, plan in zip((one, other), plans, strict=True)]
        if small:
            for sock in one, other:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        async with asyncio.timeout(SECONDS_BEFORE_A_PROGRAM_HANGS):
            await asyncio.gather(*(method() for end in ends for method in (end.send, end.receive)))
    for sender, receiver in (ends, ends[::-1]):
        data = counted(0, sender.sent, 251)
        assert data.startswith(receiver.received)
        assert len(data) == len(receiver.received) or any(kind == "cancelled" for kind, _ in sender.sendings)


plans = st.tuples(sendings, receivings)


@hypothesis.given(kind=st.sampled_from(["unix", "tcp"]), small=st.booleans(), plans=st.tuples(plans, plans))
def test_all_that_sock_sendall_sends_arrives(impl, kind, small, plans):
    impl.run(exchange(kind, small, plans, cancels=impl.name == "c"))
