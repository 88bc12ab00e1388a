"""sock_sendfile(): whole files and parts, natively and by reading; positions, cancellation, refusals."""

import asyncio
import io
import os
import socket

import pytest
from support.endpoints import assert_free, cancelled, settle, started
from support.sent_files import DATA, read_all


async def sent_and_received(loop, pair, *arguments, **keywords):
    reading = asyncio.ensure_future(read_all(loop, pair[1]))
    try:
        sent = await loop.sock_sendfile(pair[0], *arguments, **keywords)
        assert_free(loop, pair[0])
    finally:
        pair[0].shutdown(socket.SHUT_WR)
        received = await reading
        await loop.shutdown_default_executor()
    assert sent == len(received)
    return received


@pytest.mark.parametrize("offset", [0, 1, 300_000, len(DATA) - 1, len(DATA)])
@pytest.mark.parametrize("count", [None, 1, 300_000, len(DATA) * 2])
def test_sock_sendfile(loop, pair, file, offset, count):
    async def main():
        expected = DATA[offset:] if count is None else DATA[offset : offset + count]
        assert await sent_and_received(loop, pair, file, offset, count) == expected
        if expected:
            assert file.tell() == offset + len(expected)

    loop.run_until_complete(main())


def test_an_empty_file(loop, pair, tmp_path):
    (tmp_path / "empty").touch()

    async def main():
        with open(tmp_path / "empty", "rb") as file:
            assert await sent_and_received(loop, pair, file) == b""

    loop.run_until_complete(main())


@pytest.mark.parametrize("offset", [0, 300_000])
@pytest.mark.parametrize("count", [None, 300_000])
def test_what_is_no_file_of_the_system_is_read(loop, pair, offset, count):
    async def main():
        file = io.BytesIO(DATA)
        expected = DATA[offset:] if count is None else DATA[offset : offset + count]
        assert await sent_and_received(loop, pair, file, offset, count) == expected
        assert file.tell() == offset + len(expected)

    loop.run_until_complete(main())


def test_no_fallback_wanted(loop, pair):
    async def main():
        with pytest.raises(asyncio.SendfileNotAvailableError):
            await sent_and_received(loop, pair, io.BytesIO(DATA), fallback=False)

    loop.run_until_complete(main())


def test_the_reason_why_there_is_no_native_sendfile_is_shown(loop, pair):
    with pytest.raises(asyncio.SendfileNotAvailableError) as raised:
        loop.run_until_complete(loop.sock_sendfile(pair[0], io.BytesIO(DATA), fallback=False))
    assert isinstance(raised.value.__context__, io.UnsupportedOperation)
    assert not raised.value.__suppress_context__


def test_a_cancelled_sendfile_leaves_nothing_behind(loop, pair, file):
    one, other = pair

    async def main():
        await cancelled(await started(loop.sock_sendfile(one, file)))
        await settle()
        assert_free(loop, one)
        one.shutdown(socket.SHUT_WR)
        received = await read_all(loop, other)
        assert DATA.startswith(received) and 0 < len(received) < len(DATA)

    loop.run_until_complete(main())


def test_a_cancelled_sendfile_leaves_a_file_that_took_the_descriptor_of_its_own(loop, pair, file, tmp_path):
    async def main():
        sending = await started(loop.sock_sendfile(pair[0], file))
        descriptor = file.fileno()
        file.close()
        with open(tmp_path / "other", "wb+", buffering=0) as other:
            assert other.fileno() == descriptor
            await cancelled(sending)
            await settle()
            assert other.tell() == 0

    loop.run_until_complete(main())


def test_a_sendfile_is_cancelled_after_its_file_is_closed(loop, pair, file):
    async def main():
        sending = await started(loop.sock_sendfile(pair[0], file))
        file.close()
        await cancelled(sending)
        await settle()
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


def test_the_peer_goes_while_a_file_is_sent(loop, pair, file):
    async def main():
        sending = await started(loop.sock_sendfile(pair[0], file))
        pair[1].close()
        with pytest.raises(ConnectionError):
            await sending
        await settle()
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


BAD_ARGUMENTS = {
    "a negative offset": ((-1,), ValueError),
    "an offset that is text": (("0",), TypeError),
    "a count of 0": ((0, 0), ValueError),
    "a negative count": ((0, -1), ValueError),
    "a count that is text": ((0, "1"), TypeError),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(loop, pair, file, case):
    arguments, error = BAD_ARGUMENTS[case]

    async def main():
        with pytest.raises(error):
            await loop.sock_sendfile(pair[0], file, *arguments)
        assert_free(loop, pair[0])

    loop.run_until_complete(main())


def test_text_files_and_datagram_sockets_are_refused(loop, pair, file):
    async def main():
        with open(file.name) as text, pytest.raises(ValueError, match="binary mode"):
            await loop.sock_sendfile(pair[0], text)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(ValueError, match="SOCK_STREAM"):
            sock.setblocking(False)
            await loop.sock_sendfile(sock, file)

    loop.run_until_complete(main())


def test_a_blocking_socket_is_refused_in_debug_mode(loop, pair, file):
    async def main():
        pair[0].setblocking(True)
        with pytest.raises(ValueError, match="the socket must be non-blocking"):
            await loop.sock_sendfile(pair[0], file)

    loop.set_debug(True)
    loop.run_until_complete(main())


def test_the_file_may_be_closed_afterwards(loop, pair, file):
    async def main():
        fd = os.dup(file.fileno())
        with os.fdopen(fd, "rb") as copy:
            await sent_and_received(loop, pair, copy, 0, 1000)
        with pytest.raises(OSError):
            os.fstat(fd)

    loop.run_until_complete(main())
