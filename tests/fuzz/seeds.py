"""The first inputs of the fuzz targets: one of each relevant kind, for mutations to start from.

Each target's .c describes the layout of its input.
"""

import socket
import struct

HOSTS = """
    127.0.0.1 0.0.0.0 255.255.255.255 1.2.3 1.2.3.4.5 127.1 0x7f.1 01.02.03.04 256.0.0.1 1.2.3.4% 1.2.3.4%lo
    :: ::1 ::ffff:1.2.3.4 fe80::1%1 fe80::1%lo fe80::% %1 1:2:3:4:5:6:7:8 1:2:3:4:5:6:7:8:9 ::1.2.3.4.5 12345:: :
    0000:0000:0000:0000:0000:ffff:255.255.255.255%0 <broadcast> localhost example.org /tmp/socket
"""


def record(kind: int, length: int, version: int = 3, body: int | None = None) -> bytes:
    """A TLS record; `body` is the number of its bytes if that differs from the length in its header."""
    return struct.pack(">BBBH", kind, 3, version, length) + b"." * (length if body is None else body)


def tls_records() -> list[bytes]:
    streams = [
        b"",
        record(22, 300, 1) + record(20, 1) + record(22, 40),
        record(23, 0) * 7,
        b"".join(record(23, size) for size in range(30)),
        record(23, 100) + record(21, 2),
        record(23, 1600) + record(24, 1),
        record(23, 16384 + 2049, body=20),
        record(23, 16384 + 2048, body=900),
        record(23, 5) + record(23, 5)[:3],
        b"GET / HTTP/1.1\r\n\r\n",
        record(22, 9) + b"\0" * 50,
        record(22, 9, 0).replace(b"\x03", b"\x02", 1),
    ]
    # All at once, byte by byte, in small pieces, and in large ones with a high mark: see the target.
    pieces = [(200, 200, 0), (0, 0, 0), (1, 5, 1), (60, 40, 120)]
    return [bytes(steering) * 16 + stream for steering in pieces for stream in streams]


def address_from_kernel() -> list[bytes]:
    inet = [struct.pack("=HH4s", 0, 80, bytes(host)) for host in ((127, 0, 0, 1), (255, 100, 99, 9), (0, 10, 200, 1))]
    hosts6 = ("::", "::1", "::ffff:1.2.3.4", "fe80::1", "2001:db8::1:0:0:1", "ff02::fb", "::1.2.3.4")
    inet6 = [
        struct.pack("=HHI16sI", 0, 443, 7, socket.inet_pton(socket.AF_INET6, host), 3)
        for host in hosts6
        if socket.has_ipv6
    ]
    paths = [b"/tmp/socket\0", b"\0abstract", b"\0", b"", b"x" * 108, b"\0" + b"y" * 107, b"\xff\xfe/\0\0", b"z" * 109]
    unix = [bytes([2, 109 - len(path), 0, 0]) + path for path in paths]
    return [b"\0" + one for one in inet] + [b"\1" + one for one in inet6] + unix


def address_from_text() -> list[bytes]:
    texts = [*HOSTS.encode().split(), b"", b"\0", b"\0abstract", b":" * 200, b"1" * 46 + b"%"]
    texts += [b"x" * size for size in (107, 108, 109)] + [b"\0" + b"x" * 107]
    return [struct.pack(">III", port, port * 3, port) + text for port, text in enumerate(texts)]


SEEDS = {"tls_records": tls_records, "address_from_kernel": address_from_kernel, "address_from_text": address_from_text}
"""The seeds by target."""
