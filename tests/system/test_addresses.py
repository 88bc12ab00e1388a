"""Socket addresses in C, compared with the socket module's on real sockets."""

import contextlib
import ctypes
import enum
import os
import random
import socket
import struct
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import compiled

pytestmark = pytest.mark.only("c", reason="the pure loop has asyncio's transports, with addresses by the socket module")

LARGEST = 128  # bytes, struct sockaddr_storage
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def to_python(impl):
    convert = compiled.function("system.address", "address_to_python", ctypes.py_object, ctypes.c_char_p, ctypes.c_uint)
    return lambda raw: convert(raw, len(raw))


@pytest.fixture
def from_python(impl):
    """The raw address; None if the socket object has to convert it."""
    pointer = ctypes.POINTER(ctypes.c_uint)
    types = (ctypes.py_object, ctypes.c_int, ctypes.c_char_p, pointer)
    convert = compiled.function("system.address", "address_from_python", ctypes.c_int, *types)

    def from_python(address, family):
        storage = ctypes.create_string_buffer(b"\xff" * LARGEST, LARGEST)
        length = ctypes.c_uint()
        handled = convert(address, family, storage, ctypes.byref(length))
        assert handled in (0, 1)
        return storage.raw[: length.value] if handled else None

    return from_python


@pytest.fixture
def cache(impl):
    from hotloop._c.system.address import AddressCache

    return AddressCache()


def cached(cache, raw):
    lookup = compiled.method(type(cache), "lookup", ctypes.py_object, ctypes.c_char_p, ctypes.c_uint)
    return lookup(cache, raw, len(raw))


def raw_address(sock, name="getsockname"):
    """The bytes of the address, from the kernel."""
    storage = ctypes.create_string_buffer(LARGEST)
    length = ctypes.c_uint(LARGEST)
    assert getattr(libc, name)(sock.fileno(), storage, ctypes.byref(length)) == 0
    return storage.raw[: length.value]


def raw_family(family):
    if sys.platform == "linux":
        return struct.pack("=H", family)
    return struct.pack("BB", 16 if family == socket.AF_INET else 28, family)


def raw_inet(host, port):
    return raw_family(socket.AF_INET) + struct.pack("!H4s8x", port, host)


def raw_inet6(host, port, flowinfo, scope):
    return raw_family(socket.AF_INET6) + struct.pack("!HI16s", port, flowinfo, host) + struct.pack("=I", scope)


needs_ipv6 = pytest.mark.skipif(
    not socket.has_ipv6 or (sys.platform == "linux" and not Path("/proc/net/if_inet6").exists()),
    reason="this kernel has no IPv6",
)
needs_abstract = pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")


# -- from C to Python --------------------------------------------------------------------------------------------------


def test_no_address_is_none(to_python):
    assert to_python(b"") is None


@given(host=st.binary(min_size=4, max_size=4), port=st.integers(0, 0xFFFF))
def test_ipv4(to_python, host, port):
    assert to_python(raw_inet(host, port)) == (socket.inet_ntop(socket.AF_INET, host), port)


@pytest.mark.parametrize("octet", range(256))
def test_every_octet(to_python, octet):
    assert to_python(raw_inet(bytes([octet, 0, 255, octet]), 1))[0] == f"{octet}.0.255.{octet}"


@given(
    host=st.one_of(
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=4, max_size=4).map((bytes(10) + b"\xff\xff").__add__),
        st.lists(st.sampled_from([b"\0\0", b"\0\1", b"\xfe\x80"]), min_size=8, max_size=8).map(b"".join),
    ),
    port=st.integers(0, 0xFFFF),
    flowinfo=st.integers(0, 0xFFFFFFFF),
    scope=st.integers(0, 0xFFFFFFFF),
)
def test_ipv6(to_python, host, port, flowinfo, scope):
    expected = (socket.inet_ntop(socket.AF_INET6, host), port, flowinfo, scope)
    assert to_python(raw_inet6(host, port, flowinfo, scope)) == expected


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_INET, ("", 0)),
        pytest.param(socket.AF_INET6, ("::1", 0), marks=needs_ipv6),
        pytest.param(socket.AF_INET6, ("", 0), marks=needs_ipv6),
        pytest.param(socket.AF_INET6, ("::ffff:127.0.0.1", 0), marks=needs_ipv6),
    ],
)
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_a_bound_socket_says(to_python, family, address, kind):
    with socket.socket(family, kind) as sock:
        sock.bind(address)
        assert to_python(raw_address(sock)) == sock.getsockname()


def unix_names(folder):
    names = [os.path.join(folder, name) for name in ("plain", "\udcff\udc80", "ünï", "x" * (100 - len(folder)))]
    if sys.platform == "linux":
        names += [b"\0hotloop-" + os.urandom(8), b"\0" + os.urandom(8) + b"\0\xff\0", b"\0" + os.urandom(107), ""]
    return names


@pytest.fixture
def folder():
    """A folder with a short name: the path of a Unix socket has little room."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


def test_unix_names(to_python, folder):
    for name in unix_names(folder):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(name)
            assert to_python(raw_address(sock)) == sock.getsockname()


def test_an_unnamed_unix_socket(to_python):
    left, right = socket.socketpair()
    with left, right:
        for sock in (left, right):
            assert to_python(raw_address(sock)) == sock.getsockname() == ""
            assert to_python(raw_address(sock, "getpeername")) == sock.getpeername() == ""


def test_a_unix_path_without_the_zero_behind_it(to_python):
    start = raw_family(socket.AF_UNIX)
    size = 108 if sys.platform == "linux" else 104
    assert to_python(start + b"x" * size) == "x" * size
    assert to_python(start + b"x" * size + b"y") == "x" * size  # the length may count a zero that does not fit
    assert to_python(start + b"/a/b") == "/a/b"
    assert to_python(start + b"/a\0garbage") == "/a"


def test_other_families_are_left_to_the_socket_object(to_python):
    is_native = compiled.function("system.address", "address_is_native", ctypes.c_int, ctypes.c_int)
    native = {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}
    for family in {int(family) for family in socket.AddressFamily} | {0, 200}:
        assert bool(is_native(family)) == (family in native)
        if family not in native:
            assert to_python(raw_family(family) + bytes(14)) is NotImplemented


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_the_cache_makes_an_address_once(cache):
    raw = [
        raw_inet(bytes([127, 0, 0, 1]), 80),
        raw_inet6(bytes(15) + b"\1", 80, 0, 0),
        raw_family(socket.AF_UNIX) + b"/short\0",
    ]
    first = [cached(cache, one) for one in raw]
    assert first == [("127.0.0.1", 80), ("::1", 80, 0, 0), "/short"]
    for one, seen in zip(raw, first, strict=True):
        assert cached(cache, one) is seen


def test_the_cache_ignores_the_padding_of_ipv4(cache):
    raw = raw_inet(bytes([127, 0, 0, 1]), 80)
    assert cached(cache, raw) is cached(cache, raw[:8] + b"garbage!")


def test_the_cache_tells_apart_what_differs(cache):
    """Addresses that differ in any part, and Unix paths that differ only in their length."""
    host = bytes(range(16))
    raw = [raw_inet(host[:4], 1), raw_inet(host[:4], 2), raw_inet(host[1:5], 1)]
    raw += [raw_inet6(host, 1, 0, 0), raw_inet6(host, 2, 0, 0), raw_inet6(host, 1, 1, 0), raw_inet6(host, 1, 0, 1)]
    raw += [raw_inet6(host[::-1], 1, 0, 0), b""]
    raw += [raw_family(socket.AF_UNIX) + path for path in (b"/a", b"/ab", b"/abc", b"", b"\0", b"\0\0", b"\0\0\0")]
    raw += [raw_family(socket.AF_UNIX) + b"/" + b"x" * count for count in range(20, 100)]
    expected = [cached(type(cache)(), one) for one in raw]
    assert len(set(map(repr, expected))) == len(raw) - (0 if sys.platform == "linux" else 3)
    for _ in range(3):
        assert [cached(cache, one) for one in raw] == expected


def test_the_cache_is_right_however_many_peers_there_are(to_python):
    """The cache never exceeds its bound: it releases an address when another one takes its place."""
    from hotloop._c.system.address import AddressCache

    rng = random.Random(5)
    raw = [raw_inet(rng.randbytes(4), rng.randrange(1 << 16)) for _ in range(5000)]
    raw += [raw_inet6(rng.randbytes(16), rng.randrange(1 << 16), 0, 0) for _ in range(5000)]
    cache = AddressCache()
    seen = []
    for one in raw:
        seen.append(cached(cache, one))
        assert cached(cache, one) is seen[-1]
    assert seen == [to_python(one) for one in raw]
    with_cache = [sys.getrefcount(address) for address in seen]
    del cache
    without = [sys.getrefcount(address) for address in seen]
    kept = [before - after for before, after in zip(with_cache, without, strict=True)]
    assert set(kept) == {0, 1}
    assert sum(kept) == 256  # every slot is in use: the hash spreads


# -- from Python to C --------------------------------------------------------------------------------------------------


class Port(enum.IntEnum):
    HTTP = 80


class Index:
    def __index__(self):
        return 7


class Text(str):
    pass


Pair = namedtuple("Pair", "host port")

INET = [
    ("127.0.0.1", 9),
    ("127.0.0.1", 0),
    ("127.255.255.254", 65535),
    ("255.255.255.255", 1),
    ("<broadcast>", 1),
    ("", 1),
    (b"127.0.0.1", 9),
    (b"", 9),
    ("127.0.0.1", True),
    ("127.0.0.1", Port.HTTP),
    Pair("127.0.0.1", 9),
]
INET6 = [
    ("::1", 9),
    ("::1", 9, 0),
    ("::1", 9, 0, 0),
    ("::1", 9, 0xFFFFF),
    ("::1", 65535, 1, 1),
    ("", 9),
    (b"::1", 9),
    ("::ffff:127.0.0.1", 9),
    ("fe80::1", 9, 0, 1),
    ("fe80::1", 9, 0, 0x7FFFFFFF),
    ("0:0::0:1", 9),
    ("2001:DB8::1", 9),
]
LEFT_TO_THE_SOCKET = {
    socket.AF_INET: [
        "127.0.0.1",
        ["127.0.0.1", 1],
        None,
        7,
        (),
        (1, 2),
        ("127.0.0.1",),
        ("127.0.0.1", 1, 2),
        ("127.0.0.1", "1"),
        ("127.0.0.1", None),
        ("127.0.0.1", 1.0),
        ("127.0.0.1", Index()),
        ("127.0.0.1", 65536),
        ("127.0.0.1", -1),
        ("127.0.0.1", 1 << 80),
        ("127.0.0.1\0", 1),
        (b"127.0.0.1\0", 1),
        (bytearray(b"127.0.0.1"), 1),
        (memoryview(b"127.0.0.1"), 1),
        (Text("127.0.0.1"), 1),
        (None, 1),
        ("\u0661.0.0.1", 1),
        ("\ud800.0.0.1", 1),
        ("127.1", 1),
        ("0x7f.1", 1),
        ("127.0.0.01", 1),
        ("::1", 1),
        ("localhost", 1),
    ],
    socket.AF_INET6: [
        "::1",
        ["::1", 1],
        (),
        ("::1",),
        ("::1", 1, 2, 3, 4),
        ("::1", 65536),
        ("::1", 1, 1 << 20),
        ("::1", 1, -1),
        ("::1", 1, 1 << 33),
        ("::1", 1, "x"),
        ("::1", 1, 0, -1),
        ("::1", 1, 0, 1 << 32),
        ("::1", 1, 0, None),
        ("::1%1", 1),
        ("::1%lo", 1),
        ("fe80::1%lo", 1),
        ("<broadcast>", 1),
        ("127.0.0.1", 1),
        (":::1", 1),
    ],
    socket.AF_UNIX: [
        1,
        None,
        ("/a",),
        "\ud800",
        "x" * 108,
        b"/" * 500,
        "\0" + "x" * 108,
        bytearray(b"/a"),
        memoryview(b"/a"),
        Path("/a"),
    ],
}


def outcome(sock, connect, address):
    """The outcome of connecting a datagram socket: its peer, the kernel's error, or the exception of a refused
    address."""
    try:
        connect(sock, address)
        return sock.getpeername()
    except OSError as error:
        return f"refused: {error!r}" if error.errno is None or error.errno < 0 else f"errno {error.errno}"
    except Exception as error:
        return f"refused: {error!r}"


def connect_raw(sock, raw):
    if libc.connect(sock.fileno(), raw, len(raw)) != 0:
        raise OSError(ctypes.get_errno(), "")


@contextlib.contextmanager
def two_sockets(family):
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as theirs:
        for sock in (ours, theirs):
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        yield ours, theirs


@pytest.mark.parametrize("address", INET, ids=repr)
def test_to_ipv4(from_python, address):
    with two_sockets(socket.AF_INET) as (ours, theirs):
        raw = from_python(address, socket.AF_INET)
        assert raw is not None
        assert outcome(ours, connect_raw, raw) == outcome(theirs, socket.socket.connect, address)


@needs_ipv6
@pytest.mark.parametrize("address", INET6, ids=repr)
def test_to_ipv6(from_python, address):
    with two_sockets(socket.AF_INET6) as (ours, theirs):
        raw = from_python(address, socket.AF_INET6)
        assert raw is not None
        assert outcome(ours, connect_raw, raw) == outcome(theirs, socket.socket.connect, address)


def test_to_unix(from_python, folder):
    for name in unix_names(folder):
        if not name:
            continue  # means "choose one", in bind() only
        for path in {name, os.fsencode(name), os.fsdecode(name)}:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, two_sockets(socket.AF_UNIX) as pair:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name if name[0] not in (0, "\0") else os.path.join(folder, "none"))
                listener.bind(name)
                ours, theirs = pair
                raw = from_python(path, socket.AF_UNIX)
                assert raw is not None
                assert outcome(ours, connect_raw, raw) == outcome(theirs, socket.socket.connect, path)
                assert ours.getpeername() == listener.getsockname()


@needs_abstract
def test_the_longest_abstract_name_and_the_longest_path(from_python):
    start = raw_family(socket.AF_UNIX)
    assert from_python("\0" + "x" * 107, socket.AF_UNIX) == start + b"\0" + b"x" * 107
    assert from_python("x" * 107, socket.AF_UNIX) == start + b"x" * 107 + b"\0"
    assert from_python("", socket.AF_UNIX) == from_python(b"", socket.AF_UNIX) == start
    assert from_python("/a\0b", socket.AF_UNIX) == start + b"/a\0b\0"


@pytest.mark.parametrize(
    ("family", "address"),
    [(family, address) for family, addresses in LEFT_TO_THE_SOCKET.items() for address in addresses],
    ids=lambda value: str(value).split(" at 0x")[0][:40],
)
def test_whatever_is_unusual_or_wrong_is_left_to_the_socket_object(from_python, family, address):
    assert from_python(address, family) is None


def test_addresses_of_other_families_are_left_to_the_socket_object(from_python):
    for family in {int(family) for family in socket.AddressFamily} | {0, 200}:
        if family not in {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}:
            for address in ("127.0.0.1", 1), (0, 0), ("lo", 1), "/a":
                assert from_python(address, family) is None


@given(host=st.binary(min_size=4, max_size=4), port=st.integers(0, 0xFFFF))
def test_ipv4_there_and_back(to_python, from_python, host, port):
    address = (socket.inet_ntop(socket.AF_INET, host), port)
    raw = from_python(address, socket.AF_INET)
    assert raw == raw_inet(host, port)
    assert to_python(raw) == address


@given(
    host=st.binary(min_size=16, max_size=16),
    port=st.integers(0, 0xFFFF),
    flowinfo=st.integers(0, 0xFFFFF),
    scope=st.integers(0, 0x7FFFFFFF),
)
def test_ipv6_there_and_back(to_python, from_python, host, port, flowinfo, scope):
    address = (socket.inet_ntop(socket.AF_INET6, host), port, flowinfo, scope)
    raw = from_python(address, socket.AF_INET6)
    assert raw == raw_inet6(host, port, flowinfo, scope)
    assert to_python(raw) == address


@given(host=st.text(max_size=30), port=st.integers(-(1 << 70), 1 << 70))
def test_any_text_and_number(from_python, host, port):
    """Only a number in the usual form is converted."""
    for family in socket.AF_INET, socket.AF_INET6:
        raw = from_python((host, port), family)
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            usual = host == "" or (host == "<broadcast>" and family == socket.AF_INET)
        else:
            usual = True
        assert (raw is not None) == (usual and 0 <= port <= 0xFFFF)
