"""loop.sendfile(): between writes, beside reading, cancelled, and when its transport or loop is closed meanwhile."""

import asyncio
import contextlib
import gc
import io
import os
import socket
import sys
import warnings

import pytest
from support.endpoints import cancelled, settle, started, turns, until
from support.inline_executor import InlineExecutor
from support.recording import Recorder
from support.sent_files import DATA, read_all


@pytest.mark.only(
    "c", "python", reason="asyncio since Python 3.12 reads the next block into memory that is still to be sent"
)
def test_a_slow_peer_gets_what_is_read_from_no_file_of_the_system(loop, pair):
    data = bytes(range(251)) * 2000  # no two blocks are alike

    async def main():
        pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = asyncio.ensure_future(loop.sendfile(transport, io.BytesIO(data)))
        received = bytearray()
        while len(received) < len(data):
            await settle()
            received += await loop.sock_recv(pair[1], 4096)
        assert await sending == len(data)
        assert received == data
        transport.close()
        await until(lambda: protocol.lost)
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())


@pytest.mark.parametrize("make", ["a file", "memory"])
def test_sendfile_between_writes(loop, pair, file, make):
    """Data written before goes first, data written afterwards goes last."""

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        reading = asyncio.ensure_future(read_all(loop, pair[1]))
        transport.write(b"before" + bytes(1_000_000))
        source = file if make == "a file" else io.BytesIO(DATA)
        assert await loop.sendfile(transport, source, 5) == len(DATA) - 5
        transport.write(b"after")
        transport.close()
        assert await reading == b"before" + bytes(1_000_000) + DATA[5:] + b"after"
        await until(lambda: protocol.lost)
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio's transport neither reads nor writes afterwards, nor can it be closed")
@pytest.mark.parametrize("reads", [False, True])
def test_sendfile_is_cancelled_while_written_data_waits(loop, pair, file, reads):
    """The file has not been begun. The transport goes on as before, and can send another file."""
    one, other = pair

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        if not reads:
            transport.pause_reading()
        transport.write(DATA)
        await cancelled(await started(loop.sendfile(transport, file)))
        assert transport.is_reading() is reads
        with pytest.raises(RuntimeError):  # the descriptor is the transport's again
            await loop.sock_recv(one, 1)
        transport.write(b"after")
        reading = asyncio.ensure_future(read_all(loop, other))
        assert await loop.sendfile(transport, file, 0, 10) == 10
        other.send(b"answer")
        transport.resume_reading()
        await until(lambda: protocol.received == b"answer")
        transport.close()
        assert await reading == DATA + b"after" + DATA[:10]
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.only("c", reason="asyncio's transport reports an InvalidStateError, and sendfile() finds no socket")
@pytest.mark.parametrize("fallback", [False, True])
def test_the_transport_is_closed_while_sendfile_waits_for_written_data(loop, pair, file, fallback):
    """The written data is sent. Nothing of the file is, nor is it read."""
    one, other = pair

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        transport.write(DATA)
        sending = await started(loop.sendfile(transport, file, fallback=fallback))
        transport.close()
        assert await read_all(loop, other) == DATA
        with pytest.raises(ConnectionError):
            await sending
        assert file.tell() == 0
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_no_write_while_a_file_is_sent(loop, pair, file):
    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, file))
        with pytest.raises(RuntimeError, match="sendfile is in progress"):
            transport.write(b"x")
        reading = asyncio.ensure_future(read_all(loop, pair[1]))
        assert await sending == len(DATA)
        transport.close()
        assert await reading == DATA
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_reading_goes_on_after_sendfile(loop, pair, file):
    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, file))
        pair[1].send(b"meanwhile")
        received = bytearray()
        while len(received) < len(DATA):
            received += await loop.sock_recv(pair[1], 65536)
        await sending
        await until(lambda: protocol.received == b"meanwhile")
        assert received == DATA
        transport.close()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
@pytest.mark.parametrize("pauses", [False, True])
def test_reading_is_resumed_during_sendfile(loop, file, tmp_path, family, pauses):
    """The protocol gets what comes meanwhile, and the file is sent all the same."""

    async def main():
        with socket.socket(family) as listener:
            listener.bind(os.fspath(tmp_path / "listener") if family == socket.AF_UNIX else ("127.0.0.1", 0))
            listener.listen()
            client = socket.socket(family)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
            client.connect(listener.getsockname())
            ours, _ = listener.accept()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
        client.setblocking(False)
        transport, protocol = await loop.create_connection(Recorder, sock=ours)
        sending = await started(loop.sendfile(transport, file))
        transport.resume_reading()
        assert transport.is_reading()
        client.send(b"meanwhile")
        await until(lambda: protocol.received == b"meanwhile")
        if pauses:
            transport.pause_reading()
            client.send(b", later")
            await settle()
            assert protocol.received == b"meanwhile"
        received = bytearray()
        while len(received) < len(DATA):
            received += await loop.sock_recv(client, 65536)
        assert await sending == len(DATA)
        assert received == DATA
        if pauses:
            # sendfile() resumes reading, because it was reading before.
            assert transport.is_reading()
        else:
            client.send(b", later")
        await until(lambda: protocol.received == b"meanwhile, later")
        transport.close()
        await until(lambda: protocol.lost)
        client.close()

    loop.run_until_complete(main())


def test_reading_that_was_resumed_while_written_data_waits_goes_on_beside_the_file(loop, pair, file):
    one, other = pair

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        transport.write(DATA)
        sending = await started(loop.sendfile(transport, file))
        transport.resume_reading()
        received = await loop.sock_recv(other, 65536)
        while len(received) <= len(DATA):
            received += await loop.sock_recv(other, 65536)
        other.send(b"meanwhile")
        await until(lambda: protocol.received == b"meanwhile")
        assert not sending.done()
        while len(received) < 2 * len(DATA):
            received += await loop.sock_recv(other, 65536)
        assert await sending == len(DATA)
        assert received == 2 * DATA
        transport.close()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("method", ["pause_reading", "resume_reading", "close", "abort"])
def test_the_loop_is_closed_during_sendfile(impl, loop, pair, file, resumes, method):
    """The transport's methods find no loop, and nothing else."""

    async def main():
        transport, _ = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, file))
        if resumes:
            transport.resume_reading()
        return transport, sending

    transport, sending = loop.run_until_complete(main())
    loop.close()
    try:
        getattr(transport, method)()
    except RuntimeError as error:
        assert "Event loop is closed" in str(error)
    else:
        assert method not in ("close", "abort")
    sending._log_destroy_pending = False
    # Without a loop nothing can end it.
    with contextlib.suppress(RuntimeError):
        sending.get_coro().close()
    del transport, sending
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_the_loop_is_closed_while_sendfile_waits_for_written_data(loop, pair, file, monkeypatch):
    """The garbage collector ends the task, and has nothing to report."""
    failures = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: failures.append(failure.exc_value))

    async def main():
        transport, _ = await loop.create_connection(Recorder, sock=pair[0].dup())
        transport.write(DATA)
        sending = await started(loop.sendfile(transport, file))
        sending._log_destroy_pending = False

    loop.run_until_complete(main())
    loop.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert not failures


def test_a_second_sendfile_is_refused_and_reading_goes_on(loop, pair, file):
    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        transport.pause_reading()
        sending = await started(loop.sendfile(transport, file))
        transport.resume_reading()
        with pytest.raises((KeyError, RuntimeError)):
            await loop.sendfile(transport, file)
        assert transport.is_reading()
        await loop.sock_sendall(pair[1], b"meanwhile")
        await until(lambda: protocol.received == b"meanwhile")
        await cancelled(sending)
        transport.abort()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


def test_the_peer_leaves_during_sendfile_beside_reading(loop, pair, file):
    """The caller learns of it by a ConnectionError, also if the transport has found it first."""

    async def main():
        # asyncio's transport sets the result of its waiter once more when it is lost.
        loop.set_exception_handler(lambda loop, context: None)
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, file))
        transport.resume_reading()
        pair[1].close()
        with pytest.raises(ConnectionError):
            await sending
        transport.abort()
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())


CLOSED_MEANWHILE = pytest.mark.only("c", reason="asyncio's sendfile() waits for ever once its transport is closed")


@CLOSED_MEANWHILE
@pytest.mark.parametrize("how", ["close", "abort", "the peer's end"])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("is_full", [False, True])
def test_the_transport_is_closed_during_sendfile(loop, pair, file, how, reads, is_full):
    one, other = pair
    if is_full:  # the kernel takes nothing of the file
        with contextlib.suppress(BlockingIOError):
            while one.send(bytes(100_000)):
                pass

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        sending = await started(loop.sendfile(transport, file))
        if reads or how == "the peer's end":
            transport.resume_reading()
        if how == "the peer's end":
            other.shutdown(socket.SHUT_WR)
        else:
            getattr(transport, how)()
        await until(lambda: protocol.lost)
        with pytest.raises(ConnectionError):
            await sending
        assert (file.tell() == 0) == is_full

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio reports an InvalidStateError, and the protocol is told nothing")
def test_sendfile_that_reads_the_file_is_cancelled_when_the_connection_is_lost(loop, pair):
    loop.set_default_executor(InlineExecutor())

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, io.BytesIO(DATA)))
        await turns(50)  # it waits for room by then
        transport.abort()
        sending.cancel()
        await until(lambda: protocol.lost)
        assert sending.cancelled()

    loop.run_until_complete(main())


@pytest.mark.only("c", "python", reason="asyncio reports an InvalidStateError")
def test_sendfile_that_reads_the_file_is_cancelled_when_writing_is_resumed(loop, pair):
    loop.set_default_executor(InlineExecutor())
    one, other = pair

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=one)
        sending = await started(loop.sendfile(transport, io.BytesIO(DATA)))
        await turns(50)  # it waits for room by then
        # Both in one turn: what was queued before the poll runs before what the poll has found.
        transport.set_write_buffer_limits(1 << 30)
        loop.call_soon(sending.cancel)
        while transport.get_write_buffer_size():
            with contextlib.suppress(BlockingIOError):
                other.recv(1 << 20)
            await asyncio.sleep(0)
        await until(sending.cancelled)
        transport.close()
        await until(lambda: protocol.lost)
        assert "resume_writing" not in protocol.calls

    loop.run_until_complete(main())


@CLOSED_MEANWHILE
def test_another_file_is_watched_by_the_number_of_a_transport_closed_during_sendfile(loop, pair, file):
    """The caller learns that the connection is closed, although the number belongs to another file by now."""

    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        number = pair[0].fileno()
        sending = await started(loop.sendfile(transport, file))

        def take_number():
            os.dup2(pair[1].fileno(), number)
            loop.add_reader(number, list)

        protocol.hooks["connection_lost"] = lambda: loop.call_soon(take_number)
        transport.abort()
        with pytest.raises(ConnectionError):
            await sending
        assert loop.remove_reader(number)
        os.close(number)

    loop.run_until_complete(main())


@pytest.mark.parametrize("full", [False, True])
def test_an_upgrade_to_tls_during_sendfile(loop, pair, file, certificates, full):
    """No record of the handshake gets between the bytes of the file."""

    async def main():
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(context["exception"]))
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        sending = await started(loop.sendfile(transport, file))
        received = b"" if full else await loop.sock_recv(pair[1], 65536)
        context = certificates.client_context()
        upgrading = await started(loop.start_tls(transport, protocol, context, server_hostname="localhost"))
        await settle()
        while len(received) < len(DATA):
            received += await loop.sock_recv(pair[1], 65536)
        assert await sending == len(DATA)
        assert received == DATA
        assert [str(error) for error in reports] == ["unable to write; sendfile is in progress"]
        await cancelled(upgrading)
        transport.abort()
        await settle()

    loop.run_until_complete(main())


def test_the_socket_is_asked_for_during_sendfile(loop, file, tmp_path):
    """The transport is registered again by that, and the file is sent all the same."""

    async def main():
        protocol = Recorder()
        path = str(tmp_path / "socket")
        server = await loop.create_unix_server(lambda: protocol, path)
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            await loop.sock_connect(client, path)
            await until(lambda: protocol.transport)
            protocol.transport.pause_reading()
            sending = await started(loop.sendfile(protocol.transport, file))
            await until(lambda: protocol.transport.get_extra_info("socket").fileno() > 0)
            reading = asyncio.ensure_future(read_all(loop, client))
            assert await sending == len(DATA)
            with pytest.raises(RuntimeError, match="is used by"):
                loop.add_reader(protocol.transport.get_extra_info("socket").fileno(), print)
            protocol.transport.close()
            assert await reading == DATA
            await until(lambda: protocol.lost)
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def test_a_closing_transport_is_refused(loop, pair, file):
    async def main():
        transport, protocol = await loop.create_connection(Recorder, sock=pair[0])
        transport.close()
        with pytest.raises(RuntimeError, match="closing"):
            await loop.sendfile(transport, file)
        await until(lambda: protocol.lost)

    loop.run_until_complete(main())
