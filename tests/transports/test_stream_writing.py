"""Stream transports: written data arrives once, in order and unchanged."""

import array
import asyncio
import hashlib
import random
import select
import socket
import sys

import pytest
from support.recording import Recorder
from support.stepping import run_once, run_until
from support.stream_connections import (
    HAS_UNIX,
    KINDS,
    MORE_THAN_FITS,
    connections_on,
    skip_on_asyncio,
    wait_for,
)

SINCE_3_12 = sys.version_info >= (3, 12)
WRITELINES_IS_FAULTY = (3, 12) <= sys.version_info < (3, 14, 10)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def connections(loop):
    with connections_on(loop) as connections:
        yield connections


def skip_where_mutable_data_is_kept(transport):
    if SINCE_3_12:
        skip_on_asyncio(transport, "since CPython 3.12 it queues the caller's own buffer, without a copy")


@every_kind
@pytest.mark.parametrize(
    "data",
    [
        b"data",
        bytearray(b"data"),
        memoryview(b"data"),
        memoryview(bytearray(b"+data+"))[1:5],
        memoryview(b"d.a.t.a.")[::2].tobytes(),
        memoryview(array.array("I", [1, 2, 3])),
        type("Bytes", (bytes,), {})(b"data"),
        type("ByteArray", (bytearray,), {})(b"data"),
    ],
    ids=["bytes", "bytearray", "memoryview", "slice", "strided", "items", "bytes subclass", "bytearray subclass"],
)
def test_one_write(loop, connections, kind, data):
    connection = connections.open(kind)
    assert connection.transport.write(data) is None
    assert connection.receive(len(bytes(data))) == bytes(data)
    if isinstance(data, memoryview) and data.itemsize > 1 and SINCE_3_12:
        skip_on_asyncio(connection.transport, "its writelines() counts items as bytes", mended=True)
    assert connection.transport.writelines([data, data]) is None
    assert connection.receive(len(bytes(data)) * 2) == bytes(data) * 2


@every_kind
def test_many_writes_in_one_turn_arrive_in_order(loop, connections, kind):
    connection = connections.open(kind)
    expected = []

    def burst():
        for number in range(10_000):
            piece = b"%d;" % number * (number % 13)
            expected.append(piece)
            if number % 10:
                connection.transport.write(piece)
            else:
                connection.transport.writelines([b"begin", piece or b"-", b"end"])
                expected[-1:] = [b"begin", piece or b"-", b"end"]

    loop.call_soon(burst)
    run_once(loop)
    data = b"".join(expected)
    assert connection.receive(len(data)) == data


@every_kind
@pytest.mark.parametrize(
    "sizes",
    [[1, 1], [1, 4095], [4095, 1], [4096, 1], [1, 4096], [2048, 2048, 1], [64] * 64, [64] * 65, [4096, 4096]],
    ids=str,
)
def test_pieces_that_are_joined_and_pieces_that_are_not(loop, connections, kind, sizes):
    """Up to 4 KiB in several pieces is copied into one, by the compiled implementation."""
    connection = connections.open(kind)
    pieces = [random.randbytes(size) for size in sizes]

    def write():
        for piece in pieces:
            connection.transport.write(piece)

    loop.call_soon(write)
    run_once(loop)
    assert connection.receive(sum(sizes)) == b"".join(pieces)
    written = connection.fill()
    write()
    assert connection.receive(written + sum(sizes))[written:] == b"".join(pieces)


@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_writes_and_writelines_mixed(loop, connections, turn):
    connection = connections.open("tcp")

    def write():
        connection.transport.write(b"1")
        connection.transport.writelines([b"2", b"3"])
        connection.transport.write(bytearray(b"4"))
        connection.transport.writelines([memoryview(b"5"), bytearray(b"6")])
        connection.transport.write(b"7")

    if turn == "inside":
        loop.call_soon(write)
    else:
        write()
    assert connection.receive(7) == b"1234567"


def test_more_pieces_than_one_system_call_takes(loop, connections):
    """IOV_MAX is 1024 on Linux and on macOS."""
    connection = connections.open("tcp")
    pieces = [b"%d," % number for number in range(5000)]
    connection.transport.writelines(pieces)
    assert connection.receive(len(b"".join(pieces))) == b"".join(pieces)
    written = connection.fill()
    connection.transport.writelines(pieces)
    for piece in pieces:
        connection.transport.write(piece)
    data = connection.receive(written + 2 * len(b"".join(pieces)))
    assert data[written:] == b"".join(pieces) * 2


@pytest.mark.parametrize("make", [lambda lines: iter(lines), tuple, lambda lines: (line for line in lines)])
def test_writelines_takes_any_iterable(loop, connections, make):
    connection = connections.open()
    connection.transport.writelines(make([b"a", b"b", b"c"]))
    assert connection.receive(3) == b"abc"


def test_an_iterable_that_fails(loop, connections):
    connection = connections.open()

    def lines():
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.transport.writelines(lines())
    run_once(loop, 2)
    assert not connection.protocol.lost


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")], ids=["bytes", "bytearray", "memoryview"])
def test_writing_nothing(loop, connections, empty):
    connection = connections.open()
    connection.transport.write(empty)
    connection.transport.writelines([])
    run_once(loop, 2)
    assert connection.transport.get_write_buffer_size() == 0
    connection.transport.write(b"something")
    assert connection.receive(9) == b"something"
    connection.transport.close()
    connection.transport.write(empty)
    connection.run_until_lost()
    connection.transport.write(empty)


def test_writing_lines_of_nothing(loop, connections):
    connection = connections.open()
    if WRITELINES_IS_FAULTY:
        skip_on_asyncio(connection.transport, "an empty chunk is never drained, see cpython gh-155888", mended=True)
    connection.transport.writelines([b"", b""])
    connection.transport.writelines([b"", b"some", b"", b"thing", b""])
    assert connection.receive(9) == b"something"
    connection.transport.close()
    connection.run_until_lost()


@pytest.mark.skipif(not SINCE_3_12, reason="until CPython 3.11 writelines() joins its argument and calls write()")
@every_kind
@pytest.mark.parametrize("closing", [False, True], ids=["open", "closing"])
def test_writelines_tries_at_once_what_the_kernel_did_not_take_before(connections, kind, closing):
    connection = connections.open(kind)
    transport = connection.transport
    transport.set_write_buffer_limits(0)
    while not transport.get_write_buffer_size():
        transport.write(bytes(4096))
    if closing:
        transport.close()
        if getattr(transport, "_write_ready", transport) is None:
            skip_on_asyncio(transport, "until CPython 3.13.0 its writelines() cannot send after close()")
    while connection.peer_read(1 << 20):
        pass
    wait_for(connection.socket, select.POLLOUT)
    transport.writelines([b"la", b"st"])
    assert transport.get_write_buffer_size() == 0
    assert connection.protocol.calls[1:] == ["pause_writing", "resume_writing", "connection_lost"][: 2 + closing]
    transport.close()
    assert connection.receive_all().endswith(b"last")


@pytest.mark.skipif(not SINCE_3_12, reason="until CPython 3.11 writelines() joins its argument and calls write()")
@pytest.mark.skipif(not HAS_UNIX, reason="TCP makes room by itself")
def test_writelines_resumes_nothing_if_the_kernel_is_still_full(connections):
    connection = connections.open("pair")
    transport = connection.transport
    transport.set_write_buffer_limits(0)
    transport.write(bytes(MORE_THAN_FITS))
    assert connection.protocol.calls[1:] == ["pause_writing"]
    transport.set_write_buffer_limits(4 * MORE_THAN_FITS)
    transport.writelines([b"la", b"st"])
    assert connection.protocol.calls[1:] == ["pause_writing"]
    transport.abort()


@pytest.mark.skipif(not SINCE_3_12, reason="until CPython 3.11 writelines() joins its argument and calls write()")
def test_lines_are_not_looked_at_once_the_connection_is_lost(connections):
    connection = connections.open()
    transport = connection.transport
    if WRITELINES_IS_FAULTY:
        skip_on_asyncio(transport, "it fails on a closed transport", mended=True)
    transport.abort()
    lines = iter([5, b"not taken"])
    transport.writelines(lines)
    transport.writelines([b"fine", "text"])
    assert list(lines) == [5, b"not taken"]
    connection.run_until_lost()
    transport.writelines([5])
    assert transport._conn_lost == 4  # by abort(), and counted on by each writelines()


class RaisesLimits(asyncio.Protocol):
    def __init__(self, transport):
        self.transport, self.calls = transport, []

    def pause_writing(self):
        self.calls.append("pause_writing")
        self.transport.set_write_buffer_limits(16 * MORE_THAN_FITS)

    def resume_writing(self):
        self.calls.append("resume_writing")


@pytest.mark.skipif(not SINCE_3_12, reason="until CPython 3.11 writelines() joins its argument and calls write()")
@every_kind
def test_limits_that_pause_writing_has_raised_in_writelines(connections, kind):
    connection = connections.open(kind)
    transport = connection.transport
    if WRITELINES_IS_FAULTY:
        skip_on_asyncio(transport, "its writelines() pauses no protocol", mended=True)
    transport.set_write_buffer_limits(2 * MORE_THAN_FITS)
    transport.write(bytes(MORE_THAN_FITS))
    transport.set_protocol(RaisesLimits(transport))
    transport.writelines([bytes(2 * MORE_THAN_FITS)])
    assert transport.get_protocol().calls == ["pause_writing"]
    transport.abort()


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


WRONG = ["text", 5, None, 1.5, [b"bytes"], object, array.array("B", b"bytes")]


@pytest.mark.parametrize("method", ["write", "writelines"])
@pytest.mark.parametrize("number", range(len(WRONG)))
@pytest.mark.parametrize("blocked", [False, True])
def test_what_cannot_be_written(load_implementation, impl, method, number, blocked):
    """The call raises asyncio's exception, or none if the running Python's asyncio raises none; the transport goes
    on."""

    def attempt(implementation):
        loop = implementation.new_event_loop()
        try:
            with connections_on(loop) as connections:
                connection = connections.open()
                written = connection.fill() if blocked else 0
                result = outcome(getattr(connection.transport, method), WRONG[number])
                connection.transport.write(b"goes on")
                return result, connection.receive(written + 7)[written:]
        finally:
            loop.close()

    expected = attempt(load_implementation("asyncio"))
    assert attempt(impl) == expected
    if method == "write":
        assert expected[0][0] is TypeError


@pytest.mark.parametrize("lines", [["text"], [b"bytes", "text"], [object()], [b"bytes", 5]])
def test_lines_that_cannot_be_written(loop, connections, lines):
    connection = connections.open()
    with pytest.raises(TypeError):
        connection.transport.writelines(lines)
    run_once(loop, 2)
    assert not connection.protocol.lost
    connection.transport.write(b"goes on")
    connection.transport.close()
    assert connection.receive_all().endswith(b"goes on")


@pytest.mark.parametrize("method", ["write", "writelines"])
def test_a_view_with_gaps_ends_the_connection(loop, connections, method):
    """The system calls refuse such a buffer; asyncio reports their error and closes."""
    connection = connections.open()
    gapped = memoryview(b"abcdef")[::2]
    if method == "write":
        connection.transport.write(gapped)
    elif SINCE_3_12:
        connection.transport.writelines([gapped, b"end"])
    else:
        pytest.skip("before CPython 3.12 writelines() joined the items, and so raised a TypeError")
    connection.run_until_lost()
    (report,) = connections.take_reports()
    assert report["message"] == "Fatal write error on socket transport"
    assert isinstance(report["exception"], BufferError) and connection.protocol.error is report["exception"]
    assert connection.receive_all() == b""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "unix"])
@pytest.mark.parametrize("pieces", [1, 512])
@pytest.mark.parametrize("method", ["write", "writelines"])
def test_big_buffers_arrive_intact_at_a_slow_reader(loop, connections, kind, pieces, method):
    connection = connections.open(kind)
    total = 32 << 20
    blocks = [bytes([number % 251]) * (total // pieces) for number in range(pieces)]
    expected = hashlib.sha256(b"".join(blocks)).digest()
    received = hashlib.sha256()
    count = 0

    def slow_reader():
        nonlocal count
        data = connection.peer_read(65536 if pieces > 1 else 1 << 20)
        if data:
            received.update(data)
            count += len(data)
        if count < total:
            loop.call_soon(slow_reader)

    if method == "writelines":
        connection.transport.writelines(blocks)
    else:
        for block in blocks:
            connection.transport.write(block)
    slow_reader()
    run_until(loop, lambda: count == total)
    assert received.digest() == expected
    assert connection.transport.get_write_buffer_size() == 0


@pytest.mark.promise("P28")
def test_a_small_buffer_changed_at_once(loop, connections):
    """Whether a write reaches the kernel now or at the end of the turn, it sends the bytes at the time of the call."""
    connection = connections.open("tcp")
    buffer = bytearray(4)

    def burst():
        for number in range(100):
            buffer[:] = b"%04d" % number
            write = connection.transport.write
            if number % 3 == 0:
                write(buffer)
            elif number % 3 == 1:
                write(memoryview(buffer))
            else:
                connection.transport.writelines([buffer])
        buffer[:] = b"oops"
        del buffer[:]

    loop.call_soon(burst)
    run_once(loop)
    assert connection.receive(400) == b"".join(b"%04d" % number for number in range(100))


@pytest.mark.promise("P28")
@pytest.mark.parametrize("view", [lambda data: data, memoryview], ids=["bytearray", "memoryview"])
@pytest.mark.parametrize("method", ["write", "writelines"])
@pytest.mark.parametrize("blocked", [False, True])
def test_a_big_buffer_changed_while_it_waits(loop, connections, view, method, blocked):
    connection = connections.open("tcp")
    skip_where_mutable_data_is_kept(connection.transport)
    written = connection.fill() if blocked else 0
    buffer = bytearray(b"0123456789" * (MORE_THAN_FITS // 10))
    original = bytes(buffer)
    given = view(buffer)
    if method == "write":
        connection.transport.write(given)
    else:
        connection.transport.writelines([given[:1000], given[1000:]] if blocked else [given])
    buffer[:] = bytes(len(buffer))
    assert connection.receive(written + len(original))[written:] == original


@pytest.mark.promise("P28")
def test_a_buffer_that_waits_may_be_resized(loop, connections):
    connection = connections.open("tcp")
    skip_where_mutable_data_is_kept(connection.transport)
    buffer = bytearray(MORE_THAN_FITS)
    connection.transport.write(buffer)
    buffer.clear()
    connection.transport.write(memoryview(buffer := bytearray(b"tail")))
    del buffer[:]
    assert connection.receive(MORE_THAN_FITS + 4)[-4:] == b"tail"


def test_a_big_view_of_items_that_are_no_bytes(loop, connections):
    connection = connections.open("tcp")
    skip_on_asyncio(connection.transport, "after a partial send it drops as many items as bytes were sent", mended=True)
    items = array.array("Q", range(MORE_THAN_FITS // 8))
    connection.transport.write(memoryview(items))
    assert connection.receive(MORE_THAN_FITS) == items.tobytes()


def test_writing_from_every_callback(loop, connections):
    """Each callback writes on the transport, and all of it arrives in the order in which it was written."""
    protocol = Recorder()
    names = ["connection_made", "data_received", "pause_writing", "resume_writing", "eof_received"]
    for name in names:
        protocol.hooks[name] = lambda name=name: protocol.transport.write(f"<{name}>".encode()) or True
    protocol.hooks["connection_lost"] = lambda: protocol.transport.write(b"never sent")
    connection = connections.open("tcp", protocol)
    connection.send(b"data")
    run_until(loop, lambda: protocol.received)
    connection.transport.write(b"f" * MORE_THAN_FITS)
    text = b"<connection_made><data_received>" + b"f" * MORE_THAN_FITS + b"<pause_writing>"
    assert connection.receive(len(text)) == text
    text = b"<resume_writing>"
    assert connection.receive(len(text)) == text
    connection.end()
    text = b"<eof_received>"
    assert connection.receive(len(text)) == text
    connection.transport.close()
    assert connection.receive_all() == b""


def test_an_answer_to_each_piece_of_a_flood(loop, connections):
    """Echo: the peer sends on while the answers pile up, and reads them later."""
    protocol = Recorder()
    connection = connections.open("tcp", protocol)
    echoed = 0

    def echo():
        nonlocal echoed
        connection.transport.write(protocol.received[echoed:])
        echoed = len(protocol.received)

    protocol.hooks["data_received"] = echo
    flood = bytes(range(251)) * 20_000
    sent = 0
    while sent < len(flood):
        try:
            sent += connection.peer.send(memoryview(flood)[sent:])
        except BlockingIOError:
            run_once(loop)
    assert connection.receive(len(flood)) == flood


def test_two_transports_write_to_each_other(loop, connections):
    one = connections.open("tcp")
    other = connections.over(one.peer.dup(), socket.socket(), Recorder())
    total = 8 << 20
    one.transport.write(bytes(total))
    other.transport.write(bytes(total))
    run_until(loop, lambda: len(one.protocol.received) == len(other.protocol.received) == total)


def test_nothing_else_is_written_during_sendfile(loop, connections, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * MORE_THAN_FITS)
    connection = connections.open("tcp")

    async def main():
        with open(path, "rb") as file:
            sending = asyncio.ensure_future(loop.sendfile(connection.transport, file))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match=r"^unable to write; sendfile is in progress$"):
                connection.transport.write(b"in between")
            with pytest.raises(RuntimeError, match=r"^unable to write(lines)?; sendfile is in progress$"):
                connection.transport.writelines([b"in between"])
            while not sending.done():
                connection.peer_read(1 << 20)
                await asyncio.sleep(0)
            assert await sending == MORE_THAN_FITS
        connection.transport.write(b"afterwards")

    loop.run_until_complete(main())
    connection.transport.close()
    assert connection.receive_all().endswith(b"afterwards")


async def written_lines(loop, lines):
    """What the peer gets of writelines(lines), and the exception that it raises."""
    one, other = socket.socketpair()
    other.setblocking(False)
    with other:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        try:
            transport.writelines(lines)
        except TypeError as error:
            raised = type(error)
            transport.abort()  # asyncio of Python 3.15 keeps the lines before the wrong one, and never sends them
        else:
            raised = None
            transport.close()
        await asyncio.sleep(0)
        return await loop.sock_recv(other, 100), raised


@pytest.mark.parametrize("lines", [[b"a", None, b"b"], ["", b"a"], [0, []], [b"", bytearray(), b"a"], [b"a", "text"]])
def test_lines_that_are_false(loop, load_implementation, lines):
    oracle = load_implementation("asyncio").new_event_loop()
    try:
        expected = oracle.run_until_complete(written_lines(oracle, lines))
    finally:
        oracle.close()
    received, raised = loop.run_until_complete(written_lines(loop, lines))
    assert raised == expected[1]
    if raised is None:
        assert received == expected[0]
    else:
        assert received == b""
