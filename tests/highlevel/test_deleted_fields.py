"""A program may delete any attribute of a compiled object: the next use raises, as asyncio's own would, or goes on.

In C a deleted attribute is a NULL pointer. Each attribute is deleted before each method, and while a task waits, in a
process of its own, because a mistake would crash it.
"""

import os
import subprocess
import sys

import pytest

import hotloop.asyncio

pytestmark = pytest.mark.skipif(
    not hotloop.compiled_asyncio().available, reason=f"nothing is compiled here: {hotloop.compiled_asyncio().reason}"
)

CLASSES = [name for name in hotloop.compiled_asyncio().names if isinstance(getattr(hotloop.asyncio, name), type)]
SPECIAL = ("__init__", "__aenter__", "__aexit__", "__anext__", "__repr__", "__str__", "__getstate__", "__reduce_ex__")
PROGRAM = """
import asyncio, contextlib, inspect, sys
import hotloop.asyncio

NAME, SPECIAL = sys.argv[1], sys.argv[2:]
CLASS = getattr(hotloop.asyncio, NAME)
ARGUMENTS = {
    "Timeout": lambda: [None],
    "StreamReaderProtocol": lambda: [hotloop.asyncio.StreamReader()],
    "StreamWriter": lambda: [None, None, None, asyncio.get_running_loop()],
}
FIELDS = sorted({name for base in CLASS.__mro__ for name in vars(base).get("__slots__", ())})
METHODS = [
    name
    for name in dir(CLASS)
    if callable(getattr(CLASS, name, None)) and (name in SPECIAL or not name.startswith("__"))
]
WAITING = [name for name in METHODS if inspect.iscoroutinefunction(getattr(CLASS, name))]

def made():
    return CLASS(*ARGUMENTS.get(NAME, list)())

async def use(function, *arguments):
    with contextlib.suppress(Exception, asyncio.CancelledError):
        found = function(*arguments)
        if asyncio.iscoroutine(found):
            task = asyncio.ensure_future(found)
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await task

def lose(made, field):
    with contextlib.suppress(AttributeError):
        delattr(made, field)

async def main():
    for field in FIELDS:
        for method in METHODS:
            for count in range(4):
                used = made()
                lose(used, field)
                await use(getattr(used, method, print), *[None] * count)
        for waiting in WAITING:
            for method in METHODS:
                used = made()
                task = asyncio.ensure_future(use(getattr(used, waiting)))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                lose(used, field)
                await use(getattr(used, method, print))
                await task
    print("used", len(FIELDS), len(METHODS))

sys.stdout.flush()
with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
    runner.get_loop().set_exception_handler(lambda loop, context: None)
    runner.run(main())
"""


@pytest.mark.parametrize("name", CLASSES)
def test_every_attribute_may_be_deleted(name):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", PROGRAM, name, *SPECIAL]
    ended = subprocess.run(command, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert "used" in ended.stdout


# Code that deletes attributes in the middle of a call: of a flag that is asked, a loop that is compared or dropped, a
# loop that sets a timer, a trace function, and finalizers of what the garbage collector finds at an allocation. And
# constructors that set none, or delete those of what is being made.
MEANWHILE = """
import asyncio, contextlib, gc, sys
import hotloop.asyncio

def lose(made, *fields):
    for field in fields:
        with contextlib.suppress(AttributeError):
            delattr(made, field)

class Flag:
    def __init__(self, queue, field):
        self.queue, self.field = queue, field

    def __bool__(self):
        lose(self.queue, self.field)
        return False

async def queues():
    for field in ("_getters", "_putters", "_queue", "_maxsize", "_loop", "_finished", "_unfinished_tasks"):
        for method, *items in (("get",), ("get_nowait",), ("put", 1), ("put_nowait", 1)):
            for count in range(2):
                queue = hotloop.asyncio.Queue(1)
                for _ in range(count):
                    queue.put_nowait(0)
                with contextlib.suppress(AttributeError):
                    queue._is_shutdown = Flag(queue, field)
                with contextlib.suppress(Exception):
                    used = getattr(queue, method)(*items)
                    if asyncio.iscoroutine(used):
                        await asyncio.wait_for(used, 0)

class Dropped:
    def __init__(self, group):
        self.group = group

    def __del__(self):
        lose(self.group, "_loop", "_parent_task", "_entered")

class Loop:
    def __init__(self, group, loop, compared):
        self.group, self.loop, self.compared = group, loop, compared

    def __hash__(self):
        return hash(self.loop)

    def __eq__(self, other):
        self.compared(self.group)
        return True

def lose_parent(group):
    lose(group, "_parent_task")

def set_dropped(group):
    group._loop = Dropped(group)

async def groups():
    for compared in (lose_parent, set_dropped):
        group = hotloop.asyncio.TaskGroup()
        group._loop = Loop(group, asyncio.get_running_loop(), compared)
        with contextlib.suppress(Exception):
            async with group:
                pass

async def traced():
    async def give():
        pass

    group = hotloop.asyncio.TaskGroup()
    await group.__aenter__()
    group.create_task(give())
    leaving = group.__aexit__(None, None, None)
    leaving.send(None)

    def trace(frame, event, argument):
        if frame.f_code.co_name in ("__aexit__", "_aexit"):
            lose(group, "_tasks", "_on_completed_fut", "_parent_cancel_requested")
        return trace

    sys.settrace(trace)
    try:
        leaving.throw(asyncio.CancelledError())
    except Exception:
        pass
    finally:
        sys.settrace(None)

async def iterators():
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def losing(delay, callback):
        lose(callback.__self__, "_done", "_timeout_handle", "_todo", "_todo_left", "_cur_task")
        return call_later(delay, callback)

    loop.call_later = losing
    try:
        hotloop.asyncio.as_completed([asyncio.sleep(0)], timeout=1)
    except AttributeError:
        pass
    finally:
        del loop.call_later

class Garbage:
    def __init__(self, finalize):
        self.finalize, self.itself = finalize, self

    def __del__(self):
        self.finalize()

def call_collecting(allocation, function, *arguments, **keywords):
    '''Have the garbage collector run at the allocation of this number, as far as it is asked at allocations.'''
    gc.set_threshold(gc.get_count()[0] + allocation)
    gc.enable()
    try:
        function(*arguments, **keywords)
    except Exception:
        pass
    finally:
        gc.disable()

async def events():
    for allocation in range(-3, 8):
        event = hotloop.asyncio.Event()
        gc.collect()
        Garbage(lambda event=event: lose(event, "_waiters"))
        call_collecting(allocation, event.set)

kept = []

async def create_one(allocation):
    group = hotloop.asyncio.TaskGroup()
    await group.__aenter__()
    found = []

    def find():
        # The task gets a second callback, for which it needs a list; none is left to be used again.
        for task in asyncio.all_tasks():
            if task.get_name() == "child":
                task.add_done_callback(found.append)
                found.append(task)
        kept.append([[] for _ in range(200)])
        kept.append([[] for _ in range(200)])
        Garbage((lambda: lose(group, "_tasks")) if found else find)

    given = asyncio.sleep(0)
    gc.collect()
    Garbage(find)
    kept.append([[] for _ in range(200)])
    call_collecting(allocation, group.create_task, given, name="child")
    gc.collect()

async def creations():
    for allocation in range(-3, 8):
        await asyncio.create_task(create_one(allocation))
        await asyncio.sleep(0)

async def constructors():
    hotloop.asyncio.Event.__init__ = lambda event: None
    hotloop.asyncio.Queue()

async def inner_constructors():
    def lose_unfinished(*arguments):
        for each in gc.get_objects():
            if type(each).__name__ == "_AsCompletedIterator":
                lose(each, "_done")

    hotloop.asyncio.Queue.__init__ = lose_unfinished
    hotloop.asyncio.as_completed([asyncio.sleep(0)])

async def main():
    gc.disable()
    await globals()[sys.argv[1]]()
    print("ended")

with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
    runner.get_loop().set_exception_handler(lambda loop, context: None)
    runner.run(main())
"""


@pytest.mark.parametrize(
    "name", ["queues", "groups", "creations", "traced", "iterators", "events", "constructors", "inner_constructors"]
)
def test_attributes_may_be_deleted_during_a_call(name):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", MEANWHILE, name]
    # Which overwrites what is freed.
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    ended = subprocess.run(command, text=True, capture_output=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert "ended" in ended.stdout
