"""echo_server.py with real clients: many, greedy, lazy and rude ones."""

import asyncio
import contextlib
import errno
import importlib
import os
import re
import resource
import signal
import socket
import threading
from pathlib import Path

import pytest
from example_programs import EXAMPLES, SECONDS_BEFORE_A_PROGRAM_HANGS


def start_server(programs, on):
    process = programs.start("echo_server.py", on=on)
    host, port = re.fullmatch(r"echo server on (\S+) port (\d+)\n", process.stdout.readline()).groups()
    return process, (host, int(port))


def stop(process, number=signal.SIGTERM):
    process.send_signal(number)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 0


def receive(sock, count):
    data = bytearray()
    while len(data) < count:
        chunk = sock.recv(65536)
        assert chunk, f"the connection ended after {len(data)} of {count} bytes"
        data += chunk
    return bytes(data)


def test_many_clients(impl, programs):
    process, address = start_server(programs, impl.name)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(50)]
        for turn in range(3):
            for number, client in enumerate(clients):
                client.sendall(b"%d of client %d\n" % (turn, number))
            for number, client in reversed(list(enumerate(clients))):
                expected = b"%d of client %d\n" % (turn, number)
                assert receive(client, len(expected)) == expected
        clients[0].shutdown(socket.SHUT_WR)
        assert clients[0].recv(1) == b""
    stop(process)


def test_much_data_and_a_client_that_does_not_read(impl, programs):
    process, address = start_server(programs, impl.name)
    with socket.create_connection(address) as lazy, socket.create_connection(address, timeout=30) as client:
        lazy.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                lazy.send(b"x" * 65536)
        data = os.urandom(1 << 20) * 4
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        try:
            assert receive(client, len(data)) == data
        finally:
            sender.join()
    stop(process)


def test_client_that_resets_its_connection(impl, programs):
    process, address = start_server(programs, impl.name)
    for _ in range(10):
        with socket.create_connection(address) as rude:
            rude.sendall(b"x" * 100_000)
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(b"still there?")
        assert receive(client, 12) == b"still there?"
    stop(process)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_client_that_vanishes(impl, monkeypatch, number):
    """tcp(7): the kernel ends a connection whose peer no longer answers by such an error, no ConnectionError."""
    monkeypatch.syspath_prepend(EXAMPLES)
    handler = signal.getsignal(signal.SIGINT)
    echo_server = importlib.import_module("echo_server")
    signal.signal(signal.SIGINT, handler)  # an example's would end this process at a later test's interrupt

    class EventLoop(impl.EventLoop):
        async def sock_recv(self, sock, n):
            data = await super().sock_recv(sock, n)
            if data == b"vanish":
                raise OSError(number, os.strerror(number))
            return data

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            server = asyncio.create_task(echo_server.accept_clients(listener))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            vanishing_reader, vanishing_writer = await asyncio.open_connection(*listener.getsockname())
            vanishing_writer.write(b"vanish")
            assert await vanishing_reader.read() == b""
            writer.write(b"still there?")
            assert await reader.readexactly(12) == b"still there?"
            server.cancel()
            assert await reader.read() == b""
            await asyncio.wait([server])
            assert server.cancelled()
            for each in (writer, vanishing_writer):
                each.close()
                await each.wait_closed()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())


def test_closes_a_client_that_has_not_begun_when_accepting_fails(impl, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    echo_server = importlib.import_module("echo_server")
    accepted = []

    class EventLoop(impl.EventLoop):
        async def sock_accept(self, sock):
            if accepted:
                raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
            accepted.append((await super().sock_accept(sock))[0])
            return accepted[0], None

    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            with socket.create_connection(listener.getsockname(), timeout=30) as client:
                with pytest.raises(BaseExceptionGroup):
                    await echo_server.accept_clients(listener)
                assert client.recv(1) == b""

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_with_clients_connected(impl, programs, number):
    process, address = start_server(programs, impl.name)
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(b"hello")
        assert receive(client, 5) == b"hello"
        stop(process, number)
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit another process's descriptors")
def test_goes_on_when_descriptors_run_out(impl, programs):
    process, address = start_server(programs, impl.name)
    used = max(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()) + 1
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 2, used + 2))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(5)]
        clients[0].sendall(b"first")
        assert receive(clients[0], 5) == b"first"
        for client in clients[:4]:
            client.close()
        clients[4].sendall(b"fifth")
        assert receive(clients[4], 5) == b"fifth"
    stop(process)


def test_port_in_use(programs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = programs.failure("echo_server.py", f"--port={port}")
    assert (code, f"cannot listen on 127.0.0.1:{port}" in line) == (1, True)
