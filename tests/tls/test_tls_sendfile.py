"""sendfile() over TLS: the kernel cannot encrypt, so files are read and written; where it starts, stops and fails."""

import asyncio
import contextlib
import io

import pytest
from support.certificates import every_version
from support.stepping import run_until
from support.tls_connections import every_protocol, every_side

DATA = bytes(range(256)) * 4000  # bytes; more than a connection takes while the peer does not read, in several pieces


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        yield file


def sending(secured, *arguments, **keywords):
    return secured.loop.create_task(secured.loop.sendfile(secured.transport, *arguments, **keywords))


def is_full(secured):
    """Return whether the transport has paused writing."""
    return secured.transport.get_write_buffer_size() >= secured.transport.get_write_buffer_limits()[1]


@every_side
@every_version
@every_protocol
def test_a_whole_file(tls, file, side, version, make_protocol):
    secured = tls.open(side, make_protocol(), version=version)
    task = sending(secured, file)
    assert secured.receive(len(DATA)) == DATA
    secured.run_until(task.done)
    assert task.result() == len(DATA)
    assert file.tell() == len(DATA)
    assert secured.transport.get_protocol() is secured.protocol
    secured.deliver(b"and back")


@pytest.mark.parametrize("offset", [0, 1, 300_000, len(DATA) - 1])
@pytest.mark.parametrize("count", [None, 1, 300_000, len(DATA) * 2])
def test_parts(tls, file, offset, count):
    secured = tls.open()
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    task = sending(secured, file, offset, count)
    assert secured.receive(len(expected)) == expected
    secured.run_until(task.done)
    assert task.result() == len(expected)
    assert file.tell() == offset + len(expected)


def test_between_writes(tls, file):
    secured = tls.open()

    async def send():
        secured.transport.write(b"before")
        await secured.loop.sendfile(secured.transport, file)
        secured.transport.write(b"after")

    task = secured.loop.create_task(send())
    assert secured.receive(len(DATA) + 11) == b"before" + DATA + b"after"
    task.result()


def test_an_empty_file(tls, tmp_path):
    (tmp_path / "empty").touch()
    secured = tls.open()
    with open(tmp_path / "empty", "rb") as file:
        task = sending(secured, file)
        run_until(tls.loop, task.done)
    assert task.result() == 0


def test_without_a_fallback(tls, file):
    secured = tls.open()
    task = sending(secured, file, fallback=False)
    run_until(tls.loop, task.done)
    assert isinstance(task.exception(), RuntimeError)
    assert "fallback is disabled" in str(task.exception())
    secured.deliver(b"still there")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((-1,), (OSError, ValueError)), ((0.5,), TypeError), ((0, -1), ValueError), ((0, 1.5), TypeError)],
    ids=str,
)
def test_what_is_refused(tls, file, arguments, error):
    secured = tls.open()
    task = sending(secured, file, *arguments)
    run_until(tls.loop, task.done)
    assert isinstance(task.exception(), error)
    secured.deliver(b"still there")
    assert not secured.peer.received


def test_a_count_of_nothing(tls, file):
    """Like asyncio, a count of 0 means the whole file."""
    secured = tls.open()
    task = sending(secured, file, 0, 0)
    secured.run_until(task.done)
    assert task.result() == len(DATA)
    assert secured.receive(len(DATA)) == DATA


def test_a_text_file(tls, tmp_path):
    secured = tls.open()
    with open(tmp_path / "text", "w+") as file:
        file.write("text")
        file.seek(0)
        task = sending(secured, file)
        run_until(tls.loop, task.done)
    assert task.exception() is not None


def test_something_without_a_descriptor(tls):
    secured = tls.open()
    task = sending(secured, io.BytesIO(DATA))
    assert secured.receive(len(DATA)) == DATA
    secured.run_until(task.done)
    assert task.result() == len(DATA)


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_on_a_closing_transport(tls, file, ending):
    secured = tls.open()
    getattr(secured.transport, ending)()
    task = sending(secured, file)
    secured.run_until(task.done)
    assert isinstance(task.exception(), RuntimeError)
    secured.run_until_lost()


def test_a_peer_that_does_not_read(tls, tmp_path):
    """The file is read no faster than the data is sent."""
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    secured = tls.open()
    with open(path, "rb") as file:
        task = sending(secured, file)
        secured.run_until(lambda: is_full(secured), peer_reads=False)
        before = -1
        while before != (before := file.tell()):  # until the executor reads no further
            tls.loop.run_until_complete(asyncio.sleep(0.02))
        assert not task.done() and before < len(DATA) * 8
        assert secured.receive(len(DATA) * 8) == DATA * 8
        secured.run_until(task.done)
    assert task.result() == len(DATA) * 8


def test_a_peer_that_leaves_in_the_middle(tls, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    secured = tls.open(kind="tcp")
    with open(path, "rb") as file:
        task = sending(secured, file)
        secured.receive(len(DATA))
        secured.reset()
        run_until(tls.loop, task.done)
        assert isinstance(task.exception(), ConnectionError)
        run_until(tls.loop, lambda: secured.is_gone)


def test_cancelling(tls, tmp_path):
    """The protocol has its transport back, and the part that was begun is sent to its end."""
    path = tmp_path / "large"
    path.write_bytes(DATA * 8)
    secured = tls.open()
    with open(path, "rb") as file:
        task = sending(secured, file)
        secured.run_until(lambda: is_full(secured), peer_reads=False)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            secured.run_until(task.done)
        assert task.cancelled()
    assert secured.transport.get_protocol() is secured.protocol
    secured.run_until(lambda: secured.transport.get_write_buffer_size() == 0)
    secured.transport.write(b"the end")
    secured.run_until(lambda: secured.peer.received.endswith(b"the end"))
    sent = len(secured.peer.received) - len(b"the end")
    assert secured.peer.received[:sent] == (DATA * 8)[:sent]
    secured.deliver(b"and back")
    # asyncio's stand-in for the protocol got the pause_writing(), and is gone.
    assert secured.protocol.calls == ["connection_made", "resume_writing", "data"]
    secured.protocol.calls.remove("resume_writing")
