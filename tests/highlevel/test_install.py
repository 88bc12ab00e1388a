"""The compiled objects in asyncio's place: by the command line, run(), install() and the environment alone."""

import json
import os
import subprocess
import sys

import pytest

import hotloop

NAMES = list(hotloop.compiled_asyncio().names)
DEPRECATED_POLICY = ("-W", "ignore:'asyncio.set_event_loop_policy' is deprecated:DeprecationWarning")

# In the programs of this file: whether asyncio's Queue is hotloop's.
PRELUDE = """
import asyncio, hotloop
def installed():
    state = hotloop.compiled_asyncio()
    assert state.installed == (type(asyncio.Queue.put).__name__ == "CompiledFunction")
    return state.installed
"""


class Interpreter:
    """New interpreters in a folder of their own."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        self.folder.joinpath(name).write_text(text, encoding="utf-8")

    def run(self, *words, **environ):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_COMPILED")}
        return subprocess.run(
            [sys.executable, "-W", "error", *words],
            env=clean | environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def output(self, *words, **environ):
        done = self.run(*words, **environ)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def source(self, source, *options, **environ):
        return self.output(*options, "-c", PRELUDE + source, **environ)


@pytest.fixture
def python(tmp_path):
    return Interpreter(tmp_path)


class TestHow:
    PROGRAM = PRELUDE + "print(installed(), *__import__('sys').argv[1:])"

    def test_command_line(self, python):
        python.write("program.py", self.PROGRAM)
        assert python.output("-m", "hotloop", "program.py") == "False"
        assert python.output("-m", "hotloop", "--compiled-asyncio", "program.py") == "True"
        assert python.output("-m", "hotloop", "--debug", "--compiled-asyncio", "-m", "program", "one") == "True one"
        assert python.output("-m", "hotloop", "program.py", "--compiled-asyncio") == "False --compiled-asyncio"

    def test_before_the_program_imports_asyncio(self, python):
        python.write(
            "program.py", "from asyncio import Queue, Event, queues\nprint(type(Queue.put), Queue is queues.Queue)"
        )
        done = python.output("-m", "hotloop", "--compiled-asyncio", "program.py")
        assert done == "<class 'hotloop.CompiledFunction'> True"

    def test_run(self, python):
        source = """
async def main():
    return installed()
print(hotloop.run(main()), hotloop.run(main(), compiled_asyncio=False), hotloop.run(main(), compiled_asyncio=True))
print(installed(), hotloop.run(main(), compiled_asyncio=False))
"""
        assert python.source(source).split() == ["False", "False", "True", "True", "True"]

    def test_run_that_is_refused_changes_nothing(self, python):
        source = """
async def main():
    try:
        hotloop.run(None, compiled_asyncio=True)
    except RuntimeError as error:
        print(error)
    return installed()
print(hotloop.run(main()))
"""
        assert python.source(source).splitlines() == [
            "hotloop.run() cannot be called from a running event loop",
            "False",
        ]

    @pytest.mark.skipif(sys.version_info >= (3, 16), reason="Python 3.16 has no policies")
    def test_install(self, python):
        source = "hotloop.install(); print(installed()); hotloop.install(compiled_asyncio=True); print(installed())"
        assert python.source(source, *DEPRECATED_POLICY).split() == ["False", "True"]

    def test_install_without_policies_changes_nothing(self, python):
        source = """
from hotloop import policy
policy._Base = None
try:
    hotloop.install(compiled_asyncio=True)
except RuntimeError:
    print(installed())
"""
        assert python.source(source) == "False"

    @pytest.mark.parametrize(("value", "expected"), [("1", "True"), ("Yes", "True"), ("0", "False"), ("", "False")])
    def test_environment(self, python, value, expected):
        """It decides where the program and the command line do not; an import alone does not ask for it."""
        source = """
import hotloop.asyncio
async def main():
    return installed()
print(installed(), hotloop.run(main(), compiled_asyncio=False), hotloop.run(main()))
"""
        assert python.source(source, HOTLOOP_COMPILED_ASYNCIO=value) == f"False False {expected}"
        python.write("program.py", self.PROGRAM)
        assert python.output("-m", "hotloop", "program.py", HOTLOOP_COMPILED_ASYNCIO=value) == expected

    def test_wrong_environment(self, python):
        python.write("program.py", "")
        message = "HOTLOOP_COMPILED_ASYNCIO must be 1 or 0, or unset; it is 'maybe'"
        done = python.run("-m", "hotloop", "program.py", HOTLOOP_COMPILED_ASYNCIO="maybe")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"hotloop: {message} (python -m hotloop --help shows the usage)\n"
        done = python.run("-c", "import hotloop; hotloop.run(None)", HOTLOOP_COMPILED_ASYNCIO="maybe")
        assert done.stderr.endswith(f"ValueError: {message}\n")

    def test_child_processes(self, python):
        """As with the other options: those that use hotloop."""
        python.write("program.py", self.PROGRAM)
        python.write(
            "parent.py",
            """import subprocess, sys
for words in (["-m", "hotloop", "program.py"], ["program.py"]):
    print(subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout, end="")
""",
        )
        done = python.output("-m", "hotloop", "--compiled-asyncio", "parent.py")
        assert done.split() == ["True", "False"]

    def test_twice(self, python):
        source = """
async def main():
    return {name: dict(vars(module)) for name, module in __import__("sys").modules.items() if "asyncio" in name}
first = hotloop.run(main(), compiled_asyncio=True)
assert first == hotloop.run(main(), compiled_asyncio=True)
assert installed()
import hotloop.asyncio, types
for name, value in vars(asyncio).items():
    # open_connection() and its like are copies there, which use compiled classes whether or not these are installed.
    assert name.startswith("__") or type(value) is types.FunctionType or vars(hotloop.asyncio)[name] is value, name
"""
        assert python.source(source) == ""


class TestWhere:
    def test_everywhere_in_asyncio(self, python):
        """asyncio's modules hold no object of their own that is compiled, and everything else as before."""
        source = """
import sys
from hotloop._asyncio import compiled_layer
own = {name: getattr(asyncio, name) for name in hotloop.compiled_asyncio().names}
before = {name: dict(vars(module)) for name, module in sys.modules.items() if name.partition(".")[0] == "asyncio"}
compiled_layer.install()
compiled = {name: getattr(asyncio, name) for name in own}
changed = 0
for module, names in before.items():
    # What checks for asyncio's own class accepts both.
    assert vars(sys.modules[module]).keys() - names.keys() <= {"_OwnStreamReader"}
    for name, value in names.items():
        now = vars(sys.modules[module])[name]
        if any(value is each for each in own.values()):
            assert now is compiled[value.__name__], (module, name)
            changed += 1
        else:
            assert now is value, (module, name)
assert changed >= 2 * len(own), changed
"""
        assert python.source(source) == ""

    def test_asyncios_own_code_uses_them(self, python):
        source = """
async def main():
    class Queue(asyncio.Queue):
        pass
    event = Queue()._finished
    assert type(event) is asyncio.Event
    import hotloop.asyncio
    assert type(event) is hotloop.asyncio.Event
hotloop.run(main(), compiled_asyncio=True)
"""
        assert python.source(source) == ""

    def test_subclasses_and_names_from_before(self, python):
        """What was imported earlier works beside the compiled objects."""
        source = """
from asyncio import Queue
class Own(asyncio.Queue):
    def _put(self, item):
        super()._put(item * 2)
before = Queue()
async def main():
    assert Queue is not asyncio.Queue and issubclass(asyncio.Queue, Queue)
    queues = [before, Queue(), Own(), asyncio.Queue(1)]
    for queue in queues:
        assert isinstance(queue, Queue)
    async def feed():
        for queue in queues:
            for item in range(3):
                await queue.put(item)
    task = asyncio.create_task(feed())
    print(*[await queue.get() for queue in queues for _ in range(3)])
    await task
hotloop.run(main(), compiled_asyncio=True)
"""
        assert python.source(source) == "0 1 2 0 1 2 0 2 4 0 1 2"

    def test_pickling(self, python):
        """A class or function is pickled by its name, so another process takes its own."""
        source = """
import pickle, sys
from hotloop._asyncio import compiled_layer
compiled_layer.install()
for name in hotloop.compiled_asyncio().names:
    value = getattr(asyncio, name)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) is value
queue = asyncio.Queue(3)
queue.put_nowait("item")
sys.stdout.write(repr(pickle.dumps([asyncio.Queue, asyncio.Queue.put, queue])))
"""
        pickled = python.source(source)
        source = f"""
import pickle
cls, put, queue = pickle.loads({pickled})
assert cls is asyncio.Queue and put is asyncio.Queue.put
assert queue.maxsize == 3 and queue.get_nowait() == "item"
print(type(queue) is asyncio.Queue)
"""
        assert python.output("-c", "import asyncio\n" + source) == "True"
        assert python.source("import hotloop.asyncio\n" + source) == "True"


class TestInfo:
    def test_text(self, python):
        for words, expected in (((), "available, in hotloop.asyncio"), (("--compiled-asyncio",), "in asyncio's place")):
            lines = python.output("-m", "hotloop", *words, "info").splitlines()
            facts = dict(line.split(None, 1) for line in lines)
            assert facts["compiled_asyncio"] == expected
            assert facts["compiled_names"].split() == NAMES

    def test_json(self, python):
        facts = json.loads(python.output("-m", "hotloop", "--compiled-asyncio", "info", "--json"))
        assert facts["compiled_asyncio"] == "in asyncio's place"
        assert "imported_earlier" not in facts

    def test_earlier_imports(self, python):
        python.write("sitecustomize.py", "from asyncio import Queue as Q, sleep")
        path = os.pathsep.join(filter(None, [str(python.folder), os.environ.get("PYTHONPATH")]))
        facts = json.loads(python.output("-m", "hotloop", "--compiled-asyncio", "info", "--json", PYTHONPATH=path))
        assert "sitecustomize.Q" in facts["imported_earlier"].split()

    def test_without_compiled_objects(self, python):
        """The program runs on asyncio's own objects, and `info` says why."""
        words = ("-m", "hotloop", "--impl", "python", "--compiled-asyncio")
        python.write("program.py", PRELUDE + "print(installed())")
        assert python.output(*words, "program.py") == "False"
        facts = json.loads(python.output(*words, "info", "--json"))
        assert facts["compiled_asyncio"] == "not available: the pure implementation is in use: HOTLOOP_IMPL=python"

    def test_in_a_program(self, python):
        source = """
from asyncio import Queue, Event as Flag
from types import ModuleType
import sys
sys.modules["odd"] = object()
sys.modules["other"] = ModuleType("other")
sys.modules["other"].PriorityQueue = asyncio.PriorityQueue
async def main():
    pass
state = hotloop.compiled_asyncio()
assert state.available and not state.installed
hotloop.run(main(), compiled_asyncio=True)
state = hotloop.compiled_asyncio()
assert state.available and state.installed and "Queue" in state.names
assert isinstance(state, hotloop.CompiledAsyncio)
print(state.imported_earlier)
"""
        assert python.source(source) == "('__main__.Queue', '__main__.Flag', 'other.PriorityQueue')"

    def test_top_takes_no_such_option(self, python):
        done = python.run("-m", "hotloop", "--compiled-asyncio", "top", "1")
        assert done.returncode == 2
        assert "top takes its options behind its name" in done.stderr
