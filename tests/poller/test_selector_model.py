"""Any sequence of operations has the same effect on hotloop's selector as on the standard library's, over the same
descriptors."""

import contextlib
import os
import selectors
import socket

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.implementations import expected_backend
from support.interpreter import uses_hypothesis

PAIRS = 4
indexes = st.integers(0, 2 * PAIRS - 1)
events = st.sampled_from([selectors.EVENT_READ, selectors.EVENT_WRITE, selectors.EVENT_READ | selectors.EVENT_WRITE])


def outcome(call):
    """A result, or the type of the exception; a key becomes the parts that must agree."""
    try:
        return call()
    except (KeyError, ValueError, OSError, RuntimeError, TypeError) as error:
        return type(error)


class SelectorMachine(RuleBasedStateMachine):
    """Two selectors side by side on one set of socket pairs, some of which get closed and replaced."""

    make_selector = None
    modifies_to_any = False

    def __init__(self):
        super().__init__()
        self.ours = self.make_selector()
        self.theirs = selectors.DefaultSelector()
        self.sockets = []

    @initialize()
    def open(self):
        for _ in range(PAIRS):
            self.sockets.extend(self.new_pair())

    @staticmethod
    def new_pair():
        one, other = socket.socketpair()
        for end in (one, other):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return one, other

    def both(self, call):
        ours, theirs = outcome(lambda: call(self.ours)), outcome(lambda: call(self.theirs))
        assert ours == theirs
        return ours

    @rule(index=indexes, events=events, data=st.integers(), by_number=st.booleans())
    def register(self, index, events, data, by_number):
        target = self.sockets[index].fileno() if by_number else self.sockets[index]
        self.both(lambda selector: selector.register(target, events, data))

    @rule(index=indexes, events=events, data=st.integers())
    def modify(self, index, events, data):
        self.both(lambda selector: selector.modify(self.sockets[index], events, data))

    @precondition(lambda self: self.modifies_to_any)
    @rule(index=indexes, events=st.sampled_from([0, 4, 7, -3]), data=st.integers())
    def modify_to_any(self, index, events, data):
        """On epoll no events, or unknown ones, are no error."""
        self.both(lambda selector: selector.modify(self.sockets[index], events, data))

    @rule(index=indexes, by_number=st.booleans())
    def unregister(self, index, by_number):
        target = self.sockets[index].fileno() if by_number else self.sockets[index]
        self.both(lambda selector: selector.unregister(target))

    @rule(index=indexes, bad=st.sampled_from([0, 4, 7, -3]))
    def wrong_events(self, index, bad):
        self.both(lambda selector: selector.register(self.sockets[index], bad))

    @rule(index=indexes, size=st.sampled_from([1, 100, 1_000_000]))
    def send(self, index, size):
        with contextlib.suppress(OSError):  # full, or the peer is gone: also a state to look at
            self.sockets[index].send(b"x" * size)

    @rule(index=indexes)
    def receive(self, index):
        with contextlib.suppress(OSError):  # nothing there
            self.sockets[index].recv(1_000_000)

    @rule(index=indexes)
    def shut_down(self, index):
        with contextlib.suppress(OSError):  # the peer is gone
            self.sockets[index].shutdown(socket.SHUT_WR)

    @rule(index=indexes, unregister_first=st.booleans())
    def close_and_replace(self, index, unregister_first):
        """The next pair gets the numbers of the closed one at once."""
        first = index & ~1
        ends = self.sockets[first], self.sockets[first + 1]
        if unregister_first:
            for end in ends:
                self.both(lambda selector, end=end: selector.unregister(end))
        numbers = [end.fileno() for end in ends]
        for end in ends:
            end.close()
        if not unregister_first:
            for number in numbers:
                self.both(lambda selector, number=number: selector.unregister(number))
        self.sockets[first : first + 2] = self.new_pair()

    @rule(index=indexes)
    def replace_behind_its_back(self, index):
        """dup2() puts another file under a registered number: the kernel forgets the registration with the old file."""
        one, other = self.new_pair()
        first = index & ~1
        for end, target in ((one, self.sockets[first]), (other, self.sockets[first + 1])):
            os.dup2(end.fileno(), target.fileno())
            end.close()
        for end in self.sockets[first : first + 2]:
            self.both(lambda selector, end=end: selector.unregister(end))

    @rule()
    def select(self):
        def ready(selector):
            # On kqueue, reading and writing are reported apart.
            merged = {}
            for key, events in selector.select(0):
                merged[key] = merged.get(key, 0) | events
            return sorted((key.fd, key.events, key.data, events) for key, events in merged.items())

        self.both(ready)

    @rule(index=indexes)
    def look_up(self, index):
        self.both(lambda selector: selector.get_key(self.sockets[index]))
        self.both(lambda selector: self.sockets[index] in selector.get_map())

    @rule()
    def list_all(self):
        self.both(lambda selector: sorted(selector.get_map().items()))
        self.both(lambda selector: len(selector.get_map()))

    @rule()
    def close_selectors(self):
        self.both(lambda selector: selector.close())
        self.both(lambda selector: selector.get_map())
        self.both(lambda selector: selector.select(0))
        self.ours, self.theirs = self.make_selector(), selectors.DefaultSelector()

    def teardown(self):
        self.ours.close()
        self.theirs.close()
        for end in self.sockets:
            end.close()


@uses_hypothesis
def test_any_sequence_of_operations(impl):
    any_events = expected_backend(impl.name) == "epoll"
    machine = type(
        "Machine", (SelectorMachine,), {"make_selector": impl.DefaultSelector, "modifies_to_any": any_events}
    )
    run_state_machine_as_test(machine)
