"""The sock_* methods: which arguments they refuse, and that they are coroutines like any other."""

import asyncio
import errno
import gc
import inspect
import socket
import ssl
import sys
import types
import unittest.mock
import weakref

import pytest
from support.endpoints import assert_free, cancelled, settle, started, until

CALLS = {
    "sock_recv": lambda loop, sock: loop.sock_recv(sock, 100),
    "sock_recv_into": lambda loop, sock: loop.sock_recv_into(sock, bytearray(100)),
    "sock_recvfrom": lambda loop, sock: loop.sock_recvfrom(sock, 100),
    "sock_recvfrom_into": lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(100)),
    "sock_sendall": lambda loop, sock: loop.sock_sendall(sock, b"data"),
    "sock_sendto": lambda loop, sock: loop.sock_sendto(sock, b"data", ("127.0.0.1", 9)),
    "sock_connect": lambda loop, sock: loop.sock_connect(sock, ("127.0.0.1", 9)),
    "sock_accept": lambda loop, sock: loop.sock_accept(sock),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
def test_a_blocking_socket_is_refused_in_debug_mode(loop, pair, call):
    async def main():
        for timeout in (None, 5.0):
            pair[0].settimeout(timeout)
            with pytest.raises(ValueError, match="the socket must be non-blocking"):
                await call(loop, pair[0])
        pair[0].setblocking(False)

    loop.set_debug(True)
    loop.run_until_complete(main())


@every_call
def test_a_tls_socket_is_refused(loop, pair, call):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False

    async def main():
        with socket.socket() as plain, context.wrap_socket(plain, do_handshake_on_connect=False) as sock:
            sock.setblocking(False)
            with pytest.raises(TypeError, match="Socket cannot be of type SSLSocket"):
                await call(loop, sock)

    loop.run_until_complete(main())


@every_call
def test_a_closed_socket_is_refused(loop, call):
    async def main():
        sock = socket.socket()
        sock.setblocking(False)
        sock.close()
        with pytest.raises(OSError) as caught:
            await call(loop, sock)
        assert caught.value.errno == errno.EBADF

    loop.run_until_complete(main())


@every_call
def test_what_is_no_socket_is_refused(loop, call):
    async def main():
        for nonsense in (5, None, "text"):
            with pytest.raises(AttributeError):
                await call(loop, nonsense)

    loop.run_until_complete(main())


BAD_ARGUMENTS = {
    "a size that is text": (lambda loop, sock: loop.sock_recv(sock, "10"), TypeError),
    "a negative size": (lambda loop, sock: loop.sock_recv(sock, -1), ValueError),
    "a huge size": (lambda loop, sock: loop.sock_recv(sock, 1 << 80), OverflowError),
    "a read-only buffer": (lambda loop, sock: loop.sock_recv_into(sock, b"read-only"), TypeError),
    "no buffer": (lambda loop, sock: loop.sock_recv_into(sock, 5), TypeError),
    "a negative size from": (lambda loop, sock: loop.sock_recvfrom(sock, -1), ValueError),
    "more than the buffer": (lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(5), 6), ValueError),
    "text to send": (lambda loop, sock: loop.sock_sendall(sock, "text"), TypeError),
    "none to send": (lambda loop, sock: loop.sock_sendall(sock, None), TypeError),
    "text to send to": (lambda loop, sock: loop.sock_sendto(sock, "text", "path"), TypeError),
    "a number to connect to": (lambda loop, sock: loop.sock_connect(sock, 5), TypeError),
    "a path too long": (lambda loop, sock: loop.sock_connect(sock, "x" * 200), OSError),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments(loop, case):
    call, error = BAD_ARGUMENTS[case]

    async def main():
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.send(b"data")
            if "connect" in case or "path" in case:
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
            with one:
                with pytest.raises(error):
                    await call(loop, one)
                assert_free(loop, one)

    loop.run_until_complete(main())


@every_call
def test_they_are_coroutines(loop, call):
    with socket.socket() as sock:
        coroutine = call(loop, sock)
        assert asyncio.iscoroutine(coroutine) and inspect.isawaitable(coroutine)
        assert not asyncio.isfuture(coroutine)
        coroutine.close()
        coroutine.close()


@every_call
def test_nothing_happens_before_they_are_awaited(loop, call):
    """A call does nothing before it is awaited, not even raise an error, unless the arguments do not fit the
    signature."""
    call(loop, "no socket").close()


def test_data_is_left_alone_by_a_coroutine_that_is_closed(loop, pair):
    async def main():
        pair[1].send(b"x")
        loop.sock_recv(pair[0], 1).close()
        await settle()
        assert pair[0].recv(10) == b"x"

    loop.run_until_complete(main())


@every_call
def test_never_awaited(loop, call):
    with socket.socket() as sock, pytest.warns(RuntimeWarning, match=r"coroutine '.*sock_\w+' was never awaited"):
        call(loop, sock)


def test_awaited_twice(loop, pair):
    async def main():
        pair[1].send(b"xy")
        coroutine = loop.sock_recv(pair[0], 1)
        assert await coroutine == b"x"
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await coroutine

    loop.run_until_complete(main())


@pytest.mark.parametrize("use", ["send", "throw", "close"])
def test_used_while_it_runs(loop, use):
    """From inside an attempt, here of a program's own recv()."""
    seen = []

    class OwnSocket(socket.socket):
        def recv(self, size):
            seen.append((inspect.getcoroutinestate(coroutine), coroutine.cr_running, coroutine.cr_suspended))
            with pytest.raises(ValueError, match=r"^coroutine already executing$"):
                getattr(coroutine, use)(*arguments)
            return super().recv(size)

    arguments = {"send": (None,), "throw": (KeyError(),), "close": ()}[use]
    one, other = socket.socketpair()
    with other, OwnSocket(fileno=one.detach()) as own:
        own.setblocking(False)
        other.send(b"x")
        coroutine = loop.sock_recv(own, 1)
        assert loop.run_until_complete(coroutine) == b"x"
    assert seen == [("CORO_RUNNING", True, False)]
    assert inspect.getcoroutinestate(coroutine) == "CORO_CLOSED"


def test_resumed_before_its_future_is_done(loop, pair):
    async def main():
        coroutine = loop.sock_recv(pair[0], 1)
        coroutine.send(None)
        with pytest.raises(RuntimeError, match="await wasn't used with future"):
            coroutine.send(None)
        assert inspect.getcoroutinestate(coroutine) == "CORO_CLOSED"
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            coroutine.send(None)
        loop.remove_reader(pair[0])

    loop.run_until_complete(main())


@pytest.mark.parametrize("arguments", [(), (1, 2, 3, 4, 5)])
def test_the_number_of_arguments_is_checked_at_once(loop, arguments):
    for name in CALLS:
        with pytest.raises(TypeError):
            getattr(loop, name)(*arguments)


def test_arguments_by_name(loop, pair):
    one, other = pair

    async def main():
        await loop.sock_sendall(sock=other, data=b"abcdef")
        assert await loop.sock_recv(sock=one, n=1) == b"a"
        buffer = bytearray(1)
        assert await loop.sock_recv_into(sock=one, buf=buffer) == 1
        assert await loop.sock_recvfrom(sock=one, bufsize=1) == (b"c", None)
        assert await loop.sock_recvfrom_into(sock=one, buf=buffer, nbytes=1) == (1, None)

    loop.run_until_complete(main())


def test_every_way_to_run_them(loop, pair):
    one, other = pair

    async def main():
        other.send(b"abcdefgh")
        assert await loop.create_task(loop.sock_recv(one, 1)) == b"a"
        assert await asyncio.ensure_future(loop.sock_recv(one, 1)) == b"b"
        assert await asyncio.gather(loop.sock_recv(one, 1), loop.sock_recv(one, 1)) == [b"c", b"d"]
        assert await asyncio.shield(loop.sock_recv(one, 1)) == b"e"
        done, _ = await asyncio.wait([asyncio.ensure_future(loop.sock_recv(one, 1))])
        assert done.pop().result() == b"f"
        async with asyncio.TaskGroup() as group:
            task = group.create_task(loop.sock_recv(one, 1), name="a name")
        assert (task.result(), task.get_name()) == (b"g", "a name")

    loop.run_until_complete(main())
    assert loop.run_until_complete(loop.sock_recv(one, 1)) == b"h"


def test_a_task_tells_what_it_runs(loop, pair):
    async def main():
        task = await started(loop.sock_recv(pair[0], 1))
        assert "sock_recv" in repr(task)
        assert task.get_coro() is not None
        await cancelled(task)

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", ["sock_recv", "sock_recv_into", "sock_accept"])
def test_tools_see_a_coroutine(loop, pair, name):
    """inspect, and what draws the tasks of a program, ask it for its state, its frame and what it awaits."""

    async def main():
        coroutine = CALLS[name](loop, pair[0])
        assert inspect.iscoroutine(coroutine) and isinstance(coroutine, types.CoroutineType)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        assert coroutine.cr_code.co_name == coroutine.cr_frame.f_code.co_name == name
        if name == "sock_accept":
            coroutine.close()
        else:
            task = await started(coroutine)
            assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
            assert coroutine.cr_await is not None
            assert coroutine.cr_frame.f_code.co_name == name
            assert [frame.f_code.co_name for frame in task.get_stack()] == [name]
            await cancelled(task)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        assert coroutine.cr_frame is None and coroutine.cr_await is None

    loop.run_until_complete(main())


def test_a_task_that_was_looked_at_keeps_no_buffer(loop, pair):
    class Buffer(bytearray):
        pass

    async def main():
        buffer = Buffer(10)
        reference = weakref.ref(buffer)
        task = await started(loop.sock_recv_into(pair[0], buffer))
        del buffer
        assert task.get_stack()
        pair[1].send(b"data")
        assert await task == 4
        gc.collect()
        assert reference() is None

    loop.run_until_complete(main())


def test_a_descriptor_of_a_transport_is_refused(loop):
    async def main():
        one, other = socket.socketpair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        with other:
            for call in (CALLS["sock_recv"], CALLS["sock_recv_into"], CALLS["sock_recvfrom"]):
                with pytest.raises(RuntimeError, match="is used by transport"):
                    await call(loop, one)
            transport.close()
            await until(lambda: one.fileno() == -1)

    loop.run_until_complete(main())


def test_a_thread_may_ask(loop, pair):
    """run_coroutine_threadsafe() accepts these coroutines like any other."""

    async def main():
        def thread():
            return asyncio.run_coroutine_threadsafe(loop.sock_recv(pair[0], 10), loop).result()

        waiting = await started(asyncio.to_thread(thread))
        pair[1].send(b"for a thread")
        assert await waiting == b"for a thre"
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())


can_be_marked = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before Python 3.12 a compiled method cannot be marked as a coroutine function"
)


@can_be_marked
def test_the_coroutine_functions_are_asyncios(loop):
    own = asyncio.SelectorEventLoop
    names = [name for name in dir(own) if not name.startswith("__")]
    expected = [name for name in names if inspect.iscoroutinefunction(getattr(own, name))]
    assert [name for name in names if inspect.iscoroutinefunction(getattr(loop, name))] == expected


@can_be_marked
@pytest.mark.parametrize("name", CALLS)
def test_a_mocked_method_can_be_awaited(loop, pair, name):
    async def main():
        with unittest.mock.patch.object(loop, name, return_value="mocked"):
            assert await CALLS[name](loop, pair[0]) == "mocked"

    loop.run_until_complete(main())
