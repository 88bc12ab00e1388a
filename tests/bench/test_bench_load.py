"""The load generator and the bare server of the network rows, tested with plain sockets."""

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from hotloop_bench import load
from hotloop_bench.load import BareServer, Generator, Idlers, LoadFailed, NoLoadGenerator

needs_generator = pytest.mark.skipif(load.unavailable() is not None, reason=str(load.unavailable()))


# -- compiling ---------------------------------------------------------------------------------------------------------


def test_the_sources_are_complete():
    for program in (load.PLAIN, load.TLS):
        assert any("int main(" in source for source in program.made_from())


@needs_generator
def test_a_program_is_compiled_once(tmp_path):
    folder = tmp_path / "cache"
    program = load.compiled(load.compiler(), folder)
    made = program.stat()
    assert load.compiled(load.compiler(), folder) == program
    assert (program.stat().st_ino, program.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert list(folder.iterdir()) == [program]
    assert folder.stat().st_mode & 0o777 == 0o700


@needs_generator
def test_the_source_compiles_without_a_warning(tmp_path):
    program = load.compiled([*load.compiler(), "-Werror"], tmp_path)
    assert program != load.program()  # another command makes another program


def test_a_missing_compiler_is_a_reason(monkeypatch, fresh_programs):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert load.unavailable() == "the load generator needs a C compiler, and 'no-such-compiler' was not found"
    with pytest.raises(NoLoadGenerator, match="no-such-compiler"):
        load.program()


def test_a_compiler_that_fails_is_a_reason_with_its_message(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho warning: nothing >&2\necho 'load.c:1: fatal error: no headers' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(NoLoadGenerator, match=r"could not be compiled: load\.c:1: fatal error: no headers"):
        load.compiled([os.fspath(compiler)], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_a_reason(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NoLoadGenerator, match=r"could not be compiled: .*file"):
        load.compiled(["cc"], tmp_path / "file" / "cache")


def test_a_system_without_epoll_is_a_reason(monkeypatch, fresh_programs):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert load.unavailable() == "the load generator needs epoll, and this is darwin"


def test_the_cache_is_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert load.cache_folder() == Path("/somewhere/hotloop")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert load.cache_folder() == Path.home() / ".cache/hotloop"


# -- the generator, with servers of plain sockets and threads ----------------------------------------------------------


class Server:
    """A server that calls `answer` with each connection, its number and the data that it receives."""

    def __init__(self, answer, receive=1 << 16):
        self.answer, self.receive = answer, receive
        self.received = []  # bytes, by connection
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self.listener.getsockname())
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            connection, peer = self.listener.accept()
            if self.stopping(peer):
                connection.close()
                return
            self.received.append(0)
            thread = threading.Thread(target=self.serve, args=(connection, len(self.received) - 1))
            self.threads.append(thread)
            thread.start()

    def serve(self, connection, number):
        with connection, contextlib.suppress(ConnectionError):
            while data := connection.recv(self.receive):
                self.received[number] += len(data)
                if not self.answer(connection, number, data):
                    return

    def stopping(self, peer):
        return peer == getattr(self, "last", None)

    def stop(self):
        if self.listener.fileno() < 0:
            return
        with socket.socket() as last:
            last.bind(("127.0.0.1", 0))
            self.last = last.getsockname()
            last.connect(self.listener.getsockname())
            for thread in self.threads:
                thread.join()
        self.listener.close()


@pytest.fixture
def server_of():
    with contextlib.ExitStack() as stack:

        def start(answer, **keywords):
            server = Server(answer, **keywords)
            stack.callback(server.stop)
            return server

        yield start


def echoes(connection, number, data):
    connection.sendall(data)
    return True


@needs_generator
@pytest.mark.parametrize(("connections", "size"), [(1, 1), (1, 128), (7, 1024), (3, 1_000_000)])
def test_messages_are_counted_and_all_of_them_sent(server_of, connections, size):
    server = server_of(echoes)
    with Generator("tcp", server.address, connections, size) as generator:
        for n in (1, 2 * connections + 1):
            found = generator.run(n)
            assert found["messages"] == n
            assert 0 < found["p50"] <= found["p99"]
            assert found["seconds"] > 0
    assert sum(server.received) == (2 * connections + 2) * size
    assert len(server.received) == connections


@needs_generator
def test_a_server_that_trickles_is_waited_for(server_of):
    def trickle(connection, number, data):
        for byte in data:
            connection.sendall(bytes([byte]))
        return True

    with Generator("tcp", server_of(trickle).address, 2, 300) as generator:
        assert generator.run(6)["messages"] == 6


@needs_generator
def test_a_wave_has_a_message_of_each_connection(server_of):
    arrivals = []

    def note_and_echo(connection, number, data):
        arrivals.append(number)
        return echoes(connection, number, data)

    with Generator("tcp", server_of(note_and_echo).address, 5, 64, waves=True) as generator:
        assert generator.run(22)["messages"] == 22
    waves = [arrivals[start : start + 5] for start in range(0, 22, 5)]
    assert [len(set(wave)) for wave in waves] == [5, 5, 5, 5, 2]


@needs_generator
def test_a_round_can_be_bounded_in_time(server_of):
    with Generator("tcp", server_of(echoes).address, 2, 64) as generator:
        found = generator.run("0.02s")
    assert found["seconds"] >= 0.02
    assert found["messages"] > 0


@needs_generator
def test_latency_is_that_of_the_whole_echo(server_of):
    def halves(connection, number, data):
        connection.sendall(data[:1])
        time.sleep(0.02)
        connection.sendall(data[1:])
        return True

    with Generator("tcp", server_of(halves).address, 1, 64) as generator:
        found = generator.run(3)
    # The steps of the latencies are 1/32 of a power of two.
    assert 0.02 * 31 / 32 <= found["p50"] <= found["p99"] <= found["seconds"] * 33 / 32


def flipped(connection, number, data):
    connection.sendall(data[:-1] + bytes([data[-1] ^ 1]))
    return True


def twice(connection, number, data):
    connection.sendall(data + data)
    return True


def the_first_again(memory={}):  # noqa: B006  # it is meant to stay
    def answer(connection, number, data):
        connection.sendall(memory.setdefault(connection, data))
        return True

    return answer


def of_another_connection():
    first = []

    def answer(connection, number, data):
        first.append(data)
        connection.sendall(first[0])
        return True

    return answer


def half(connection, number, data):
    connection.sendall(data[: len(data) // 2])
    return False


@needs_generator
@pytest.mark.parametrize(
    ("answer", "connections", "messages", "reason"),
    [
        (flipped, 1, 1, "wrong echo: message 1 differs"),
        (twice, 1, 1, "wrong echo: more came back than was sent"),
        (the_first_again(), 1, 2, "wrong echo: message 2 differs"),
        (of_another_connection(), 2, 2, "wrong echo: message 1 differs"),
        (half, 1, 1, "closed the connection after 32 of 64 bytes"),
    ],
    ids=["flipped", "twice", "the first again", "of another connection", "half"],
)
def test_a_wrong_echo_is_detected(server_of, answer, connections, messages, reason):
    with (
        Generator("tcp", server_of(answer).address, connections, 64) as generator,
        pytest.raises(LoadFailed, match=reason),
    ):
        generator.run(messages)


@needs_generator
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[::-1]])
def test_a_wrong_datagram_is_detected(change):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer_one():
            data, peer = server.recvfrom(2048)
            server.sendto(change(data), peer)

        thread = threading.Thread(target=answer_one)
        thread.start()
        with (
            Generator("udp", "{}:{}".format(*server.getsockname()), 1, 512) as generator,
            pytest.raises(LoadFailed, match="wrong echo"),
        ):
            generator.run(1)
        thread.join()


@needs_generator
def test_connections_are_opened_and_closed(server_of):
    def echo_once(connection, number, data):
        connection.sendall(data)
        return False

    server = server_of(echo_once)
    with Generator("tcp", server.address, 4) as generator:
        assert generator.run(25)["messages"] == 25
    assert server.received == [1] * 25


@needs_generator
def test_idle_connections_are_held(server_of):
    server = server_of(echoes)
    with Idlers(server.address, source=1) as first, Idlers(server.address, source=2) as second:
        assert (first.open(5), first.open(7), second.open(3)) == (5, 12, 3)
    server.stop()
    assert server.received == [0] * 15


@needs_generator
def test_errors_are_reported():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed_port = "{}:{}".format(*listener.getsockname())
    with pytest.raises(LoadFailed, match="connect: Connection refused"):
        Generator("tcp", closed_port, 1, 64)
    with pytest.raises(LoadFailed, match="connect: No such file or directory"):
        Generator("unix", "/no/such/socket", 1, 64)
    with pytest.raises(LoadFailed, match="path of the socket is too long"):
        Generator("unix", "/" + "x" * 200, 1, 64)
    with pytest.raises(LoadFailed, match="must be positive"):
        Generator("tcp", closed_port, 0, 64)


@needs_generator
def test_a_generator_that_dies_or_hangs_is_an_error(server_of, monkeypatch):
    def says_nothing(connection, number, data):
        return True

    with Generator("tcp", server_of(says_nothing).address, 1, 64) as generator:
        monkeypatch.setattr(load, "SECONDS_BEFORE_THE_GENERATOR_HANGS", 0.05)
        with pytest.raises(LoadFailed, match=r"no answer in 0\.05 s"):
            generator.run(1)
        generator.process.kill()
        generator.process.wait()
        with pytest.raises(LoadFailed, match="ended"):
            generator.run(1)


# -- the bare server ---------------------------------------------------------------------------------------------------


@needs_generator
@pytest.mark.parametrize(
    ("network", "connections", "size"), [("tcp", 5, 100_000), ("unix", 3, 2_000_000), ("udp", 70, 512)]
)
def test_the_bare_server_echoes(tmp_path, network, connections, size):
    with (
        BareServer(network, "echo", os.fspath(tmp_path / "socket") if network == "unix" else "") as server,
        Generator(network, server.address, connections, size) as generator,
    ):
        before = server.cpu()
        assert generator.run(200)["messages"] == 200
        assert server.cpu() > before


@needs_generator
def test_the_bare_server_closes_after_an_echo():
    with BareServer("tcp", "once") as server, Generator("tcp", server.address, 3) as generator:
        assert generator.run(10)["messages"] == 10


@needs_generator
def test_the_sink_counts_the_bytes_that_it_receives():
    with BareServer("tcp", "sink") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"x" * 1_000_001)
            connection.shutdown(socket.SHUT_WR)
            assert connection.makefile().read() == "1000001\n"


@needs_generator
def test_the_bare_server_survives_a_client_that_resets():
    with BareServer("tcp", "echo") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"x" * 100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with Generator("tcp", server.address, 1, 64) as generator:
            assert generator.run(3)["messages"] == 3
