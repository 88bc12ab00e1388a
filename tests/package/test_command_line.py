"""`python -m hotloop` runs a program as plain python does: plain python is the oracle, and both must agree to the
letter.

TestSubstitution tests the intended differences: the event loop and the selector that the program gets.
"""

import dataclasses
import json
import os
import platform
import py_compile
import signal
import ssl
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from support.implementations import expected_backend

import hotloop

pytestmark = pytest.mark.only("c", "python", reason="every test here compares with plain python")

SECONDS_BEFORE_A_PROGRAM_HANGS = 60


@dataclasses.dataclass
class Outcome:
    returncode: int
    stdout: str
    stderr: str


class Interpreter:
    """Runs command lines in a folder of their own, with plain python or through hotloop."""

    def __init__(self, folder: Path, implementation: str) -> None:
        self.folder = folder
        self.implementation = implementation

    def write(self, name: str, source: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))

    def execute(self, *words: str, **environment: str) -> Outcome:
        ours = ("HOTLOOP_IMPL", "PYTHONASYNCIODEBUG")
        environ = {name: value for name, value in os.environ.items() if name not in ours}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=environ | environment,
            stdin=subprocess.DEVNULL,  # python -i reads it
            capture_output=True,
            text=True,
            timeout=SECONDS_BEFORE_A_PROGRAM_HANGS,
            # Background shells ignore SIGINT, and so would all their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def plain(self, *words: str, options: tuple[str, ...] = ()) -> Outcome:
        return self.execute(*options, *words)

    def hotloop(self, *words: str, options: tuple[str, ...] = ()) -> Outcome:
        return self.execute(*options, "-m", "hotloop", "--impl", self.implementation, *words)

    def assert_same(self, *words: str, options: tuple[str, ...] = ()) -> Outcome:
        """Run both; they must agree. Return their common outcome."""
        expected = self.plain(*words, options=options)
        assert self.hotloop(*words, options=options) == expected
        return expected

    def output(self, source: str, *before: str, options: tuple[str, ...] = ()) -> str:
        """The output of `source` on hotloop, where it must succeed without a message."""
        self.write("program.py", source)
        done = self.hotloop(*before, "program.py", options=options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()


@pytest.fixture
def python(impl, tmp_path):
    return Interpreter(tmp_path, impl.name)


SHOW_CIRCUMSTANCES = """
    import sys
    print(__name__, __file__, __package__, __spec__ and __spec__.name, type(__loader__), __builtins__)
    print(sys.argv, sys.path)
    print(sorted(globals()), vars(sys.modules["__main__"]) is globals())
"""


class TestCircumstances:
    """Names, paths and arguments as the program sees them."""

    @pytest.mark.parametrize("path", ["program.py", "./program.py", "folder/program.py", "folder/../program.py"])
    def test_script(self, python, path):
        python.write("folder/program.py", SHOW_CIRCUMSTANCES)
        python.write("program.py", SHOW_CIRCUMSTANCES)
        assert python.assert_same(path, "argument", "--impl", "-x", "").returncode == 0

    def test_absolute_path(self, python):
        python.write("folder/program.py", SHOW_CIRCUMSTANCES)
        python.assert_same(str(python.folder / "folder" / "program.py"))

    def test_symbolic_link(self, python):
        python.write("real/program.py", SHOW_CIRCUMSTANCES)
        (python.folder / "link.py").symlink_to("real/program.py")
        python.assert_same("link.py")

    def test_safe_path(self, python):
        python.write("folder/program.py", SHOW_CIRCUMSTANCES)
        python.assert_same("folder/program.py", options=("-P",))

    def test_folder_and_zip_file(self, python):
        python.write("folder/__main__.py", SHOW_CIRCUMSTANCES)
        with zipfile.ZipFile(python.folder / "archive.zip", "w") as archive:
            archive.write(python.folder / "folder" / "__main__.py", "__main__.py")
        for options in ((), ("-P",)):
            assert python.assert_same("folder", "argument", options=options).returncode == 0
            assert python.assert_same("archive.zip", "argument", options=options).returncode == 0

    def test_folder_without_main(self, python):
        (python.folder / "folder").mkdir()
        assert python.assert_same("folder").returncode == 1

    def test_compiled_file(self, python):
        python.write("program.py", SHOW_CIRCUMSTANCES)
        py_compile.compile(str(python.folder / "program.py"), cfile=str(python.folder / "program.pyc"))
        assert python.assert_same("program.pyc", "argument").returncode == 0

    def test_module(self, python):
        python.write("module.py", SHOW_CIRCUMSTANCES)
        assert python.assert_same("-m", "module", "argument", "-m", "--debug").returncode == 0
        assert python.assert_same("-mmodule").returncode == 0

    def test_package(self, python):
        python.write("package/__init__.py", "import sys; print(sys.argv)")
        python.write("package/__main__.py", SHOW_CIRCUMSTANCES)
        python.write("package/part.py", SHOW_CIRCUMSTANCES)
        assert python.assert_same("-m", "package", "argument").returncode == 0
        assert python.assert_same("-m", "package.part").returncode == 0

    @pytest.mark.parametrize("name", ["missing", "package", "package.missing", "missing.part", "program.py"])
    def test_module_that_is_not_there(self, python, name):
        python.write("package/__init__.py", "")
        python.write("program.py", "")
        assert python.assert_same("-m", name).returncode == 1

    def test_main_is_importable(self, python):
        """Classes of the program can be pickled and its source inspected."""
        python.write(
            "program.py",
            """
            import dataclasses, inspect, pickle, sys

            @dataclasses.dataclass
            class Point:
                x: int
                y: "int"

            point = Point(1, 2)
            import __main__
            print(__main__.Point is Point, pickle.loads(pickle.dumps(point)) == point)
            print(inspect.getsource(Point), inspect.getmodule(Point) is sys.modules["__main__"])
            """,
        )
        assert python.assert_same("program.py").returncode == 0

    @pytest.mark.parametrize("how", ["spawn", "forkserver"])
    def test_multiprocessing(self, python, how):
        python.write(
            "program.py",
            f"""
            import multiprocessing

            class Number:
                def __init__(self, value):
                    self.value = value

            def double(number):
                return Number(2 * number.value)

            if __name__ == "__main__":
                with multiprocessing.get_context({how!r}).Pool(1) as pool:
                    print([number.value for number in pool.map(double, [Number(1), Number(2)])])
            """,
        )
        assert python.assert_same("program.py").stdout == "[2, 4]\n"
        assert python.assert_same("-m", "program").stdout == "[2, 4]\n"


class TestEnd:
    """Exit codes, and the output about an uncaught exception."""

    @pytest.mark.parametrize("argument", ["", "None", "0", "3", "256", "-1", "'text'", "(1, 2)", "True"])
    def test_exit(self, python, argument):
        python.write("program.py", f"import atexit, sys; atexit.register(print, 'last'); sys.exit({argument})")
        python.assert_same("program.py")

    def test_exit_from_a_task(self, python):
        python.write(
            "program.py",
            """
            import asyncio, sys

            async def main():
                asyncio.get_running_loop().call_soon(sys.exit, 7)
                await asyncio.sleep(30)

            asyncio.run(main())
            """,
        )
        assert python.hotloop("program.py").returncode == python.plain("program.py").returncode == 7

    UNCAUGHT = """
        def fail():
            try:
                {}["key"]
            except KeyError as error:
                raise ExceptionGroup("several", [ValueError("one"), TypeError("two")]) from error

        fail()
    """

    def test_traceback(self, python):
        python.write("program.py", self.UNCAUGHT)
        assert python.assert_same("program.py").returncode == 1
        assert python.assert_same("-m", "program").returncode == 1

    def test_traceback_of_a_folder(self, python):
        python.write("folder/__main__.py", self.UNCAUGHT)
        assert python.assert_same("folder").returncode == 1

    @pytest.mark.parametrize("source", ["print(", "x = = 1", "\0", "return", "from __future__ import nothing"])
    def test_syntax_error(self, python, source):
        python.write("program.py", source)
        plain, ours = python.plain("program.py"), python.hotloop("program.py")
        assert plain.returncode == ours.returncode == 1
        # Another reader finds a null byte, and reports it in other words.
        assert ours.stderr == plain.stderr or (source == "\0" and "null bytes" in ours.stderr)
        assert "Traceback" not in ours.stderr

    def test_exception_hook(self, python):
        python.write(
            "program.py",
            """
            import atexit, sys, traceback

            def hook(kind, error, tb):
                print("hook", kind, error, error.__traceback__ is tb, traceback.format_tb(tb))
                print(sys.last_value is error, traceback.format_tb(sys.last_traceback))

            sys.excepthook = hook
            atexit.register(lambda: print(sys.excepthook is hook, sys.last_value))
            raise ValueError("text")
            """,
        )
        assert python.assert_same("program.py").returncode == 1

    def test_the_exception_hook_after_an_exit(self, python):
        python.write(
            "program.py",
            """
            import atexit, sys
            atexit.register(lambda: print(sys.excepthook is sys.__excepthook__))
            sys.exit(3)
            """,
        )
        for words in (["program.py"], ["-m", "program"]):
            assert python.assert_same(*words).returncode == 3
            assert "in <module>" in python.plain(*words, options=("-i",)).stderr
            python.assert_same(*words, options=("-i",))

    def test_failing_exception_hook(self, python):
        python.write(
            "program.py",
            """
            import sys
            def hook(*ignored):
                1 / 0
            sys.excepthook = hook
            raise ValueError("text")
            """,
        )
        plain, ours = python.plain("program.py"), python.hotloop("program.py")
        assert plain.returncode == ours.returncode == 1
        assert "Error in sys.excepthook:" in ours.stderr
        assert ours.stderr.partition("Original exception was:")[2].endswith("ValueError: text\n")

    def test_keyboard_interrupt(self, python):
        python.write("program.py", "import atexit; atexit.register(print, 'last')\nraise KeyboardInterrupt")
        assert python.assert_same("program.py").returncode == -signal.SIGINT
        assert python.assert_same("-m", "program").returncode == -signal.SIGINT

    def test_ctrl_c_in_a_running_loop(self, python):
        python.write(
            "program.py",
            """
            import asyncio, os, signal

            async def main():
                try:
                    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
                    await asyncio.sleep(30)
                finally:
                    print("cleaned up")

            asyncio.run(main())
            """,
        )
        plain, ours = python.plain("program.py"), python.hotloop("program.py")
        assert plain.returncode == ours.returncode == -signal.SIGINT
        assert plain.stdout == ours.stdout == "cleaned up\n"
        assert "hotloop/cli" not in ours.stderr

    def test_threads_are_waited_for(self, python):
        python.write(
            "program.py",
            """
            import atexit, threading
            ended = threading.Event()
            threading.Thread(target=lambda: (ended.wait(), print("thread"))).start()
            atexit.register(print, "atexit")
            threading._register_atexit(ended.set)
            raise ValueError
            """,
        )
        assert python.assert_same("program.py").stdout == "thread\natexit\n"


WAYS_TO_A_LOOP = {
    "run": "asyncio.run(main())",
    "Runner": "with asyncio.Runner() as runner: runner.run(main())",
    "new_event_loop": "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close()",
    "SelectorEventLoop": "loop = asyncio.SelectorEventLoop(); loop.run_until_complete(main()); loop.close()",
    "a given selector": (
        "loop = asyncio.SelectorEventLoop(selectors.SelectSelector()); loop.run_until_complete(main()); loop.close()"
    ),
    "set_event_loop": (
        "loop = asyncio.new_event_loop(); asyncio.set_event_loop(loop); "
        "asyncio.get_event_loop().run_until_complete(main()); loop.close()"
    ),
    "IsolatedAsyncioTestCase": (
        "import unittest\nclass Case(unittest.IsolatedAsyncioTestCase):\n    async def test(self): await main()\n"
        "unittest.TextTestRunner(open(os.devnull, 'w')).run(Case('test'))"
    ),
}
if sys.version_info >= (3, 12):
    WAYS_TO_A_LOOP["loop_factory"] = "asyncio.run(main(), loop_factory=None)"
if sys.version_info >= (3, 13):
    WAYS_TO_A_LOOP["EventLoop"] = "asyncio.run(main(), loop_factory=asyncio.EventLoop)"


class TestSubstitution:
    """The differences from plain python: the program's loops and selectors are hotloop's."""

    @pytest.mark.parametrize("how", WAYS_TO_A_LOOP)
    def test_event_loop(self, python, how):
        source = "import asyncio, os, selectors\nasync def main(): print(type(asyncio.get_running_loop()).__module__)\n"
        options = ("-W", "error", "-W", "ignore::ResourceWarning")
        assert python.output(source + WAYS_TO_A_LOOP[how], options=options) == "hotloop.loop"

    def test_selector(self, python):
        source = """
            import selectors, hotloop
            from selectors import DefaultSelector
            print(DefaultSelector is hotloop.DefaultSelector, DefaultSelector.__module__)
        """
        module = "hotloop._c.poller.selector" if python.implementation == "c" else "hotloop._pure.poller.selector"
        if python.implementation == "c" and os.environ.get("HOTLOOP_POLLER") == "none":
            module = "selectors"  # an extension that leaves polling to the standard library
        assert python.output(source) == f"True {module}"

    def test_get_event_loop_at_import(self, python):
        """Python 3.14 and later make none. Here the program gets one on every version, and the same one again."""
        source = """
            import asyncio
            loop = asyncio.get_event_loop()
            future = asyncio.Future()

            async def main():
                assert asyncio.get_running_loop() is loop is future.get_loop()
                return type(loop).__module__

            assert asyncio.get_event_loop() is loop
            print(loop.run_until_complete(main()))
            loop.close()
        """
        # 3.12 and 3.13 warn the program, with or without hotloop.
        expected = ("-W", "ignore:There is no current event loop") if sys.version_info < (3, 14) else ()
        options = ("-W", "error", *expected)
        assert python.output(source, options=options) == "hotloop.loop"

    @pytest.mark.parametrize(
        "before",
        [
            "asyncio.run(asyncio.sleep(0))",
            "asyncio.set_event_loop(None)",
            "import threading",
        ],
    )
    def test_no_event_loop_where_there_never_was_one(self, python, before):
        """It raises once a loop was set or unset, and in other threads: as when loops were made implicitly."""
        source = f"""
            import asyncio, threading
            {before}
            def ask():
                try:
                    asyncio.get_event_loop()
                except RuntimeError as error:
                    print(error)
            if "threading" in {before!r}:
                thread = threading.Thread(target=ask, name="MainThread")
                thread.start()
                thread.join()
            else:
                ask()
        """
        assert python.output(source) == "There is no current event loop in thread 'MainThread'."

    def test_a_policy_that_the_program_sets_wins(self, python):
        source = """
            import asyncio, warnings
            from asyncio.unix_events import _UnixSelectorEventLoop
            warnings.simplefilter("ignore", DeprecationWarning)

            class Policy(asyncio.DefaultEventLoopPolicy):
                def new_event_loop(self):
                    return _UnixSelectorEventLoop()

            asyncio.set_event_loop_policy(Policy())
            async def main():
                return type(asyncio.get_running_loop()).__module__
            print(asyncio.run(main()))
            asyncio.set_event_loop_policy(None)
            print(asyncio.run(main()))
        """
        assert python.output(source) == "asyncio.unix_events\nhotloop.loop"

    def test_implementation_reaches_child_processes(self, python):
        source = """
            import subprocess, sys
            subprocess.run([sys.executable, "-c", "import hotloop; print(hotloop.implementation)"])
        """
        assert python.output(source) == python.implementation

    def test_debug_mode(self, python):
        source = """
            import asyncio
            async def main():
                return asyncio.get_running_loop().get_debug()
            print(asyncio.run(main()))
        """
        assert python.output(source) == "False"
        assert python.output(source, "--debug") == "True"

    def test_hotloop_runs_itself(self, python):
        python.write("program.py", SHOW_CIRCUMSTANCES)
        plain, ours = python.plain("program.py"), python.hotloop("-m", "hotloop", "program.py")
        assert ours.stdout == plain.stdout


class TestInfo:
    def test_text(self, python):
        done = python.hotloop("info")
        assert (done.returncode, done.stderr) == (0, "")
        facts = dict(line.split(None, 1) for line in done.stdout.splitlines())
        assert facts["hotloop"] == hotloop.__version__
        assert facts["implementation"] == python.implementation
        assert facts["backend"] == expected_backend(python.implementation)
        assert facts["tls"].startswith(ssl.OPENSSL_VERSION)
        assert facts["python"] == f"{platform.python_implementation()} {platform.python_version()}"

    def test_json(self, python):
        facts = json.loads(python.hotloop("info", "--json").stdout)
        assert facts["implementation"] == python.implementation
        assert facts["reason"] == f"HOTLOOP_IMPL={python.implementation}"
        assert facts["tasks"] == "hotloop's"

    def test_asyncios_tasks(self, python):
        facts = json.loads(python.execute("-m", "hotloop", "--tasks", "asyncio", "info", "--json").stdout)
        assert facts["tasks"] == "asyncio's"

    def test_version(self, python):
        assert python.hotloop("--version") == Outcome(0, f"hotloop {hotloop.__version__}\n", "")

    @pytest.mark.parametrize("words", [["--help"], ["info", "-h"], ["top", "--once", "--help"], ["ps", "-h"]])
    def test_help(self, python, words):
        done = python.hotloop(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: python -m hotloop ")


class TestWrongUsage:
    """One line on stderr, exit code 2."""

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ((), "which program"),
            (("--impl",), "--impl needs a value"),
            (("--impl", "rust", "program.py"), "--impl must be c or python, not 'rust'"),
            (("--impl=", "program.py"), "--impl must be c or python, not ''"),
            (("--fast", "program.py"), "unknown option '--fast'"),
            (("-c", "print()"), "unknown option '-c'"),
            (("-m",), "-m needs the name of a module"),
            (("info", "more"), "info takes no argument but --json, not 'more'"),
            (("--debug", "top"), "top takes its options behind its name"),
            (("missing.py",), "can't open file '{folder}/missing.py': [Errno 2] No such file or directory"),
        ],
    )
    def test_message(self, python, words, complaint):
        done = python.execute("-m", "hotloop", *words, HOTLOOP_IMPL=python.implementation)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("hotloop: " + complaint.format(folder=python.folder))
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("variable", "complaint"),
        [("HOTLOOP_IMPL", "must be 'c' or 'python'"), ("HOTLOOP_TLS", "must be 'ssl' or unset")],
    )
    def test_environment_variable(self, python, variable, complaint):
        python.write("program.py", "")
        done = python.execute("-m", "hotloop", "program.py", **{variable: "rust"})
        assert done.returncode == 2
        assert done.stderr.startswith(f"hotloop: {variable} {complaint}")
        assert done.stderr.count("\n") == 1

    def test_debug_without_an_environment(self, python):
        python.write("program.py", "")
        source = "import sys; from hotloop.cli.main import main; sys.exit(main(['--debug', 'program.py']))"
        path = os.pathsep.join(sys.path)
        done = python.execute("-E", "-c", f"import sys; sys.path[:] = {path!r}.split({os.pathsep!r}); {source}")
        assert done.returncode == 2
        assert done.stderr.startswith("hotloop: --debug has no effect under python -E")
