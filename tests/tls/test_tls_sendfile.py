"""sendfile() over TLS: the kernel cannot encrypt, so files are read and written; where it starts, stops and fails."""

import asyncio
import contextlib
import io

import pytest
from support.certificates import every_version
from support.inline_executor import InlineExecutor
from support.stepping import run_once, run_until
from support.tls_connections import every_protocol, every_side

DATA = bytes(range(256)) * 4000  # bytes; more than a connection takes while the peer does not read, in several pieces

# What changed in CPython 3.14.10: sendfile() that reads the file itself begins at the offset 0, too, rather than where
# the file is; and it waits for room in the write buffer after each part rather than before it.
NAMES = asyncio.BaseEventLoop._sendfile_fallback.__code__.co_names
BEGINS_AT_THE_OFFSET = NAMES.index("hasattr") < NAMES.index("seek")
WAITS_AFTER_EACH_PART = NAMES.index("write") < NAMES.index("drain")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        yield file


@pytest.fixture(autouse=True)
def overlook_unpaired_calls(impl, tls):
    """asyncio may call resume_writing() alone (docs/differences.md); the end of each test checks for such calls."""
    yield
    if impl.name == "asyncio":
        for connection in tls.opened:
            calls = connection.protocol.calls
            calls[:] = [call for call in calls if call not in ("pause_writing", "resume_writing")]


def sending(connection, *arguments, **keywords):
    return connection.loop.create_task(connection.loop.sendfile(connection.transport, *arguments, **keywords))


def is_full(connection):
    """Return whether the transport has paused writing."""
    return connection.transport.get_write_buffer_size() >= connection.transport.get_write_buffer_limits()[1]


@every_side
@every_version
@every_protocol
def test_a_whole_file(tls, file, side, version, make_protocol):
    connection = tls.open(side, make_protocol(), version=version)
    task = sending(connection, file)
    assert connection.receive(len(DATA)) == DATA
    connection.run_until(task.done)
    assert task.result() == len(DATA)
    assert file.tell() == len(DATA)
    assert connection.transport.get_protocol() is connection.protocol
    connection.deliver(b"and back")


@pytest.mark.parametrize("offset", [0, 1, 300_000, len(DATA) - 1])
@pytest.mark.parametrize("count", [None, 1, 300_000, len(DATA) * 2])
def test_parts(tls, file, offset, count):
    connection = tls.open()
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    task = sending(connection, file, offset, count)
    assert connection.receive(len(expected)) == expected
    connection.run_until(task.done)
    assert task.result() == len(expected)
    assert file.tell() == offset + len(expected)


def test_a_file_of_which_a_part_was_read(tls, file):
    expected = DATA if BEGINS_AT_THE_OFFSET else DATA[50:]
    file.seek(50)
    connection = tls.open()
    task = sending(connection, file)
    assert connection.receive(len(expected)) == expected
    connection.run_until(task.done)
    assert task.result() == len(expected)


def test_between_writes(tls, file):
    connection = tls.open()

    async def send():
        connection.transport.write(b"before")
        await connection.loop.sendfile(connection.transport, file)
        connection.transport.write(b"after")

    task = connection.loop.create_task(send())
    assert connection.receive(len(DATA) + 11) == b"before" + DATA + b"after"
    task.result()


def test_an_empty_file(tls, tmp_path):
    (tmp_path / "empty").touch()
    connection = tls.open()
    with open(tmp_path / "empty", "rb") as file:
        task = sending(connection, file)
        run_until(tls.loop, task.done)
    assert task.result() == 0


def test_without_a_fallback(tls, file):
    connection = tls.open()
    task = sending(connection, file, fallback=False)
    run_until(tls.loop, task.done)
    assert isinstance(task.exception(), RuntimeError)
    assert "fallback is disabled" in str(task.exception())
    connection.deliver(b"still there")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((-1,), (OSError, ValueError)), ((0.5,), TypeError), ((0, -1), ValueError), ((0, 1.5), TypeError)],
    ids=str,
)
def test_what_is_refused(tls, file, arguments, error):
    connection = tls.open()
    task = sending(connection, file, *arguments)
    run_until(tls.loop, task.done)
    assert isinstance(task.exception(), error)
    connection.deliver(b"still there")
    assert not connection.peer.received


def test_a_count_of_nothing(tls, file):
    """Like asyncio, a count of 0 means the whole file."""
    connection = tls.open()
    task = sending(connection, file, 0, 0)
    connection.run_until(task.done)
    assert task.result() == len(DATA)
    assert connection.receive(len(DATA)) == DATA


def test_a_text_file(tls, tmp_path):
    connection = tls.open()
    with open(tmp_path / "text", "w+") as file:
        file.write("text")
        file.seek(0)
        task = sending(connection, file)
        run_until(tls.loop, task.done)
    assert task.exception() is not None


def test_something_without_a_descriptor(tls):
    connection = tls.open()
    task = sending(connection, io.BytesIO(DATA))
    assert connection.receive(len(DATA)) == DATA
    connection.run_until(task.done)
    assert task.result() == len(DATA)


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_on_a_closing_transport(tls, file, ending):
    connection = tls.open()
    getattr(connection.transport, ending)()
    task = sending(connection, file)
    connection.run_until(task.done)
    assert isinstance(task.exception(), RuntimeError)
    connection.run_until_lost()


def test_a_peer_that_does_not_read(tls, tmp_path):
    """The file is read no faster than the data is sent."""
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    connection = tls.open()
    with open(path, "rb") as file:
        task = sending(connection, file)
        connection.run_until(lambda: is_full(connection), peer_reads=False)
        before = -1
        while before != (before := file.tell()):  # until the executor reads no further
            tls.loop.run_until_complete(asyncio.sleep(0.02))
        assert not task.done() and before < len(DATA) * 8
        assert connection.receive(len(DATA) * 8) == DATA * 8
        connection.run_until(task.done)
    assert task.result() == len(DATA) * 8


def test_a_peer_that_leaves_in_the_middle(tls, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    connection = tls.open(kind="tcp")
    with open(path, "rb") as file:
        task = sending(connection, file)
        connection.receive(len(DATA))
        connection.reset()
        run_until(tls.loop, task.done)
        assert isinstance(task.exception(), ConnectionError)
        run_until(tls.loop, lambda: connection.is_gone)


@pytest.mark.only("c", "python", reason="asyncio may call resume_writing() alone")
def test_cancelling(tls, tmp_path):
    """The protocol has its transport back, and the part that was begun is sent to its end."""
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    connection = tls.open()
    with open(path, "rb") as file:
        task = sending(connection, file)
        connection.run_until(lambda: is_full(connection), peer_reads=False)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            connection.run_until(task.done)
        assert task.cancelled()
    assert connection.transport.get_protocol() is connection.protocol
    connection.run_until(lambda: connection.transport.get_write_buffer_size() == 0)
    connection.transport.write(b"the end")
    connection.run_until(lambda: connection.peer.received.endswith(b"the end"))
    sent = len(connection.peer.received) - len(b"the end")
    assert connection.peer.received[:sent] == (DATA * 8)[:sent]
    connection.deliver(b"and back")
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "data"]


@pytest.mark.skipif(WAITS_AFTER_EACH_PART, reason="from CPython 3.14.10 on sendfile() waits until it may write")
@pytest.mark.only("c", "python", reason="asyncio may call resume_writing() alone")
@every_protocol
def test_writing_is_paused_when_the_file_ends(tls, tmp_path, make_protocol):
    """pause_writing() and resume_writing() are called in pairs, though a stand-in for the protocol got the first."""
    path = tmp_path / "short"
    path.write_bytes(DATA[:10_000])
    connection = tls.open(protocol=make_protocol())
    transport = connection.transport
    transport.set_write_buffer_limits(len(DATA) * 8)
    transport.write(DATA * 8)
    transport.set_write_buffer_limits(transport.get_write_buffer_size() + 5000)
    with open(path, "rb") as file:
        task = sending(connection, file)
        connection.run_until(task.done, peer_reads=False)
    assert task.result() == 10_000
    assert connection.protocol.calls == ["connection_made", "pause_writing"]
    assert connection.receive(len(DATA) * 8 + 10_000) == DATA * 8 + DATA[:10_000]
    connection.run_until(lambda: not connection.writing_paused)
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing"]


@pytest.mark.only("c", "python", reason="asyncio may call resume_writing() alone")
def test_writing_is_paused_before_and_after(tls, file):
    connection = tls.open()
    connection.fill()
    task = sending(connection, file)
    run_once(tls.loop, 3)
    task.cancel()
    connection.run_until(task.done, peer_reads=False)
    assert connection.protocol.calls == ["connection_made", "pause_writing", "resume_writing", "pause_writing"]
    connection.run_until(lambda: not connection.writing_paused)
    assert connection.protocol.calls[-1] == "resume_writing"


def test_the_connection_is_lost_while_writing_is_paused(tls, file):
    connection = tls.open(kind="tcp")
    connection.fill()
    tls.loop.set_default_executor(InlineExecutor())
    task = sending(connection, file)
    run_once(tls.loop, 3)
    connection.reset()
    run_until(tls.loop, lambda: connection.is_gone and task.done())
    assert isinstance(task.exception(), ConnectionError)


@pytest.mark.only("c", "python", reason="asyncio reports an InvalidStateError, and the protocol is told nothing")
def test_sendfile_is_cancelled_when_the_connection_is_lost(tls, file):
    connection = tls.open()
    connection.fill()
    tls.loop.set_default_executor(InlineExecutor())
    task = sending(connection, file)
    run_once(tls.loop, 3)
    connection.transport.abort()
    task.cancel()
    run_until(tls.loop, lambda: connection.protocol.lost)
    assert task.cancelled()
