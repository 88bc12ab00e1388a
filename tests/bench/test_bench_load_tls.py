"""The load generator and the bare server over TLS, tested with ssl sockets."""

import contextlib
import os
import socket
import ssl
import threading

import pytest

from hotloop_bench import identity, load
from hotloop_bench.load import PLAIN, TLS, BareServer, Downloader, Generator, Helper, LoadFailed
from hotloop_bench.rows import tls

CIPHER = ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)

needs_openssl = pytest.mark.skipif(tls.unavailable() is not None, reason=str(tls.unavailable()))


@needs_openssl
def test_the_source_compiles_without_a_warning(tmp_path):
    program = load.compiled([*load.compiler(), "-Werror"], tmp_path, TLS)
    assert program.name.startswith("load-tls-")


# -- the generator, with servers of ssl sockets and threads ------------------------------------------------------------


class Server:
    """A server that calls `answer` with each connection and the data that it receives."""

    def __init__(self, context, answer):
        self.context, self.answer = context, answer
        self.received = 0
        self.counting = threading.Lock()
        self.seen = []  # of each connection: its cipher, whether a session was taken up again, how it ended
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self.listener.getsockname())
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # shut down by stop()
                return
            thread = threading.Thread(target=self.serve, args=(connection,))
            self.threads.append(thread)
            thread.start()

    def serve(self, plain):
        with plain, contextlib.suppress(OSError):  # of which SSLError is one
            with self.context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as connection:
                found = [connection.cipher(), connection.session_reused]
                self.converse(connection)
                connection.unwrap().close()  # sends a close_notify and waits for the other one
            self.seen.append((*found, "closed by both"))

    def converse(self, connection):
        while data := connection.recv(1 << 16):
            with self.counting:
                self.received += len(data)
            if not self.answer(connection, data):
                return

    def stop(self):
        if self.listener.fileno() < 0:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()


@pytest.fixture
def server_of(certificate):
    with contextlib.ExitStack() as stack:

        def start(answer, **settings):
            context = identity.server_context(certificate)
            for name, value in settings.items():
                setattr(context, name, value)
            server = Server(context, answer)
            stack.callback(server.stop)
            return server

        yield start


def echoes(connection, data):
    connection.sendall(data)
    return True


def echoes_once(connection, data):
    connection.sendall(data)
    return False


@needs_openssl
@pytest.mark.parametrize(("connections", "size"), [(1, 1), (7, 1024), (3, 1_000_000)])
def test_messages_are_counted_and_all_of_them_sent(server_of, certificate, connections, size):
    server = server_of(echoes)
    with Generator("tls", server.address, connections, size, identity=certificate) as generator:
        for n in (1, 2 * connections + 1):
            found = generator.run(n)
            assert found["messages"] == n
            assert 0 < found["p50"] <= found["p99"]
    assert server.received == (2 * connections + 2) * size


@needs_openssl
def test_an_echo_may_come_in_small_records(server_of, certificate):
    def trickle(connection, data):
        for start in range(0, len(data), 7):
            connection.sendall(data[start : start + 7])
        return True

    with Generator("tls", server_of(trickle).address, 2, 300, identity=certificate) as generator:
        assert generator.run(6)["messages"] == 6


@needs_openssl
def test_every_connection_that_is_opened_has_a_handshake_of_its_own_and_a_proper_end(server_of, certificate):
    server = server_of(echoes_once)
    with Generator("tls", server.address, 4, identity=certificate) as generator:
        assert generator.run(9)["messages"] == 9
    server.stop()
    assert server.received == 9
    assert server.seen == [(CIPHER, False, "closed by both")] * 9


def flipped(connection, data):
    connection.sendall(data[:-1] + bytes([data[-1] ^ 1]))
    return True


def twice(connection, data):
    connection.sendall(data + data)
    return True


def half(connection, data):
    connection.sendall(data[: len(data) // 2])
    return False


def half_and_no_farewell(connection, data):
    connection.sendall(data[: len(data) // 2])
    raise ConnectionError("gone without a word")


@needs_openssl
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (flipped, "wrong echo: message 1 differs"),
        (twice, "wrong echo: more came back than was sent"),
        (half, "closed the connection after 32 of 64 bytes"),
        (half_and_no_farewell, "closed the connection without a close_notify"),
    ],
)
def test_a_wrong_echo_is_detected(server_of, certificate, answer, reason):
    with (
        Generator("tls", server_of(answer).address, 1, 64, identity=certificate) as generator,
        pytest.raises(LoadFailed, match=reason),
    ):
        generator.run(1)


@needs_openssl
def test_a_server_must_show_the_right_certificate(server_of, certificate, tmp_path):
    server, another = server_of(echoes), os.fspath(tmp_path / "another")
    identity.make(another)
    with pytest.raises(LoadFailed, match="handshake: certificate verify failed"):
        Generator("tls", server.address, 1, 64, identity=another)


@needs_openssl
def test_a_server_must_speak_tls_1_3(server_of, certificate):
    server = server_of(echoes, maximum_version=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(LoadFailed, match=r"handshake: .*(version|protocol)"):
        Generator("tls", server.address, 1, 64, identity=certificate)


@needs_openssl
def test_a_server_that_speaks_no_tls_is_a_failure(certificate):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"220 hello\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(LoadFailed, match="handshake: "):
            Generator("tls", address, 1, 64, identity=certificate)
        thread.join()


def sends_blocks(change):
    """Sends its first block once for each further byte, changed by `change`."""
    told = bytearray()

    def answer(connection, data):
        missing = tls.BLOCK - len(told)
        told.extend(data[:missing])
        for _ in data[missing:]:
            connection.sendall(change(told))
        return True

    return answer


@needs_openssl
def test_a_download_has_the_blocks_that_were_requested(server_of, certificate):
    server = server_of(sends_blocks(bytes))
    with Downloader("tls", server.address, identity=certificate) as downloader:
        for mebibytes in (1, 3):
            found = downloader.run(mebibytes)
            assert (found["messages"], found["seconds"] > 0) == (mebibytes, True)
    assert server.received == tls.BLOCK + 4 * 4


@needs_openssl
@pytest.mark.parametrize("change", [lambda block: block[:-1] + b"?", lambda block: block[1:] + block[:1]])
def test_a_wrong_download_is_detected(server_of, certificate, change):
    server = server_of(sends_blocks(change))
    with (
        Downloader("tls", server.address, identity=certificate) as downloader,
        pytest.raises(LoadFailed, match="wrong download"),
    ):
        downloader.run(1)


@needs_openssl
def test_each_program_refuses_the_networks_of_the_other(certificate):
    with pytest.raises(LoadFailed, match="linked without TLS"):
        Helper("serve", f"tls:{certificate}", "echo", kind=PLAIN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        with pytest.raises(LoadFailed, match="knows only tls"):
            Helper("echo", "tcp", address, 1, 64, kind=TLS)
    with pytest.raises(LoadFailed, match="no sink over TLS"):
        BareServer("tls", "sink", certificate)
    with pytest.raises(LoadFailed, match="no/such/file: "):
        BareServer("tls", "echo", "no/such/file")


# -- the bare server ---------------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize(("connections", "size"), [(5, 100), (3, 100_000), (2, 3_000_000)])
def test_the_bare_server_echoes(certificate, connections, size):
    with (
        BareServer("tls", "echo", certificate) as server,
        Generator("tls", server.address, connections, size, identity=certificate) as generator,
    ):
        before = server.cpu()
        assert generator.run(50)["messages"] == 50
        assert server.cpu() > before


@needs_openssl
def test_the_bare_server_sends_a_close_notify(certificate):
    context = ssl.create_default_context(cafile=certificate)
    with BareServer("tls", "once", certificate) as server:
        host, port = server.address.split(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host, suppress_ragged_eofs=False) as connection,
        ):
            connection.sendall(b"x")
            assert (connection.recv(10), connection.recv(10)) == (b"x", b"")
            assert connection.cipher() == CIPHER


@needs_openssl
def test_the_bare_server_survives_bytes_that_are_no_handshake(certificate):
    with BareServer("tls", "once", certificate) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"\x16\x03\x01\x00\x05hello")
            assert connection.recv(100)  # an alert
        with Generator("tls", server.address, 3, identity=certificate) as generator:
            assert generator.run(10)["messages"] == 10
