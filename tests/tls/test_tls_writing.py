"""TLS: which objects may be written and when, from every callback too, and when the protocol is told to pause and to
resume."""

import functools
import random

import pytest
from support.certificates import every_version
from support.recording import Recorder, when_data_comes
from support.stepping import run_once, run_until
from support.stream_connections import KINDS, is_asyncio_transport, skip_on_asyncio
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
    secured = tls.open(side, version=version)
    assert secured.transport.write(data) is None
    assert secured.receive(4) == b"data"
    assert secured.transport.writelines([data, data]) is None
    assert secured.receive(8) == b"datadata"


@pytest.mark.parametrize(
    "view", [memoryview(b"d.a.t.a.")[::2], memoryview(b"datadata").cast("I")], ids=["strided", "items"]
)
def test_views_of_other_shapes(tls, view):
    secured = tls.open()
    skip_on_asyncio(secured.transport, "OpenSSL takes only contiguous bytes, and the connection is lost")
    secured.transport.write(view)
    secured.transport.writelines([view, view])
    assert secured.receive(3 * len(view.tobytes())) == view.tobytes() * 3


@every_version
@pytest.mark.parametrize("size", [0xFFFC, 0x10000, 0x10004, 300_000])
@pytest.mark.parametrize("shape", ["bytearray", "slice", "strided", "items"])
def test_much_in_memory_that_others_change(tls, version, shape, size):
    """The data keeps its place between waiting writes, even if its memory changes later, and also while paused."""
    secured = tls.open(version=version)
    if shape in ("strided", "items"):
        skip_on_asyncio(secured.transport, "OpenSSL takes only contiguous bytes, and the connection is lost")
    memory = bytearray(random.Random(size).randbytes(2 * size))
    whole = memoryview(memory)
    data = {"bytearray": memory, "slice": whole[4:size], "strided": whole[::2], "items": whole.cast("I")}[shape]
    sent = bytes(data)

    def burst():
        for line in (b"before", data, b"between", data, b"after"):
            secured.transport.write(line)
        memory[:] = bytes(len(memory))

    tls.loop.call_soon(burst)
    run_once(tls.loop)
    expected = b"before" + sent + b"between" + sent + b"after"
    assert secured.receive(len(expected)) == expected
    # Alone: nothing waits before it.
    memory[:] = bytes(b"\1" * len(memory))
    sent = bytes(data)
    secured.transport.write(data)
    memory[:] = bytes(len(memory))
    assert secured.receive(len(sent)) == sent
    for view in (data, whole):
        if view is not memory:
            view.release()
    memory.clear()  # the transport holds no reference


@pytest.mark.parametrize("data", ["text", None, 1, [b"data"], b"data".__iter__()], ids=lambda data: type(data).__name__)
def test_what_cannot_be_written(tls, data):
    secured = tls.open()
    with pytest.raises(TypeError, match="expecting a bytes-like"):
        secured.transport.write(data)
    secured.transport.close()
    with pytest.raises(TypeError, match="expecting a bytes-like"):
        secured.transport.write(data)


@pytest.mark.parametrize("lines", [None, 1, [1], [b"data", None]], ids=str)
def test_what_cannot_be_written_as_lines(tls, lines):
    secured = tls.open()
    with pytest.raises(TypeError):
        secured.transport.writelines(lines)
    run_once(tls.loop, 3)
    assert not secured.transport.is_closing() and not secured.protocol.lost


def test_lines_of_text(tls):
    secured = tls.open()
    skip_on_asyncio(secured.transport, "it detects that in the middle of writing, and the connection is lost")
    with pytest.raises(TypeError):
        secured.transport.writelines(["text"])
    secured.transport.write(b"bytes")
    assert secured.receive(5) == b"bytes"


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")], ids=["bytes", "bytearray", "memoryview"])
@every_version
def test_writing_nothing(tls, empty, version):
    secured = tls.open(version=version)
    secured.transport.write(empty)
    secured.transport.writelines([])
    secured.transport.writelines([empty, b"some", empty, empty, b"thing", empty])
    assert secured.receive(9) == b"something"
    secured.transport.writelines(iter([empty]))
    assert secured.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize(
    "make", [iter, tuple, lambda lines: (line for line in lines)], ids=["iterator", "tuple", "gen"]
)
def test_writelines_takes_any_iterable(tls, make):
    secured = tls.open()
    secured.transport.writelines(make([b"a", bytearray(b"b"), memoryview(b"c")]))
    assert secured.receive(3) == b"abc"


def test_an_iterable_that_fails(tls):
    secured = tls.open()

    def lines():
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        secured.transport.writelines(lines())
    run_once(tls.loop, 2)
    assert not secured.protocol.lost


@pytest.mark.parametrize("kind", KINDS)
@every_side
@pytest.mark.parametrize("size", [1, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD, 200_000, 5_000_000])
def test_sizes(tls, kind, side, size):
    secured = tls.open(side, kind=kind)
    data = random.Random(size).randbytes(size)
    secured.transport.write(data)
    assert secured.receive(size) == data
    assert secured.transport.get_write_buffer_size() == 0


@every_version
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_many_writes_in_one_turn_arrive_in_order(tls, version, turn):
    secured = tls.open("client", version=version)
    generator = random.Random(turn)
    pieces = [generator.randbytes(generator.choice([1, 10, 1000, 20_000])) for _ in range(300)]

    def burst():
        for number in range(0, len(pieces), 3):
            secured.transport.write(pieces[number])
            secured.transport.writelines(pieces[number + 1 : number + 3])

    if turn == "inside":
        tls.loop.call_soon(burst)
    else:
        burst()
    data = b"".join(pieces)
    assert secured.receive(len(data)) == data


def test_the_writes_of_one_turn_share_records(tls):
    """Several small writes take fewer bytes on the wire than a record each."""
    secured = tls.open(kind="tcp")
    skip_on_asyncio(secured.transport, "it makes a record of each write")
    tls.loop.call_soon(lambda: [secured.transport.write(b"x") for _ in range(1000)])
    run_once(tls.loop, 3)
    run_until(tls.loop, lambda: secured.transport.get_write_buffer_size() == 0)
    assert len(secured.peer.socket.recv(1 << 20)) < 2000
    secured.peer.socket.close()


@pytest.mark.promise("P28")
@pytest.mark.parametrize("turn", ["inside", "outside"])
def test_a_bytearray_that_changes_after_write(tls, turn):
    secured = tls.open(kind="tcp")
    expected = bytearray()

    def burst():
        data = bytearray(PIECE)
        for number in range(100):
            data[:] = bytes([number]) * PIECE
            expected.extend(data)
            secured.transport.write(memoryview(data) if number % 2 else data)
        data.clear()  # the transport does not keep its memory either

    if turn == "inside":
        tls.loop.call_soon(burst)
        run_once(tls.loop)
    else:
        burst()
    assert secured.receive(len(expected)) == expected


@pytest.mark.only("c", reason="asyncio's TLS encrypts all of a write before it sends")
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_much_is_sent_while_the_rest_is_yet_to_be_encrypted(tls, kind):
    secured = tls.open(kind="tcp")
    before = tls.loop.metrics()
    secured.transport.write(kind(MUCH[:600_000]))
    assert (tls.loop.metrics() - before).sends > 1
    assert secured.receive(600_000) == MUCH[:600_000]


def test_there_is_no_half_closing(tls):
    secured = tls.open()
    assert secured.transport.can_write_eof() is False
    with pytest.raises(NotImplementedError):
        secured.transport.write_eof()
    secured.deliver(b"still there")


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
    secured = tls.open(side, make_protocol(), kind="tcp")
    for _ in range(3):
        written = secured.fill()
        assert secured.transport.get_write_buffer_size() >= secured.transport.get_write_buffer_limits()[1]
        assert secured.receive(written) == b"f" * written
        secured.run_until(lambda: secured.transport.get_write_buffer_size() == 0)
        assert not secured.writing_paused
    assert secured.protocol.calls == ["connection_made", *["pause_writing", "resume_writing"] * 3]


def test_writing_goes_on_when_no_more_than_the_low_limit_is_left(tls):
    secured = tls.open(kind="tcp")
    secured.transport.set_write_buffer_limits(high=1 << 20, low=700_000)
    sizes = []
    secured.protocol.hooks["resume_writing"] = lambda: sizes.append(secured.transport.get_write_buffer_size())
    written = secured.fill()
    secured.receive(written)
    assert len(sizes) == 1 and sizes[0] <= 700_000


def test_limits_set_while_much_waits(tls):
    secured = tls.open(kind="tcp")
    secured.fill()
    waiting = secured.transport.get_write_buffer_size()
    secured.transport.set_write_buffer_limits(high=8 * waiting, low=2 * waiting)
    assert not secured.writing_paused, "told to go on at once"
    secured.transport.set_write_buffer_limits(high=waiting // 2)
    assert secured.writing_paused, "told to stop at once"
    assert secured.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "pause_writing"]


def test_a_high_limit_of_nothing(tls):
    """pause_writing() comes "whenever the buffer becomes non-empty" (asyncio's documentation), and not before."""
    secured = tls.open(kind="tcp")
    skip_on_asyncio(secured.transport, "it pauses its protocol with an empty buffer, and nothing resumes it")
    secured.transport.set_write_buffer_limits(high=0)
    assert secured.transport.get_write_buffer_limits() == (0, 0)
    assert not secured.writing_paused
    secured.transport.write(b"small")
    assert secured.receive(5) == b"small"
    assert not secured.writing_paused
    written = secured.fill()
    assert secured.receive(written) == b"f" * written
    secured.run_until(lambda: not secured.writing_paused)


@every_side
def test_both_ends_write_at_once(tls, side):
    """Neither direction waits for the other: data is read while much waits to be sent."""
    secured = tls.open(side, kind="tcp")
    data = random.Random(side).randbytes(4_000_000)
    secured.transport.write(data)
    secured.peer.write(data[::-1])
    secured.run_until(lambda: len(secured.peer.received) == len(secured.protocol.received) == len(data))
    assert secured.peer.received == data and secured.protocol.received == data[::-1]


def test_reading_goes_on_while_writing_is_paused(tls):
    secured = tls.open()
    written = secured.fill()
    secured.peer.write(b"hello")
    run_until(tls.loop, lambda: secured.protocol.received == b"hello")
    assert secured.writing_paused
    assert secured.receive(written) == b"f" * written


REENTRANT = ["connection_made", "pause_writing", "resume_writing", "eof_received"]


@pytest.mark.promise("P14")
@every_side
@every_protocol
@every_version
@pytest.mark.parametrize("lines", [False, True], ids=["write", "writelines"])
def test_writing_from_every_callback(tls, side, make_protocol, version, lines):
    """Every write has a number, and they arrive in the order of the calls, from whichever callback."""
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
    secured = tls.open(side, protocol, version=version, kind="tcp")
    while not secured.writing_paused:
        write()
    for _ in range(5):
        secured.peer.write(b"more")
    secured.run_until(lambda: not secured.writing_paused and len(protocol.received) == 20)
    secured.peer.notify_close()
    secured.run_until(lambda: protocol.lost or secured.peer.saw_close_notify)
    secured.run_until_lost()
    assert writers == {None, "data", *REENTRANT, *([] if make_protocol is Recorder else ["get_buffer"])}
    assert secured.peer.received == b"".join(written)
    assert protocol.calls[-2:] == ["eof_received", "connection_lost"]
    assert protocol.error is None


@pytest.mark.promise("P14")
def test_each_pause_writes_more(tls):
    """The protocol answers pause_writing() with one write and resume_writing() with two."""
    secured = tls.open(kind="tcp")
    written = []

    def write(count):
        for _ in range(count):
            written.append(bytes([len(written) % 256]) * PIECE)
            secured.transport.write(written[-1])

    secured.protocol.hooks["pause_writing"] = lambda: write(1)
    secured.protocol.hooks["resume_writing"] = lambda: write(2)
    for _ in range(5):
        while not secured.writing_paused:
            write(1)
            run_once(tls.loop)
        secured.run_until(lambda: not secured.writing_paused and secured.transport.get_write_buffer_size() == 0)
    assert secured.protocol.calls.count("resume_writing") >= 5
    total = b"".join(written)
    assert secured.receive(len(total)) == total


@every_version
def test_writes_after_close_are_ignored(tls, asyncio_log, version):
    secured = tls.open(version=version)
    secured.transport.write(b"before")
    secured.transport.close()
    for _ in range(5):
        secured.transport.write(b"after")
    assert not asyncio_log.take()
    secured.transport.write(b"after")
    secured.transport.writelines([b"after", b"after"])
    assert asyncio_log.take() == [LOST, LOST]
    secured.run_until_lost()
    assert secured.peer.received == b"before"


def test_writes_after_the_end_are_ignored(tls, asyncio_log):
    secured = tls.open()
    secured.transport.abort()
    secured.run_until_lost()
    for _ in range(4):
        secured.transport.write(b"after")
    assert not asyncio_log.take()
    secured.transport.write(b"after")
    assert asyncio_log.take() == [LOST]
    assert secured.transport.get_write_buffer_size() == 0


def test_writing_from_connection_lost(tls):
    secured = tls.open()
    secured.protocol.hooks["connection_lost"] = lambda: secured.transport.write(b"too late")
    secured.transport.abort()
    secured.run_until_lost()


@pytest.mark.parametrize("data", [b"data", MUCH, bytearray(MUCH)], ids=["little", "much", "much uncopied"])
def test_writing_to_a_peer_that_has_left(tls, data):
    """connection_lost() gets the socket's error, and nothing else reports it."""
    secured = tls.open(kind="tcp")
    secured.transport.pause_reading()
    secured.reset()
    for _ in range(3):
        secured.transport.write(data)
    secured.run_until_lost()
    assert isinstance(secured.protocol.error, (BrokenPipeError, ConnectionResetError))
    assert secured.protocol.calls == ["connection_made", "connection_lost"]


@pytest.mark.parametrize("callback", ["pause_writing", "resume_writing"])
def test_flow_control_callbacks_that_fail(tls, callback):
    """The errors are reported, and the connection goes on."""

    def fail():
        raise ZeroDivisionError

    secured = tls.open(protocol=Recorder(**{callback: fail}), kind="tcp")
    written = secured.fill()
    assert secured.receive(written) == b"f" * written
    secured.run_until(lambda: not secured.writing_paused)
    (report,) = tls.take_reports()
    assert report["message"] == f"protocol.{callback}() failed"
    assert isinstance(report["exception"], ZeroDivisionError)
    assert report.keys() == {"message", "exception", "transport", "protocol"}
    assert is_asyncio_transport(secured.transport) or report["protocol"] is secured.protocol


def test_a_transport_given_to_a_buffered_protocol_writes_the_same(tls):
    secured = tls.open(protocol=ViewRecorder())
    secured.transport.write(b"x" * 100_000)
    assert secured.receive(100_000) == b"x" * 100_000
