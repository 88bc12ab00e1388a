"""TLS: which objects may be written and when, from every callback too, and when the protocol is told to pause and to
resume."""

import asyncio
import contextlib
import functools
import random

import pytest
from support.certificates import every_version
from support.python_buffers import PythonData, fail, needs_python_buffers
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, WritingData, skip_on_asyncio
from support.tls_connections import PIECE, ViewRecorder, every_protocol, every_side

RECORD = 16384  # bytes; the most that one record of TLS carries
MUCH = random.Random(0).randbytes(2_000_000)
LOST = "SSL connection is closed"


@every_side
@every_version
@pytest.mark.parametrize(
    "data",
    [
        b"data",
        bytearray(b"data"),
        memoryview(b"data"),
        memoryview(bytearray(b"__data__"))[2:-2],
        type("Bytes", (bytes,), {})(b"data"),
        type("ByteArray", (bytearray,), {})(b"data"),
    ],
    ids=["bytes", "bytearray", "memoryview", "slice", "bytes subclass", "bytearray subclass"],
)
def test_one_write(tls, side, version, data):
    connection = tls.open(side, version=version)
    assert connection.transport.write(data) is None
    assert connection.receive(4) == b"data"
    assert connection.transport.writelines([data, data]) is None
    assert connection.receive(8) == b"datadata"


@pytest.mark.parametrize(
    "view", [memoryview(b"d.a.t.a.")[::2], memoryview(b"datadata").cast("I")], ids=["strided", "items"]
)
def test_views_of_other_shapes(tls, view):
    connection = tls.open()
    skip_on_asyncio(connection.transport, "OpenSSL takes only contiguous bytes, and the connection is lost")
    connection.transport.write(view)
    connection.transport.writelines([view, view])
    assert connection.receive(3 * len(view.tobytes())) == view.tobytes() * 3


@every_version
@pytest.mark.parametrize("size", [0xFFFC, 0x10000, 0x10004, 300_000])
@pytest.mark.parametrize("shape", ["bytearray", "slice", "strided", "items"])
def test_large_data_in_memory_that_changes(tls, version, shape, size):
    """The data keeps its place between waiting writes, also while writing is paused; later changes to its memory have
    no effect."""
    connection = tls.open(version=version)
    if shape in ("strided", "items"):
        skip_on_asyncio(connection.transport, "OpenSSL takes only contiguous bytes, and the connection is lost")
    memory = bytearray(random.Random(size).randbytes(2 * size))
    whole = memoryview(memory)
    data = {"bytearray": memory, "slice": whole[4:size], "strided": whole[::2], "items": whole.cast("I")}[shape]
    sent = bytes(data)

    def burst():
        for line in (b"before", data, b"between", data, b"after"):
            connection.transport.write(line)
        memory[:] = bytes(len(memory))

    tls.loop.call_soon(burst)
    run_once(tls.loop)
    expected = b"before" + sent + b"between" + sent + b"after"
    assert connection.receive(len(expected)) == expected
    # Alone: nothing waits before it.
    memory[:] = bytes(b"\1" * len(memory))
    sent = bytes(data)
    connection.transport.write(data)
    memory[:] = bytes(len(memory))
    assert connection.receive(len(sent)) == sent
    for view in (data, whole):
        if view is not memory:
            view.release()
    memory.clear()  # the transport holds no reference


@pytest.mark.parametrize("data", ["text", None, 1, [b"data"], b"data".__iter__()], ids=lambda data: type(data).__name__)
def test_what_cannot_be_written(tls, data):
    connection = tls.open()
    with pytest.raises(TypeError, match="expecting a bytes-like"):
        connection.transport.write(data)
    connection.transport.close()
    with pytest.raises(TypeError, match="expecting a bytes-like"):
        connection.transport.write(data)


@pytest.mark.parametrize("lines", [None, 1, [1], [b"data", None]], ids=str)
def test_what_cannot_be_written_as_lines(tls, lines):
    connection = tls.open()
    with pytest.raises(TypeError):
        connection.transport.writelines(lines)
    run_once(tls.loop, 3)
    assert not connection.transport.is_closing() and not connection.protocol.lost


def test_lines_of_text(tls):
    connection = tls.open()
    skip_on_asyncio(connection.transport, "it detects that in the middle of writing, and the connection is lost")
    with pytest.raises(TypeError):
        connection.transport.writelines(["text"])
    connection.transport.write(b"bytes")
    assert connection.receive(5) == b"bytes"


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")], ids=["bytes", "bytearray", "memoryview"])
@every_version
def test_writing_nothing(tls, empty, version):
    connection = tls.open(version=version)
    connection.transport.write(empty)
    connection.transport.writelines([])
    connection.transport.writelines([empty, b"some", empty, empty, b"thing", empty])
    assert connection.receive(9) == b"something"
    connection.transport.writelines(iter([empty]))
    assert connection.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize(
    "make", [iter, tuple, lambda lines: (line for line in lines)], ids=["iterator", "tuple", "gen"]
)
def test_writelines_takes_any_iterable(tls, make):
    connection = tls.open()
    connection.transport.writelines(make([b"a", bytearray(b"b"), memoryview(b"c")]))
    assert connection.receive(3) == b"abc"


def test_an_iterable_that_fails(tls):
    connection = tls.open()

    def lines():
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.transport.writelines(lines())
    run_once(tls.loop, 2)
    assert not connection.protocol.lost


def test_an_iterable_that_writes_and_then_fails(tls):
    """What it has written stays in the queue, although the kernel takes nothing."""
    connection = tls.open()
    filled = connection.fill()

    def lines():
        connection.transport.write(b"written")
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        connection.transport.writelines(lines())
    connection.transport.write(b" and more")
    assert connection.receive(filled + 7)[filled:].startswith(b"written")


@pytest.mark.parametrize("kind", KINDS)
@every_side
@pytest.mark.parametrize("size", [1, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD, 200_000, 5_000_000])
def test_sizes(tls, kind, side, size):
    connection = tls.open(side, kind=kind)
    data = random.Random(size).randbytes(size)
    connection.transport.write(data)
    assert connection.receive(size) == data
    assert connection.transport.get_write_buffer_size() == 0


@every_version
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_many_writes_in_one_turn_arrive_in_order(tls, version, turn):
    connection = tls.open("client", version=version)
    generator = random.Random(turn)
    pieces = [generator.randbytes(generator.choice([1, 10, 1000, 20_000])) for _ in range(300)]

    def burst():
        for number in range(0, len(pieces), 3):
            connection.transport.write(pieces[number])
            connection.transport.writelines(pieces[number + 1 : number + 3])

    if turn == "inside":
        tls.loop.call_soon(burst)
    else:
        burst()
    data = b"".join(pieces)
    assert connection.receive(len(data)) == data


def test_the_writes_of_one_turn_share_records(tls):
    """Several small writes take fewer bytes on the wire than a record each."""
    connection = tls.open(kind="tcp")
    skip_on_asyncio(connection.transport, "it makes a record of each write")
    tls.loop.call_soon(lambda: [connection.transport.write(b"x") for _ in range(1000)])
    run_once(tls.loop, 3)
    run_until(tls.loop, lambda: connection.transport.get_write_buffer_size() == 0)
    assert len(connection.peer.socket.recv(1 << 20)) < 2000
    connection.peer.socket.close()


@pytest.mark.promise("P28")
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_a_bytearray_that_changes_after_write(tls, turn):
    connection = tls.open(kind="tcp")
    expected = bytearray()

    def burst():
        data = bytearray(PIECE)
        for number in range(100):
            data[:] = bytes([number]) * PIECE
            expected.extend(data)
            connection.transport.write(memoryview(data) if number % 2 else data)
        data.clear()  # the transport does not keep its memory either

    if turn == "inside":
        tls.loop.call_soon(burst)
        run_once(tls.loop)
    else:
        burst()
    assert connection.receive(len(expected)) == expected


@pytest.mark.only("c", reason="asyncio's TLS encrypts all of a write before it sends")
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_much_is_sent_while_the_rest_is_yet_to_be_encrypted(tls, kind):
    connection = tls.open(kind="tcp")
    before = tls.loop.metrics()
    connection.transport.write(kind(MUCH[:600_000]))
    assert (tls.loop.metrics() - before).sends > 1
    assert connection.receive(600_000) == MUCH[:600_000]


def test_there_is_no_half_closing(tls):
    connection = tls.open()
    assert connection.transport.can_write_eof() is False
    with pytest.raises(NotImplementedError):
        connection.transport.write_eof()
    connection.deliver(b"still there")


@every_side
def test_the_default_write_limits(tls, side):
    assert tls.open(side).transport.get_write_buffer_limits() == (128 << 10, 512 << 10)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((1000, 10), (10, 1000)), ((1000, None), (250, 1000)), ((None, 10), (10, 40)), ((7, 7), (7, 7))],
)
def test_write_limits(tls, limits, expected):
    transport = tls.open().transport
    transport.set_write_buffer_limits(*limits)
    assert transport.get_write_buffer_limits() == expected
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (128 << 10, 512 << 10)


@pytest.mark.parametrize("limits", [(10, 20), (-1, None), (None, -1), (0, 1)])
def test_write_limits_that_cannot_be(tls, limits):
    transport = tls.open().transport
    with pytest.raises(ValueError, match="must be >="):
        transport.set_write_buffer_limits(*limits)
    assert transport.get_write_buffer_limits() == (128 << 10, 512 << 10)


@every_side
@every_protocol
def test_a_peer_that_does_not_read(tls, side, make_protocol):
    connection = tls.open(side, make_protocol(), kind="tcp")
    for _ in range(3):
        written = connection.fill()
        assert connection.transport.get_write_buffer_size() >= connection.transport.get_write_buffer_limits()[1]
        assert connection.receive(written) == b"f" * written
        connection.run_until(lambda: connection.transport.get_write_buffer_size() == 0)
        assert not connection.writing_paused
    assert connection.protocol.calls == ["connection_made", *["pause_writing", "resume_writing"] * 3]


def test_writing_goes_on_when_no_more_than_the_low_limit_is_left(tls):
    connection = tls.open(kind="tcp")
    connection.transport.set_write_buffer_limits(high=1 << 20, low=700_000)
    sizes = []
    connection.protocol.hooks["resume_writing"] = lambda: sizes.append(connection.transport.get_write_buffer_size())
    written = connection.fill()
    connection.receive(written)
    assert len(sizes) == 1 and sizes[0] <= 700_000


def test_limits_set_while_much_waits(tls):
    connection = tls.open(kind="tcp")
    connection.fill()
    waiting = connection.transport.get_write_buffer_size()
    connection.transport.set_write_buffer_limits(high=8 * waiting, low=2 * waiting)
    assert not connection.writing_paused, "told to go on at once"
    connection.transport.set_write_buffer_limits(high=waiting // 2)
    assert connection.writing_paused, "told to stop at once"
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "pause_writing"]


def test_a_high_limit_of_nothing(tls):
    """pause_writing() comes "whenever the buffer becomes non-empty" (asyncio's documentation), and not before."""
    connection = tls.open(kind="tcp")
    skip_on_asyncio(connection.transport, "it pauses its protocol with an empty buffer, and nothing resumes it")
    connection.transport.set_write_buffer_limits(high=0)
    assert connection.transport.get_write_buffer_limits() == (0, 0)
    assert not connection.writing_paused
    connection.transport.write(b"small")
    assert connection.receive(5) == b"small"
    assert not connection.writing_paused
    written = connection.fill()
    assert connection.receive(written) == b"f" * written
    connection.run_until(lambda: not connection.writing_paused)


@every_side
def test_both_ends_write_at_once(tls, side):
    """Neither direction waits for the other: data is read while much waits to be sent."""
    connection = tls.open(side, kind="tcp")
    data = random.Random(side).randbytes(4_000_000)
    connection.transport.write(data)
    connection.peer.write(data[::-1])
    connection.run_until(lambda: len(connection.peer.received) == len(connection.protocol.received) == len(data))
    assert connection.peer.received == data and connection.protocol.received == data[::-1]


def test_reading_goes_on_while_writing_is_paused(tls):
    connection = tls.open()
    written = connection.fill()
    connection.peer.write(b"hello")
    run_until(tls.loop, lambda: connection.protocol.received == b"hello")
    assert connection.writing_paused
    assert connection.receive(written) == b"f" * written


REENTRANT = ["connection_made", "pause_writing", "resume_writing", "eof_received"]


@pytest.mark.promise("P14")
@every_side
@every_protocol
@every_version
@pytest.mark.parametrize("lines", [False, True], ids=["write", "writelines"])
def test_writing_from_every_callback(tls, side, make_protocol, version, lines):
    """Every write has a number; the writes arrive in the order of the calls, whichever callback made them."""
    protocol = make_protocol()
    written = []
    writers = set()

    def write(name=None):
        data = b"%d," % len(written) * 3000
        written.append(data)
        writers.add(name)
        transport = protocol.transport
        if lines:
            transport.writelines([data[:1000], data[1000:]])
        else:
            transport.write(data)

    def get_buffer():
        if "eof_received" not in protocol.calls:
            write("get_buffer")
        return protocol.buffer

    protocol.hooks.update({name: functools.partial(write, name) for name in REENTRANT})
    when_data_comes(protocol, lambda: write("data"))
    protocol.hooks["get_buffer"] = get_buffer
    connection = tls.open(side, protocol, version=version, kind="tcp")
    while not connection.writing_paused:
        write()
    for _ in range(5):
        connection.peer.write(b"more")
    connection.run_until(lambda: not connection.writing_paused and len(protocol.received) == 20)
    connection.peer.notify_close()
    connection.run_until(lambda: protocol.lost or connection.peer.saw_close_notify)
    connection.run_until_lost()
    assert writers == {None, "data", *REENTRANT, *([] if make_protocol is Recorder else ["get_buffer"])}
    assert connection.peer.received == b"".join(written)
    assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
    assert protocol.error is None


@pytest.mark.promise("P14")
def test_each_pause_writes_more(tls):
    """The protocol writes once in pause_writing() and twice in resume_writing()."""
    connection = tls.open(kind="tcp")
    written = []

    def write(count):
        for _ in range(count):
            written.append(bytes([len(written) % 256]) * PIECE)
            connection.transport.write(written[-1])

    transport = connection.transport
    connection.protocol.hooks["pause_writing"] = lambda: write(1)
    connection.protocol.hooks["resume_writing"] = lambda: write(2)
    for _ in range(5):
        while not connection.writing_paused:
            write(1)
            run_once(tls.loop)
        connection.run_until(lambda: not connection.writing_paused and not transport.get_write_buffer_size())
    assert connection.protocol.calls.count("resume_writing") >= 5
    total = b"".join(written)
    assert connection.receive(len(total)) == total


@every_version
def test_writes_after_close_are_ignored(tls, asyncio_log, version):
    connection = tls.open(version=version)
    connection.transport.write(b"before")
    connection.transport.close()
    for _ in range(5):
        connection.transport.write(b"after")
    assert not asyncio_log.take()
    connection.transport.write(b"after")
    connection.transport.writelines([b"after", b"after"])
    assert asyncio_log.take() == [LOST, LOST]
    connection.run_until_lost()
    assert connection.peer.received == b"before"


def test_writes_after_the_end_are_ignored(tls, asyncio_log):
    connection = tls.open()
    connection.transport.abort()
    connection.run_until_lost()
    for _ in range(4):
        connection.transport.write(b"after")
    assert not asyncio_log.take()
    connection.transport.write(b"after")
    assert asyncio_log.take() == [LOST]
    assert connection.transport.get_write_buffer_size() == 0


def test_writing_from_connection_lost(tls):
    connection = tls.open()
    connection.protocol.hooks["connection_lost"] = lambda: connection.transport.write(b"too late")
    connection.transport.abort()
    connection.run_until_lost()


@pytest.mark.parametrize("data", [b"data", MUCH, bytearray(MUCH)], ids=["little", "much", "much uncopied"])
def test_writing_to_a_peer_that_has_left(tls, data):
    """connection_lost() gets the socket's error, and nothing else reports it."""
    connection = tls.open(kind="tcp")
    connection.transport.pause_reading()
    connection.reset()
    for _ in range(3):
        connection.transport.write(data)
    connection.run_until_lost()
    assert isinstance(connection.protocol.error, (BrokenPipeError, ConnectionResetError))
    assert connection.protocol.calls == ["connection_made", "connection_lost"]


@pytest.mark.parametrize("callback", ["pause_writing", "resume_writing"])
def test_flow_control_callbacks_that_fail(tls, callback):
    """The errors are reported, and the connection goes on."""

    def fail():
        raise ZeroDivisionError

    connection = tls.open(protocol=Recorder(**{callback: fail}), kind="tcp")
    written = connection.fill()
    assert connection.receive(written) == b"f" * written
    connection.run_until(lambda: not connection.writing_paused)
    (report,) = tls.take_reports()
    assert report["message"] == f"protocol.{callback}() failed"
    assert isinstance(report["exception"], ZeroDivisionError)
    assert report.keys() == {"message", "exception", "transport", "protocol"}
    assert isinstance(report["protocol"], asyncio.sslproto.SSLProtocol)
    assert report["protocol"]._app_protocol is connection.protocol


def test_a_transport_given_to_a_buffered_protocol_writes_the_same(tls):
    connection = tls.open(protocol=ViewRecorder())
    connection.transport.write(b"x" * 100_000)
    assert connection.receive(100_000) == b"x" * 100_000


@pytest.mark.parametrize("end", ["transport", "protocol"])
def test_a_program_ends_the_connection_itself_in_the_turn_of_a_write(tls, end):
    connection = tls.open(kind="tcp")
    ssl_protocol = connection.transport._ssl_protocol
    below = ssl_protocol._transport

    def write_and_end():
        connection.transport.write(b"last words")
        if end == "transport":
            below._call_connection_lost(None)
        else:
            ssl_protocol.connection_lost(None)

    before = set(tls.loop._selector.get_map())
    tls.loop.call_soon(write_and_end)
    run_once(tls.loop, 3)
    assert connection.protocol.lost
    assert connection.receive(10) == b"last words"
    if end == "protocol":
        with contextlib.suppress(AttributeError):  # asyncio's asks the protocol, which has ended
            below.abort()
        run_once(tls.loop, 2)
    for descriptor in before & set(tls.loop._selector.get_map()):
        if descriptor != tls.loop._ssock.fileno():  # asyncio's transports leave their registration behind
            tls.loop._remove_reader(descriptor)


@needs_python_buffers
@pytest.mark.parametrize("size", [10, 300_000])
def test_data_that_writes_when_it_is_asked_for_its_memory(tls, size):
    connection = tls.open()
    skip_on_asyncio(connection.transport, "it writes the data twice, and the connection is lost")
    data = WritingData(connection.transport, b"first", b"x" * size)
    tls.loop.call_soon(connection.transport.write, data)
    assert connection.receive(5 + size) == b"first" + b"x" * size


@needs_python_buffers
@every_side
def test_data_that_raises_when_it_is_asked_for_its_memory(tls, side):
    connection = tls.open(side)

    def write():
        connection.transport.write(b"first")
        connection.transport.write(PythonData(b"second", when_asked=fail))

    tls.loop.call_soon(write)
    assert connection.receive(5) == b"first"
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert isinstance(connection.protocol.error, ZeroDivisionError)
    assert [report["message"] for report in tls.take_reports()] == ["Fatal error on SSL protocol"]
    # A closing connection asks for nothing that counts.
    connection.transport.write(PythonData(b"data", when_asked=fail))
