"""Sockets for tests of the sock_* methods."""

import socket

import pytest


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
