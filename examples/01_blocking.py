"""Stage 1: blocking sockets, one page after another.

Fetching a page takes four system calls: connect to the server, send the request, receive until the server closes
the connection, close the socket. Each of them blocks: the kernel puts the program to sleep until the call can return.

The code reads exactly like what it does, and nothing beats it at one page. Its limit shows with many pages: the
program spends nearly all its time asleep, waiting for one server to answer one request, while all the other
requests have not even been sent. Ten pages at 0.1 s a response take a second, and no faster computer helps.
"""

import socket

import common


def fetch(target: common.Target, path: str) -> bytes:
    with socket.socket(target.family) as sock:
        sock.settimeout(common.TIMEOUT)
        sock.connect(target.address)
        sock.sendall(target.request(path))
        chunks = []
        while chunk := sock.recv(4096):
            chunks.append(chunk)
    return b"".join(chunks)


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    return {path: fetch(target, path) for path in paths}


if __name__ == "__main__":
    common.main(fetch_all)
