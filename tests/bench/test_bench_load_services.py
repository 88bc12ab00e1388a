"""The load generator's WebSocket and the bare server's HTTP, tested with plain sockets."""

import base64
import contextlib
import hashlib
import re
import socket
import struct
import threading

import pytest

from hotloop_bench import load
from hotloop_bench.load import BareServer, Generator, LoadFailed

pytestmark = pytest.mark.skipif(load.unavailable() is not None, reason=str(load.unavailable()))


# -- WebSocket ---------------------------------------------------------------------------------------------------------


def acceptance(request):
    """The response of RFC 6455, section 4.2.2."""
    key = re.search(rb"Sec-WebSocket-Key: (\S+)\r\n", request)[1]
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return head + b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"


def received_message(file):
    """The message of a client's frame, which is binary, whole and masked; None at the end of the stream."""
    head = file.read(2)
    if not head:
        return None
    assert head[0] == 0x82
    assert head[1] & 0x80
    length = head[1] & 0x7F
    if length >= 126:
        [length] = struct.unpack("!H" if length == 126 else "!Q", file.read(2 if length == 126 else 8))
    mask = file.read(4)
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(file.read(length)))


def server_frame(message):
    """With the shortest length that the message allows."""
    size = len(message)
    if size < 126:
        return bytes([0x82, size]) + message
    return bytes([0x82, 126 if size < 65536 else 127]) + struct.pack("!H" if size < 65536 else "!Q", size) + message


@contextlib.contextmanager
def websocket_server(response=acceptance, answer=server_frame):
    """Yields the address of a server for one connection, which sends `answer(message)` for each message, in pieces."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as file, contextlib.suppress(ConnectionError):
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += file.readline()
            connection.sendall(response(request))
            while (message := received_message(file)) is not None:
                sent = answer(message)
                for piece in (sent[:1], sent[1:3], sent[3:]):
                    connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        thread.join(60)
        listener.close()


@pytest.mark.parametrize("size", [1, 125, 126, 1024, 65535, 65536, 1_000_000])
def test_messages_by_websocket_are_counted(size):
    with websocket_server() as address, Generator("tcp", address, 1, size, websocket=True) as generator:
        found = generator.run(3)
        assert found["messages"] == 3
        assert 0 < found["p50"] <= found["p99"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda message: server_frame(message[::-1]),
        lambda message: b"\x81" + server_frame(message)[1:],
        lambda message: server_frame(message) + b"\x8a\x00",
    ],
    ids=["another message", "a text", "a frame too many"],
)
def test_a_wrong_frame_is_a_wrong_echo(wrong):
    with (
        websocket_server(answer=wrong) as address,
        Generator("tcp", address, 1, 300, websocket=True) as generator,
        pytest.raises(LoadFailed, match="wrong echo"),
    ):
        generator.run(3)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "HTTP/1.1 403 Forbidden"),
        (acceptance(b"Sec-WebSocket-Key: another\r\n"), "HTTP/1.1 101 Switching Protocols"),
    ],
)
def test_a_server_that_does_not_accept_websocket_is_a_failure(response, reason):
    failure = pytest.raises(LoadFailed, match=f"does not accept WebSocket: {reason}")
    with websocket_server(lambda request: response) as address, failure:
        Generator("tcp", address, 1, 10, websocket=True)


# -- HTTP --------------------------------------------------------------------------------------------------------------


def test_the_bare_server_responds_to_each_request():
    request = b"GET / HTTP/1.1\r\nHost: there\r\n\r\n"
    with BareServer("tcp", "http") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 60) as client, client.makefile("rb") as file:
            for pieces in ([request], [request[:-3], request[-3:]], [request * 3], [request[:9], request[9:] * 2]):
                for piece in pieces:
                    client.sendall(piece)
                for _ in range(b"".join(pieces).count(request)):
                    assert file.readline() == b"HTTP/1.1 200 OK\r\n"
                    head = b"".join(iter(file.readline, b"\r\n"))
                    assert b"Content-Length: 12\r\n" in head
                    assert file.read(12) == b"Hello, world"
