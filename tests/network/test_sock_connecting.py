"""sock_connect() and sock_accept(): at once or after waiting, by name, with wrong addresses, cancelled."""

import asyncio
import errno
import socket
import sys

import pytest
from support.endpoints import assert_free, cancelled, started


def test_connecting_and_accepting(loop, listener, client):
    async def main():
        accepting = await started(loop.sock_accept(listener))
        assert await loop.sock_connect(client, listener.getsockname()) is None
        server, address = await accepting
        with server:
            assert address == client.getsockname() and client.getpeername() == listener.getsockname()
            assert server.gettimeout() == 0 and server.family == socket.AF_INET
            assert not server.get_inheritable()
        assert_free(loop, listener)
        assert_free(loop, client)

    loop.run_until_complete(main())


def test_many_accepts(loop, listener):
    async def main():
        clients = [socket.create_connection(listener.getsockname()) for _ in range(20)]
        accepted = [await loop.sock_accept(listener) for _ in clients]
        assert [address for _, address in accepted] == [client.getsockname() for client in clients]
        for sock in (*clients, *(server for server, _ in accepted)):
            sock.close()

    loop.run_until_complete(main())


def test_connecting_by_name(loop, listener, client):
    async def main():
        await loop.sock_connect(client, ("localhost", listener.getsockname()[1]))
        assert client.getpeername() == listener.getsockname()
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())


@pytest.mark.parametrize("where", ["loop", "asyncio"])
def test_a_literal_goes_through_what_a_program_has_put_in_the_place_of_resolving(
    loop, listener, client, monkeypatch, where
):
    address = listener.getsockname()
    asked = []

    async def resolve(host_and_port, **options):
        asked.append(host_and_port)
        return [(socket.AF_INET, options["type"], options["proto"], "", address)]

    def look_at(host, port, *rest):
        asked.append((host, port))
        return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address

    if where == "loop":
        monkeypatch.setattr(loop, "_ensure_resolved", resolve)
    else:
        monkeypatch.setattr(asyncio.base_events, "_ipaddr_info", look_at)
    loop.run_until_complete(loop.sock_connect(client, ("127.0.0.255", 1)))
    assert asked == [("127.0.0.255", 1)]
    assert client.getpeername() == address


@pytest.mark.parametrize(
    "wrong",
    [
        ("127.0.0.1",),
        ("127.0.0.1", 1, 2),
        ("127.0.0.1", "x"),
        ("127.0.0.1", -1),
        ("127.0.0.1", 1 << 16),
        "127.0.0.1",
        None,
    ],
    ids=repr,
)
def test_a_wrong_address_is_asyncios_error(loop, wrong, load_implementation):
    def error_on(on):
        with socket.socket() as client, pytest.raises(Exception) as caught:
            client.setblocking(False)
            on.run_until_complete(on.sock_connect(client, wrong))
        return type(caught.value), str(caught.value)

    reference = load_implementation("asyncio").new_event_loop()
    try:
        assert error_on(loop) == error_on(reference)
    finally:
        reference.close()


def test_connecting_without_a_listener(loop, client):
    async def main():
        with socket.socket() as placeholder:
            placeholder.bind(("127.0.0.1", 0))
            address = placeholder.getsockname()
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(client, address)
        assert_free(loop, client)

    loop.run_until_complete(main())


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this platform has no Unix sockets")
def test_connecting_unix_sockets(loop, tmp_path):
    async def main():
        path = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
            listener.setblocking(False)
            client.setblocking(False)
            with pytest.raises(FileNotFoundError):
                await loop.sock_connect(client, str(path))
            listener.bind(str(path))
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(client, str(path))
            listener.listen()
            await loop.sock_connect(client, bytes(path))
            with pytest.raises(OSError) as caught:
                await loop.sock_connect(client, bytes(path))
            assert caught.value.errno == errno.EISCONN
            server, address = await loop.sock_accept(listener)
            with server:
                assert address == client.getsockname() == ""

    loop.run_until_complete(main())


@pytest.fixture
def deaf_address():
    """A listener whose queue is full: a connection to it hangs."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        clients = []
        try:
            for _ in range(20):
                clients.append(socket.socket())
                clients[-1].settimeout(0)
                clients[-1].connect_ex(sock.getsockname())
            yield sock.getsockname()
        finally:
            for one in clients:
                one.close()


def test_a_cancelled_connect_leaves_nothing_behind(loop, deaf_address):
    async def main():
        for how in ("cancel", "timeout"):
            with socket.socket() as client:
                client.setblocking(False)
                task = await started(loop.sock_connect(client, deaf_address))
                if how == "cancel":
                    await cancelled(task)
                else:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(task, 0.001)
                assert_free(loop, client)
                assert client.fileno() >= 0

    loop.run_until_complete(main())


def test_a_cancelled_accept_leaves_nothing_behind(loop, listener):
    async def main():
        for _ in range(3):
            await cancelled(await started(loop.sock_accept(listener)))
            assert_free(loop, listener)
        with socket.create_connection(listener.getsockname()) as client:
            server, address = await loop.sock_accept(listener)
            server.close()
            assert address == client.getsockname()

    loop.run_until_complete(main())


def test_an_accept_cancelled_in_the_turn_in_which_a_connection_arrives(impl, loop, listener):
    if impl.name != "c" and sys.version_info < (3, 14, 10):
        pytest.skip("asyncio accepts for a cancelled future: https://github.com/python/cpython/issues/153761")

    async def main():
        task = await started(loop.sock_accept(listener))
        loop.call_soon(task.cancel)
        with socket.create_connection(listener.getsockname()) as client:
            with pytest.raises(asyncio.CancelledError):
                await task
            server, address = await asyncio.wait_for(loop.sock_accept(listener), 60)
            server.close()
            assert address == client.getsockname()

    loop.run_until_complete(main())
