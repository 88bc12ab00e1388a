"""hotloop.asyncio: every name of asyncio's, some of them compiled; and nothing changes by import alone."""

import asyncio
import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

import hotloop
import hotloop.asyncio as compiled_asyncio

NAMES = hotloop.compiled_asyncio().names
PAGE = Path(__file__).parents[2] / "docs" / "compiled-asyncio.md"


def interpreter(source, *options, **environ):
    """The output of `source` in a new interpreter, where warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", source],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_every_name_of_asyncio_is_there():
    for name in dir(asyncio):
        if not (name.startswith("__") and name.endswith("__")):
            ours, own = getattr(compiled_asyncio, name), getattr(asyncio, name)
            assert (ours is own) == (name not in NAMES), name


def test_dir_and_all_are_those_of_asyncio():
    assert dir(compiled_asyncio) == dir(asyncio)
    assert compiled_asyncio.__all__ == asyncio.__all__
    assert "hotloop" in compiled_asyncio.__doc__


def test_no_other_names():
    extra = {name for name in vars(compiled_asyncio) if not hasattr(asyncio, name)}
    assert not [name for name in extra if name.isidentifier() and not name.startswith("_")]


def test_import_star():
    namespace = {}
    exec("from hotloop.asyncio import *", namespace)
    del namespace["__builtins__"]
    assert set(namespace) == set(asyncio.__all__)
    for name in namespace:
        assert namespace[name] is getattr(compiled_asyncio, name)


def test_submodules_are_asyncios_own():
    assert compiled_asyncio.queues is asyncio.queues
    assert compiled_asyncio.subprocess is asyncio.subprocess


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'asyncio' has no attribute 'nothing'"):
        compiled_asyncio.nothing  # noqa: B018
    assert not hasattr(compiled_asyncio, "__wrapped__")


def test_a_name_that_is_added_to_asyncio_later(monkeypatch):
    monkeypatch.setattr(asyncio, "added", 1, raising=False)
    assert compiled_asyncio.added == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio makes no names on demand")
def test_names_that_asyncio_makes_on_demand(aio):
    """Each deprecation warning is about the line that names the object."""
    deprecated = "AbstractEventLoopPolicy" if sys.version_info >= (3, 14) else "AbstractChildWatcher"
    if not hasattr(asyncio, "__getattr__") or sys.version_info >= (3, 16):
        pytest.skip("asyncio has no such name on this Python")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, line = getattr(aio, deprecated), inspect.currentframe().f_lineno
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found is getattr(asyncio, deprecated)
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)] * len(caught)


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_object_is_described_as_asyncios(name):
    ours, own = getattr(compiled_asyncio, name), getattr(asyncio, name)
    assert (ours.__name__, ours.__qualname__, ours.__module__) == (own.__name__, own.__qualname__, own.__module__)
    assert ours.__doc__ == own.__doc__
    # open_connection() and its like are copies of asyncio's functions that use compiled classes.
    assert repr(ours) == repr(own) or type(ours) is types.FunctionType
    assert inspect.signature(ours) == inspect.signature(own)
    if isinstance(own, type):
        assert issubclass(ours, own)


def test_a_compiled_function_is_pickled_as_itself():
    objects = [getattr(compiled_asyncio, name) for name in NAMES]
    functions = [each for each in objects if type(each).__name__ == "CompiledFunction"]
    for function in [*functions, compiled_asyncio.Queue.put, compiled_asyncio.Queue.__init__]:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(function, protocol)) is function


@pytest.mark.skipif(not PAGE.exists(), reason="the documents are not here")
def test_the_page_names_what_is_compiled():
    _, _, table = PAGE.read_text(encoding="utf-8").partition("## What is compiled\n")
    rows = [line.split("|")[2] for line in table.partition("\n\n`python")[0].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)(?:\(\))?`", row)} - {"asyncio"}
    # Forms for Unix sockets have no name of their own on the page.
    assert {name.replace("_unix_", "_") for name in NAMES} <= named <= set(dir(asyncio))


def test_import_hotloop_alone_changes_nothing():
    source = """if True:
        import asyncio, sys
        before = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith("asyncio")}
        import hotloop
        hotloop.run, hotloop.EventLoop
        assert "hotloop.asyncio" not in sys.modules
        import hotloop.asyncio
        for name, names in before.items():
            for each, value in names.items():
                assert vars(sys.modules[name])[each] is value, (name, each)
        async def main():
            assert type(asyncio.Queue()) is not hotloop.asyncio.Queue
        hotloop.run(main())
    """
    interpreter(source)


def test_ways_of_import():
    import hotloop.asyncio as module
    from hotloop import asyncio as attribute
    from hotloop.asyncio import Queue

    assert module is attribute is importlib.import_module("hotloop.asyncio")
    assert Queue is module.Queue is not asyncio.Queue


def test_a_program():
    source = """if True:
        from hotloop import asyncio
        async def main():
            queue = asyncio.Queue()
            async with asyncio.timeout(10):
                await queue.put(1)
                print(await queue.get(), *await asyncio.gather(asyncio.sleep(0, 2), asyncio.sleep(0, 3)))
        asyncio.run(main())
    """
    assert interpreter(source) == "1 2 3"


def test_without_the_extension_all_objects_are_asyncios_own():
    source = """if True:
        import asyncio, hotloop, hotloop.asyncio
        assert all(getattr(hotloop.asyncio, name) is getattr(asyncio, name) for name in asyncio.__all__)
        print(hotloop.compiled_asyncio())
    """
    assert interpreter(source, HOTLOOP_IMPL="python") == (
        "CompiledAsyncio(available=False, reason='the pure implementation is in use: HOTLOOP_IMPL=python', "
        "installed=False, names=(), imported_earlier=())"
    )
