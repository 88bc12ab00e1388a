"""TLS: the task of a connection that a server has accepted is cancelled, as at the end of a program, or fails."""

import asyncio
import gc
import socket
import ssl
import warnings

import pytest
from support.endpoints import settle, until
from support.garbage import without_collector
from support.leftovers import open_descriptors
from support.serving import Made, serving


def beginning_of_handshake():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def end(loop):
    """End all tasks, as asyncio.run() does when its coroutine has returned. That keeps them in a variable meanwhile.
    Here none does: on Python 3.13 a task's exception keeps this function's frame, and so there would be a cycle."""
    for task in asyncio.all_tasks(loop):
        task.cancel()
    del task
    loop.run_until_complete(settle())
    assert not asyncio.all_tasks(loop)
    loop.run_until_complete(loop.shutdown_asyncgens())


@pytest.mark.parametrize("stage", ["nothing", "part", "answered"])
def test_a_handshake_at_the_end_of_the_program(loop, certificates, stage):
    """The connection is closed by then, not when the garbage collector finds it; the protocol never hears of it."""
    hello = {"nothing": b"", "part": beginning_of_handshake()[:100], "answered": beginning_of_handshake()}[stage]
    gc.collect()
    client = socket.socket()
    before = open_descriptors()
    made = Made()

    async def accept():
        server, address = await serving(loop, made, ssl=certificates.server_context())
        client.connect(address)
        client.sendall(hello)
        await until(lambda: made.protocols)
        await settle()
        server.close()

    with without_collector(), client:
        loop.run_until_complete(accept())
        assert len(asyncio.all_tasks(loop)) == 1
        end(loop)
        client.settimeout(5)
        while client.recv(10000):
            pass
        assert open_descriptors() == before
    assert made.protocols[0].calls == []


@pytest.mark.only("c", reason="asyncio drops the socket of a task that has not begun, with a ResourceWarning")
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_connection_accepted_in_the_last_turn(loop, certificates, turns):
    """It is closed, and nothing is reported of its task, which has not begun as the program ends, or has just begun."""
    client = socket.socket()
    made = Made()
    reports = []
    loop.set_exception_handler(lambda loop, report: reports.append(report))

    async def accept():
        server, address = await serving(loop, made, ssl=certificates.server_context())
        await settle()
        client.connect(address)
        for _ in range(turns):
            await asyncio.sleep(0)
        return server

    with without_collector(), client:
        server = loop.run_until_complete(accept())
        assert len(asyncio.all_tasks(loop)) == 1
        end(loop)
        client.settimeout(5)
        assert client.recv(1) == b""
        server.close()
        loop.run_until_complete(settle())
        assert reports == []


@pytest.mark.only("c", reason="asyncio goes on with the handshake, and then the connection waits for ever")
def test_a_task_that_cannot_wait_for_the_handshake(loop, certificates, monkeypatch):
    """As when there is no memory to wait with: the connection is closed, and the protocol never hears of it."""
    made = Made()

    class Unawaitable(asyncio.Future):
        def __await__(self):
            raise MemoryError

    def factory():
        monkeypatch.setattr(loop, "create_future", lambda: Unawaitable(loop=loop))
        return made()

    async def attempt():
        server, address = await serving(loop, factory, ssl=certificates.server_context())
        with socket.create_connection(address) as client:
            await until(lambda: made.protocols)
            monkeypatch.undo()
            await settle()
            client.settimeout(5)
            assert client.recv(1) == b""
        server.close()
        await settle()

    loop.run_until_complete(attempt())
    assert made.protocols[0].calls == []


@pytest.mark.only("c", reason="asyncio's own TLS leaves cycles")
@pytest.mark.parametrize("sent", [b"", b"no handshake\r\n"], ids=["nothing", "garbage"])
def test_a_failed_handshake_leaves_no_garbage(loop, certificates, sent):
    """Neither the connection, nor the task that waits for the handshake, nor the exception."""
    made = Made()
    reports = []
    loop.set_exception_handler(lambda loop, report: reports.append(report["message"]))

    async def attempt():
        with socket.create_connection(address) as client:
            client.sendall(sent)
            made.protocols.clear()
            await until(lambda: made.protocols)
            await settle()
        await settle()
        assert len(asyncio.all_tasks()) == 1

    server, address = loop.run_until_complete(serving(loop, made, ssl=certificates.server_context()))
    loop.run_until_complete(attempt())
    gc.collect()
    with without_collector():
        loop.run_until_complete(attempt())
        assert gc.collect() == 0
    server.close()
    loop.run_until_complete(settle())


@pytest.mark.only("c", reason="asyncio's own TLS leaves cycles")
def test_a_loop_that_is_closed_in_a_handshake(loop, certificates):
    """The task ends with its loop, and nothing but that is reported."""
    reports = []
    loop.set_exception_handler(lambda loop, report: reports.append(report["message"]))

    async def accept():
        _, address = await serving(loop, Made(), ssl=certificates.server_context())
        client = socket.create_connection(address)
        await settle()
        return client

    with loop.run_until_complete(accept()), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        loop.close()
        gc.collect()
    assert reports == ["Task was destroyed but it is pending!"]
