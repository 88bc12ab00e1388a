"""Names are resolved in threads of their own, and where a program could tell, in the default executor as on asyncio."""

import asyncio
import contextlib
import contextvars
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.forking import IN_CHILD
from support.leftovers import SECONDS_FOR_A_THREAD_TO_END

import hotloop
from hotloop.testing.loop import make_event_loop_class

ours = pytest.mark.only("c", "python", reason="asyncio resolves names in the default executor")

ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]


class Resolver:
    """Stands in for socket.getaddrinfo() and getnameinfo(). Names wait in their threads until release() is called."""

    def __init__(self):
        self._waiter = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._may_answer = threading.Event()
        self.asked = []
        self.threads = []
        self.begun = threading.Semaphore(0)

    def release(self):
        self._may_answer.set()

    def _ask(self, arguments):
        with self._lock:
            self.asked.append(arguments)
            self.threads.append(threading.current_thread())
        self.begun.release()
        self._may_answer.wait()

    def getaddrinfo(self, *arguments):
        self._ask(arguments)
        return ANSWER

    def getnameinfo(self, *arguments):
        self._ask(arguments)
        return "host.test", "http"

    async def wait_for_names(self, count):
        """Return when `count` more names are in their threads."""
        for _ in range(count):
            await asyncio.get_running_loop().run_in_executor(self._waiter, self.begun.acquire)

    def close(self):
        self.release()
        self._waiter.shutdown()


@pytest.fixture
def slow_resolver(monkeypatch):
    """Does not answer before release()."""
    with contextlib.closing(Resolver()) as resolver:
        monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
        monkeypatch.setattr(socket, "getnameinfo", resolver.getnameinfo)
        yield resolver


@pytest.fixture
def resolver(slow_resolver):
    """Answers at once."""
    slow_resolver.release()
    return slow_resolver


async def ask_both(loop):
    """Resolve a name and an address."""
    assert await loop.getaddrinfo("name.test", 80) == ANSWER
    assert await loop.getnameinfo(("192.0.2.1", 80)) == ("host.test", "http")


def prefixes(resolver):
    return {thread.name.rpartition("_")[0] for thread in resolver.threads}


class Saturated:
    """The default executor's threads, all of which wait until the end of the `with`."""

    def __init__(self, loop):
        self._loop = loop
        self._release = threading.Event()

    async def __aenter__(self):
        # At most 32 threads, whatever the machine has.
        self._jobs = [self._loop.run_in_executor(None, self._release.wait) for _ in range(40)]

    async def __aexit__(self, *_):
        self._release.set()
        await asyncio.gather(*self._jobs)


# -- threads of their own ----------------------------------------------------------------------------------------------


@pytest.mark.promise("P20")
@ours
@pytest.mark.parametrize("debug", [False, True])
def test_a_saturated_default_executor_does_not_delay_names(impl, loop, resolver, debug):
    loop.set_debug(debug)
    loop.slow_callback_duration = 3600

    async def main():
        async with Saturated(loop):
            await ask_both(loop)

    loop.run_until_complete(main())
    assert prefixes(resolver) == {"asyncio_names"}
    assert resolver.asked == [("name.test", 80, 0, 0, 0, 0), (("192.0.2.1", 80), 0)]


@ours
def test_a_connection_by_name_does_not_wait_for_the_default_executor(impl, loop, monkeypatch):
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: real("127.0.0.1", *rest))

    async def main():
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with Saturated(loop):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, "name.test", server.sockets[0].getsockname()[1]
            )
            transport.close()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


@ours
def test_so_many_names_at_once_as_there_are_threads(impl, loop, slow_resolver):
    loop._name_threads.size = 3

    async def main():
        before = loop.metrics()
        asking = [asyncio.create_task(loop.getaddrinfo(f"{number}.test", 80)) for number in range(8)]
        await slow_resolver.wait_for_names(3)
        during = loop.metrics()
        assert (during.names_resolving, during.names_waiting, (during - before).names) == (3, 5, 8)
        # Who gives up waiting frees no thread that works already.
        asking[0].cancel()
        asking[7].cancel()
        await asyncio.wait([asking[0], asking[7]])
        during = loop.metrics() - before
        assert (during.names_resolving, during.names_waiting, during.names) == (3, 4, 8)
        slow_resolver.release()
        assert await asyncio.gather(*asking[1:7]) == [ANSWER] * 6
        await loop.shutdown_default_executor()
        after = loop.metrics() - before
        assert (after.names_resolving, after.names_waiting, after.names) == (0, 0, 8)

    loop.run_until_complete(main())
    assert len(set(slow_resolver.threads)) == 3
    assert [host for host, *_ in slow_resolver.asked] == [f"{number}.test" for number in range(7)]


@ours
def test_literals_start_no_thread(impl, loop):
    before = threading.enumerate()
    loop.run_until_complete(loop.getaddrinfo("127.0.0.1", 80))
    assert threading.enumerate() == before
    assert loop.metrics().names == 0


def test_as_many_as_a_default_executor_has(impl, loop, slow_resolver):
    """No program resolves fewer names at once than on asyncio."""
    with ThreadPoolExecutor() as usual:
        many = usual._max_workers

    async def main():
        asking = [asyncio.create_task(loop.getaddrinfo("name.test", 80)) for _ in range(many)]
        await slow_resolver.wait_for_names(many)
        slow_resolver.release()
        await asyncio.gather(*asking)

    loop.run_until_complete(main())


def test_a_name_that_is_given_up_while_it_waits_is_never_asked_for(impl, loop, slow_resolver):
    if impl.is_oracle:
        loop.set_default_executor(ThreadPoolExecutor(1))
    else:
        loop._name_threads.size = 1

    async def main():
        first = asyncio.create_task(loop.getaddrinfo("first.test", 80))
        second = asyncio.create_task(loop.getaddrinfo("second.test", 80))
        await slow_resolver.wait_for_names(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        slow_resolver.release()
        await first
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())
    assert [host for host, *_ in slow_resolver.asked] == ["first.test"]


def test_the_callers_context_goes_along_if_threads_inherit_it(impl, loop, monkeypatch):
    """They do by default since Python 3.14 without the GIL."""
    variable = contextvars.ContextVar("variable", default="unset")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: variable.get())

    async def main():
        variable.set("set")
        return await loop.getaddrinfo("name.test", 80)

    inherits = getattr(sys.flags, "thread_inherit_context", False)
    assert loop.run_until_complete(main()) == ("set" if inherits else "unset")


def test_answers_are_not_kept(impl, loop, monkeypatch):
    class Answer:
        pass

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: Answer())
    answer = weakref.ref(loop.run_until_complete(loop.getaddrinfo("name.test", 80)))
    # A worker's thread drops its last work when it takes the next, or ends.
    loop.run_until_complete(loop.shutdown_default_executor())
    gc.collect()
    assert answer() is None


# -- what programs replace ---------------------------------------------------------------------------------------------


def test_threads_that_resolve_names_have_a_name_of_asyncios(impl, loop, resolver):
    """Checks for left threads, such as pymodbus' tests, excuse those whose names begin with "asyncio_"."""
    loop.run_until_complete(ask_both(loop))
    assert [thread.name.startswith("asyncio_") for thread in resolver.threads] == [True, True]


@pytest.mark.promise("P20")
@pytest.mark.parametrize("prefix", ["of-the-program", "asyncio"])
@pytest.mark.parametrize("already_resolves", [False, True])
def test_the_programs_default_executor_resolves_names(impl, loop, resolver, prefix, already_resolves):
    if already_resolves:
        loop.run_until_complete(ask_both(loop))
        resolver.threads.clear()
    executor = ThreadPoolExecutor(1, thread_name_prefix=prefix)
    loop.set_default_executor(executor)
    loop.run_until_complete(ask_both(loop))
    assert set(resolver.threads) == executor._threads
    assert prefixes(resolver) == {prefix}


def test_an_executor_that_is_put_into_the_attribute_resolves_names(impl, loop, resolver):
    class Executor:
        """Of a kind that set_default_executor() refuses."""

        def __init__(self):
            self.behind = ThreadPoolExecutor(1)
            self.submitted = []

        def submit(self, *arguments):
            self.submitted.append(arguments)
            return self.behind.submit(*arguments)

        def shutdown(self, wait=True):
            self.behind.shutdown(wait)

    loop._default_executor = executor = Executor()
    loop.run_until_complete(ask_both(loop))
    assert executor.submitted == [
        (resolver.getaddrinfo, "name.test", 80, 0, 0, 0, 0),
        (resolver.getnameinfo, ("192.0.2.1", 80), 0),
    ]


def test_a_refused_default_executor_changes_nothing(impl, loop, resolver):
    with pytest.raises(TypeError):
        loop.set_default_executor(5)
    loop.run_until_complete(ask_both(loop))
    assert prefixes(resolver) == {"asyncio" if impl.is_oracle else "asyncio_names"}


def in_the_loop(loop, replacement, monkeypatch):
    loop.run_in_executor = lambda *arguments: replacement(loop, *arguments)


def in_the_class(loop, replacement, monkeypatch):
    monkeypatch.setattr(type(loop), "run_in_executor", replacement)


def in_asyncio(loop, replacement, monkeypatch):
    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", replacement)


@pytest.mark.parametrize("replace", [in_the_loop, in_the_class, in_asyncio])
def test_a_replaced_run_in_executor_gets_names_for_the_default_executor(impl, loop, resolver, monkeypatch, replace):
    seen = []

    def replacement(self, *arguments):
        seen.append(arguments)
        future = self.create_future()
        future.set_result(ANSWER if "name.test" in arguments else ("host.test", "http"))
        return future

    replace(loop, replacement, monkeypatch)
    loop.run_until_complete(ask_both(loop))
    assert seen == [
        (None, resolver.getaddrinfo, "name.test", 80, 0, 0, 0, 0),
        (None, resolver.getnameinfo, ("192.0.2.1", 80), 0),
    ]


def test_a_subclass_with_a_run_in_executor_of_its_own(impl, resolver):
    seen = []

    class Loop(impl.EventLoop):
        def run_in_executor(self, executor, func, *args):
            seen.append(executor)
            return super().run_in_executor(executor, func, *args)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(ask_both(runner.get_loop()))
    assert seen == [None, None]
    assert prefixes(resolver) == {"asyncio"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", None])
@pytest.mark.parametrize("replace", [in_the_loop, in_the_class, in_asyncio])
def test_a_replaced_run_in_executor_gets_literals(loop, monkeypatch, replace, host):
    def replacement(self, executor, function, *arguments):
        future = self.create_future()
        future.set_result(["replaced", arguments[0]])
        return future

    replace(loop, replacement, monkeypatch)
    assert loop.run_until_complete(loop.getaddrinfo(host, 80)) == ["replaced", host]


def test_functions_are_looked_up_at_each_call(impl, loop, resolver, monkeypatch):
    loop.run_until_complete(ask_both(loop))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: "replaced")
    monkeypatch.setattr(socket, "getnameinfo", lambda *_: "replaced, too")
    assert loop.run_until_complete(loop.getaddrinfo("name.test", 80)) == "replaced"
    assert loop.run_until_complete(loop.getnameinfo(("192.0.2.1", 80))) == "replaced, too"


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", ["nothing", "other work", "the program's executor"])
def test_shutting_down_the_default_executor_ends_the_threads(impl, loop, resolver, beside):
    async def main():
        await ask_both(loop)
        if beside == "the program's executor":
            loop.set_default_executor(ThreadPoolExecutor(1))
        if beside != "nothing":
            resolver.threads.append(await loop.run_in_executor(None, threading.current_thread))
        await loop.shutdown_default_executor()
        if beside != "the program's executor" or not impl.is_oracle:  # asyncio forgets its own
            assert [thread for thread in resolver.threads if thread.is_alive()] == []
        for coroutine in (loop.getaddrinfo("name.test", 80), loop.getnameinfo(("192.0.2.1", 80))):
            with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
                await coroutine

    loop.run_until_complete(main())


def test_shutting_down_waits_for_names(impl, loop, slow_resolver, monkeypatch):
    shut_down = ThreadPoolExecutor.shutdown
    waits = []

    def shutdown(executor, wait=True):
        waits.append(wait)
        slow_resolver.release()
        shut_down(executor, wait)

    async def main():
        asking = asyncio.create_task(loop.getaddrinfo("name.test", 80))
        await slow_resolver.wait_for_names(1)
        monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
        await loop.shutdown_default_executor()
        assert waits == [True] * (1 if impl.is_oracle else 2)
        assert not slow_resolver.threads[0].is_alive()
        assert await asking == ANSWER

    loop.run_until_complete(main())


@pytest.mark.skipif(
    "timeouts" not in asyncio.BaseEventLoop.shutdown_default_executor.__code__.co_names,
    reason="up to CPython 3.12.1 asyncio waits without limit",
)
def test_shutting_down_waits_no_longer_than_it_is_told(impl, loop, slow_resolver):
    async def main():
        asking = asyncio.create_task(loop.getaddrinfo("name.test", 80))
        await slow_resolver.wait_for_names(1)
        with pytest.warns(RuntimeWarning, match="did not finishing joining its threads within 0.01 seconds"):
            await loop.shutdown_default_executor(0.01)
        slow_resolver.release()
        assert await asking == ANSWER

    loop.run_until_complete(main())


def test_closing_does_not_wait_for_names(impl, slow_resolver):
    loop = impl.new_event_loop()

    async def main():
        asking = asyncio.create_task(loop.getaddrinfo("name.test", 80))
        await slow_resolver.wait_for_names(1)
        asking.cancel()
        await asyncio.wait([asking])

    loop.run_until_complete(main())
    loop.close()
    [thread] = slow_resolver.threads
    assert thread.is_alive()
    slow_resolver.release()
    thread.join(SECONDS_FOR_A_THREAD_TO_END)
    assert not thread.is_alive()


def test_a_closed_loop_refuses(impl, loop):
    loop.close()
    for coroutine in (loop.getaddrinfo("name.test", 80), loop.getnameinfo(("192.0.2.1", 80))):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            coroutine.send(None)


@ours
def test_a_loop_goes_on_resolving_names_in_a_child(impl):
    """Threads do not survive a fork."""
    impl.run_script(
        IN_CHILD
        + """if True:
        import socket
        socket.getaddrinfo = lambda *arguments: arguments[0]
        loop = impl.new_event_loop()
        def resolve():
            assert loop.run_until_complete(loop.getaddrinfo("name.test", 80)) == "name.test"
        def resolve_and_close():
            assert loop.metrics().names == 1
            resolve()
            assert loop.metrics().names == 2
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        resolve()
        in_child(loop.close)
        in_child(resolve_and_close)
        resolve()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        """
    )


# -- loops for tests ---------------------------------------------------------------------------------------------------


def test_a_name_holds_the_clock(impl, slow_resolver):
    async def main():
        loop = asyncio.get_running_loop()
        asking = asyncio.create_task(loop.getaddrinfo("name.test", 80))
        await asyncio.sleep(0)
        assert loop.clock.held
        slow_resolver.release()
        async with asyncio.timeout(1):
            assert await asking == ANSWER
        assert not loop.clock.held
        assert loop.time() == 0.0

    with asyncio.Runner(loop_factory=make_event_loop_class(impl.EventLoop)) as runner:
        runner.run(main())
    assert prefixes(slow_resolver) == {"asyncio" if impl.is_oracle else "asyncio_names"}


# -- the option --------------------------------------------------------------------------------------------------------

NAMES = """if True:
    import hotloop, socket, threading
    socket.getaddrinfo = lambda *arguments: threading.current_thread().name
    async def main():
        loop = asyncio.get_running_loop()
        assert isinstance(loop, hotloop.EventLoop)
        thread = await loop.getaddrinfo("name.test", 80)
        return thread.rpartition("_")[0], loop._name_threads.size
    def on(loop):
        try:
            return loop.run_until_complete(main())
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
"""


@ours
def test_each_loop_has_its_number(impl, monkeypatch):
    monkeypatch.delenv("HOTLOOP_NAME_THREADS", raising=False)
    impl.run_script(
        NAMES
        + """
    for options in ({}, {"tasks": "asyncio"}):
        for make in (lambda **more: on(hotloop.new_event_loop(**more)), lambda **more: hotloop.run(main(), **more)):
            assert make(**options, name_threads=4) == ("asyncio_names", 4)
            assert make(**options, name_threads=0) == ("asyncio", 0)
            assert make(**options) == make(**options, name_threads=None) == ("asyncio_names", None)
    """
    )


@ours
@pytest.mark.parametrize(
    ("value", "answer"), [("", ("asyncio_names", None)), ("2", ("asyncio_names", 2)), ("0", ("asyncio", 0))]
)
def test_the_variable_decides_for_all_other_loops(impl, monkeypatch, value, answer):
    monkeypatch.setenv("HOTLOOP_NAME_THREADS", value)
    impl.run_script(
        NAMES
        + f"""
    assert hotloop.run(main()) == on(hotloop.new_event_loop()) == on(hotloop.EventLoop()) == {answer!r}
    assert hotloop.run(main(), name_threads=3) == ("asyncio_names", 3)
    """
    )


@ours
@pytest.mark.parametrize("value", ["many", "-1", "1.5", " 1"])
def test_a_wrong_variable_is_reported(impl, value):
    environment = os.environ | {"HOTLOOP_IMPL": impl.name, "HOTLOOP_NAME_THREADS": value}
    command = [sys.executable, "-m", "hotloop", "info"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"hotloop: HOTLOOP_NAME_THREADS must be a number of threads, or unset; it is {value!r}"
    )


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (True, TypeError), (2.0, TypeError), ("2", TypeError)])
def test_a_wrong_argument_is_refused(wrong, error):
    with pytest.raises(error, match="name_threads must"):
        hotloop.new_event_loop(name_threads=wrong)
    main = asyncio.sleep(0)
    with pytest.raises(error, match="name_threads must"):
        hotloop.run(main, name_threads=wrong)
    main.close()
