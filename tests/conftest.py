"""The `impl` fixture gives a test each implementation in turn, and holds the test to leaving nothing behind."""

import faulthandler
import functools
import gc
import itertools
import os
import re
import signal
import socket
import subprocess

import hypothesis
import pytest
from support import implementations
from support.certificates import _certificate_files, _certificates  # noqa: F401
from support.leftovers import AsyncioLog, Leftovers, close_checked
from support.tls_connections import tls_connections_on
from support.virtual_time import virtual_class

# The latter also has an entry point, which only counts if hotloop is installed.
pytest_plugins = ["pytester", "hotloop.pytest_plugin"]

SECONDS_BEFORE_A_TEST_HANGS = int(os.environ.get("HOTLOOP_TEST_SECONDS", "120"))
SECONDS_FOR_A_LOST_WORKER_TO_END = 30

hypothesis.settings.register_profile(
    "repeatable",  # the same examples on every run; HYPOTHESIS_PROFILE=explore looks for new ones, "round" for fewer
    derandomize=True,
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "explore", hypothesis.settings.get_profile("repeatable"), derandomize=False, print_blob=True, max_examples=2000
)
hypothesis.settings.register_profile("round", hypothesis.settings.get_profile("explore"), max_examples=300)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


# A shell makes background commands, and their children, ignore SIGINT: tests of it would hang.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The files that `make test` leaves to `make test-rest`, and why they take long.
LONG = {
    "tools/test_*.py": "they run other tests, or the same one again and again",
    "differential/test_*.py": "random programs, each on two implementations",
    "ecosystem/test_*.py": "they make environments for other projects' programs",
    "upstream/test_*.py": "they make environments for other projects' tests",
    "bench/test_bench_libraries_on_loops.py": "the load on a web server takes whole seconds, on each loop",
    "bench/test_several_loops.py": "the load on a web server takes whole seconds",
    "package/test_build.py": "small projects, built again and again",
    "examples/test_example_demo.py": "a thousand pages, crawled on four loops; `make demo` is the same",
    "testing/test_any_order*.py": "hundreds of orders of the same program",
    "testing/test_pytest_plugin_others.py": "runs of pytest beside other plugins",
    "tls/test_tls_memory.py": "thousands of connections",
    "tls/test_tls_mutations.py": "thousands of damaged records",
    "poller/test_descriptor_ownership.py": "thousands of descriptors",
}

# Debug mode's reports on a slow machine; only tests that take them from the log check them.
SLOW_CALLBACK = re.compile(r"Executing .* took \d+\.\d+ seconds")


uncaptured_stderr = pytest.StashKey[int]()


def pytest_configure(config):
    config.addinivalue_line("markers", "only(*names, reason): run on these implementations alone, for this reason")
    # pytest does not capture yet. With pytest-xdist this is in the worker, whose stderr is the run's.
    config.stash[uncaptured_stderr] = os.dup(2)


def pytest_unconfigure(config):
    os.close(config.stash[uncaptured_stderr])


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_testnodedown(node, error):
    """Say how the process of a worker that is lost has ended, because a signal leaves no traceback."""
    if not error or error == "keyboard-interrupt":  # of which pytest-xdist tells itself
        return
    process = node.gateway._io.popen
    try:
        status = process.wait(SECONDS_FOR_A_LOST_WORKER_TO_END)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # its faulthandler shows where it is
        status = f"none, it still ran and was ended with {process.wait()}"
    terminal = node.config.pluginmanager.get_plugin("terminalreporter")
    terminal.write_line(f"\nexit status of the process of {node.gateway.id}: {status}")


def implementations_wanted():
    """All implementations, unless HOTLOOP_TEST_IMPLS names some, as the run on the wheel without extension does."""
    names = os.environ.get("HOTLOOP_TEST_IMPLS", ",".join(implementations.ALL)).split(",")
    unknown = set(names) - set(implementations.ALL)
    if unknown:
        raise pytest.UsageError(f"HOTLOOP_TEST_IMPLS: no such implementation: {', '.join(sorted(unknown))}")
    return names


def pytest_generate_tests(metafunc):
    if "impl" in metafunc.fixturenames:
        names = implementations_wanted()
        for marker in metafunc.definition.iter_markers("only"):
            assert marker.kwargs["reason"], "say why the others are left out"
            names = [name for name in names if name in marker.args]
        metafunc.parametrize("impl", names or ["none"], indirect=True)


@functools.cache
def takes_long(path):
    return any(path.match(f"tests/{pattern}") for pattern in LONG)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config, items):
    """Mark the tests on asyncio and those that take long; leave out tests without an implementation in this run."""
    for item in items:
        if hasattr(item, "callspec") and item.callspec.params.get("impl") == "asyncio":
            item.add_marker("oracle")
        if takes_long(item.path):
            item.add_marker("long")
    unwanted = {item for item in items if hasattr(item, "callspec") and item.callspec.params.get("impl") == "none"}
    if unwanted:
        config.hook.pytest_deselected(items=[item for item in items if item in unwanted])
        items[:] = [item for item in items if item not in unwanted]


@hypothesis.given(hypothesis.strategies.none())
def use_hypothesis_once(_):
    """Hypothesis makes its random number generator on first use, and warns if the collector sees no reference to it."""


def keep_for_good():
    """Hide all existing objects from the collector: they stay, and each test's full collections become cheap."""
    gc.collect()
    if hasattr(gc, "freeze"):  # PyPy's has generations of its own
        gc.freeze()


def pytest_collection_finish(session):
    use_hypothesis_once()
    keep_for_good()


ended_tests = itertools.count(1)


def pytest_runtest_logfinish():
    # pytest keeps some objects of every test.
    if next(ended_tests) % 50 == 0:
        keep_for_good()


@pytest.fixture(scope="session")
def load_implementation():
    """Loads each facade once: the classes must be the same ones throughout a run."""
    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = implementations.load(name)
        return loaded[name]

    return load


@pytest.fixture
def asyncio_log():
    """The messages of asyncio's logger. A test takes those that it expects; any other is a failure at its end."""
    with AsyncioLog().attached() as log:
        yield log


@pytest.fixture
def impl(request, asyncio_log, load_implementation):
    """One implementation's facade. A missing C extension is an error here, never a skip."""
    facade = load_implementation(request.param)
    request.node.user_properties.append(("implementation", facade.name))  # for .ci/check_junit.py
    leftovers = Leftovers()
    # What is captured is lost with the process.
    stderr = request.config.stash[uncaptured_stderr]
    faulthandler.dump_traceback_later(SECONDS_BEFORE_A_TEST_HANGS, exit=True, file=stderr)
    try:
        yield facade
    finally:
        faulthandler.cancel_dump_traceback_later()
    leftovers.check()  # collects garbage, so that reports from a __del__ are in the log by now
    unexpected = [message for message in asyncio_log.take() if not SLOW_CALLBACK.match(message)]
    assert not unexpected, "asyncio's logger was told:\n" + "\n".join(unexpected)


@pytest.fixture
def hotloop_loop_class(impl):
    """Runs tests with virtual time on each implementation as well; the plugin's other fixtures use this one."""
    return virtual_class(impl.EventLoop)


@pytest.fixture
def loop(impl):
    """A new event loop that must have nothing left to do when the test ends."""
    loop = impl.new_event_loop()
    try:
        yield loop
    finally:
        close_checked(loop)


@pytest.fixture
def pair():
    """The two ends of a connection, non-blocking."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    with one, other:
        yield one, other


@pytest.fixture
def socket_path(tmp_path):
    """A path for a Unix socket, which may have little more than 100 characters."""
    path = tmp_path / "s"
    if len(os.fsencode(path)) > 100:
        pytest.skip("the temporary folder has too long a name for a Unix socket")
    return path


@pytest.fixture
def tls(loop, certificates):
    """Makes TLS connections on the loop; a test must take every report to the loop's exception handler."""
    with tls_connections_on(loop, certificates) as connections:
        yield connections
