"""The pytest plugin beside pytest-asyncio, anyio and xdist: each plugin runs its own tests, and none is run twice."""

import subprocess
import sys

import pytest

pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")
pytest.importorskip("anyio", reason="anyio is not installed")

MODES = {
    "strict": [],
    "pytest-asyncio's auto": ["--asyncio-mode=auto"],
    "anyio's auto": ["--anyio-mode=auto"],
}

TESTS = """
import asyncio
import os

import pytest
import pytest_asyncio

import hotloop.testing


@pytest.fixture(params=["asyncio", "asyncio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(autouse=True)
def noted(request):
    yield
    with open("noted", "a") as file:
        print(request.node.name, file=file)


def is_virtual():
    return isinstance(asyncio.get_running_loop(), hotloop.testing.EventLoop)


@pytest.fixture
async def plain():
    await asyncio.sleep(0)
    yield is_virtual()
    await asyncio.sleep(0)


@pytest_asyncio.fixture
async def asyncios():
    await asyncio.sleep(0)
    yield is_virtual()
    await asyncio.sleep(0)


async def test_ours_by_fixture(hotloop_clock, plain, asyncios):
    await asyncio.sleep(3600)
    assert is_virtual() and plain and asyncios and hotloop_clock.time() == 3600


@pytest.mark.hotloop(seeds=3)
async def test_ours_by_marker(plain, asyncios):
    assert is_virtual() and plain and asyncios


@pytest.mark.hotloop
@pytest.mark.parametrize("number", [1, 2])
class TestOurs:
    async def test_ours_in_a_class(self, number):
        assert is_virtual()


@pytest.mark.asyncio
async def test_asyncios(asyncios):
    assert not is_virtual() and not asyncios


@pytest.mark.anyio
async def test_anyios(plain):
    assert not is_virtual() and not plain


@pytest.mark.hotloop
class TestMixed:
    async def test_ours_by_class(self):
        assert is_virtual()

    @pytest.mark.asyncio
    async def test_asyncios_by_its_marker(self):
        assert not is_virtual()
"""

EXPECTED = [
    *["test_anyios[asyncio0]", "test_anyios[asyncio1]"],
    "test_asyncios",
    "test_asyncios_by_its_marker",
    *["test_ours_by_class", "test_ours_by_fixture"],
    *["test_ours_by_marker"] * 3,
    *["test_ours_in_a_class[1]", "test_ours_in_a_class[2]"],
]


@pytest.fixture
def run(pytester):
    """Run pytest in a new process with the plugin and `options`; return its exit code, its output, and which tests
    ran."""

    def run(source, *options):
        pytester.makepyfile(source)
        quiet = ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "error", "-p", "no:hypothesispytest"]
        command = [sys.executable, "-m", "pytest", "-p", "hotloop.pytest_plugin", *quiet, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        path = pytester.path / "noted"
        return done.returncode, done.stdout + done.stderr, sorted(path.read_text().split("\n")[:-1])

    return run


@pytest.mark.parametrize("mode", MODES)
def test_each_test_is_run_by_its_plugin(run, mode):
    code, told, noted = run(TESTS, *MODES[mode])
    if mode == "anyio's auto":
        # It also takes pytest-asyncio's tests, whose fixture it does not know.
        assert [name for name in noted if "ours" in name] == [name for name in EXPECTED if "ours" in name], told
    else:
        assert (code, noted) == (0, EXPECTED), told


def test_markers_of_a_module(run):
    source = """
        import asyncio, pytest
        import hotloop.testing
        pytestmark = pytest.mark.asyncio

        @pytest.fixture(autouse=True)
        def noted(request):
            yield
            with open("noted", "a") as file:
                print(request.node.name, file=file)

        async def test_asyncios():
            assert not isinstance(asyncio.get_running_loop(), hotloop.testing.EventLoop)

        async def test_ours(hotloop_loop):
            assert asyncio.get_running_loop() is hotloop_loop

        @pytest.mark.hotloop
        async def test_ours_by_marker():
            assert isinstance(asyncio.get_running_loop(), hotloop.testing.EventLoop)
        """
    expected = ["test_asyncios", "test_ours", "test_ours_by_marker"]
    assert run(source)[::2] == (0, expected)
    by_anyio = source.replace("pytest.mark.asyncio", "pytest.mark.anyio")
    with_backend = by_anyio + "\n        @pytest.fixture\n        def anyio_backend():\n            return 'asyncio'\n"
    assert run(with_backend)[::2] == (0, sorted(2 * expected))


def test_a_test_that_two_would_run(run):
    source = """
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.hotloop
        @pytest.mark.asyncio
        async def test_one():
            pass

        @pytest.mark.asyncio
        async def test_two(hotloop_clock):
            pass

        @pytest.mark.hotloop
        @pytest.mark.anyio
        async def test_three():
            pass

        @pytest.mark.anyio
        async def test_four(hotloop_clock):
            pass

        def test_another():
            open("noted", "w").close()
        """
    code, told, _ = run(source)
    assert code == 1 and "1 passed, 4 errors" in told
    for marker in ("asyncio", "anyio"):
        said = f"@pytest.mark.hotloop and @pytest.mark.{marker} would both run this test"
        assert told.splitlines().count(said) == 2


def test_in_processes_of_xdist(run):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    source = (
        TESTS
        + """

@pytest.mark.hotloop(seeds=200)
async def test_ours_that_fails(hotloop_loop):
    assert hotloop_loop._shuffler.seed != 17
"""
    )
    code, told, noted = run(source, "--numprocesses=1")
    assert code == 1 and "1 failed, 9 passed" in told, told
    assert noted.count("test_ours_by_marker") == 3 and noted.count("test_ours_that_fails") == 18
    assert "seed 17 is the first that fails, 17 passed before it; again: --hotloop-seed=17" in told.splitlines()
