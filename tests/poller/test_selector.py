"""DefaultSelector, case by case: the complete API of the selectors module, with the standard library's as the
oracle."""

import errno
import math
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import time

import pytest
from support.implementations import expected_backend

EVENT_READ, EVENT_WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def selector(impl):
    selector = impl.DefaultSelector()
    yield selector
    selector.close()


def events_of(selector, timeout=0):
    """The events of one select(), as {fd: events}. On kqueue, reading and writing are reported apart."""
    merged = {}
    for key, events in selector.select(timeout):
        assert not merged.get(key.fd, 0) & events, "reported twice"
        merged[key.fd] = merged.get(key.fd, 0) | events
    return merged


def test_it_is_a_selector(impl, selector):
    assert isinstance(selector, selectors.BaseSelector)
    interface = expected_backend(impl.name).removesuffix("-shim")
    assert impl.DefaultSelector.__name__.removesuffix("Selector").lower() == interface


def test_both_events_of_a_file_object(impl, selector, pair):
    """Together or apart: as the standard library's selector for the same kernel interface reports them."""
    one, other = pair
    other.send(b"x")
    key = selector.register(one, EVENT_READ | EVENT_WRITE)
    apart = impl.DefaultSelector.__name__ == "KqueueSelector"
    expected = [(key, EVENT_READ), (key, EVENT_WRITE)] if apart else [(key, EVENT_READ | EVENT_WRITE)]
    assert sorted(selector.select(), key=lambda item: item[1]) == expected


def test_register_returns_the_key(selector, pair):
    one, _ = pair
    key = selector.register(one, EVENT_READ, "data")
    assert isinstance(key, selectors.SelectorKey)
    assert key == (one, one.fileno(), EVENT_READ, "data")
    assert key.fileobj is one and key.data == "data"
    assert selector.get_key(one) == key
    assert selector.get_key(one.fileno()) == key


def test_data_defaults_to_none_and_may_be_anything(selector, pair):
    one, other = pair
    assert selector.register(one, EVENT_READ).data is None
    marker = object()
    assert selector.register(other, EVENT_READ, data=marker).data is marker


def test_a_number_or_anything_with_fileno_will_do(selector, pair):
    one, other = pair

    class Wrapper:
        def fileno(self):
            return other.fileno()

    wrapper = Wrapper()
    assert selector.register(one.fileno(), EVENT_READ).fileobj == one.fileno()
    assert selector.register(wrapper, EVENT_READ).fileobj is wrapper
    assert selector.get_key(other.fileno()).fileobj is wrapper
    assert selector.unregister(one).fileobj == one.fileno()
    assert selector.unregister(wrapper).fd == other.fileno()


@pytest.mark.parametrize("events", [0, 4, 5, -1, 1 << 40])
def test_wrong_events_are_refused(selector, pair, events):
    with pytest.raises(ValueError, match="Invalid events"):
        selector.register(pair[0], events)
    assert len(selector.get_map()) == 0


@pytest.mark.parametrize("wrong", [-1, "text", None, {}, 1.5], ids=repr)
def test_what_is_no_descriptor_is_refused(impl, selector, wrong):
    oracle = selectors.DefaultSelector()
    with oracle:
        for method in ("register", "unregister", "modify", "get_key"):
            arguments = () if method in ("unregister", "get_key") else (EVENT_READ,)
            with pytest.raises(Exception) as theirs:
                getattr(oracle, method)(wrong, *arguments)
            with pytest.raises(type(theirs.value)):
                getattr(selector, method)(wrong, *arguments)


def test_a_closed_descriptor_is_refused(selector):
    fd = os.dup(0)
    os.close(fd)
    with pytest.raises(OSError) as caught:
        selector.register(fd, EVENT_READ)
    assert caught.value.errno == errno.EBADF
    assert fd not in selector.get_map()


def test_a_regular_file_cannot_be_waited_for(selector, tmp_path):
    with open(tmp_path / "file", "w") as file, selectors.DefaultSelector() as oracle:
        try:
            oracle.register(file, EVENT_WRITE)
        except OSError as error:
            with pytest.raises(type(error)) as caught:
                selector.register(file, EVENT_WRITE)
            assert caught.value.errno == error.errno
        else:
            selector.register(file, EVENT_WRITE)


def test_registering_twice(selector, pair):
    one, _ = pair
    selector.register(one, EVENT_READ, "first")
    for again in (one, one.fileno()):
        with pytest.raises(KeyError, match="already registered"):
            selector.register(again, EVENT_WRITE)
    assert selector.get_key(one).data == "first"


def test_unregister_returns_the_key_and_forgets_it(selector, pair):
    one, other = pair
    key = selector.register(one, EVENT_READ, "data")
    assert selector.unregister(one) == key
    with pytest.raises(KeyError):
        selector.unregister(one)
    with pytest.raises(KeyError):
        selector.get_key(one)
    other.send(b"x")
    assert selector.select(0) == []
    selector.register(one, EVENT_READ)
    assert events_of(selector) == {one.fileno(): EVENT_READ}


def test_unregister_after_the_descriptor_was_closed(selector):
    one, other = socket.socketpair()
    key = selector.register(one, EVENT_READ)
    one.close()
    other.close()
    assert selector.unregister(one) == key
    assert len(selector.get_map()) == 0


def test_modify(selector, pair):
    one, other = pair
    selector.register(one, EVENT_READ, "data")
    key = selector.modify(one, EVENT_WRITE, "data")
    assert (key.events, key.data) == (EVENT_WRITE, "data")
    assert events_of(selector) == {one.fileno(): EVENT_WRITE}
    assert selector.modify(one, EVENT_WRITE, "new data").data == "new data"
    assert selector.get_key(one).data == "new data"
    assert selector.modify(one, EVENT_WRITE).data is None
    other.send(b"x")
    selector.modify(one, EVENT_READ | EVENT_WRITE)
    assert events_of(selector) == {one.fileno(): EVENT_READ | EVENT_WRITE}


@pytest.fixture
def without_events(impl, selector, pair):
    """One end of a pair of sockets, registered for no events by modify()."""
    one, _ = pair
    selector.register(one, EVENT_READ)
    if "kqueue" in expected_backend(impl.name):
        with pytest.raises(ValueError):
            selector.modify(one, 0)
        pytest.skip("selectors on kqueue refuse it")
    assert selector.modify(one, 0).events == 0
    return one


def test_a_file_object_without_events_can_be_registered_again(selector, without_events, pair):
    selector.unregister(without_events)
    key = selector.register(without_events, EVENT_READ)
    assert selector.select(0) == []
    pair[1].send(b"x")
    assert selector.select(0) == [(key, EVENT_READ)]


def test_a_file_object_without_events_gets_some_again(selector, without_events, pair):
    pair[1].send(b"x")
    assert selector.select(0) == []
    key = selector.modify(without_events, EVENT_READ)
    assert selector.select(0) == [(key, EVENT_READ)]


def test_a_hang_up_of_a_file_object_without_events(selector, without_events, pair):
    """It is reported each time, as no event."""
    pair[1].close()
    key = selector.get_key(without_events)
    for _ in range(5):
        assert selector.select() == [(key, 0)]
    key = selector.modify(without_events, EVENT_READ)
    assert selector.select() == [(key, EVENT_READ)]


def test_modify_ignores_unknown_events(selector, without_events, pair):
    """They neither make it edge-triggered nor count as events."""
    key = selector.modify(without_events, 4 | EVENT_READ)
    assert key.events == 4 | EVENT_READ
    pair[1].send(b"x")
    for _ in range(2):
        assert selector.select(0) == [(key, EVENT_READ)]


def test_modify_what_is_not_registered(selector, pair):
    with pytest.raises(KeyError, match="not registered"):
        selector.modify(pair[0], EVENT_READ)


def test_readiness(selector, pair):
    one, other = pair
    selector.register(one, EVENT_READ)
    selector.register(other, EVENT_WRITE)
    assert events_of(selector) == {other.fileno(): EVENT_WRITE}
    other.send(b"x")
    assert events_of(selector) == {one.fileno(): EVENT_READ, other.fileno(): EVENT_WRITE}
    assert events_of(selector) == {one.fileno(): EVENT_READ, other.fileno(): EVENT_WRITE}  # it is level-triggered
    one.recv(1)
    assert events_of(selector) == {other.fileno(): EVENT_WRITE}


def test_hang_up_is_reported_as_what_was_asked_for(impl, pair):
    for events in (EVENT_READ, EVENT_WRITE, EVENT_READ | EVENT_WRITE):
        one, other = socket.socketpair()
        with impl.DefaultSelector() as selector, one:
            selector.register(one, events)
            other.close()
            assert events_of(selector) == {one.fileno(): events}


def test_a_pipe_without_reader(impl, selector):
    reading, writing = os.pipe()
    selector.register(writing, EVENT_WRITE)
    os.close(reading)
    assert events_of(selector) == {writing: EVENT_WRITE}
    selector.unregister(writing)
    os.close(writing)


def test_keys_returned_by_select_are_the_registered_ones(selector, pair):
    one, other = pair
    key = selector.register(one, EVENT_READ, "data")
    other.send(b"x")
    ((returned, events),) = selector.select(0)
    assert returned == key and returned.data == "data" and events == EVENT_READ


@pytest.mark.parametrize("timeout", [0, 0.0, -1, -0.5, -math.inf], ids=repr)
def test_select_without_waiting(selector, pair, timeout):
    selector.register(pair[0], EVENT_READ)
    assert selector.select(timeout) == []


@pytest.mark.parametrize("timeout", [1e-9, 1e-6, 0.0004, 0.0011, 0.01])
def test_select_waits_at_least_the_timeout(selector, pair, timeout):
    selector.register(pair[0], EVENT_READ)
    begin = time.monotonic()
    assert selector.select(timeout) == []
    assert time.monotonic() - begin >= timeout


def test_select_without_timeout_waits_for_an_event(selector, pair):
    one, other = pair
    selector.register(one, EVENT_READ)
    for arguments in ((), (None,)):
        thread = threading.Thread(target=other.send, args=(b"x",))
        thread.start()
        assert [key.fileobj for key, _ in selector.select(*arguments)] == [one]
        one.recv(1)
        thread.join()


def test_select_takes_its_timeout_by_keyword_and_as_any_number(selector, pair):
    assert selector.select(timeout=0) == []
    _, other = pair
    selector.register(other, EVENT_WRITE)
    for timeout in (5, 5.5, True, None, 86400):
        assert len(selector.select(timeout)) == 1


@pytest.mark.parametrize("wrong", ["text", b"1", [], math.nan], ids=repr)
def test_wrong_timeouts(selector, pair, wrong):
    with selectors.DefaultSelector() as oracle:
        with pytest.raises(Exception) as theirs:
            oracle.select(wrong)
        with pytest.raises(type(theirs.value)):
            selector.select(wrong)


def test_select_on_nothing(selector):
    assert selector.select(0) == []
    assert selector.select(0.001) == []


def test_get_map(selector, pair):
    one, other = pair
    mapping = selector.get_map()
    assert len(mapping) == 0 and list(mapping) == [] and one not in mapping
    key = selector.register(one, EVENT_READ, "data")
    assert len(mapping) == 1 and list(mapping) == [one.fileno()]
    assert one in mapping and one.fileno() in mapping and other not in mapping
    assert mapping[one] == mapping[one.fileno()] == key
    assert mapping.get(one) == key and mapping.get(other) is None and mapping.get(other, 5) == 5
    assert dict(mapping) == {one.fileno(): key}
    assert list(mapping.values()) == [key] and list(mapping.items()) == [(one.fileno(), key)]
    for missing in (other, 99999, "text"):
        with pytest.raises((KeyError, ValueError)):
            mapping[missing]
    with pytest.raises(TypeError):
        mapping[one] = key
    with pytest.raises(TypeError):
        del mapping[one]


def test_get_map_iterates_over_a_changing_selector(selector):
    pairs = [socket.socketpair() for _ in range(10)]
    sockets = [one for pair in pairs for one in pair]
    for one in sockets:
        selector.register(one, EVENT_READ)
    assert sorted(selector.get_map()) == sorted(one.fileno() for one in sockets)
    for fd in list(selector.get_map()):
        selector.unregister(fd)
    assert len(selector.get_map()) == 0
    for one in sockets:
        one.close()


def test_close(impl, pair):
    one, _ = pair
    selector = impl.DefaultSelector()
    mapping = selector.get_map()
    selector.register(one, EVENT_READ)
    selector.close()
    selector.close()
    assert selector.get_map() is None
    with pytest.raises(RuntimeError, match="Selector is closed"):
        selector.get_key(one)
    with pytest.raises(KeyError):
        mapping[one]
    assert len(mapping) == 0


def test_a_closed_selector_refuses(impl, pair):
    one, other = pair
    outcomes = []
    for make in (selectors.DefaultSelector, impl.DefaultSelector):
        selector = make()
        selector.register(one, EVENT_READ)
        selector.close()
        kinds = []
        for call in (
            lambda s=selector: s.register(other, EVENT_READ),
            lambda s=selector: s.unregister(one),
            lambda s=selector: s.select(0),
            lambda s=selector: s.fileno(),
        ):
            with pytest.raises(Exception) as caught:
                call()
            kinds.append(type(caught.value))
        outcomes.append(kinds)
    assert outcomes[0] == outcomes[1]


def test_the_context_manager_closes(impl, pair):
    with impl.DefaultSelector() as selector:
        selector.register(pair[0], EVENT_READ)
        assert selector.get_map()
    assert selector.get_map() is None


def test_fileno(selector):
    if hasattr(selectors.DefaultSelector, "fileno"):
        assert os.fstat(selector.fileno())
        assert not os.get_inheritable(selector.fileno())


def test_a_selector_can_be_watched_by_another(impl, selector, pair):
    one, other = pair
    with impl.DefaultSelector() as outer:
        outer.register(selector, EVENT_READ)
        selector.register(one, EVENT_READ)
        assert outer.select(0) == []
        other.send(b"x")
        assert [key.fileobj for key, _ in outer.select(0)] == [selector]


def test_a_descriptor_number_that_is_used_again(selector):
    """The socket is closed without unregister(); another one gets its number. No event of the first may show."""
    first, peer = socket.socketpair()
    fd = first.fileno()
    selector.register(first, EVENT_READ, "first")
    peer.send(b"x")
    selector.unregister(first)
    first.close()
    peer.close()
    second, other = socket.socketpair()
    with second, other:
        replacement = second if second.fileno() == fd else other
        assert replacement.fileno() == fd
        selector.register(replacement, EVENT_READ, "second")
        assert selector.select(0) == []
        (other if replacement is second else second).send(b"y")
        ((key, events),) = selector.select(0)
        assert (key.data, events) == ("second", EVENT_READ)


def test_a_descriptor_closed_while_registered_is_not_reported(selector):
    one, other = socket.socketpair()
    selector.register(one, EVENT_READ)
    other.send(b"x")
    one.close()
    assert selector.select(0) == []
    other.close()
    selector.unregister(one)


def test_a_stale_registration_does_not_block_the_number(impl, selector):
    """Closed while registered: the kernel has forgotten it by then, the selector has not; unregister and register
    work."""
    one, other = socket.socketpair()
    fd = one.fileno()
    selector.register(fd, EVENT_READ)
    one.close()
    replacement = os.dup(other.fileno())
    assert replacement == fd
    with pytest.raises(KeyError):
        selector.register(fd, EVENT_WRITE)
    selector.unregister(fd)
    selector.register(fd, EVENT_WRITE)
    # The peer is gone, so it is writable as well as readable.
    assert events_of(selector) == {fd: EVENT_WRITE}
    selector.unregister(fd)
    os.close(replacement)
    other.close()


def test_more_events_than_one_wait_returns(selector):
    pairs = [socket.socketpair() for _ in range(150)]
    for one, other in pairs:
        selector.register(one, EVENT_READ | EVENT_WRITE)
        selector.register(other, EVENT_READ)
        one.send(b"x")
    seen = {}
    for _ in range(20):
        seen |= events_of(selector)
    expected = {one.fileno(): EVENT_WRITE for one, _ in pairs} | {other.fileno(): EVENT_READ for _, other in pairs}
    assert seen == expected
    assert len(events_of(selector)) == 300
    for one, other in pairs:
        selector.unregister(one), selector.unregister(other)
        one.close(), other.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no rlimits")
def test_a_descriptor_of_a_high_number(selector):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = min(soft, 50_000) - 1
    one, other = socket.socketpair()
    with one, other:
        fd = os.dup2(one.fileno(), highest)
        try:
            selector.register(fd, EVENT_READ, "high")
            other.send(b"x")
            ((key, _),) = selector.select(0)
            assert (key.fd, key.data) == (highest, "high")
            selector.unregister(fd)
        finally:
            os.close(fd)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no setitimer")
def test_a_signal_does_not_end_the_wait(selector, pair):
    """PEP 475: the handler runs, and the wait goes on for the rest of its time or until there is an event."""
    one, other = pair
    handled = []

    def handler(number, frame):
        handled.append(number)
        if len(handled) == 3:
            other.send(b"x")

    selector.register(one, EVENT_READ)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        while not (ready := selector.select(60)):
            # The standard library's wait returns nothing after a handler has interrupted it.
            assert handled
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert [key.fileobj for key, _ in ready] == [one]
    assert len(handled) >= 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no setitimer")
def test_a_signal_handler_that_raises_ends_the_wait(selector, pair):
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    selector.register(pair[0], EVENT_READ)
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            selector.select(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert selector.select(0) == []


def test_changes_from_another_thread_during_a_wait(selector, pair):
    one, other = pair

    def thread():
        selector.register(one, EVENT_READ, "registered meanwhile")
        other.send(b"x")

    selector.register(other, EVENT_READ)
    worker = threading.Thread(target=thread)
    worker.start()
    ready = selector.select(60)
    while not ready:
        ready = selector.select(60)
    worker.join()
    assert [key.data for key, _ in ready] == ["registered meanwhile"]


def test_a_fileno_that_misbehaves(selector):
    class Changing:
        """Returns -1 once it is closed, as sockets do."""

        def __init__(self, real):
            self.real = real
            self.closed = False

        def fileno(self):
            return -1 if self.closed else self.real

    reading, writing = os.pipe()
    changing = Changing(reading)
    key = selector.register(changing, EVENT_READ)
    changing.closed = True
    assert selector.get_key(changing) == key  # found by the object itself
    assert selector.unregister(changing) == key
    os.close(reading), os.close(writing)

    class Raising:
        def fileno(self):
            raise ZeroDivisionError

    with selectors.DefaultSelector() as oracle:
        with pytest.raises(Exception) as theirs:
            oracle.register(Raising(), EVENT_READ)
        with pytest.raises(type(theirs.value)):
            selector.register(Raising(), EVENT_READ)


def test_it_can_be_subclassed(impl, pair):
    class Counting(impl.DefaultSelector):
        def __init__(self):
            super().__init__()
            self.selects = 0

        def select(self, timeout=None):
            self.selects += 1
            return super().select(timeout)

    with Counting() as selector:
        selector.register(pair[1], EVENT_WRITE)
        assert len(selector.select(0)) == 1
        assert selector.selects == 1


def test_a_dropped_selector_closes_its_descriptor(impl, pair):
    """If it does not, the check for open descriptors after each test fails."""
    selector = impl.DefaultSelector()
    selector.register(pair[0], EVENT_READ, selector)
    selector.cycle = selector
    del selector
