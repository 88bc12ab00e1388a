"""Puts hotloop in the place of asyncio's event loop and of selectors.DefaultSelector, for a program that knows nothing
of it.

asyncio.run(), asyncio.Runner() and asyncio.new_event_loop() all end in the default policy's `_loop_factory`, on
every Python that has policies, so that is what changes. Setting a policy of our own instead would be undone by
programs that reset theirs (unittest.IsolatedAsyncioTestCase does), and on Python 3.14 and later would have to get
around a warning.

asyncio.SelectorEventLoop and asyncio.EventLoop (3.13 and later) become hotloop's class as well: a program that names
them asks for the platform's usual loop, and hotloop's is a subclass with the same constructor. What a program
installs by itself, uvloop for one, keeps its place.
"""

import asyncio
import selectors
import sys
import threading
from typing import Any

import hotloop
from hotloop.policy import default_policy_class


def substitute() -> None:
    """From here on, what makes an asyncio event loop or a default selector makes hotloop's."""
    replacements: list[tuple[Any, str, Any]] = [
        (selectors, "DefaultSelector", hotloop.DefaultSelector),
        (asyncio, "SelectorEventLoop", hotloop.EventLoop),
    ]
    if hasattr(asyncio, "EventLoop"):
        replacements.append((asyncio, "EventLoop", hotloop.EventLoop))
    policy = default_policy_class()
    if policy is not None:
        replacements.append((policy, "_loop_factory", hotloop.EventLoop))
    for owner, name, value in replacements:
        setattr(owner, name, value)
    if policy is not None and sys.version_info >= (3, 14):
        _restore_implicit_event_loop(policy)


def _restore_implicit_event_loop(policy_class: Any) -> None:
    """Let asyncio.get_event_loop() make and set a loop where none is set, as it did up to Python 3.13.

    The rules are those of that time: in the main thread only, and not once set_event_loop() has been called, be it with
    None.
    """
    get_existing, set_existing = policy_class.get_event_loop, policy_class.set_event_loop

    def get_event_loop(self: Any) -> asyncio.AbstractEventLoop:
        untouched = self._local._loop is None and not getattr(self._local, "_set_called", False)
        if untouched and threading.current_thread() is threading.main_thread():
            self.set_event_loop(self.new_event_loop())
        loop: asyncio.AbstractEventLoop = get_existing(self)
        return loop

    def set_event_loop(self: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._local._set_called = True
        set_existing(self, loop)

    policy_class.get_event_loop = get_event_loop
    policy_class.set_event_loop = set_event_loop
