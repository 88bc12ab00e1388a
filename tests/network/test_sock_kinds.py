"""The sock_* methods with anything but a plain non-blocking socket: subclasses, look-alikes, timeouts."""

import array
import asyncio
import socket
from unittest import mock

import pytest
from support.endpoints import assert_free, cancelled, started


class Counting(socket.socket):
    """A subclass that overrides recv()."""

    calls = 0

    def recv(self, size):
        self.calls += 1
        return super().recv(size).upper()


def test_the_methods_of_a_subclass_are_called(loop, pair):
    one, other = pair

    async def main():
        with Counting(fileno=one.detach()) as sock:
            sock.setblocking(False)
            for number in range(3):
                waiting = await started(loop.sock_recv(sock, 100))
                other.send(b"text")
                assert await waiting == b"TEXT"
                assert sock.calls == 2 * (number + 1)
                assert_free(loop, sock)
            waiting = await started(loop.sock_recv(sock, 100))
            await cancelled(waiting)
            assert_free(loop, sock)

    loop.run_until_complete(main())


class LookAlike:
    """Not a socket, but with the necessary methods. It refuses the first calls, as after spurious events."""

    def __init__(self, sock, refusals):
        self.sock = sock
        self.refusals = refusals

    def fileno(self):
        return self.sock.fileno()

    def recv(self, size):
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError
        return self.sock.recv(size)

    def send(self, data):
        if self.refusals:
            self.refusals -= 1
            raise InterruptedError
        return self.sock.send(data[:3])


def test_the_methods_of_a_look_alike_are_called(loop, pair):
    one, other = pair

    async def main():
        other.send(b"content")
        assert await loop.sock_recv(LookAlike(one, 4), 100) == b"content"
        await loop.sock_sendall(LookAlike(one, 4), b"some more content")
        assert other.recv(100) == b"some more content"
        assert_free(loop, one)

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio counts the items of the data: it sends a part, and goes on for ever")
@pytest.mark.parametrize("kind", [socket.socket, Counting])
@pytest.mark.parametrize("form", ["array", "items", "rows"])
def test_all_of_data_with_large_items_is_sent(loop, pair, kind, form):
    values = array.array("i", range(300_000))
    data = {
        "array": values,
        "items": memoryview(values),
        "rows": memoryview(values).cast("B").cast("i", (1000, 300)),
    }[form]
    one, other = pair

    async def main():
        with kind(fileno=one.detach()) as sock:
            sock.setblocking(False)
            sending = asyncio.create_task(loop.sock_sendall(sock, data))
            received = bytearray()
            while len(received) < 1_200_000:
                received += await loop.sock_recv(other, 1 << 20)
            await sending
            assert received == values.tobytes()

    loop.run_until_complete(main())


def test_a_method_that_raises_stop_iteration(loop, pair):
    async def main():
        sock = mock.Mock(recv=mock.Mock(side_effect=StopIteration))
        with pytest.raises(RuntimeError, match="coroutine raised StopIteration"):
            await loop.sock_recv(sock, 100)

    loop.run_until_complete(main())


def test_methods_put_into_the_class(loop, pair):
    async def main():
        with mock.patch.object(socket.socket, "recv", lambda sock, size: b"mocked", create=True):
            assert await loop.sock_recv(pair[0], 100) == b"mocked"
        pair[1].send(b"real")
        assert await loop.sock_recv(pair[0], 100) == b"real"

    loop.run_until_complete(main())


def test_a_blocking_socket_that_is_ready(loop, pair):
    """Only debug mode forbids a blocking socket. Elsewhere the loop uses it only where it does not block."""
    one, other = pair
    one.setblocking(True)

    async def main():
        other.send(b"there")
        assert await loop.sock_recv(one, 100) == b"there"
        await loop.sock_sendall(one, b"answer")
        assert other.recv(100) == b"answer"
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
            connection, _ = await loop.sock_accept(listener)
            with connection:
                assert connection.gettimeout() == 0

    loop.run_until_complete(main())


def test_a_socket_with_a_timeout(loop, pair):
    """The socket's own method waits that long, as without a loop."""
    pair[0].settimeout(0.001)

    async def main():
        with pytest.raises(TimeoutError):
            await loop.sock_recv(pair[0], 100)

    loop.run_until_complete(main())


def test_the_default_timeout_of_sockets_is_not_that_of_accepted_ones(loop):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
            listener.setblocking(False)
            socket.setdefaulttimeout(5)
            try:
                connection, _ = await loop.sock_accept(listener)
            finally:
                socket.setdefaulttimeout(None)
            with connection:
                assert connection.gettimeout() == 0
                assert (connection.type, connection.proto) == (listener.type, listener.proto)

    loop.run_until_complete(main())


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX"])
def test_where_datagrams_come_from(impl, loop, tmp_path, family):
    def bound(name):
        sock = socket.socket(getattr(socket, family), socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind({"AF_INET": ("127.0.0.1", 0), "AF_INET6": ("::1", 0)}.get(family, str(tmp_path / name)))
        return sock

    async def main():
        with bound("receiver") as receiver, bound("one") as one, bound("other") as other:
            addresses = []
            for sender in [one, other] * 3:
                sender.sendto(b"x", receiver.getsockname())
                data, address = await loop.sock_recvfrom(receiver, 10)
                assert (data, address) == (b"x", sender.getsockname())
                addresses.append(address)
                sender.sendto(b"xyz", receiver.getsockname())
                count, address = await loop.sock_recvfrom_into(receiver, bytearray(10))
                assert (count, address) == (3, sender.getsockname())
                addresses.append(address)
            if impl.name == "c" and family != "AF_UNIX":
                # A peer that sends twice in a row has one address object, where asyncio makes one for each datagram.
                assert all(first is second for first, second in zip(addresses[::2], addresses[1::2], strict=True))

    if not hasattr(socket, family) or (family == "AF_INET6" and not socket.has_ipv6):
        pytest.skip(f"this Python has no {family}")
    loop.run_until_complete(main())
