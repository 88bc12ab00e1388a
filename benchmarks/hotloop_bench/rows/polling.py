"""What does one select() of a selector cost, and how does that grow with the registered and the ready descriptors?

These rows compare selectors, not loops: the standard library's selectors.DefaultSelector against hotloop's. The other
loops have no selector.
"""

import contextlib
import os
import selectors
from collections.abc import Iterator

from .descriptors import descriptors_allowed
from .registry import Rows, SelectorSetUp

rows = Rows()


def readable(stack: contextlib.ExitStack, *, ready: bool) -> int:
    """A file descriptor to be polled for reading; `stack` closes it."""
    if hasattr(os, "eventfd"):
        descriptor = os.eventfd(int(ready))
        stack.callback(os.close, descriptor)
        return descriptor
    descriptor, writer = os.pipe()
    stack.callback(os.close, descriptor)
    stack.callback(os.close, writer)
    if ready:
        os.write(writer, b"x")
    return descriptor


def registering(registered: int, ready: int) -> SelectorSetUp:
    """Registers `registered` descriptors with a selector, of which `ready`, evenly spread, are readable."""

    @contextlib.contextmanager
    def set_up(selector: selectors.BaseSelector) -> Iterator[None]:
        a_pipe_has_two = 1 if hasattr(os, "eventfd") else 2
        with descriptors_allowed(registered * a_pipe_has_two), contextlib.ExitStack() as stack:
            stride = registered // ready
            for index in range(registered):
                descriptor = readable(stack, ready=index % stride == 0)
                selector.register(descriptor, selectors.EVENT_READ)
                stack.callback(selector.unregister, descriptor)
            found = len(selector.select(0))
            if found != ready:
                raise AssertionError(f"{ready} descriptors are ready, select() found {found}")
            yield

    return set_up


def select_repeatedly(selector: selectors.BaseSelector, n: int) -> None:
    for _ in range(n):
        selector.select(0)


@rows.on_selector(operations=10_000, set_up=registering(1, ready=1))
def select_1(selector: selectors.BaseSelector, n: int) -> None:
    """What does select() cost with one descriptor, which is ready?"""
    select_repeatedly(selector, n)


@rows.on_selector(operations=10_000, set_up=registering(100, ready=1))
def select_100(selector: selectors.BaseSelector, n: int) -> None:
    """What does select() cost with 100 descriptors, one of them ready?"""
    select_repeatedly(selector, n)


@rows.on_selector(operations=500, set_up=registering(100, ready=100))
def select_100_all_ready(selector: selectors.BaseSelector, n: int) -> None:
    """What does select() cost with 100 descriptors, all of them ready?"""
    select_repeatedly(selector, n)


@rows.on_selector(operations=2_000, set_up=registering(10_000, ready=10))
def select_10000(selector: selectors.BaseSelector, n: int) -> None:
    """What does select() cost with 10,000 descriptors, ten of them ready?"""
    select_repeatedly(selector, n)


@rows.on_selector(operations=10, set_up=registering(10_000, ready=10_000))
def select_10000_all_ready(selector: selectors.BaseSelector, n: int) -> None:
    """What does select() cost with 10,000 descriptors, all of them ready?"""
    select_repeatedly(selector, n)
