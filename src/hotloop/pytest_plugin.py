"""The pytest plugin: tests with virtual time, each under as many seeds as its marker asks for.

    @pytest.mark.hotloop(seeds=200)
    async def test_every_client_is_served(hotloop_clock): ...

A hotloop test is one that uses a fixture of this file, itself or through another fixture, or an asynchronous test with
the marker. Other plugins for asynchronous tests (pytest-asyncio, anyio) take every test that is a coroutine function.
So this plugin first wraps the function of a hotloop test in a plain one (AsyncTest), and asynchronous fixtures of the
test in plain ones while pytest sets them up.

A test with seeds is set up, called and torn down for each of them, with new fixtures of function scope. It is reported
once, with the result of the first seed that fails, or else of the last.

pytest imports this file when it starts. asyncio and the loops are imported only when a hotloop test runs.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import call_and_report
from _pytest.unittest import TestCaseFunction

if TYPE_CHECKING:
    import asyncio

    from hotloop.testing import Clock, EventLoop, PipeNetwork

MARKER = "hotloop"
LOOP_OPTIONS = ("start", "relax", "io_grace", "patience", "max_jumps")
"""The marker's keywords that are passed to the loop."""

__tracebackhide__ = True  # pytest leaves this file out of the tracebacks of tests

_LOOP_FIXTURE = "hotloop_loop"  # the other fixtures use it
_OTHERS = ("anyio", "asyncio", "trio")  # the markers of other plugins that run asynchronous tests
_SEED = pytest.StashKey["int | str"]()
_RUNNER = pytest.StashKey["asyncio.Runner"]()
_HAS_RAISED = pytest.StashKey[bool]()


# -- options -----------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hotloop", "hotloop: tests with virtual time")
    group.addoption(
        "--hotloop-seed",
        type=_seed,
        metavar="SEED",
        help="run tests that are marked with seeds under this one only",
    )
    group.addoption(
        "--hotloop-seeds",
        type=_count,
        metavar="N",
        help="run tests that are marked with a number of seeds under so many instead",
    )


def _seed(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


# argparse uses these names in its messages: "invalid seed value: ''".
_seed.__name__ = "seed"
_count.__name__ = "number of seeds"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*, seeds=None, start=0.0, relax=(), io_grace=0.002, patience=None, "
        "max_jumps=1000000, debug=None): "
        "run the test on a loop of hotloop.testing, with virtual time; with seeds, a number or the seeds themselves, "
        "once under each, until one fails.",
    )
    if config.getoption("hotloop_seed") is not None and config.getoption("hotloop_seeds") is not None:
        raise pytest.UsageError("--hotloop-seed and --hotloop-seeds cannot both be given")


@dataclass(frozen=True)
class Options:
    """The options of a test, from its markers."""

    seeds: tuple[int | str, ...] = ()
    debug: bool | None = None
    loop: dict[str, Any] = field(default_factory=dict)


def _options(item: pytest.Item) -> Options:
    """The options of a test, from its markers, the closest of which takes precedence, and the command line. Raises
    TypeError or ValueError for invalid ones."""
    given: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers(MARKER))):
        if marker.args:
            raise TypeError(f"it takes keywords only, such as seeds={marker.args[0]!r}")
        given |= marker.kwargs
    if unknown := given.keys() - {"seeds", "debug", *LOOP_OPTIONS}:
        raise TypeError(f"it does not know {', '.join(sorted(unknown))}")
    asked = given.pop("seeds", None)
    if asked is None and given.get("relax"):
        raise ValueError("relax is of no use without seeds")
    seeds = () if asked is None else _chosen(_seeds(asked, item.config), item.config)
    return Options(seeds, given.pop("debug", None), given)


def _seeds(asked: Any, config: pytest.Config) -> tuple[int | str, ...]:
    """The seeds that a marker's `seeds=` stands for."""
    if isinstance(asked, int) and not isinstance(asked, bool):
        if asked < 1:
            raise ValueError(f"there must be at least one seed, not {asked}")
        return tuple(range(config.getoption("hotloop_seeds") or asked))
    if isinstance(asked, (str, bool)) or not isinstance(asked, Iterable):
        raise TypeError(f"seeds must be a number or a collection of seeds, not {asked!r}")
    seeds = tuple(asked)
    if wrong := [seed for seed in seeds if isinstance(seed, bool) or not isinstance(seed, (int, str))]:
        raise TypeError(f"seeds must be numbers or strings, not {wrong[0]!r}")
    if not seeds:
        raise ValueError("there must be at least one seed")
    return seeds


def _chosen(seeds: tuple[int | str, ...], config: pytest.Config) -> tuple[int | str, ...]:
    """All seeds, or the single one that the command line asks for, whether it is among them or not."""
    wanted: str | None = config.getoption("hotloop_seed")
    if wanted is None:
        return seeds
    number = int(wanted) if re.fullmatch(r"-?\d+", wanted) else wanted
    return (next((seed for seed in seeds if str(seed) == wanted), number),)


# -- which tests are hotloop tests -------------------------------------------------------------------------------------


def _is_ours(item: pytest.Item) -> bool:
    return _LOOP_FIXTURE in getattr(item, "fixturenames", ())


class AsyncTest(pytest.Function):
    """An asynchronous hotloop test. pytest and other plugins see a plain function."""

    @classmethod
    def made_of(cls, function: pytest.Function) -> AsyncTest:
        test: AsyncTest = cls.from_parent(
            function.parent,
            name=function.name,
            callspec=getattr(function, "callspec", None),
            fixtureinfo=function._fixtureinfo,
            keywords=function.keywords,
            originalname=function.originalname,
        )
        test.own_markers = function.own_markers
        return test

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        """All markers but those of other plugins: a module's marker may be for other tests, and pytest-asyncio's auto
        mode marks every asynchronous test."""
        return (found for found in super().iter_markers_with_node(name) if found[1].name not in _OTHERS)

    def _getobj(self) -> Any:
        made = super()._getobj()  # type: ignore[no-untyped-call]
        return MethodType(self._plain(made.__func__), made.__self__) if inspect.ismethod(made) else self._plain(made)

    def _plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            self.stash[_RUNNER].run(function(*args, **kwargs), context=copy_context())

        return run


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Generator[None, Any, Any]:
    """The outermost wrapper, so that its result is final."""
    function = getattr(obj, "__func__", obj)  # of a static method, its function
    if not (inspect.iscoroutinefunction(function) and collector.istestfunction(obj, name)):
        return (yield)
    with _using_the_loop(collector, function):
        made = yield
    nodes = made if isinstance(made, list) else [made]
    return [AsyncTest.made_of(node) if isinstance(node, pytest.Function) and _is_ours(node) else node for node in nodes]


@contextmanager
def _using_the_loop(collector: Any, function: Any) -> Iterator[None]:
    """Mark a function that has the hotloop marker, its own or that of its class or module, as using the loop fixture.
    Only for the time of this `with`: a function may be collected again, by a class without the marker."""
    own = {mark.name for mark in _own_marks(function)}
    wanted = MARKER in own or (collector.get_closest_marker(MARKER) and own.isdisjoint(_OTHERS))
    before = list(_own_marks(function))
    if wanted:
        pytest.mark.usefixtures(_LOOP_FIXTURE)(function)
    try:
        yield
    finally:
        if wanted:
            function.pytestmark = before


def _own_marks(function: Any) -> list[pytest.Mark]:
    marks = getattr(function, "pytestmark", [])
    return marks if isinstance(marks, list) else [marks]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Remove the parameters of anyio's auto mode: a hotloop test would run once for each backend."""
    if (
        _LOOP_FIXTURE in metafunc.fixturenames
        and "anyio_backend" in metafunc.fixturenames
        and inspect.iscoroutinefunction(metafunc.function)
        and "anyio_backend" not in inspect.signature(metafunc.function).parameters
    ):
        metafunc.fixturenames.remove("anyio_backend")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a misused marker before any fixture is set up."""
    own = {mark.name for mark in item.own_markers}
    asynchronous = inspect.iscoroutinefunction(getattr(item, "function", None))
    if asynchronous and isinstance(item, TestCaseFunction) and (_is_ours(item) or item.get_closest_marker(MARKER)):
        _fail(" and its fixtures cannot give a test of unittest.IsolatedAsyncioTestCase their loop: unittest makes one")
    if not _is_ours(item):
        if MARKER in own:
            if asynchronous:
                _fail(" comes too late: it has to be on the function, on its class or in its module")
            _fail(f" is for asynchronous test functions, and for tests that use the fixture {_LOOP_FIXTURE}")
        return
    if isinstance(item, AsyncTest) and (others := _written_on(item).intersection(_OTHERS)):
        _fail(f" and @pytest.mark.{others.pop()} would both run this test")
    _checked_options(item)


def _written_on(item: pytest.Function) -> set[str]:
    """The names of a test function's own markers, without those that plugins have added to its items."""
    return {mark.name for mark in _own_marks(item.function)}


def _checked_options(item: pytest.Item) -> Options:
    with _marker_is_blamed():
        return _options(item)


@contextmanager
def _marker_is_blamed() -> Iterator[None]:
    """Errors in the marker's arguments fail the test, without a traceback through this file."""
    why = None
    try:
        yield
    except (TypeError, ValueError) as error:
        why = f": {error}"
    if why:
        _fail(why)


def _fail(why: str) -> None:
    pytest.fail(f"@pytest.mark.{MARKER}{why}", pytrace=False)


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hotloop_loop_class() -> type[EventLoop]:
    """The class of the loop: hotloop.testing.EventLoop. Override this fixture to run tests on a subclass."""
    from hotloop.testing import EventLoop

    return EventLoop


@pytest.fixture
def hotloop_loop(request: pytest.FixtureRequest, hotloop_loop_class: type[EventLoop]) -> Iterator[EventLoop]:
    """A new loop of hotloop.testing, on which an asynchronous test runs; other tests may run it themselves.

    @pytest.mark.hotloop has its options. At the end, remaining tasks are cancelled and the loop is closed."""
    import asyncio

    item = request.node
    options = _checked_options(item)
    seed = item.stash.get(_SEED, options.seeds[0]) if options.seeds else None
    factory = functools.partial(hotloop_loop_class, shuffle=seed, **options.loop)
    runner = asyncio.Runner(debug=options.debug, loop_factory=factory)
    with _marker_is_blamed():
        runner.get_loop()
    with runner:
        item.stash[_RUNNER] = runner
        loop: Any = runner.get_loop()
        yield loop


@pytest.fixture
def hotloop_clock(hotloop_loop: EventLoop) -> Clock:
    """The clock of the test's loop, a hotloop.testing.Clock: freeze(), advance(), resume(), time(), hold()."""
    return hotloop_loop.clock


@pytest.fixture
def hotloop_network(hotloop_loop: EventLoop) -> Iterator[PipeNetwork]:
    """A network in memory in which the test's loop makes all its connections, a hotloop.testing.PipeNetwork: host(),
    link(), at(), partition(), heal(), connections. Override this fixture to pass options to pipe_network()."""
    from hotloop.testing import pipe_network

    with pipe_network(loop=hotloop_loop) as network:
        yield network


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
    """Asynchronous fixtures of a hotloop test run on its loop, even if other plugins would run them."""
    function = fixturedef.func
    makes_one, yields_one = inspect.iscoroutinefunction(function), inspect.isasyncgenfunction(function)
    if not (makes_one or yields_one) or not _is_ours(request.node):
        return (yield)
    request.getfixturevalue(_LOOP_FIXTURE)
    if request.config.getoption("setupplan", False):
        return (yield)  # pytest only names the fixtures, and has made no loop
    runner = request.node.stash[_RUNNER]
    # A method of a test class is bound to the instance that the class was collected with.
    if inspect.ismethod(function) and isinstance(request.instance, type(function.__self__)):
        bound = function.__func__.__get__(request.instance)
    else:
        bound = function
    fixturedef.func = _plain_fixture(bound, runner) if makes_one else _plain_yield_fixture(bound, runner)
    try:
        return (yield)
    finally:
        fixturedef.func = function


def _plain_fixture(function: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    def make(**kwargs: Any) -> Iterator[Any]:
        context = copy_context()
        made = runner.run(function(**kwargs), context=context)
        with _variables_of(context):
            yield made

    return make


def _plain_yield_fixture(function: Callable[..., AsyncIterator[Any]], runner: asyncio.Runner) -> Callable[..., Any]:
    async def end(values: AsyncIterator[Any]) -> None:
        async for _ in values:
            pytest.fail(f"the fixture {function.__name__} has more than one yield", pytrace=False)

    async def begin(values: AsyncIterator[Any]) -> Any:
        return await anext(values)

    def make(**kwargs: Any) -> Iterator[Any]:
        values = function(**kwargs)
        context = copy_context()
        made = runner.run(begin(values), context=context)
        with _variables_of(context):
            yield made
        # In the same context, where what `begin` has set can be reset.
        runner.run(end(values), context=context)

    return make


@contextmanager
def _variables_of(context: Context) -> Iterator[None]:
    """What an asynchronous fixture has set in its context is set in pytest's, too, from which the test's is copied."""
    before = copy_context()
    tokens = [
        (variable, variable.set(value))
        for variable, value in context.items()
        if variable not in before or before[variable] is not value
    ]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


# -- seeds -------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    # With --setup-only and --setup-show, nothing is run or shown more than once.
    if not _is_ours(item) or any(item.config.getoption(name, False) for name in ("setuponly", "setupshow")):
        return None
    try:
        seeds = _options(item).seeds
    except (TypeError, ValueError):
        return None  # pytest_runtest_setup() says so
    if len(seeds) < 2:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    _Seeds(item, seeds, nextitem).run()
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class _Seeds:
    """Runs a test under each seed, as _pytest.runner.runtestprotocol() runs it once, and reports it as one test."""

    def __init__(self, item: Any, seeds: tuple[int | str, ...], nextitem: pytest.Item | None) -> None:
        self.item = item
        self.seeds = seeds
        self.nextitem = nextitem
        self.spent: defaultdict[str | None, float] = defaultdict(float)  # seconds, by phase

    def run(self) -> None:
        properties = len(self.item.user_properties)
        for number, seed in enumerate(self.seeds, 1):
            # The report of this seed must not contain anything of the seeds before.
            del self.item.user_properties[properties:]
            self.item._report_sections.clear()
            self.item.stash[_SEED] = seed
            self.item.stash[_HAS_RAISED] = False
            if self.run_one(is_last=number == len(self.seeds)):
                return

    def run_one(self, is_last: bool) -> bool:
        """Run the test once. Returns True if no further seed is to run: it was the last, or has raised something."""
        item = self.item
        self.renew()
        try:
            reports = [self.phase("setup")]
            if reports[0].passed:
                reports.append(self.phase("call"))
            if not is_last and not item.stash[_HAS_RAISED]:
                # Fixtures of wider scope stay: the item's parent stands for another test of the same module.
                reports.append(self.phase("teardown", nextitem=item.parent))
                if not item.stash[_HAS_RAISED]:
                    return False
            self.log(*reports)
            ending = item.session.shouldfail or item.session.shouldstop
            nextitem = None if ending else self.nextitem
            if reports[-1].when == "teardown":
                self.end_wider_scopes(nextitem)
            else:
                self.log(self.phase("teardown", nextitem=nextitem))
            return True
        finally:
            item._request = False
            item.funcargs = None

    def end_wider_scopes(self, nextitem: pytest.Item | None) -> None:
        """Tear down the fixtures of wider scope, which a failed teardown has left because more seeds were to come."""
        setups = self.item.session._setupstate
        call = pytest.CallInfo.from_call(lambda: setups.teardown_exact(nextitem), when="teardown")
        if call.excinfo is not None:
            self.log(self.item.ihook.pytest_runtest_makereport(item=self.item, call=call))

    def renew(self) -> None:
        """Reset the item so that it can run again, as pytest-rerunfailures does; a test class gets a new instance."""
        item = self.item
        if not item._request:
            item._initrequest()
            vars(item).pop("_instance", None)
            item._obj = item._getobj()

    def phase(self, when: Any, **kwargs: Any) -> pytest.TestReport:
        report = call_and_report(self.item, when, log=False, **kwargs)
        self.spent[when] += report.duration
        if report.skipped:  # or has failed as expected
            self.item.stash[_HAS_RAISED] = True
        return report

    def log(self, *reports: pytest.TestReport) -> None:
        for report in reports:
            report.duration = self.spent[report.when]
            self.item.ihook.pytest_runtest_logreport(report=report)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A subtest that skips ends neither the test nor its seeds: it is reported here, too, before the test is.
    if call.excinfo is not None and report.failed and _is_ours(item):
        item.stash[_HAS_RAISED] = True
        seed = item.stash.get(_SEED, None)
        if seed is not None:
            passed = _options(item).seeds.index(seed)
            text = f"seed {seed!r} is the first that fails, {passed} passed before it; again: "
            text += shlex.quote(f"--hotloop-seed={seed}")
            report.sections.append(("hotloop", text))
    return report
