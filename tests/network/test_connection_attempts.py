"""create_connection() where a host has several addresses, not all of which answer (P12).

These tests use the system's own sockets; those in test_happy_eyeballs.py use a network in memory.
"""

import asyncio
import errno
import select
import socket
import sys

import pytest
from support.endpoints import cancelled, close, started, until
from support.recording import Recorder

pytestmark = pytest.mark.promise("P12")

has_all_errors = pytest.mark.skipif(sys.version_info < (3, 12), reason="all_errors came with CPython 3.12")
black_holes = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a listening socket without room refuses connections, or takes more"
)


@pytest.fixture
def black_hole():
    """An address that drops packets: a listening socket whose queue of one place is taken (listen(2), tcp(7))."""
    with socket.socket() as listener, socket.socket() as taking:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        taking.connect(listener.getsockname())
        select.select([listener], [], [])
        yield listener.getsockname()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def refused():
    """Addresses that refuse connections: a socket that does not listen is bound to each."""
    with socket.socket() as one, socket.socket() as other:
        for sock in (one, other):
            sock.bind(("127.0.0.1", 0))
        yield [one.getsockname(), other.getsockname()]


class Attempts:
    """Has a loop resolve any host to these addresses, and records how each attempt to connect ends."""

    def __init__(self, loop, *addresses):
        self.begun = []
        self.ended = {}
        connect = loop.sock_connect

        async def getaddrinfo(host, port, **kwargs):
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for address in addresses]

        async def sock_connect(sock, address):
            self.begun.append(address)
            try:
                await connect(sock, address)
            except BaseException as error:
                self.ended[address] = type(error)
                raise
            self.ended[address] = None

        loop.getaddrinfo = getaddrinfo
        loop.sock_connect = sock_connect


@black_holes
def test_a_second_address_while_the_first_is_silent(hotloop_loop, black_hole, listener):
    loop = hotloop_loop
    attempts = Attempts(loop, black_hole, listener.getsockname())

    async def main():
        # Without the delay this would wait until TCP gives up, which takes minutes.
        transport, _ = await loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=0.25)
        assert loop.time() == 0.25
        assert transport.get_extra_info("peername") == listener.getsockname()
        assert attempts.begun == [black_hole, listener.getsockname()]
        # The loop cancelled the first attempt, which had not ended, when the second had succeeded.
        await until(lambda: len(attempts.ended) == 2)
        assert attempts.ended == {black_hole: asyncio.CancelledError, listener.getsockname(): None}
        await close(transport)

    loop.run_until_complete(main())


@black_holes
def test_the_delay_is_not_waited_for_where_the_first_answers(loop, black_hole, listener):
    attempts = Attempts(loop, listener.getsockname(), black_hole)

    async def main():
        transport, _ = await loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=3600)
        assert attempts.begun == [listener.getsockname()]
        await close(transport)

    loop.run_until_complete(main())


def test_the_delay_is_not_waited_for_where_the_first_refuses(loop, refused, listener):
    attempts = Attempts(loop, *refused, listener.getsockname())

    async def main():
        transport, _ = await loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=3600)
        assert transport.get_extra_info("peername") == listener.getsockname()
        assert attempts.begun == [*refused, listener.getsockname()]
        await close(transport)

    loop.run_until_complete(main())


@black_holes
@pytest.mark.parametrize("delay", [None, 0.001])
def test_cancelled_while_no_address_answers(loop, black_hole, delay):
    """However many attempts are under way, none is left."""
    attempts = Attempts(loop, black_hole, black_hole)

    async def main():
        connecting = await started(loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=delay))
        await until(lambda: len(attempts.begun) == (1 if delay is None else 2))
        await cancelled(connecting)
        assert attempts.ended == {black_hole: asyncio.CancelledError}

    loop.run_until_complete(main())


@has_all_errors
@pytest.mark.parametrize("delay", [None, 0.25])
def test_all_errors_are_a_group(loop, refused, delay):
    Attempts(loop, *refused)

    async def main():
        with pytest.raises(ExceptionGroup) as caught:
            await loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=delay, all_errors=True)
        errors = caught.value.exceptions
        assert [type(error) for error in errors] == [ConnectionRefusedError] * 2
        assert [str(address) in str(error) for address, error in zip(refused, errors, strict=True)] == [True, True]

    loop.run_until_complete(main())


@pytest.mark.parametrize("delay", [None, 0.25])
def test_without_all_errors_they_are_one(loop, refused, delay):
    Attempts(loop, *refused)

    async def main():
        with pytest.raises(OSError) as caught:
            await loop.create_connection(Recorder, "a.test", 80, happy_eyeballs_delay=delay)
        # Different addresses make different messages, which asyncio joins.
        assert str(caught.value).startswith("Multiple exceptions: ")
        assert all(str(address) in str(caught.value) for address in refused)

    loop.run_until_complete(main())


@has_all_errors
def test_an_only_address_is_a_group_too(loop, refused):
    async def main():
        with pytest.raises(ExceptionGroup) as caught:
            await loop.create_connection(Recorder, *refused[0], all_errors=True)
        assert [error.errno for error in caught.value.exceptions] == [errno.ECONNREFUSED]
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, *refused[0])

    loop.run_until_complete(main())
