"""The public names: what they are on each implementation, how one is chosen, and that using them causes no warning."""

import asyncio
import inspect
import os
import select
import subprocess
import sys
from importlib.resources import files

import pytest

import hotloop

ONLY_OURS = pytest.mark.only("c", "python", reason="asyncio has none of these names")

# A missing compiled module, and one that does not load, whichever is actually installed.
WITHOUT_EXTENSION = """
import sys
sys.modules["hotloop._c.scheduler.ready_queue"] = None
"""
BROKEN_EXTENSION = """
import sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("hotloop._c."):
            raise {error}

sys.meta_path.insert(0, Broken())
"""


def interpreter(source, *options, implementation=""):
    """Run `source` in a fresh interpreter, the implementation chosen by HOTLOOP_IMPL alone."""
    environ = os.environ | {"HOTLOOP_IMPL": implementation}
    command = [sys.executable, *options, "-c", source]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def output(source, *options, implementation=""):
    done = interpreter(source, *options, implementation=implementation)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


class TestNames:
    def test_all_names_are_there(self):
        expected = {
            "run",
            "new_event_loop",
            "install",
            "EventLoop",
            "EventLoopPolicy",
            "Future",
            "Task",
            "Metrics",
            "DefaultSelector",
            "implementation",
            "Stall",
            "watch_stalls",
            "format_tasks",
            "dump_tasks_on",
            "allow_inspection",
            "compiled_asyncio",
            "CompiledAsyncio",
        }
        expected |= {"EpollSelector"} if hasattr(select, "epoll") else set()
        expected |= {"KqueueSelector"} if hasattr(select, "kqueue") else set()
        assert set(hotloop.__all__) == expected
        assert expected <= set(dir(hotloop))
        assert "__version__" in dir(hotloop)

    def test_unknown_name(self):
        with pytest.raises(AttributeError, match="module 'hotloop' has no attribute 'Loop'"):
            hotloop.Loop  # noqa: B018

    def test_typing_information_is_installed(self):
        package = files("hotloop")
        assert package.joinpath("py.typed").is_file()
        for name in ("scheduler/ready_queue", "tasks/future", "poller/selector", "system/address", "loop/loop_core"):
            assert package.joinpath("_c", f"{name}.pyi").is_file()

    @ONLY_OURS
    def test_each_name_on_each_implementation(self, impl):
        impl.run_script("""if True:
            import hotloop
            from hotloop import *
            package = "hotloop._c" if impl.name == "c" else "hotloop._pure"
            assert hotloop.implementation == implementation == impl.name
            assert issubclass(EventLoop, asyncio.SelectorEventLoop)
            assert EventLoop.__qualname__ == "EventLoop" and EventLoop.__module__ == "hotloop.loop"
            assert EventLoop.__mro__[1].__module__ == package + ".network.network_core", EventLoop.__mro__
            assert hotloop.Future is impl.Future and hotloop.Task is impl.Task
            assert hotloop.DefaultSelector is impl.DefaultSelector
            assert hotloop.run is run and hotloop.run is run
        """)


class TestChoice:
    @pytest.mark.promise("P05")
    @pytest.mark.skipif(
        asyncio.Task is asyncio.tasks._PyTask, reason="the next test is about interpreters like this one"
    )
    def test_without_the_extension_the_names_are_the_same(self):
        """Without a warning: this is how the pure wheel is meant to be used."""
        source = (
            WITHOUT_EXTENSION
            + """if True:
            import asyncio, hotloop
            from hotloop import *
            async def main():
                future = asyncio.get_running_loop().create_future()
                return hotloop.Task, type(asyncio.current_task()), hotloop.Future, type(future)
            classes = hotloop.run(main())
            [core] = {each.__module__ for each in hotloop.EventLoop.__mro__ if each.__name__ == "NetworkCore"}
            print(hotloop.implementation, core)
            # Never slower than without hotloop: where the interpreter has compiled classes, they are in use.
            assert classes == (asyncio.Task, asyncio.Task, asyncio.Future, asyncio.Future), classes
        """
        )
        assert output(source, "-W", "error") == "python hotloop._pure.network.network_core"

    def test_interpreter_without_compiled_tasks(self):
        """PyPy is such an interpreter; the test hides CPython's accelerator instead."""
        source = (
            WITHOUT_EXTENSION
            + """if True:
            sys.modules["_asyncio"] = None
            import asyncio, hotloop
            async def main():
                return type(asyncio.current_task()), type(asyncio.get_running_loop().create_future())
            print(*(cls.__module__ for cls in (hotloop.Task, hotloop.Future)))
            asyncio.run(asyncio.sleep(0))
        """
        )
        assert output(source) == "hotloop._pure.tasks.task hotloop._pure.tasks.future"

    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            ("ImportError('undefined symbol: PyNothing')", "ImportError: undefined symbol: PyNothing"),
            ("ValueError('ready.Handle size changed')", "ValueError: ready.Handle size changed"),
        ],
    )
    def test_an_extension_that_does_not_load_is_never_lost_silently(self, error, cause):
        source = BROKEN_EXTENSION.format(error=error) + "import hotloop; print(hotloop.implementation)"
        done = interpreter(source)
        assert (done.returncode, done.stdout) == (0, "python\n")
        warning = f"RuntimeWarning: hotloop's compiled extension does not load, falling back to Python ({cause})"
        assert warning in done.stderr

    def test_an_incomplete_extension_is_a_broken_one(self):
        source = """if True:
            import sys, types
            for part in ("scheduler.ready_queue", "scheduler.handles", "scheduler.timers"):
                sys.modules["hotloop._c." + part] = types.ModuleType(part)
            sys.modules["hotloop._c.tasks.future"] = None
            import hotloop
            print(hotloop.implementation)
        """
        done = interpreter(source)
        assert (done.returncode, done.stdout) == (0, "python\n")
        assert "RuntimeWarning: hotloop's compiled extension does not load" in done.stderr

    @pytest.mark.parametrize("asked", ["", "asyncio", "hotloop"])
    def test_without_the_extension_one_variable_decides_whose_tasks_are_used(self, asked):
        source = f"import os; os.environ['HOTLOOP_TASKS'] = {asked!r}" + WITHOUT_EXTENSION
        source += """if True:
            import asyncio, hotloop
            async def main():
                return type(asyncio.current_task())
            print(hotloop.run(main()) is hotloop.Task, hotloop.Task is asyncio.Task, hotloop.Future is asyncio.Future)
        """
        own = "False False" if asked == "hotloop" else "True True"
        assert output(source) == f"True {own}"

    @pytest.mark.parametrize(
        ("prelude", "cause"),
        [
            (WITHOUT_EXTENSION, "no compiled extension is installed for this interpreter"),
            (BROKEN_EXTENSION.format(error="ImportError('undefined symbol')"), "undefined symbol"),
        ],
    )
    def test_asking_for_the_extension_where_there_is_none(self, prelude, cause):
        source = prelude + "import hotloop; hotloop.new_event_loop()"
        done = interpreter(source, implementation="c")
        assert done.returncode == 1
        message = done.stderr.strip().splitlines()[-1]
        assert message.startswith("ImportError: HOTLOOP_IMPL=c cannot be met: ")
        assert cause in message

    def test_unknown_implementation(self):
        done = interpreter("from hotloop import run", implementation="rust")
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1] == (
            "ImportError: HOTLOOP_IMPL must be 'c' or 'python', or unset for the automatic choice; it is 'rust'"
        )

    def test_asking_for_python_does_not_load_the_extension(self):
        source = """if True:
            import sys, hotloop
            hotloop.new_event_loop().close()
            print(hotloop.implementation, [name for name in sys.modules if name.startswith("hotloop._c.")])
        """
        assert output(source, "-W", "error", implementation="python") == "python []"

    def test_importing_the_package_chooses_nothing_yet(self):
        """`python -m hotloop --impl` depends on it."""
        source = "import sys, hotloop; print([name for name in sys.modules if name.startswith('hotloop.')])"
        assert output(source) == "[]"


class TestEventLoop:
    @ONLY_OURS
    def test_default_selector(self, impl, loop):
        assert type(loop._selector) is impl.DefaultSelector

    def test_given_selector(self, impl):
        """Any object with the API of the selectors module."""
        import selectors

        for selector in (selectors.SelectSelector(), selectors.PollSelector(), impl.DefaultSelector()):
            loop = impl.EventLoop(selector)
            assert loop._selector is selector
            loop.call_soon(loop.stop)
            loop.run_forever()
            loop.close()
            assert selector.get_map() is None

    @ONLY_OURS
    def test_keyword(self, impl):
        loop = impl.EventLoop(selector=None)
        assert type(loop._selector) is impl.DefaultSelector
        loop.close()

    def test_attributes_can_be_set(self, loop):
        """Test suites replace methods of the instance."""
        loop.anything = 1
        loop.getaddrinfo = None
        assert loop.anything == 1

    def test_subclass(self, impl):
        class Loop(impl.EventLoop):
            def __init__(self, number):
                super().__init__()
                self.number = number

            def call_soon(self, *args, **keywords):
                calls.append(args[0])
                return super().call_soon(*args, **keywords)

        calls = []
        loop = Loop(3)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        assert (loop.number, calls) == (3, [loop.stop])


@ONLY_OURS
class TestPluggingIn:
    @pytest.mark.promise("P06")
    @pytest.mark.parametrize(
        "how",
        [
            "hotloop.run(main())",
            "hotloop.run(main(), debug=True)",
            "with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner: runner.run(main())",
            "with asyncio.Runner(loop_factory=hotloop.EventLoop) as runner: runner.run(main())",
            pytest.param(
                "asyncio.run(main(), loop_factory=hotloop.new_event_loop)",
                marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio.run() without loop_factory"),
            ),
            "loop = hotloop.new_event_loop(); loop.run_until_complete(main()); loop.close()",
        ],
    )
    def test_no_warning_and_no_policy(self, impl, how):
        impl.run_script(f"""if True:
            import hotloop
            async def main():
                assert type(asyncio.get_running_loop()) is hotloop.EventLoop
                assert type(asyncio.current_task()) is impl.Task
            {how}
            assert "hotloop.policy" not in sys.modules
        """)


@ONLY_OURS
class TestRun:
    def test_result_and_debug(self, impl):
        impl.run_script("""if True:
            import hotloop
            async def main():
                return asyncio.get_running_loop().get_debug()
            assert hotloop.run(main()) is False
            assert hotloop.run(main(), debug=True) is True
            assert hotloop.run(main(), debug=False) is False
        """)

    def test_cleans_up_as_asyncio_run_does(self, impl):
        impl.run_script("""if True:
            import hotloop
            events = []
            async def wait(name):
                try:
                    await asyncio.sleep(30)
                finally:
                    events.append(name)
            async def generate():
                try:
                    yield
                finally:
                    events.append("generator")
            async def main():
                global loop, background
                loop = asyncio.get_running_loop()
                background = asyncio.create_task(wait("task"))
                await anext(generate())
                raise LookupError("text")
            try:
                hotloop.run(main())
            except LookupError as error:
                events.append(str(error))
            assert sorted(events) == ["generator", "task", "text"], events
            assert loop.is_closed() and background.cancelled()
        """)

    def test_not_inside_a_running_loop(self, impl):
        impl.run_script("""if True:
            import hotloop
            async def main():
                other = asyncio.sleep(0)
                try:
                    hotloop.run(other)
                except RuntimeError as error:
                    assert str(error) == "hotloop.run() cannot be called from a running event loop"
                else:
                    raise AssertionError
                await other
            hotloop.run(main())
        """)

    def test_not_a_coroutine(self, impl):
        """The same exception as from asyncio, which accepts more kinds of objects in later versions."""
        impl.run_script("""if True:
            import hotloop
            errors = []
            for run in (asyncio.run, hotloop.run):
                try:
                    run(print)
                except Exception as error:
                    errors.append((type(error), str(error)))
            assert len(errors) == 2 and errors[0] == errors[1], errors
        """)

    def test_signature(self):
        assert str(inspect.signature(hotloop.run)).startswith("(main: collections.abc.Coroutine")
        assert inspect.signature(hotloop.run).parameters["debug"].kind is inspect.Parameter.KEYWORD_ONLY
