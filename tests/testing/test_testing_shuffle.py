"""hotloop.testing with a seed: events that may come in any order do so, and asyncio's promises about order hold."""

import asyncio
import itertools
import threading

import pytest
from support.virtual_time import _run, virtual_class  # noqa: F401

from hotloop import testing

SEEDS = range(40)


@pytest.fixture
def orders(run):
    """The results of a coroutine function under each seed."""

    def orders(test, **options):
        return [tuple(run(test(), shuffle=seed, **options)) for seed in SEEDS]

    return orders


def are_all_permutations(results, expected):
    """Whether all permutations have come, and nothing else."""
    return set(results) == set(itertools.permutations(expected))


# -- what is shuffled --------------------------------------------------------------------------------------------------


async def started():
    seen = []

    async def step(name):
        seen.append(name)

    await asyncio.gather(*(step(name) for name in "abc"))
    return seen


async def woken_by_one():
    seen, event = [], asyncio.Event()

    async def waiting(name):
        await event.wait()
        seen.append(name)

    tasks = [asyncio.ensure_future(waiting(name)) for name in "abc"]
    await asyncio.sleep(1)
    event.set()
    await asyncio.gather(*tasks)
    return seen


async def at_the_same_time():
    seen = []
    for name in "abc":
        asyncio.get_running_loop().call_at(10, seen.append, name)
    await asyncio.sleep(11)
    return seen


async def by_three_callbacks():
    seen = []
    loop = asyncio.get_running_loop()
    # The three callbacks are timers, themselves in any order.
    for name in "abc":
        loop.call_at(10, loop.call_soon, seen.append, name)
    await asyncio.sleep(11)
    return seen


async def descriptors():
    import socket

    seen, pairs = [], [socket.socketpair() for _ in "abc"]
    loop = asyncio.get_running_loop()

    def read(name, one):
        loop.remove_reader(one)
        seen.append(name)

    for name, (one, _) in zip("abc", pairs, strict=True):
        loop.add_reader(one, read, name, one)
    for _, other in pairs:
        other.send(b"x")
    await asyncio.sleep(1)
    for one, other in pairs:
        one.close()
        other.close()
    return seen


@pytest.mark.parametrize("test", [started, woken_by_one, at_the_same_time, by_three_callbacks, descriptors])
def test_what_is_independent_comes_in_any_order(test, orders):
    assert are_all_permutations(orders(test), "abc")


@pytest.mark.parametrize("test", [started, woken_by_one])
def test_without_a_seed_the_order_is_asyncios(test, run):
    assert run(test()) == list("abc")


def test_the_same_seed_gives_the_same_order(run):
    async def main():
        seen = []

        async def walk(name):
            for step in range(10):
                await asyncio.sleep(step % 3)
                seen.append((name, step))

        await asyncio.gather(*(walk(name) for name in "abcdef"))
        return seen

    first = [run(main(), shuffle=seed) for seed in (1, 2, "words")]
    assert first == [run(main(), shuffle=seed) for seed in (1, 2, "words")]
    assert first[0] != first[1] != first[2] != first[0]
    for order in first:
        for name in "abcdef":
            assert [step for other, step in order if other == name] == list(range(10))


def test_seeds_find_an_ordering_bug(run):
    """A check and an action with a step in between: in asyncio's order the same task always acts first."""

    async def main():
        state, loaded = {"value": None}, []

        async def initialize(delay):
            await asyncio.sleep(delay)
            if state["value"] is None:
                await asyncio.sleep(0)
                state["value"] = delay
                loaded.append(delay)

        async def reset():
            await asyncio.sleep(1)
            state["value"] = "set"

        await asyncio.gather(reset(), initialize(1))
        assert loaded == []

    run(main())
    failures = []
    for seed in SEEDS:
        try:
            run(main(), shuffle=seed)
        except AssertionError as error:
            failures.append(error)
    assert 0 < len(failures) < len(SEEDS)


# -- what stays --------------------------------------------------------------------------------------------------------


async def in_a_row():
    seen = []
    for name in "abc":
        asyncio.get_running_loop().call_soon(seen.append, name)
    await asyncio.sleep(1)
    return seen


async def done_callbacks():
    seen = []
    future = asyncio.get_running_loop().create_future()
    for name in "abc":
        future.add_done_callback(lambda _, name=name: seen.append(name))
    future.set_result(None)
    await asyncio.sleep(1)
    return seen


async def waiting_for_one_future():
    seen = []
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: seen.append("a"))

    async def waiting(name):
        await future
        seen.append(name)

    tasks = [asyncio.create_task(waiting("b"))]
    await asyncio.sleep(1)
    tasks.append(asyncio.create_task(waiting("c")))
    await asyncio.sleep(1)
    future.set_result(None)
    await asyncio.gather(*tasks)
    return seen


async def from_a_thread():
    seen = []
    loop = asyncio.get_running_loop()

    def post():
        for name in "abc":
            loop.call_soon_threadsafe(seen.append, name)

    thread = threading.Thread(target=post)
    thread.start()
    thread.join()
    await asyncio.sleep(1)
    return seen


async def overdue():
    seen = []
    loop = asyncio.get_running_loop()
    await asyncio.sleep(100)
    for when, name in ((3, "c"), (1, "a"), (2, "b")):
        loop.call_at(when, seen.append, name)
    await asyncio.sleep(1)
    return seen


@pytest.mark.parametrize("test", [in_a_row, done_callbacks, waiting_for_one_future, from_a_thread, overdue])
def test_what_asyncio_promises_stays_in_order(test, orders):
    assert set(orders(test)) == {tuple("abc")}


async def of_two_callers():
    seen = []

    async def caller(names):
        for name in names:
            asyncio.get_running_loop().call_soon(seen.append, name)

    await asyncio.gather(caller("ab"), caller("xy"))
    await asyncio.sleep(1)
    return seen


def test_callers_stay_in_order_each_for_itself(orders):
    results = set(orders(of_two_callers))
    merged = {order for order in itertools.permutations("abxy") if order.index("a") < order.index("b")}
    assert results == {order for order in merged if order.index("x") < order.index("y")}


def test_streams_work_under_every_seed(run):
    """asyncio's own transports rely on the order of their callbacks."""

    async def serve(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def client(address, name):
        reader, writer = await asyncio.open_connection(*address)
        text = b"".join(b"%s %d\n" % (name, number) for number in range(30))
        for number in range(0, len(text), 50):
            writer.write(text[number : number + 50])
            await asyncio.sleep(0)
        writer.write_eof()
        assert await reader.read() == text
        writer.close()
        await writer.wait_closed()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            address = server.sockets[0].getsockname()
            await asyncio.gather(*(client(address, name) for name in (b"a", b"b", b"c")))

    for seed in range(10):
        run(main(), shuffle=seed)
        run(main(), shuffle=seed, relax=["callbacks", "futures"])


def test_what_an_exception_has_interrupted_goes_on_in_order(impl):
    loop = virtual_class(impl.EventLoop)(shuffle=3)
    seen = []

    def interrupt():
        raise KeyboardInterrupt

    try:
        loop.call_soon(seen.append, "first")
        loop.call_soon(interrupt)
        for name in "abc":
            loop.call_soon(seen.append, name)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert seen == ["first"]
        loop.call_later(1, loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    assert seen == ["first", *"abc"]


# -- giving up more ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "relax"),
    [
        (in_a_row, ["callbacks"]),
        (done_callbacks, ["futures"]),
        (done_callbacks, {"futures", "callbacks"}),
        (waiting_for_one_future, ["futures"]),
    ],
)
def test_what_is_given_up_comes_in_any_order(test, relax, orders):
    assert are_all_permutations(orders(test, relax=relax), "abc")


@pytest.mark.parametrize(("test", "relax"), [(in_a_row, ["futures"]), (done_callbacks, ["callbacks"])])
def test_what_is_not_given_up_stays(test, relax, orders):
    assert set(orders(test, relax=relax)) == {tuple("abc")}


# -- seeds -------------------------------------------------------------------------------------------------------------


def notes(error):
    return "\n".join(error.__notes__)


def test_the_seed_is_in_the_traceback(run):
    async def failing():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        run(failing(), shuffle=17, relax=["futures"])
    assert notes(raised.value) == "hotloop.testing: this was with shuffle=17, relax=['futures']"
    with pytest.raises(ZeroDivisionError) as raised:
        run(failing())
    assert not hasattr(raised.value, "__notes__")


def test_run_seeds_stops_at_the_first_that_fails():
    tried = []

    async def main():
        order = await started()
        tried.append(order)
        assert order[0] != "c"

    with pytest.raises(AssertionError) as raised:
        testing.run_seeds(main, seeds=SEEDS)
    failed = len(tried) - 1
    assert [order[0] == "c" for order in tried] == [False] * failed + [True]
    assert f"shuffle={failed}" in notes(raised.value)
    assert f"seed {failed} is the first that fails, {failed} passed before it" in notes(raised.value)
    with pytest.raises(AssertionError, match="assert"):
        testing.run_seeds(main, seeds=[failed])


def test_run_seeds_returns_what_the_test_has_returned():
    assert len(set(map(tuple, testing.run_seeds(started, seeds=40)))) == 6
    assert testing.run_seeds(started, seeds=["one"]) == [testing.run(started(), shuffle="one")]


def test_run_seeds_runs_each_on_a_new_loop():
    async def main():
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    assert testing.run_seeds(main, seeds=3, start=2) == [7, 7, 7]


def test_bad_input(impl):
    virtual = virtual_class(impl.EventLoop)
    with pytest.raises(TypeError, match="shuffle must be"):
        virtual(shuffle=1.5)
    with pytest.raises(TypeError, match="shuffle must be"):
        virtual(shuffle=True)
    with pytest.raises(ValueError, match="relax must be a collection of 'callbacks', 'futures'"):
        virtual(shuffle=1, relax=["timers"])
    with pytest.raises(ValueError, match="relax must be a collection"):
        virtual(shuffle=1, relax="callbacks")
    with pytest.raises(ValueError, match="no use without shuffle"):
        virtual(relax=["callbacks"])
    with pytest.raises(ValueError, match="at least one seed"):
        testing.run_seeds(started, seeds=0)
    for seeds in ("17", True, False, 1.5, None):
        with pytest.raises(TypeError, match=f"seeds must be a number or an iterable of seeds, not {seeds!r}"):
            testing.run_seeds(started, seeds=seeds)


# -- subprocesses ------------------------------------------------------------------------------------------------------


class CallsOfProcess(asyncio.SubprocessProtocol):
    def __init__(self):
        self.calls = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.calls.append("made")

    def pipe_data_received(self, fd, data):
        self.calls.append((fd, data))

    def pipe_connection_lost(self, fd, exception):
        self.calls.append((fd, "lost"))

    def process_exited(self):
        self.calls.append("exited")

    def connection_lost(self, exception):
        self.ended.set_result(None)


@pytest.mark.parametrize("relax", [(), ("callbacks", "futures")])
def test_the_calls_of_a_subprocess_stay_in_order(orders, relax):
    """subprocess_exec() returns after the first one, on which asyncio's Process relies."""

    async def test():
        arguments = ("sh", "-c", "echo hello")
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(CallsOfProcess, *arguments, stdin=None, stderr=None)
        assert protocol.calls[:1] == ["made"]
        await protocol.ended
        transport.close()
        protocol.calls.remove("exited")  # it may come at any time after the first
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        return *protocol.calls, *await process.communicate()

    expected = ("made", (1, b"hello\n"), (1, "lost"), b"hello\n", None)
    assert set(orders(test, relax=relax)) == {expected}
