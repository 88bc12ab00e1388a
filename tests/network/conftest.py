"""Sockets for tests of the sock_* methods, and a file to send."""

import socket

import pytest
from support.sent_files import DATA


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


@pytest.fixture
def client():
    with socket.socket() as sock:
        sock.setblocking(False)
        yield sock


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        yield file
