"""The pytest plugin: tests that run under many seeds and still count as one test each."""

import re
import subprocess
import sys

import pytest

import hotloop.testing
from hotloop import pytest_plugin

SEVERAL_ORDERS = """
import asyncio

async def order():
    seen = []

    async def step(name):
        seen.append(name)

    await asyncio.gather(*(step(name) for name in "abc"))
    return "".join(seen)
"""


@pytest.fixture
def run(pytester):
    """Have pytest run this source as a test file, warnings being errors."""

    def run(source, *options):
        pytester.makepyfile(several_orders=SEVERAL_ORDERS)
        pytester.makepyfile(test_it=source)
        pytester.syspathinsert()
        return pytester.runpytest_inprocess("-p", pytest_plugin.__name__, "-p", "no:asyncio", "-W", "error", *options)

    return run


async def order():
    """The same for a run in this process."""
    names = {}
    exec(SEVERAL_ORDERS, names)
    return await names["order"]()


def first_seed(condition):
    """The first seed whose order fulfils `condition`."""
    return next(seed for seed in range(1000) if condition(hotloop.testing.run(order(), shuffle=seed)))


def test_each_seed_is_a_run(run):
    result = run(
        """
        import pytest
        from several_orders import order
        seen, seeds = [], []

        @pytest.mark.hotloop(seeds=40)
        async def test_it(hotloop_loop):
            seen.append(await order())
            seeds.append(hotloop_loop._shuffler.seed)

        def test_afterwards():
            assert len(set(seen)) == 6 and seeds == list(range(40))
        """
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marked", "options", "expected"),
    [
        ("seeds=3", [], [0, 1, 2]),
        ("seeds=[5, 'five', -5]", [], [5, "five", -5]),
        ("seeds=range(7, 9)", [], [7, 8]),
        ("seeds=1", [], [0]),
        ("", [], [None]),
        ("seeds=3", ["--hotloop-seeds=5"], [0, 1, 2, 3, 4]),
        ("seeds=[7, 8]", ["--hotloop-seeds=5"], [7, 8]),
        ("", ["--hotloop-seeds=5"], [None]),
        ("seeds=3", ["--hotloop-seed=2"], [2]),
        ("seeds=3", ["--hotloop-seed=-17"], [-17]),
        ("seeds=3", ["--hotloop-seed=a word"], ["a word"]),
        ("seeds=['17']", ["--hotloop-seed=17"], ["17"]),
        ("", ["--hotloop-seed=2"], [None]),
    ],
)
def test_which_seeds(run, marked, options, expected):
    result = run(
        f"""
        import pytest
        seeds = []

        @pytest.mark.hotloop({marked})
        async def test_it(hotloop_loop):
            seeds.append(hotloop_loop._shuffler and hotloop_loop._shuffler.seed)

        def test_afterwards():
            assert seeds == {expected}
        """,
        *options,
    )
    result.assert_outcomes(passed=2)


def test_what_is_relaxed(run):
    result = run(
        """
        import asyncio, pytest
        seen = set()

        @pytest.mark.hotloop(seeds=40, relax=["callbacks"])
        async def test_it(hotloop_loop):
            now = []
            for name in "ab":
                hotloop_loop.call_soon(now.append, name)
            await asyncio.sleep(1)
            seen.add(tuple(now))

        def test_afterwards():
            assert seen == {("a", "b"), ("b", "a")}
        """
    )
    result.assert_outcomes(passed=2)


FAILING = """
import pytest
from several_orders import order

@pytest.mark.hotloop(seeds=200)
async def test_it(record_property):
    seen = await order()
    print("the order is", seen)
    record_property("order", seen)
    assert seen != "cba"

@pytest.mark.hotloop(seeds=200)
def test_a_plain_one(hotloop_loop):
    assert hotloop_loop.run_until_complete(order()) != "cba"
"""


def test_the_first_seed_that_fails_is_reported(run):
    """The report has the output of that run, and none of the runs before it."""
    failing = first_seed(lambda order: order == "cba")
    result = run(FAILING, "-rA", "--junitxml=report.xml", "-o", "junit_family=xunit1")
    result.assert_outcomes(failed=2)
    told = result.stdout.str()
    assert re.findall(r"^the order is (.*)$", told, re.MULTILINE) == ["cba"]
    message = f"seed {failing} is the first that fails, {failing} passed before it; again: --hotloop-seed={failing}"
    assert told.splitlines().count(message) == 2
    # The coroutine's report. Where $CI is set, the summary repeats the messages.
    assert told.splitlines().count(f"E       hotloop.testing: this was with shuffle={failing}") == 1
    with open("report.xml") as report:
        assert re.findall('<property name="order" value="(.*?)"', report.read()) == ["cba"]
    run(FAILING, f"--hotloop-seed={failing}").assert_outcomes(failed=2)
    run(FAILING, f"--hotloop-seed={first_seed(lambda order: order == 'abc')}").assert_outcomes(passed=2)
    run(FAILING, f"--hotloop-seeds={failing}").assert_outcomes(passed=2)
    run(FAILING, f"--hotloop-seeds={failing + 1}").assert_outcomes(failed=2)


def test_a_seed_for_the_shell(run):
    result = run(
        """
        import pytest

        @pytest.mark.hotloop(seeds=["passes", "two words"])
        async def test_it(hotloop_loop):
            assert hotloop_loop._shuffler.seed == "passes"
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*seed 'two words' is the first*; again: '--hotloop-seed=two words'"])


def test_what_is_made_anew_for_each_seed(run):
    """Each seed gets new fixtures of function scope and a new instance of the class; fixtures of wider scope stay."""
    result = run(
        """
        import asyncio, pytest
        made = {"function": [], "async": [], "class": [], "module": [], "session": []}
        ended = []

        def fixture(scope):
            @pytest.fixture(scope=scope)
            def make():
                made[scope].append(object())
                yield made[scope][-1]
                ended.append(scope)
            return make

        of_function, of_class, of_module, of_session = map(fixture, ["function", "class", "module", "session"])

        @pytest.fixture
        async def asynchronous(hotloop_clock, of_function):
            made["async"].append(hotloop_clock)
            await asyncio.sleep(1)
            yield hotloop_clock
            ended.append("async")

        class TestClass:
            @pytest.mark.hotloop(seeds=5)
            @pytest.mark.usefixtures("of_class", "of_module", "of_session")
            async def test_it(self, of_function, asynchronous, hotloop_clock, tmp_path):
                assert of_function is made["function"][-1] and asynchronous is hotloop_clock
                assert not list(tmp_path.iterdir()) and not hasattr(self, "used")
                (tmp_path / "file").touch()
                self.used = True

            def test_counts(self):
                assert {name: len(set(map(id, all))) for name, all in made.items()} == {
                    "function": 5, "async": 5, "class": 1, "module": 1, "session": 1
                }
                assert ended == ["async", "function"] * 5

        def test_the_class_is_over():
            assert ended[10:] == ["class"]
        """
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_seed_that_fails_at_any_time(run, when):
    """Afterwards fixtures of wider scope end once, and the next test has its own."""
    result = run(
        f"""
        import pytest
        runs, modules = [], []

        @pytest.fixture(scope="module", params=["first", "second"])
        def module(request):
            yield
            modules.append(request.param)

        def fail(when):
            assert (when, len(runs)) != ({when!r}, 3)

        @pytest.fixture
        def fixture():
            runs.append(1)
            fail("setup")
            yield
            fail("teardown")

        @pytest.mark.hotloop(seeds=5)
        async def test_it(module, fixture, hotloop_clock):
            fail("call")

        def test_afterwards():
            assert len(runs) == 3 + 5 and modules == ["first"]
        """
    )
    passed = {"setup": 2, "call": 2, "teardown": 3}[when]
    result.assert_outcomes(passed=passed, failed=when == "call", errors=when != "call")
    result.stdout.fnmatch_lines(["seed 2 is the first that fails, 2 passed before it; again: --hotloop-seed=2"])


def test_a_test_that_is_expected_to_fail(run):
    result = run(
        """
        import pytest
        from several_orders import order

        @pytest.mark.xfail(strict=True)
        @pytest.mark.hotloop(seeds=200)
        async def test_some_seed_fails():
            assert await order() != "cba"

        @pytest.mark.xfail(strict=True)
        @pytest.mark.hotloop(seeds=20)
        async def test_no_seed_fails():
            pass

        @pytest.mark.xfail
        @pytest.mark.hotloop(seeds=20)
        async def test_no_seed_fails_which_is_right_too():
            pass
        """
    )
    result.assert_outcomes(xfailed=1, failed=1, xpassed=1)
    assert "is the first that fails" not in result.stdout.str()


def test_a_test_that_skips(run):
    result = run(
        """
        import pytest
        runs = []

        @pytest.mark.hotloop(seeds=20)
        async def test_by_itself():
            runs.append(1)
            pytest.skip("no reason")

        @pytest.mark.skip
        @pytest.mark.hotloop(seeds=20)
        async def test_by_its_marker():
            runs.append(1)

        def test_afterwards():
            assert len(runs) == 1
        """
    )
    result.assert_outcomes(passed=1, skipped=2)


def test_subtests(run):
    """One that skips, or fails as expected, leaves the test and its other seeds to run; one that fails ends it."""
    pytest.importorskip("_pytest.subtests", reason="pytest 9 has them")
    result = run(
        """
        import pytest
        ran = []

        @pytest.mark.hotloop(seeds=5)
        async def test_one_does_not_count(subtests):
            with subtests.test():
                pytest.skip("no reason")
            with subtests.test():
                pytest.xfail("no reason")
            ran.append(1)

        def test_afterwards():
            assert len(ran) == 5

        @pytest.mark.hotloop(seeds=5)
        async def test_one_fails(subtests):
            with subtests.test():
                ran.append(1)
                assert len(ran) < 8
        """,
        "-v",
    )
    result.stdout.fnmatch_lines(["*::test_one_does_not_count PASSED*", "*::test_afterwards PASSED*"])
    result.stdout.fnmatch_lines(["seed 2 is the first that fails, 2 passed before it; again: --hotloop-seed=2"])


def test_stopping_at_the_first_failure(run):
    result = run(
        """
        import pytest

        @pytest.fixture(scope="module")
        def module():
            yield
            raise ZeroDivisionError("at the end of the module")

        @pytest.mark.hotloop(seeds=20)
        async def test_it(module):
            assert False

        def test_not_run():
            pass
        """,
        "--exitfirst",
    )
    result.assert_outcomes(failed=1, errors=1)


def test_the_time_it_took_is_that_of_all_seeds(run):
    result = run(
        """
        import pytest, time

        @pytest.mark.hotloop(seeds=10)
        async def test_it():
            time.sleep(0.01)
        """,
        "--durations=0",
        "-vv",
    )
    result.assert_outcomes(passed=1)
    (seconds,) = re.findall(r"^(\d+\.\d+)s call ", result.stdout.str(), re.MULTILINE)
    assert float(seconds) >= 0.1


def test_what_is_only_shown_is_shown_once(run):
    source = """
        import pytest
        @pytest.fixture
        async def asynchronous():
            yield
        @pytest.mark.hotloop(seeds=10)
        async def test_it(tmp_path, asynchronous):
            pass
        """
    result = run(source, "--setup-show")
    result.assert_outcomes(passed=1)
    assert result.stdout.str().count("SETUP    F tmp_path") == 1
    for option in "--setup-only", "--setup-plan":
        result = run(source, option)
        result.assert_outcomes()
        assert result.stdout.str().count("SETUP    F asynchronous") == 1


def test_an_interrupt_ends_it(pytester):
    pytester.makepyfile(
        """
        import pytest
        runs = []

        @pytest.mark.hotloop(seeds=10)
        async def test_it():
            runs.append(1)
            if len(runs) == 3:
                raise KeyboardInterrupt

        @pytest.fixture(scope="session", autouse=True)
        def at_the_end():
            yield
            print(f"{len(runs)} runs")
        """
    )
    command = [sys.executable, "-m", "pytest", "-s", "-p", pytest_plugin.__name__, "-p", "no:asyncio"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    assert "3 runs" in done.stdout
