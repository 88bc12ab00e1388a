"""The objects that tests of bad input use, and the outcome of a case in a form that compares between two loops."""

import asyncio
import gc
import os
import re
import socket

from support.stepping import run_once


async def nothing():
    return None


class World:
    """A loop, its classes, and objects to use wrongly. close() disposes of all of them."""

    def __init__(self, impl, debug):
        self.impl = impl
        self.loop = impl.new_event_loop()
        self.loop.set_debug(debug)
        self.loop.slow_callback_duration = 3600
        self.reports = []
        self.loop.set_exception_handler(lambda loop, context: self.reports.append(describe(context.get("exception"))))
        self.coroutines = []
        self.closing = []

    def coroutine(self):
        self.coroutines.append(nothing())
        return self.coroutines[-1]

    def pair(self):
        one, other = socket.socketpair()
        for end in (one, other):
            end.setblocking(False)
            self.closing.append(end)
        return one, other

    def closed_fd(self):
        fd = os.dup(0)
        os.close(fd)
        return fd

    def closed_loop(self):
        loop = self.impl.new_event_loop()
        loop.close()
        return loop

    def other_loop(self):
        loop = self.impl.new_event_loop()
        self.closing.append(loop)
        return loop

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def still_works(self):
        assert self.loop.run_until_complete(asyncio.sleep(0, "works")) == "works"
        seen = []
        self.loop.call_soon(seen.append, 1)
        self.loop.call_soon_threadsafe(seen.append, 2)
        self.loop.call_later(-1, seen.append, 3)
        run_once(self.loop, 2)
        assert sorted(seen) == [1, 2, 3]

    def close(self):
        for coroutine in self.coroutines:
            coroutine.close()
        for thing in self.closing:
            thing.close()
        for handle in list(self.loop._scheduled):
            handle.cancel()
        self.loop.close()


def describe(error):
    """An exception in comparable form: its type, and its message without parts that differ by process or class."""
    if error is None:
        return None
    text = re.sub(r"0x[0-9a-f]+", "0x", str(error))
    text = re.sub(r"<(_?\w*EventLoop|Task|Future|coroutine)\b.*>", r"<\1>", text)
    text = re.sub(r"\b(fd=|FD )\d+", r"\1N", text)
    text = re.sub(r"Task-\d+", "Task-N", text)
    text = text.replace("_asyncio.", "")
    text = re.sub(r"\b\w*(EventLoop|EpollSelector|KqueueSelector)\b", r"\1", text)
    text = text.replace("_SelectorSocketTransport", "StreamTransport")
    text = re.sub(r"\d{5,}(\.\d+)?", "NUMBER", text)
    return type(error).__name__, text


def collection():
    """A dict of cases by name, and the decorator that adds one.

    The message of an exception is compared, too, except with words=False: for messages in which asyncio's C and Python
    classes differ, and for the interpreter's own messages about the arguments of a call."""
    cases = {}

    def case(*, words=True):
        def add(function):
            cases[function.__name__] = function, words
            return function

        return add

    return cases, case


def outcome(impl, case, debug, log):
    """The outcome of a case: its result or exception, the exceptions reported to the loop's handler, and the log."""
    function, words = case
    world = World(impl, debug)
    try:
        try:
            result = function(world)
            if isinstance(result, asyncio.Handle | asyncio.Future):
                result = type(result).__name__
        except Exception as error:
            result = describe(error) if words else type(error).__name__
        world.loop.set_exception_handler(lambda loop, context: None)
        for handle in list(world.loop._scheduled):
            handle.cancel()
        world.still_works()
        return result, world.reports, [message.splitlines()[0] for message in log.take()]
    finally:
        world.close()
        gc.collect()
