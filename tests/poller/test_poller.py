"""The contract of every backend of the compiled selector where kernels differ: edges, broken pipes, reused numbers."""

import ctypes
import os
import select
import selectors
import socket

import pytest
from support import compiled

pytestmark = pytest.mark.only("c", reason="the standard library's selectors lack these methods, or differ by platform")

READ, WRITE, EDGE = 1, 2, 4  # as in poller.h


@pytest.fixture
def selector(impl):
    with impl.DefaultSelector() as selector:
        if type(selector).__module__ == "selectors":
            pytest.skip("this build has no poller backend: HOTLOOP_POLLER=none")
        yield selector


@pytest.fixture
def tcp():
    """A connection's two ends, non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        yield one, other


@pytest.fixture
def pipe():
    """Descriptors to read from and to write to; a test that closes one removes it from the list."""
    ends = list(os.pipe())
    for end in ends:
        os.set_blocking(end, False)
    yield ends
    for end in ends:
        os.close(end)


def call(selector, name, fd, *arguments):
    types = [ctypes.py_object if not isinstance(argument, int) else ctypes.c_int for argument in arguments]
    return compiled.method(type(selector), name, ctypes.c_int, ctypes.c_int, *types)(selector, fd, *arguments)


def attach(selector, fd, events):
    from hotloop._c.poller.watcher import Watcher

    call(selector, "attach", fd, Watcher(), events)


def ready(selector, timeout=0):
    """{fd: events} of one select()."""
    merged = {}
    for key, events in selector.select(timeout):
        merged[key.fd] = merged.get(key.fd, 0) | events
    return merged


def is_pending(selector):
    """Whether the kernel's set has events, even without a watcher: then a wait would return at once."""
    return bool(select.select([selector], [], [], 0)[0])


def fill(fd):
    with pytest.raises(BlockingIOError):
        while True:
            os.write(fd, b"x" * 65536)


def test_an_edge_is_reported_once(selector, tcp):
    one, other = tcp
    fd = one.fileno()
    attach(selector, fd, READ | EDGE)
    assert ready(selector) == {}
    other.send(b"x")
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}
    other.send(b"y")  # the first byte has not been read
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}
    other.close()
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}


def test_a_watcher_in_place_of_another(selector, tcp):
    one, other = tcp
    fd = one.fileno()
    other.send(b"x")
    attach(selector, fd, WRITE | EDGE)
    assert ready(selector, 60) == {fd: WRITE}
    assert ready(selector) == {}
    attach(selector, fd, READ | EDGE)
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}
    # Reported again, because the new watcher has not been told.
    attach(selector, fd, READ | EDGE)
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}
    attach(selector, fd, READ)
    assert [ready(selector) for _ in range(3)] == [{fd: READ}] * 3
    call(selector, "detach", fd)
    assert not is_pending(selector)


@pytest.mark.skipif(
    os.environ.get("HOTLOOP_POLLER") == "kqueue-shim", reason="a kqueue forgets a closed descriptor; the shim does not"
)
def test_a_watcher_of_another_file_with_the_same_number(selector, tcp, pipe):
    one, other = tcp
    fd = one.fileno()
    kept = os.dup(fd)
    try:
        attach(selector, fd, READ | EDGE)
        os.dup2(pipe[0], fd)
        attach(selector, fd, READ)
        other.send(b"x")
        assert ready(selector) == {}
        os.write(pipe[1], b"x")
        assert ready(selector, 60) == {fd: READ}
    finally:
        os.close(kept)


def test_from_edges_to_levels_and_back(selector, tcp):
    one, other = tcp
    fd = one.fileno()
    attach(selector, fd, READ | EDGE)
    other.send(b"x")
    assert ready(selector, 60) == {fd: READ}
    assert ready(selector) == {}
    call(selector, "change", fd, READ)
    assert [ready(selector) for _ in range(3)] == [{fd: READ}] * 3
    call(selector, "change", fd, READ | WRITE)
    assert [ready(selector) for _ in range(3)] == [{fd: READ | WRITE}] * 3
    call(selector, "change", fd, READ | WRITE | EDGE)
    assert ready(selector) == {fd: READ | WRITE}
    assert ready(selector) == {}
    call(selector, "change", fd, WRITE)
    assert [ready(selector) for _ in range(3)] == [{fd: WRITE}] * 3


def test_what_is_no_longer_asked_for_is_not_reported(selector, tcp):
    one, other = tcp
    fd = one.fileno()
    other.send(b"x")
    for edge in (0, EDGE):
        attach(selector, fd, READ | WRITE | edge)
        assert ready(selector, 60) == {fd: READ | WRITE}
        for events in (READ, WRITE):
            call(selector, "change", fd, events | edge)
            assert ready(selector) == {fd: events}
        call(selector, "change", fd, 0)
        assert ready(selector) == {}
        call(selector, "change", fd, WRITE | edge)
        assert ready(selector) == {fd: WRITE}
        call(selector, "detach", fd)
        assert ready(selector) == {}


@pytest.mark.parametrize("events", [READ, WRITE, READ | WRITE, READ | EDGE])
def test_a_change_of_a_closed_descriptor(selector, events):
    """The kernel refuses it, and the descriptor is no longer registered."""
    one, other = socket.socketpair()
    fd = one.fileno()
    with other:
        attach(selector, fd, READ)
        one.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            call(selector, "change", fd, events)
        assert fd not in selector.get_map()
        assert not is_pending(selector)


def test_a_pipe_without_a_reader_is_ready(selector, pipe):
    """Kernels with kqueue refuse to watch it, but a write would fail at once."""
    reading, writing = pipe
    os.close(reading)
    pipe.remove(reading)
    for _ in range(2):
        key = selector.register(writing, selectors.EVENT_WRITE, "data")
        assert [selector.select() for _ in range(3)] == [[(key, selectors.EVENT_WRITE)]] * 3
        key = selector.modify(writing, selectors.EVENT_WRITE, "other data")
        assert selector.select() == [(key, selectors.EVENT_WRITE)]
        assert is_pending(selector)
        assert selector.unregister(writing) == key
        assert not is_pending(selector)
    attach(selector, writing, WRITE | EDGE)
    assert ready(selector) == {writing: WRITE}
    assert ready(selector) == {}
    call(selector, "change", writing, WRITE)
    assert [ready(selector) for _ in range(3)] == [{writing: WRITE}] * 3
    call(selector, "change", writing, 0)
    assert not is_pending(selector)


@pytest.mark.parametrize("is_detached", [True, False], ids=["detached", "changed behind its back"])
def test_the_number_of_such_a_pipe_used_again(selector, pipe, is_detached):
    reading, writing = pipe
    attach(selector, writing, WRITE)
    os.close(reading)
    pipe.remove(reading)
    call(selector, "change", writing, WRITE)
    assert ready(selector) == {writing: WRITE}
    other_reading, other_writing = os.pipe()
    os.dup2(other_writing, writing)
    os.close(other_writing)
    pipe.append(other_reading)
    os.set_blocking(writing, False)
    fill(writing)
    if is_detached:
        attach(selector, writing, WRITE)
    else:
        call(selector, "change", writing, WRITE)
    assert not is_pending(selector)
    os.read(other_reading, 65536)
    assert ready(selector) == {writing: WRITE}
    call(selector, "detach", writing)


def test_half_of_what_is_refused_is_not_left_behind(selector, tmp_path):
    """If the kernel refuses one direction, the other is not watched either."""
    for name in (os.devnull, tmp_path):
        fd = os.open(name, os.O_RDONLY)
        try:
            selector.register(fd, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:
            assert fd not in selector.get_map()
        else:
            selector.unregister(fd)
        finally:
            assert not is_pending(selector)
            os.close(fd)


def test_many_descriptors_ready_for_both(selector):
    """One wait returns all their events."""
    pairs = [socket.socketpair() for _ in range(50)]
    expected = {}
    for one, other in pairs:
        one.send(b"x")
        selector.register(other, selectors.EVENT_READ | selectors.EVENT_WRITE)
        expected[other.fileno()] = READ | WRITE
        assert ready(selector) == expected
    for one, other in pairs:
        selector.unregister(other)
        one.close(), other.close()


def test_modifying_to_what_is_invalid(selector, tcp):
    """The kernel refuses the descriptor, and the selector unregisters it. The standard library's selectors do so, too,
    except those on epoll and poll."""
    one, _ = tcp
    if type(selector).__name__ != "KqueueSelector":
        pytest.skip("epoll takes any events, in the standard library too")
    with selectors.SelectSelector() as oracle:
        for each in (oracle, selector):
            with pytest.raises(KeyError, match="not registered"):
                each.modify(one, 0)
            each.register(one, selectors.EVENT_READ)
            with pytest.raises(ValueError, match="Invalid events: 8"):
                each.modify(one, 8)
            assert len(each.get_map()) == 0
