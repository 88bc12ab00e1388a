"""Importing hotloop, with and without its extension, and running without a warning."""

import asyncio
import sys

import pytest

both = pytest.mark.only("c", "python", reason="tests the import of hotloop")

# A finder that hides the compiled modules, as if they had not been built.
WITHOUT_EXTENSION = """
import importlib.abc

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("hotloop._c.") and name.count(".") == 3:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
for name in [name for name in sys.modules if name.split(".")[0] == "hotloop"]:
    del sys.modules[name]
"""

USE_EVERYTHING = """
import hotloop

async def main():
    loop = asyncio.get_running_loop()
    assert type(loop) is hotloop.EventLoop
    future = loop.create_future()
    loop.call_soon(future.set_result, 1)
    await future
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0.001, 2))
    assert isinstance(task, asyncio.Task)
    return task.result()

assert hotloop.run(main()) == 2
loop = hotloop.new_event_loop()
assert loop.run_until_complete(main()) == 2
loop.close()
with hotloop.DefaultSelector() as selector:
    selector.select(0)
"""


@pytest.mark.promise("P05")
@pytest.mark.only("python", reason="tests a missing extension")
@pytest.mark.parametrize("asked", ["", "python"], ids=["automatic", "asked for"])
def test_without_the_extension_the_same_names_work(impl, asked):
    out = impl.run_script(
        f"os.environ['HOTLOOP_IMPL'] = {asked!r}\n"
        + WITHOUT_EXTENSION
        + USE_EVERYTHING
        + """
from hotloop import (EventLoop, Future, Task, DefaultSelector, run, new_event_loop, install, implementation)
print(implementation)
"""
    ).stdout
    assert out == "python\n"


@pytest.mark.promise("P05")
@pytest.mark.only("python", reason="tests a missing extension")
def test_the_fallback_hands_out_the_interpreters_own_tasks(impl):
    """The interpreter's own classes are compiled: without the extension, a program must not become slower by
    hotloop."""
    out = impl.run_script(
        "os.environ['HOTLOOP_IMPL'] = ''\n"
        + WITHOUT_EXTENSION
        + """
import hotloop

async def main():
    task = asyncio.current_task()
    return type(task) is asyncio.Task, type(asyncio.get_running_loop().create_future()) is asyncio.Future

print(hotloop.run(main()), hotloop.Task is asyncio.Task, hotloop.Future is asyncio.Future)
"""
    ).stdout
    compiled = asyncio.Task is not asyncio.tasks._PyTask
    assert out == f"({compiled}, {compiled}) {compiled} {compiled}\n"


@pytest.mark.only("python", reason="the compiled loop has its state in C")
def test_the_fallback_has_few_attributes(loop):
    """CPython accesses an instance's attributes fast only as long as there are fewer than 30."""
    assert len(vars(loop)) < 30


@pytest.mark.promise("P05")
@pytest.mark.only("python", reason="tests a missing extension")
def test_asking_for_what_is_missing_is_an_error(impl):
    result = impl.run_script(
        "os.environ['HOTLOOP_IMPL'] = 'c'\n" + WITHOUT_EXTENSION + "import hotloop\nhotloop.EventLoop\n", check=False
    )
    assert result.returncode == 1
    assert "ImportError" in result.stderr.splitlines()[-1]


@pytest.mark.promise("P05")
@both
def test_the_public_names(impl):
    out = impl.run_script(
        """
import hotloop
print(*sorted(name for name in ("run", "new_event_loop", "install", "EventLoop", "EventLoopPolicy", "Future", "Task",
                                "DefaultSelector", "implementation", "__version__") if hasattr(hotloop, name)))
""",
        "-W",
        "ignore::DeprecationWarning",
    ).stdout
    expected = (
        "DefaultSelector EventLoop EventLoopPolicy Future Task __version__ implementation install new_event_loop run\n"
    )
    assert out == expected


@pytest.mark.promise("P05")
@both
def test_the_environment_chooses(impl):
    assert impl.run_script("import hotloop; print(hotloop.implementation)").stdout == f"{impl.name}\n"


@pytest.mark.promise("P06")
@both
def test_running_raises_no_deprecation_warning(impl):
    """run_script() makes every warning an error."""
    impl.run_script(USE_EVERYTHING + "asyncio.Runner(loop_factory=hotloop.new_event_loop).close()\n")


@pytest.mark.promise("P06")
@both
@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.run(loop_factory=) came with CPython 3.12")
def test_asyncio_run_with_the_loop_factory(impl):
    impl.run_script(
        "import hotloop\nassert asyncio.run(asyncio.sleep(0, 1), loop_factory=hotloop.new_event_loop) == 1\n"
    )


@pytest.mark.promise("P06")
@both
def test_no_policy_is_set_or_asked(impl):
    impl.run_script(
        """
import hotloop, asyncio.events

def forbidden(*args):
    raise AssertionError("a policy was touched")

for name in ("set_event_loop_policy", "get_event_loop_policy", "_set_event_loop_policy", "_get_event_loop_policy"):
    for module in (asyncio, asyncio.events):
        if hasattr(module, name):
            setattr(module, name, forbidden)
hotloop.run(asyncio.sleep(0))
hotloop.new_event_loop().close()
"""
    )
