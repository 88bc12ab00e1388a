"""Coroutines of compiled functions and of asyncio's own, which a test drives by hand."""

import asyncio
import inspect

from support import comparing


def outcome(call, *arguments):
    """What a call returns or raises, to be compared with another's."""
    result = comparing.outcome(call, *arguments)
    return "a future" if asyncio.isfuture(result) else result


class Subject:
    """A coroutine that has to be driven by hand, and what it waits for."""

    def __init__(self, coroutine, finish):
        self.coroutine = coroutine
        self.finish = finish
        self.yielded = None

    def send(self, value):
        self.yielded = self.coroutine.send(value)
        return self.yielded

    def resolve(self):
        if self.yielded is not None and not self.yielded.done():
            self.yielded.set_result(None)

    def cancel(self):
        if self.yielded is not None:
            self.yielded.cancel()

    def state(self):
        coroutine = self.coroutine
        return (
            inspect.getcoroutinestate(coroutine),
            coroutine.cr_running,
            coroutine.cr_suspended,
            coroutine.cr_frame is None,
            coroutine.cr_await is None,
        )


def empty_queue(module):
    queue = module.Queue()
    return Subject(queue.get(), lambda: queue.put_nowait("item"))


def filled_queue(module):
    queue = module.Queue()
    queue.put_nowait("item")
    return Subject(queue.get(), lambda: None)


def full_queue(module):
    queue = module.Queue(1)
    queue.put_nowait("item")
    return Subject(queue.put("more"), queue.get_nowait)


def joined_queue(module):
    queue = module.Queue()
    queue.put_nowait("item")
    return Subject(queue.join(), queue.task_done)


def event(module):
    event = module.Event()
    return Subject(event.wait(), event.set)


def subclass(module):
    queue = type("Own", (module.Queue,), {})()
    return Subject(queue.get(), lambda: queue.put_nowait("item"))


class Spy:
    """An item of a PriorityQueue whose comparison runs code."""

    def __init__(self, call):
        self.call = call

    def __lt__(self, other):
        self.call()
        return False


def priority_queue(module, call):
    queue = module.PriorityQueue()
    for item in (Spy(lambda: None), Spy(lambda: None), Spy(lambda: None)):
        queue._queue.append(item)
    for item in queue._queue:
        item.call = call
    return queue
