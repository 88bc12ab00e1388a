"""The pytest plugin: which tests run with virtual time, what they may use, and the messages for wrong ones.

Each test writes test files and has pytest run them in this process. test_pytest_plugin_seeds.py tests seeds, and
test_pytest_plugin_others.py other plugins for asynchronous tests.
"""

import os
import subprocess
import sys

import pytest

# Otherwise the first run would import it, and pytest drops at its end the modules that the run imported, which a
# compiled module does not support.
import hotloop.testing  # noqa: F401
from hotloop import pytest_plugin

PLUGIN = pytest_plugin.__name__


@pytest.fixture
def run(pytester):
    """Have pytest run this source as a test file, warnings being errors."""

    def run(source, *options):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:asyncio", "-W", "error", *options)

    return run


# -- which tests -------------------------------------------------------------------------------------------------------


def test_asynchronous_tests_that_are_ours(run):
    result = run(
        """
        import asyncio, pytest
        import hotloop.testing

        async def an_hour_passes():
            loop = asyncio.get_running_loop()
            assert isinstance(loop, hotloop.testing.EventLoop)
            before = loop.time()
            await asyncio.sleep(3600)
            assert loop.time() == before + 3600

        async def test_a_fixture(hotloop_clock):
            await an_hour_passes()
            assert hotloop_clock is asyncio.get_running_loop().clock

        @pytest.fixture
        def indirect(hotloop_loop):
            return hotloop_loop

        async def test_through_another_fixture(indirect):
            await an_hour_passes()
            assert indirect is asyncio.get_running_loop()

        @pytest.mark.usefixtures("hotloop_loop")
        async def test_usefixtures():
            await an_hour_passes()

        @pytest.mark.hotloop
        async def test_the_marker():
            await an_hour_passes()

        @pytest.mark.hotloop(start=5)
        @pytest.mark.parametrize("number", [1, 2])
        async def test_parameters(number):
            await an_hour_passes()
            assert asyncio.get_running_loop().time() == 3605 and number in (1, 2)

        @pytest.mark.hotloop(start=7)
        class TestOfAClass:
            async def test_method(self, hotloop_clock):
                await an_hour_passes()
                assert hotloop_clock.time() == 3607 and isinstance(self, TestOfAClass)

            @pytest.mark.hotloop(start=9)
            async def test_the_closest_marker(self):
                await an_hour_passes()
                assert asyncio.get_running_loop().time() == 3609

            @staticmethod
            async def test_static():
                await an_hour_passes()

            def test_others_stay_what_they_are(self):
                pass
        """
    )
    result.assert_outcomes(passed=10)


def test_a_module_may_have_the_marker(run):
    result = run(
        """
        import asyncio, pytest
        pytestmark = pytest.mark.hotloop(start=100)

        async def test_async():
            await asyncio.sleep(50)
            assert asyncio.get_running_loop().time() == 150

        def test_sync():
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
        """
    )
    result.assert_outcomes(passed=2)


def test_a_function_that_two_classes_have_is_ours_in_one(run):
    result = run(
        """
        import pytest

        class Base:
            async def test_it(self):
                pass

        @pytest.mark.hotloop
        class TestOurs(Base):
            pass

        class TestUnmarked(Base):
            pass
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*TestUnmarked.test_it*", "*async def functions are not natively supported*"])


def test_a_plain_test_runs_the_loop_itself(run):
    result = run(
        """
        import asyncio, pytest

        @pytest.mark.hotloop(start=1)
        def test_it(hotloop_loop, hotloop_clock):
            assert hotloop_loop.run_until_complete(asyncio.sleep(3600, "slept")) == "slept"
            assert hotloop_clock.time() == 3601
        """
    )
    result.assert_outcomes(passed=1)


def test_a_failure_shows_the_test_and_nothing_of_the_plugin(run):
    result = run(
        """
        async def inner():
            raise ZeroDivisionError

        async def test_it(hotloop_clock):
            await inner()
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">       await inner()", ">       raise ZeroDivisionError"])
    assert os.path.basename(pytest_plugin.__file__) not in result.stdout.str()


# -- its loop ----------------------------------------------------------------------------------------------------------


def test_each_test_has_a_loop_of_its_own_which_is_closed(run):
    result = run(
        """
        import asyncio
        loops = []

        async def sleep(ends):
            try:
                await asyncio.sleep(10**6)
            finally:
                ends.append(asyncio.get_running_loop().time())

        ends = []

        async def test_one(hotloop_loop):
            loops.append(hotloop_loop)
            task = loops[0].create_task(sleep(ends))
            await asyncio.sleep(1)

        async def test_two(hotloop_loop):
            assert hotloop_loop is not loops[0] and loops[0].is_closed()
            assert ends == [1]
        """
    )
    result.assert_outcomes(passed=2)


def test_what_the_marker_says_to_the_loop(run):
    result = run(
        """
        import asyncio, pytest
        from hotloop.testing import DeadlockError

        @pytest.mark.hotloop(debug=True, io_grace=0)
        async def test_debug(hotloop_loop):
            assert hotloop_loop.get_debug() and hotloop_loop._io_grace == 0

        @pytest.mark.hotloop(patience=0.01)
        def test_patience(hotloop_loop, hotloop_clock):
            async def main():
                with hotloop_clock.hold():
                    await asyncio.sleep(1)
            with pytest.raises(DeadlockError):
                hotloop_loop.run_until_complete(main())
        """
    )
    result.assert_outcomes(passed=2)


def test_a_deadlock_beside_a_periodic_task_fails_the_test(run):
    result = run(
        """
        import asyncio, pytest

        async def tick():
            while True:
                await asyncio.sleep(10)

        @pytest.mark.hotloop(max_jumps=100)
        async def test_it():
            task = asyncio.create_task(tick())
            await asyncio.Event().wait()
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DeadlockError: deadlock: the clock has jumped 100 times in this run, to 1000, *"])


def test_a_deadlock_fails_the_test(run):
    result = run(
        """
        import asyncio

        async def test_it(hotloop_clock):
            await asyncio.Event().wait()
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DeadlockError: deadlock: no timer is pending*"])


def test_a_loop_class_of_ones_own(run):
    result = run(
        """
        import pytest
        from hotloop.testing import EventLoop

        class Mine(EventLoop):
            pass

        @pytest.fixture
        def hotloop_loop_class():
            return Mine

        @pytest.mark.hotloop(start=3)
        async def test_it(hotloop_loop):
            assert type(hotloop_loop) is Mine and hotloop_loop.time() == 3
        """
    )
    result.assert_outcomes(passed=1)


def test_a_network_of_its_own(run):
    result = run(
        """
        import asyncio, pytest
        networks = []

        async def echo(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        async def served(network, clock):
            networks.append(network)
            with network.at("server.test"):
                server = await asyncio.start_server(echo, "server.test", 80)
            reader, writer = await asyncio.open_connection("server.test", 80)
            began = clock.time()
            writer.write(b"line\\n")
            assert await reader.readline() == b"line\\n"
            writer.close()
            return clock.time() - began

        async def test_async(hotloop_network, hotloop_clock):
            assert await served(hotloop_network, hotloop_clock) == 0

        @pytest.mark.hotloop(seeds=3)
        async def test_seeds(hotloop_network, hotloop_clock, hotloop_loop):
            hotloop_network.link(latency=0.25)
            assert await served(hotloop_network, hotloop_clock) == 0.5
            assert hotloop_network.seed == hotloop_loop._shuffler.seed

        def test_plain(hotloop_network, hotloop_loop, hotloop_clock):
            assert hotloop_loop.run_until_complete(served(hotloop_network, hotloop_clock)) == 0

        def test_each_had_its_own():
            assert len(set(map(id, networks))) == 5
        """
    )
    result.assert_outcomes(passed=4)


# -- asynchronous fixtures ---------------------------------------------------------------------------------------------


def test_asynchronous_fixtures_run_on_the_loop_of_the_test(run):
    result = run(
        """
        import asyncio, contextvars, pytest
        events = []
        variable = contextvars.ContextVar("variable")

        @pytest.fixture
        async def first(hotloop_clock):
            await asyncio.sleep(10)
            variable.set("of the fixture")
            yield asyncio.get_running_loop()
            await asyncio.sleep(10)
            events.append(("first ends", hotloop_clock.time()))

        @pytest.fixture
        async def second(first):
            assert first is asyncio.get_running_loop()
            await asyncio.sleep(5)
            return "second"

        @pytest.mark.hotloop
        async def test_it(second, first):
            assert (second, first) == ("second", asyncio.get_running_loop())
            assert first.time() == 15 and variable.get() == "of the fixture"
            await asyncio.sleep(100)

        def test_ended():
            assert events == [("first ends", 125)]

        def test_a_plain_test_has_them_too(second, hotloop_clock):
            assert (second, hotloop_clock.time()) == ("second", 15)

        class TestClass:
            @pytest.fixture
            async def method(self):
                self.made = True
                yield self
                assert self.ended

            async def test_it(self, method, hotloop_clock):
                assert method is self and self.made
                self.ended = True
        """
    )
    result.assert_outcomes(passed=4)


def test_context_variables_of_fixtures(run):
    """Each fixture sees what those before it have set, and the test what all have set; asynchronous or not."""
    result = run(
        """
        import contextvars, pytest
        variable = contextvars.ContextVar("variable", default=())

        def fixture(name, *before):
            def plain(request):
                token = variable.set((*variable.get(), name))
                yield
                assert variable.get() == (*before, name)
                variable.reset(token)
            return pytest.fixture(plain)

        one, four = fixture("one"), fixture("four", "one", "two", "three")

        @pytest.fixture
        async def two(one):
            token = variable.set((*variable.get(), "two"))
            yield
            assert variable.get() == ("one", "two")
            variable.reset(token)

        @pytest.fixture
        async def three(two):
            variable.set((*variable.get(), "three"))

        @pytest.fixture
        def all_four(three, four):
            assert variable.get() == ("one", "two", "three", "four")

        @pytest.mark.hotloop(seeds=2)
        async def test_asynchronous(all_four):
            assert variable.get() == ("one", "two", "three", "four")
            variable.set("the test's")

        def test_plain(hotloop_loop, all_four):
            async def main():
                return variable.get()

            assert hotloop_loop.run_until_complete(main()) == ("one", "two", "three", "four")

        def test_none_is_left():
            assert variable.get() == ()
        """
    )
    result.assert_outcomes(passed=3)


def test_asynchronous_fixtures_that_go_wrong(run):
    result = run(
        """
        import pytest

        @pytest.fixture
        async def raising():
            raise ZeroDivisionError

        @pytest.fixture
        async def yielding_twice():
            yield 1
            yield 2

        @pytest.fixture
        async def ending_badly():
            yield 1
            raise ZeroDivisionError("at its end")

        async def test_raising(raising, hotloop_clock): pass
        async def test_yielding_twice(yielding_twice, hotloop_clock): pass
        async def test_ending_badly(ending_badly, hotloop_clock): pass
        """
    )
    result.assert_outcomes(passed=2, errors=3)
    result.stdout.fnmatch_lines(["*the fixture yielding_twice has more than one yield", "*at its end"])


# -- wrong tests -------------------------------------------------------------------------------------------------------

MARKED = {
    "200": "it takes keywords only, such as seeds=200",
    "sedes=3": "it does not know sedes",
    "seeds=0": "there must be at least one seed, not 0",
    "seeds=[]": "there must be at least one seed",
    "seeds='17'": "seeds must be a number or a collection of seeds, not '17'",
    "seeds=True": "seeds must be a number or a collection of seeds, not True",
    "seeds=1.5": "seeds must be a number or a collection of seeds, not 1.5",
    "seeds=[1, None]": "seeds must be numbers or strings, not None",
    "relax=['futures']": "relax is of no use without seeds",
    "seeds=3, relax=['timers']": "relax must be a collection of 'callbacks', 'futures', not ['timers']",
    "start=float('nan')": "start must be finite, not nan",
    "start='noon'": "start must be a number of seconds, not 'noon'",
    "patience=0": "patience must be positive: 0",
    "max_jumps=0": "max_jumps must be positive: 0",
    "io_grace=-1": "io_grace must not be negative: -1",
}


@pytest.mark.parametrize("arguments", MARKED)
def test_markers_that_say_what_they_may_not(run, arguments):
    result = run(
        f"""
        import pytest

        @pytest.mark.hotloop({arguments})
        async def test_it():
            pass

        def test_another():
            pass
        """
    )
    result.assert_outcomes(errors=1, passed=1)
    assert f"@pytest.mark.hotloop: {MARKED[arguments]}" in result.stdout.str().splitlines()
    assert os.path.basename(pytest_plugin.__file__) not in result.stdout.str()


def test_markers_where_they_are_of_no_use(run):
    result = run(
        """
        import pytest, unittest

        @pytest.mark.hotloop(seeds=3)
        def test_that_has_no_loop():
            pass

        class TestCase(unittest.IsolatedAsyncioTestCase):
            @pytest.mark.hotloop
            def test_it(self):
                pass

        @pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.hotloop)])
        async def test_marked_too_late(number):
            pass
        """
    )
    result.assert_outcomes(errors=3)
    said = "@pytest.mark.hotloop is for asynchronous test functions, and for tests that use the fixture hotloop_loop"
    assert result.stdout.str().splitlines().count(said) == 2
    result.stdout.fnmatch_lines(["*@pytest.mark.hotloop comes too late: it has to be on the function, *"])


@pytest.mark.parametrize("where", ["method", "class", "module", "fixture"])
def test_tests_of_unittest_run_on_its_loop_which_is_said(run, where):
    marks = {
        "method": ("", "", "@pytest.mark.hotloop"),
        "class": ("", "@pytest.mark.hotloop(seeds=3)", ""),
        "module": ("pytestmark = pytest.mark.hotloop", "", ""),
        "fixture": ("", "@pytest.mark.usefixtures('hotloop_clock')", ""),
    }
    of_module, of_class, of_method = marks[where]
    result = run(
        f"""
        import pytest, unittest
        {of_module}

        {of_class}
        class TestCase(unittest.IsolatedAsyncioTestCase):
            {of_method}
            async def test_it(self):
                pass

            def test_another(self):
                pass

        class Another(unittest.TestCase):
            def test_it(self):
                pass
        """
    )
    result.assert_outcomes(errors=1, passed=2)
    said = "@pytest.mark.hotloop and its fixtures cannot give a test of unittest.IsolatedAsyncioTestCase their loop"
    assert said + ": unittest makes one" in result.stdout.str().splitlines()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hotloop-seeds=0"], "argument --hotloop-seeds: invalid number of seeds value: '0'"),
        (["--hotloop-seeds=many"], "argument --hotloop-seeds: invalid number of seeds value: 'many'"),
        (["--hotloop-seed="], "argument --hotloop-seed: invalid seed value: ''"),
        (["--hotloop-seed=1", "--hotloop-seeds=2"], "--hotloop-seed and --hotloop-seeds cannot both be given"),
    ],
)
def test_bad_options(run, options, said):
    result = run("def test_it(): pass", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}"])


# -- pytest's output ---------------------------------------------------------------------------------------------------


def test_help(run):
    result = run("", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.hotloop([*], seeds=None, start=0.0, relax=(), *): run the test on *"])
    result = run("", "--fixtures")
    for name in ("hotloop_loop_class", "hotloop_loop", "hotloop_clock", "hotloop_network"):
        result.stdout.fnmatch_lines([f"{name} -- *pytest_plugin.py:*"])
    result = run("", "--help")
    result.stdout.fnmatch_lines(["hotloop: tests with virtual time:", "*--hotloop-seed=SEED*", "*--hotloop-seeds=N*"])


def test_nothing_is_imported_before_it_is_needed(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.split(".")[0] == "hotloop"}
            assert loaded == {"hotloop", "hotloop.pytest_plugin"}
        """
    )
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", PLUGIN]
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins may import anything
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hotloop_itself_does_not_need_pytest():
    code = "import sys, hotloop.testing; hotloop.run; assert not {'pytest', '_pytest'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
