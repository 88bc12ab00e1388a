"""A program may delete any attribute of a compiled object: the next use raises, as asyncio's own would, or goes on.

In C a deleted attribute is a NULL pointer. Each attribute is deleted before each method, and while a task waits, in a
process of its own, because a mistake would crash it.
"""

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
