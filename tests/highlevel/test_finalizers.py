"""An attribute of a compiled object may hold any object. Its finalizer may delete or replace all other attributes: when
a method drops it, a full deque, or a constructor that is called again. The method raises then, as asyncio's own would,
or goes on.

Each attribute is tried with each method in a process of its own, because a mistake would crash it.
"""

import subprocess
import sys

import pytest

import hotloop.asyncio

pytestmark = pytest.mark.skipif(
    not hotloop.compiled_asyncio().available, reason=f"nothing is compiled here: {hotloop.compiled_asyncio().reason}"
)

CLASSES = [name for name in hotloop.compiled_asyncio().names if isinstance(getattr(hotloop.asyncio, name), type)]
PROGRAM = """
import asyncio, collections, contextlib, os, sys
import hotloop.asyncio

NAME, DELETES = sys.argv[1], sys.argv[2] == "deletes"
CLASS = getattr(hotloop.asyncio, NAME)
SPECIAL = ("__init__", "__aenter__", "__aexit__", "__anext__", "__repr__")
FIELDS = sorted({name for base in CLASS.__mro__ for name in vars(base).get("__slots__", ())})
METHODS = [
    name
    for name in dir(CLASS)
    if callable(getattr(CLASS, name, None)) and (name in SPECIAL or not name.startswith("__"))
]

def arguments():
    # Those with which asyncio's own functions call the constructors.
    loop = asyncio.get_running_loop()
    if NAME == "Timeout":
        return [None], {}
    if NAME == "StreamReader":
        return [], {"limit": 9, "loop": loop}
    if NAME == "StreamReaderProtocol":
        return [hotloop.asyncio.StreamReader(limit=9, loop=loop)], {"loop": loop}
    return ([None, None, None, loop], {}) if NAME == "StreamWriter" else ([], {})

class Dropped:
    def __init__(self, owner, field):
        self.owner, self.field = owner, field

    def __del__(self):
        for name in FIELDS:
            if name != self.field:
                with contextlib.suppress(AttributeError):
                    delattr(self.owner, name) if DELETES else setattr(self.owner, name, object())

    def __bool__(self):
        return False

    def cancelled(self):
        return False

    def done(self):
        return True

def values(owner, field):
    before = getattr(owner, field, None)
    if isinstance(before, collections.deque):
        return [collections.deque([Dropped(owner, field)], maxlen=1), Dropped(owner, field)]
    if isinstance(before, (list, set)):
        return [type(before)([Dropped(owner, field)]), Dropped(owner, field)]
    return [Dropped(owner, field)]

async def use(function, positional, keywords):
    with contextlib.suppress(Exception, asyncio.CancelledError):
        found = function(*positional, **keywords)
        if asyncio.iscoroutine(found):
            # Some never end.
            task = asyncio.ensure_future(found)
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=0.01)

async def main():
    for field in FIELDS:
        for method in METHODS:
            for count in range(4):
                for held in (False, True):
                    for index in range(2):
                        positional, keywords = arguments()
                        owner = CLASS(*positional, **keywords)
                        if held and hasattr(owner, "acquire"):
                            await owner.acquire()
                        for value in values(owner, field)[index : index + 1]:
                            with contextlib.suppress(TypeError):
                                setattr(owner, field, value)
                        value = None
                        if method != "__init__":
                            positional, keywords = [None] * count, {}
                        await use(getattr(owner, method, print), positional, keywords)
    print("used", len(FIELDS), len(METHODS))
    sys.stdout.flush()
    os._exit(0)

with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
    runner.get_loop().set_exception_handler(lambda loop, context: None)
    runner.run(main())
"""


@pytest.mark.parametrize("finalizer", ["deletes", "replaces"])
@pytest.mark.parametrize("name", CLASSES)
def test_what_an_attribute_holds_is_dropped(name, finalizer):
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", PROGRAM, name, finalizer]
    ended = subprocess.run(command, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert "used" in ended.stdout
