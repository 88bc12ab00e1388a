"""Substitutes hotloop's event loop and selector for those of asyncio and selectors, for an unchanged program.

asyncio.run(), asyncio.Runner() and asyncio.new_event_loop() all call the default policy's `_loop_factory`, on every
Python that has policies, so this is what is replaced. A policy of hotloop's would be undone by programs that reset
theirs (unittest.IsolatedAsyncioTestCase does), and would cause a warning on Python 3.14 and later. Python 3.16 has no
policies; there asyncio.new_event_loop() itself is replaced.

asyncio.SelectorEventLoop (asyncio.ProactorEventLoop where hotloop's loop derives from that) and asyncio.EventLoop (3.13
and later) become hotloop's class as well: a program that names them asks for the platform's usual loop, and hotloop's
is a subclass with the same constructor. A loop that the program installs itself, such as uvloop, stays in effect.
"""

import asyncio
import selectors
import sys
import threading
from typing import Any

import hotloop
from hotloop.policy import default_policy_class


def substitute() -> None:
    """From now on, asyncio makes hotloop's event loops and DefaultSelector is hotloop's."""
    usual = "ProactorEventLoop" if hotloop.implementation == "asyncio" else "SelectorEventLoop"
    replacements: list[tuple[Any, str, Any]] = [
        (selectors, "DefaultSelector", hotloop.DefaultSelector),
        (asyncio, usual, hotloop.EventLoop),
    ]
    if hasattr(asyncio, "EventLoop"):
        replacements.append((asyncio, "EventLoop", hotloop.EventLoop))
    policy = default_policy_class()
    if policy is not None:
        replacements.append((policy, "_loop_factory", hotloop.EventLoop))
    else:
        # asyncio.Runner calls it as events.new_event_loop().
        replacements += [(owner, "new_event_loop", hotloop.new_event_loop) for owner in (asyncio, asyncio.events)]
    for owner, name, value in replacements:
        setattr(owner, name, value)
    if policy is not None and sys.version_info >= (3, 14):
        _restore_implicit_event_loop(policy)


def _restore_implicit_event_loop(policy_class: Any) -> None:
    """Let asyncio.get_event_loop() make and set a loop if none is set, as it did up to Python 3.13.

    As then, it does so in the main thread only, and only as long as set_event_loop() was never called, not even with
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
