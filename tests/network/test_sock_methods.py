"""The sock_* methods that receive and send: at once or after waiting, cancelled, timed out, two at a time."""

import array
import asyncio
import errno
import socket

import pytest
from support.endpoints import assert_free, cancelled, counted_turns, datagram_pair, fill_socket, started, turns
from support.python_buffers import PythonBuffer, needs_python_buffers


async def recv(loop, sock):
    return await loop.sock_recv(sock, 100)


async def recv_into(loop, sock):
    buffer = bytearray(100)
    return bytes(buffer[: await loop.sock_recv_into(sock, buffer)])


async def recvfrom(loop, sock):
    return (await loop.sock_recvfrom(sock, 100))[0]


async def recvfrom_into(loop, sock):
    buffer = bytearray(100)
    return bytes(buffer[: (await loop.sock_recvfrom_into(sock, buffer))[0]])


receiving = pytest.mark.parametrize("receive", [recv, recv_into, recvfrom, recvfrom_into])


async def read_exactly(loop, sock, size):
    received = bytearray()
    while len(received) < size:
        received += await loop.sock_recv(sock, 65536)
    return bytes(received)


@receiving
def test_receiving_at_once(loop, pair, receive):
    async def main():
        pair[1].send(b"there already")
        assert await receive(loop, pair[0]) == b"there already"
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


@receiving
def test_receiving_at_once_takes_no_turn_of_the_loop(loop, pair, receive):
    async def main():
        others = []
        loop.call_soon(others.append, 1)
        for _ in range(3):
            pair[1].send(b"x")
            assert await receive(loop, pair[0]) == b"x"
        assert others == []

    loop.run_until_complete(main())


@receiving
def test_receiving_after_waiting(loop, pair, receive):
    async def main():
        for number in range(3):
            waiting = await started(receive(loop, pair[0]))
            pair[1].send(b"later %d" % number)
            assert await waiting == b"later %d" % number
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


@receiving
@pytest.mark.parametrize("before", [True, False])
def test_receiving_the_end(loop, pair, receive, before):
    async def main():
        if before:
            pair[1].close()
        waiting = asyncio.ensure_future(receive(loop, pair[0]))
        await turns(2)
        pair[1].close()
        assert await waiting == b""
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


async def connected(loop, listener, client):
    """Connect `client`; return the server's end of the TCP connection."""
    _, (server, _) = await asyncio.gather(loop.sock_connect(client, listener.getsockname()), loop.sock_accept(listener))
    return server


def reset(sock):
    """Close with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


@receiving
def test_the_peer_resets_while_one_receives(loop, listener, client, receive):
    async def main():
        server = await connected(loop, listener, client)
        waiting = await started(receive(loop, client))
        reset(server)
        with pytest.raises(ConnectionResetError):
            await waiting
        assert_free(loop, client)

    loop.run_until_complete(main())


def test_the_peer_resets_while_one_sends(loop, listener, client):
    async def main():
        server = await connected(loop, listener, client)
        waiting = await started(loop.sock_sendall(client, bytes(10_000_000)))
        reset(server)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await waiting
        assert_free(loop, client)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await loop.sock_sendall(client, b"x")

    loop.run_until_complete(main())


@receiving
def test_a_cancelled_receive_leaves_nothing_behind(loop, pair, receive):
    async def main():
        for _ in range(3):
            await cancelled(await started(receive(loop, pair[0])))
            assert_free(loop, pair[0])
        pair[1].send(b"still here")
        assert await receive(loop, pair[0]) == b"still here"

    loop.run_until_complete(main())


@receiving
def test_cancelled_before_it_began(loop, pair, receive):
    async def main():
        pair[1].send(b"still here")
        task = asyncio.ensure_future(receive(loop, pair[0]))
        await cancelled(task)
        assert_free(loop, pair[0])
        assert await receive(loop, pair[0]) == b"still here"

    loop.run_until_complete(main())


@receiving
def test_cancelled_in_the_turn_in_which_data_arrives(loop, pair, receive):
    """The cancellation runs first, so data that has arrived meanwhile is left for the next call."""

    async def main():
        task = await started(receive(loop, pair[0]))
        loop.call_soon(task.cancel)
        pair[1].send(b"still here")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await receive(loop, pair[0]) == b"still here"
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


@receiving
def test_timeouts(loop, pair, receive):
    async def main():
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(loop, pair[0]), 0.001)
            assert_free(loop, pair[0])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await receive(loop, pair[0])
            assert_free(loop, pair[0])
        pair[1].send(b"in time")
        assert await asyncio.wait_for(receive(loop, pair[0]), 60) == b"in time"

    loop.run_until_complete(main())


def test_both_directions_of_one_socket(loop, pair):
    """Each direction goes on when the other ends or is cancelled."""
    one, other = pair

    async def main():
        for first_ends_by in ("success", "cancel"):
            sending = await started(loop.sock_sendall(one, bytes(3_000_000)))
            receiving = await started(loop.sock_recv(one, 100))
            if first_ends_by == "cancel":
                await cancelled(receiving)
            else:
                other.send(b"answer")
                assert await receiving == b"answer"
            assert await read_exactly(loop, other, 3_000_000) == bytes(3_000_000)
            await sending

            receiving = await started(loop.sock_recv(one, 100))
            sent = fill_socket(one)
            sending = await started(loop.sock_sendall(one, b"y"))
            if first_ends_by == "cancel":
                await cancelled(sending)
                await read_exactly(loop, other, sent)
            else:
                assert (await read_exactly(loop, other, sent + 1))[-1:] == b"y"
                await sending
            other.send(b"answer")
            assert await receiving == b"answer"
            assert_free(loop, one)

    loop.run_until_complete(main())


def test_the_last_waiter_in_a_direction_gets_the_event(loop, pair):
    """asyncio does not support two waiters in one direction, but the end of the first must not disturb the second."""
    one, other = pair

    async def main():
        first = await started(loop.sock_recv(one, 100))
        second = await started(loop.sock_recv(one, 100))
        await cancelled(first)
        other.send(b"for the second")
        assert await second == b"for the second"
        assert_free(loop, one)

    loop.run_until_complete(main())


def test_recv_into_parts_of_a_buffer(loop, pair):
    one, other = pair

    async def main():
        buffer = bytearray(b"." * 10)
        other.send(b"abcde")
        assert await loop.sock_recv_into(one, memoryview(buffer)[2:5]) == 3
        assert buffer == b"..abc....."
        assert await loop.sock_recvfrom_into(one, buffer, 2) == (2, None)
        assert buffer == b"deabc....."
        waiting = await started(loop.sock_recvfrom_into(one, memoryview(buffer)[6:], 2))
        other.send(b"xyz")
        assert await waiting == (2, None)
        assert buffer == b"deabc.xy.."
        buffer.append(0)  # fails if the buffer is still exported

    loop.run_until_complete(main())


def test_a_buffer_is_let_go_by_a_cancelled_receive(loop, pair):
    async def main():
        buffer = bytearray(10)
        await cancelled(await started(loop.sock_recv_into(pair[0], buffer)))
        buffer.append(0)
        await cancelled(await started(loop.sock_recvfrom_into(pair[0], buffer)))
        buffer.append(0)

    loop.run_until_complete(main())


def test_datagrams(loop):
    async def main():
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            for sock in (one, other):
                sock.bind(("127.0.0.1", 0))
                sock.setblocking(False)
            waiting = await started(loop.sock_recvfrom(one, 100))
            assert await loop.sock_sendto(other, b"question", one.getsockname()) == 8
            assert await waiting == (b"question", other.getsockname())
            buffer = bytearray(100)
            waiting = await started(loop.sock_recvfrom_into(other, buffer))
            assert await loop.sock_sendto(one, memoryview(b"answer"), other.getsockname()) == 6
            assert await waiting == (6, one.getsockname())
            assert await loop.sock_sendto(one, b"", other.getsockname()) == 0
            assert await loop.sock_recvfrom(other, 100) == (b"", one.getsockname())
            with pytest.raises(OSError) as caught:
                await loop.sock_sendto(one, bytes(70_000), other.getsockname())
            assert caught.value.errno == errno.EMSGSIZE

    loop.run_until_complete(main())


def test_sendto_waits_for_room(loop, tmp_path):
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        one.setblocking(False)
        other.setblocking(False)
        path = str(tmp_path / "socket")
        other.bind(path)
        # The kernel does not tell an unconnected sender that its target has room again, so the socket itself must be
        # full.
        one.connect(path)

        async def main():
            sent = 0
            try:
                while True:
                    sent += bool(one.sendto(b"filler", path))
            except BlockingIOError:
                pass
            await cancelled(await started(loop.sock_sendto(one, b"cancelled", path)))
            assert_free(loop, one)
            waiting = await started(loop.sock_sendto(one, b"last", path))
            received = [other.recv(100) for _ in range(sent)]
            assert await waiting == 4
            assert [*received, other.recv(100)] == [b"filler"] * sent + [b"last"]
            assert_free(loop, one)

        loop.run_until_complete(main())


SEND_TYPES = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "a part": lambda data: memoryview(b"xx" + data + b"yy")[2:-2],
    "read-only": lambda data: memoryview(bytearray(data)).toreadonly(),
    "signed bytes": lambda data: memoryview(data).cast("b"),
    "characters": lambda data: memoryview(data).cast("c"),
}


@pytest.mark.parametrize("make", SEND_TYPES.values(), ids=SEND_TYPES)
@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_sendall_against_a_slow_reader(loop, pair, make, size):
    one, other = pair
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def main():
        sending = asyncio.ensure_future(loop.sock_sendall(one, make(data)))
        received = bytearray()
        while len(received) < size:
            await turns(3)
            received += await loop.sock_recv(other, 50_000)
        assert await sending is None
        assert received == data
        assert_free(loop, one)

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio takes the number of items for the number of bytes, and never ends")
@pytest.mark.parametrize("make", [lambda data: array.array("I", data), lambda data: memoryview(data).cast("I")])
@pytest.mark.parametrize("size", [4, 3_000_000])
def test_sendall_sends_bytes_whatever_the_items_are(loop, pair, make, size):
    one, other = pair
    data = bytes(number % 251 for number in range(size))

    async def main():
        sending = asyncio.ensure_future(loop.sock_sendall(one, make(data)))
        received = bytearray()
        while len(received) < size:
            received += await loop.sock_recv(other, 50_000)
        assert await sending is None
        assert received == data
        assert_free(loop, one)

    loop.run_until_complete(main())


def test_a_bytearray_cannot_be_resized_while_it_is_sent(loop, pair):
    async def main():
        data = bytearray(10_000_000)
        sending = await started(loop.sock_sendall(pair[0], data))
        with pytest.raises(BufferError):
            data.append(1)
        await cancelled(sending)
        data.append(1)

    loop.run_until_complete(main())


@pytest.mark.parametrize("nothing", [b"", bytearray()])
def test_sendall_of_nothing_does_not_wait(loop, nothing):
    one, other = datagram_pair()
    with one, other:
        fill_socket(one)
        assert loop.run_until_complete(loop.sock_sendall(one, nothing)) is None


def test_a_cancelled_sendall_sends_no_more(loop, pair):
    one, other = pair

    async def main():
        sending = await started(loop.sock_sendall(one, bytes(10_000_000)))
        await cancelled(sending)
        assert_free(loop, one)
        received = 0
        try:
            while True:
                received += len(other.recv(1_000_000))
                await turns(2)
        except BlockingIOError:
            pass
        assert 0 < received < 10_000_000
        await loop.sock_sendall(one, b"goes on")
        assert await loop.sock_recv(other, 100) == b"goes on"

    loop.run_until_complete(main())


def test_the_loop_sleeps_while_all_methods_wait(loop, pair, listener):
    """A waiting method costs no iterations: the loop runs the next one when there is work."""
    turns = counted_turns(loop)

    async def main():
        tasks = [await started(loop.sock_recv(pair[0], 1)), await started(loop.sock_accept(listener))]
        del turns[:]
        await asyncio.sleep(0.02)
        assert len(turns) < 10
        for task in tasks:
            await cancelled(task)

    loop.run_until_complete(main())


def test_descriptors_of_closed_sockets_are_used_again(loop):
    """A new socket reuses the number of a closed one that was waited on; nothing was sent to that one."""

    async def main():
        for number in range(50):
            one, other = socket.socketpair()
            fd = one.fileno()
            with one, other:
                one.setblocking(False)
                task = await started(loop.sock_recv(one, 1))
                await cancelled(task)
            new, peer = socket.socketpair()
            with new, peer:
                assert fd in (new.fileno(), peer.fileno())
                new.setblocking(False)
                waiting = await started(loop.sock_recv(new, 10))
                peer.send(b"%d" % number)
                assert await waiting == b"%d" % number
                assert_free(loop, new)

    loop.run_until_complete(main())


def pair_in_place_of(sock):
    """Close the socket; one of the new sockets has its number."""
    number = sock.fileno()
    sock.close()
    pair = socket.socketpair()
    assert number in [end.fileno() for end in pair]
    return pair


@needs_python_buffers
@pytest.mark.parametrize("method", ["sock_sendall", "sock_recv_into", "sock_recvfrom_into"])
def test_a_buffer_that_closes_the_socket_when_it_is_asked_for_its_memory(loop, pair, method):
    """Another file gets the number, and nothing of it is read or written."""
    ours, others = pair[0], []

    def close_the_socket():
        if not others:
            others.extend(pair_in_place_of(ours))
            for other in others:
                other.setblocking(False)
                other.send(b"another file's")

    async def main():
        await getattr(loop, method)(ours, PythonBuffer(bytearray(100), when_asked=close_the_socket))

    with pytest.raises(OSError) as caught:
        loop.run_until_complete(main())
    assert caught.value.errno == errno.EBADF
    for other in others:
        with other:
            assert other.recv(100) == b"another file's"


@needs_python_buffers
@pytest.mark.parametrize("method", ["sock_recv_into", "sock_recvfrom_into"])
def test_a_buffer_that_closes_the_socket_when_it_gives_its_memory_back(loop, pair, method):
    """Nothing has come. Another file gets the number, and the operation does not wait for it."""
    ours, others = pair[0], []

    def close_the_socket():
        if not others:
            others.extend(pair_in_place_of(ours))

    buffer = PythonBuffer(bytearray(100), when_released=close_the_socket)
    with pytest.raises(ValueError, match=r"Invalid file descriptor: -1"):
        loop.run_until_complete(getattr(loop, method)(ours, buffer))
    for other in others:
        with other:
            assert_free(loop, other)


@needs_python_buffers
def test_a_buffer_that_is_another_one_each_time(loop, pair):
    """What the first system call does not take comes from the second buffer to the end, and is all sent."""
    size = 4_000_000
    ours, theirs = pair

    class Buffer:
        contents = iter([b"a" * size, b"b" * size, b"too short"])

        def __len__(self):
            return size

        def __buffer__(self, flags):
            return memoryview(next(self.contents))

    async def main():
        sending = loop.create_task(loop.sock_sendall(ours, Buffer()))
        sending.add_done_callback(lambda _: ours.close())
        received = bytearray()
        while data := await loop.sock_recv(theirs, 1_000_000):
            received += data
        await sending
        return received

    received = loop.run_until_complete(main())
    assert len(received) == size
    assert received.rstrip(b"b").strip(b"a") == b""
