"""asyncio.StreamReader: the compiled one does what asyncio's own does, on every loop."""

import asyncio
import copy
import gc
import inspect
import re
import sys
import weakref

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import BOTH, same_on_both, turns

import hotloop.asyncio

READS = ("read", "readexactly", "readuntil", "readline", "__anext__")


def text_of(error):
    """An exception's text without addresses, and without the module that a missing field's has since Python 3.13."""
    return type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error)).replace("'asyncio.streams.", "'")


def described(error):
    """All that a program can see of an exception."""
    if error is None:
        return None
    return (
        *text_of(error),
        getattr(error, "partial", None),
        getattr(error, "consumed", None),
        described(error.__cause__),
        described(error.__context__),
    )


async def outcome(awaitable):
    """What awaiting it returns or raises, to be compared with another's."""
    try:
        return await awaitable
    except Exception as error:
        return described(error)


def call_outcome(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:
        return described(error)


class Pausable:
    """A transport that only counts how often it is paused and resumed."""

    def __init__(self, log, *, can_pause=True):
        self.log = log
        self.can_pause = can_pause

    def pause_reading(self):
        if not self.can_pause:
            raise NotImplementedError
        self.log.append("paused")

    def resume_reading(self):
        self.log.append("resumed")

    def __repr__(self):
        return "<Pausable>"


def state_of(reader):
    waiting = reader._waiter is not None
    return bytes(reader._buffer), reader._eof, waiting, repr(reader._exception), reader._paused, reader.at_eof()


# -- random programs ---------------------------------------------------------------------------------------------------

pieces = strategies.lists(strategies.sampled_from([b"a", b"ab", b"\n", b"\r\n", b"--"]), max_size=6).map(b"".join)
actions = strategies.one_of(
    strategies.tuples(strategies.just("feed"), pieces),
    strategies.tuples(strategies.just("feed_bytearray"), pieces),
    strategies.tuples(strategies.sampled_from(["read", "readexactly"]), strategies.integers(-2, 12)),
    strategies.tuples(strategies.just("readuntil"), strategies.sampled_from([b"\n", b"\r\n", b"--", b"ba", b""])),
    strategies.tuples(strategies.sampled_from(["readline", "__anext__", "feed_eof", "inspect", "set_exception"])),
    strategies.tuples(strategies.sampled_from(["pause", "cancel", "hold", "release"]), strategies.integers(0, 4)),
)
tasks_of_a_program = strategies.lists(strategies.lists(actions, max_size=8), min_size=1, max_size=4)


class Player:
    """One run of a program: several tasks that use one reader, and a log of what each action gave, in order."""

    def __init__(self, module, limit, transport):
        self.log = []
        self.views = []
        self.tasks = []
        self.reader = module.StreamReader(limit, asyncio.get_running_loop())
        if transport is not None:
            self.reader.set_transport(Pausable(self.log, can_pause=transport))

    async def play(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        await turns(60)
        while not all(task.done() for task in self.tasks):
            for task in self.tasks:
                task.cancel()
            await turns(3)
        self.release()
        self.log += [(task.done(), task.cancelled()) for task in self.tasks]
        self.log.append(state_of(self.reader))
        return self.log

    async def play_task(self, name, program):
        for action, *arguments in program:
            try:
                result = await self.act(action, *arguments)
            except Exception as error:
                result = described(error)
            except asyncio.CancelledError as error:
                self.log.append((name, action, "cancelled", error.args))
                if len(self.log) % 2:
                    raise
                continue
            self.log.append((name, action, result, state_of(self.reader)))

    def release(self):
        while self.views:
            self.views.pop().release()

    async def act(self, action, *arguments):
        reader = self.reader
        match action:
            case "feed":
                return reader.feed_data(*arguments)
            case "feed_bytearray":
                return reader.feed_data(bytearray(*arguments))
            case "feed_eof":
                return reader.feed_eof()
            case "set_exception":
                return reader.set_exception(OSError("set"))
            case "pause":
                return await turns(*arguments)
            case "cancel":
                return self.tasks[arguments[0] % len(self.tasks)].cancel(f"by {arguments}")
            case "hold":
                return self.views.append(memoryview(reader._buffer))
            case "release":
                return self.release()
            case "inspect":
                return re.sub(r"waiter=<.*?>( |$)", "", repr(reader)), repr(reader.exception()), reader.at_eof()
            case _:
                result = await getattr(reader, action)(*arguments)
                assert type(result) is bytes
                return result


@hypothesis.settings(max_examples=300, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    program=tasks_of_a_program,
    limit=strategies.sampled_from([1, 3, 5, 100]),
    transport=strategies.sampled_from([None, True, False]),
)
def test_random_programs(loop, program, limit, transport):
    async def run(module):
        return await Player(module, limit, transport).play(program)

    same_on_both(loop, run)


# -- what a reader looks like ------------------------------------------------------------------------------------------


def test_class_is_a_subclass_of_asyncios():
    own, compiled = asyncio.StreamReader, hotloop.asyncio.StreamReader
    assert issubclass(compiled, own)
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        assert getattr(compiled, name) == getattr(own, name)
    for name in dir(own):
        if inspect.isfunction(getattr(own, name)) and name not in ("__getstate__", "__reduce_ex__"):
            assert inspect.signature(getattr(compiled, name)) == inspect.signature(getattr(own, name))
            assert getattr(compiled, name).__doc__ == getattr(own, name).__doc__
            assert inspect.iscoroutinefunction(getattr(compiled, name)) == inspect.iscoroutinefunction(
                getattr(own, name)
            )


def test_constructor(loop):
    async def make(module):
        running = asyncio.get_running_loop()
        found = []
        for arguments, keywords in [
            ((), {}),
            ((5,), {}),
            ((5, running), {}),
            ((), {"limit": 5, "loop": running}),
            ((), {"loop": running, "limit": 5}),
            ((), {"limit": 0, "loop": running}),
            ((), {"limit": -1}),
            ((), {"limit": 2**80, "loop": running}),
            ((), {"limit": float("inf"), "loop": running}),
            ((), {"limit": 1.5, "loop": None}),
            ((), {"limit": True, "loop": running}),
            ((), {"limit": "x", "loop": running}),
            ((), {"limit": 5, "loop": "no loop"}),
            ((1, 2, 3), {}),
            ((), {"other": 1}),
        ]:
            try:
                reader = module.StreamReader(*arguments, **keywords)
            except Exception as error:
                found.append(text_of(error))
            else:
                found.append((repr(reader), state_of(reader), reader._limit, reader._loop is running))
        return found

    same_on_both(loop, make)


def test_constructor_without_a_running_loop(loop):
    asyncio.set_event_loop(loop)
    try:
        for module in BOTH:
            assert module.StreamReader()._loop is loop
    finally:
        asyncio.set_event_loop(None)


def test_debug_mode_remembers_where_a_reader_was_made(loop):
    loop.set_debug(True)

    async def make(module):
        reader = module.StreamReader(limit=5, loop=asyncio.get_running_loop())
        line = reader._source_traceback[-1]
        reader.feed_data(b"a\nb")
        protocol = module.StreamReaderProtocol(reader, loop=asyncio.get_running_loop())
        return (
            line.name,
            line.line,
            await reader.readline(),
            await reader.read(1),
            protocol._source_traceback is reader._source_traceback,
        )

    same_on_both(loop, make)


def test_attributes_are_missing_until_they_are_set():
    for module in BOTH:
        reader = module.StreamReader.__new__(module.StreamReader)
        for name in ("_limit", "_loop", "_buffer", "_eof", "_waiter", "_exception", "_transport", "_paused"):
            with pytest.raises(AttributeError, match=f"StreamReader' object has no attribute '{name}'"):
                getattr(reader, name)
        assert reader._source_traceback is None
        assert weakref.ref(reader)() is reader


NAMES = ("_limit", "_loop", "_buffer", "_eof", "_waiter", "_exception", "_transport", "_paused")


@pytest.mark.parametrize("name", NAMES)
def test_attributes_can_be_deleted(loop, name):
    async def use(module):
        found = []
        for method, *arguments in [
            ("read", 1), ("readexactly", 1), ("readuntil",), ("readline",), ("__anext__",), ("feed_data", b"x"),
            ("feed_eof",), ("at_eof",), ("exception",), ("set_exception", OSError()), ("_wakeup_waiter",),
        ]:  # fmt: skip
            reader = module.StreamReader()
            reader.feed_data(b"a\n")
            delattr(reader, name)
            result = call_outcome(getattr(reader, method), *arguments)
            found.append((method, await outcome(result) if inspect.isawaitable(result) else result))
            reader.__init__(5)
            found.append(repr(reader))
            delattr(reader, name)
            reader.__init__(limit=5, loop=asyncio.get_running_loop())
            found.append(repr(reader))
        return found

    same_on_both(loop, use)


# asyncio does not look at `_exception` again; after a deletion its coroutine is begun anew, and does.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "_exception"])
@pytest.mark.parametrize("method", READS)
def test_attributes_deleted_while_waiting(loop, name, method):
    async def use(module):
        reader = module.StreamReader()
        waiting = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
        await turns(2)
        waiter = reader._waiter
        delattr(reader, name)
        waiter.set_result(None)
        await turns(3)
        done = waiting.done()
        waiting.cancel()
        return done, (await asyncio.gather(waiting, return_exceptions=True))[0] if done else None

    same_on_both(loop, use)


def arguments_of(method):
    return {"read": (5,), "readexactly": (3,), "readuntil": (b"\n",)}.get(method, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_limit", 1), ("_limit", float("inf")), ("_limit", 2**80), ("_limit", -(2**80)), ("_limit", "x"),
        ("_buffer", bytearray(b"other\n")), ("_buffer", b"constant\n"), ("_buffer", None),
        ("_eof", 1), ("_eof", []), ("_paused", 1), ("_exception", OSError("set")), ("_exception", 3),
        ("_transport", None), ("_loop", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("when", ["before", "waiting"])
@pytest.mark.parametrize("method", READS)
def test_attributes_of_other_types(loop, name, value, when, method):
    if when == "waiting" and name == "_buffer" and value is None:
        pytest.skip("the error's text depends on how a version copies bytes")

    async def use(module):
        log = []
        reader = module.StreamReader(limit=4)
        reader.set_transport(Pausable(log))
        if when == "before":
            reader.feed_data(b"ab\ncd\n")
            setattr(reader, name, copy.copy(value))
        waiting = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
        await turns(2)
        if when == "waiting":
            waiter = reader._waiter
            setattr(reader, name, copy.copy(value))
            if reader._waiter is waiter:
                waiter.set_result(None)
        await turns(2)
        if not waiting.done():
            log.append(call_outcome(reader.feed_data, b"--------\n"))
        await turns(2)
        log.append(waiting.result() if waiting.done() else "waits")
        waiting.cancel()
        return log, repr(reader._buffer), repr(reader._eof), repr(reader._paused)

    same_on_both(loop, use)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fed", [b"", b"abc", b"abc\n", b"abc\nd", b"\n", b"a\r\nb\r\n", b"abcdefgh\n", b"abcdefgh"])
@pytest.mark.parametrize("eof", [False, True])
def test_every_read(loop, fed, eof):
    async def use(module):
        found = []
        for method, arguments in [
            *[("read", (size,)) for size in (-1, 0, 1, 3, 100, 2**70, True, "x", None, 1.5)],
            *[("readexactly", (size,)) for size in (-1, 0, 1, 3, 4, 5, 100, 2**70, True, "x", None, 1.5)],
            *[("readuntil", (separator,)) for separator in (b"\n", b"\r\n", b"", "x", None, bytearray(b"\n"), (), 5)],
            *[("readuntil", (separator,)) for separator in ((b"\n",), (b"\r\n", b"\n"), (b"c", b""))],
            *[(method, ()) for method in READS],
            ("readline", (1,)),
        ]:  # fmt: skip
            reader = module.StreamReader(limit=5)
            reader.feed_data(fed)
            if eof:
                reader.feed_eof()
            coroutine = call_outcome(getattr(reader, method), *arguments)
            if inspect.isawaitable(coroutine):
                task = asyncio.ensure_future(outcome(coroutine))
                await turns(2)
                found.append((method, arguments, task.result() if task.done() else "waits", bytes(reader._buffer)))
                task.cancel()
                await turns(1)
            else:
                found.append((method, arguments, coroutine))
        return found

    same_on_both(loop, use)


def test_keywords(loop):
    async def use(module):
        reader = module.StreamReader()
        reader.feed_data(data=b"one\ntwo--three\nfour")
        return [await reader.readuntil(separator=b"--"), await reader.readexactly(n=2), await reader.read(n=5)]

    same_on_both(loop, use)


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 511, 512, 513, 5000])
def test_data_in_pieces(loop, method, size):
    text = b"".join(bytes([97 + number % 26]) * (number % 50) + b"\n" for number in range(400))

    async def use(module):
        reader = module.StreamReader(limit=2**16)
        found = []

        async def collect():
            while len(b"".join(found)) < len(text):
                found.append(await getattr(reader, method)(*arguments_of(method)))
                if method == "readexactly" and len(text) - len(b"".join(found)) < 3:
                    return

        task = asyncio.create_task(collect())
        for start in range(0, len(text), size):
            reader.feed_data(text[start : start + size])
            if start % 3:
                await turns(1)
        reader.feed_eof()
        await task
        return found

    found = same_on_both(loop, use)
    assert b"".join(found) in (text, text[: len(text) // 3 * 3])


def test_async_for(loop):
    async def use(module):
        reader = module.StreamReader()
        task = asyncio.create_task(collect(reader))
        for piece in (b"on", b"e\ntwo\n\n", b"la", b"st"):
            await turns(2)
            reader.feed_data(piece)
        await turns(2)
        reader.feed_eof()
        return await task

    async def collect(reader):
        return [line async for line in reader]

    assert same_on_both(loop, use) == [b"one\n", b"two\n", b"\n", b"last"]


def test_second_reader_is_refused(loop):
    async def use(module):
        found = []
        for first in READS:
            for second in READS:
                reader = module.StreamReader()
                one = asyncio.ensure_future(outcome(getattr(reader, first)(*arguments_of(first))))
                await turns(1)
                found.append(await outcome(getattr(reader, second)(*arguments_of(second))))
                reader.feed_data(b"four\n")
                found.append(await one)
        return found

    assert "already waiting for incoming data" in str(same_on_both(loop, use))


def test_exceptions_that_end_a_line(loop):
    errors = [
        OSError("set"), asyncio.IncompleteReadError(b"partial", 9), asyncio.LimitOverrunError("overrun", 2),
        asyncio.LimitOverrunError("overrun", 3), ValueError("set"), StopIteration(3), asyncio.CancelledError("set"),
    ]  # fmt: skip

    async def use(module):
        found = []
        for error in errors:
            for method in READS:
                for waits in (True, False):
                    reader = module.StreamReader()
                    reader.feed_data(b"ab" if method != "read" or not waits else b"")
                    task = asyncio.ensure_future(getattr(reader, method)(*arguments_of(method)))
                    if waits:
                        await turns(2)
                        reader._buffer.extend(b"c\nd")
                    found.append(call_outcome(reader.set_exception, copy.copy(error)))
                    await turns(2)
                    if task.done() and not task.cancelled():
                        found.append(described(task.exception()) or task.result())
                    found.append((task.done(), task.cancelled(), bytes(reader._buffer)))
                    task.cancel()
                    await turns(1)
        return found

    same_on_both(loop, use)


def test_exception_after_the_data_does_not_hide_it(loop):
    async def use(module):
        found = []
        for method in READS:
            for fed in (b"abc\n", b"a", b"abcdefghij", b"abcdefghij\n"):
                for eof in (False, True):
                    reader = module.StreamReader(limit=5)
                    task = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
                    await turns(2)
                    reader.feed_data(fed)
                    if eof:
                        reader.feed_eof()
                    reader.set_exception(OSError("late"))
                    await turns(2)
                    found.append((method, fed, eof, task.result() if task.done() else "waits", state_of(reader)))
                    task.cancel()
                    await turns(1)
        return found

    same_on_both(loop, use)


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("end", ["cancel", "throw", "close", "drop", "unstarted"])
def test_ends_of_a_coroutine(loop, method, end):
    async def use(module):
        reader = module.StreamReader()
        coroutine = getattr(reader, method)(*arguments_of(method))
        assert inspect.iscoroutine(coroutine)
        assert asyncio.iscoroutine(coroutine)
        found = [coroutine.__name__, coroutine.__qualname__]
        if end == "unstarted":
            coroutine.close()
        elif end == "cancel":
            task = asyncio.ensure_future(coroutine)
            await turns(1)
            found.append((reader._waiter is not None, task.cancel("why")))
            await turns(2)
            found.append((task.cancelled(), reader._waiter))
        else:
            waiter = coroutine.send(None)
            found.append(waiter is reader._waiter)
            if end == "throw":
                try:
                    coroutine.throw(KeyError("thrown"))
                except KeyError as error:
                    found.append(error.args)
            elif end == "close":
                coroutine.close()
            else:
                del coroutine
                gc.collect()
            found.append(reader._waiter)
        # The reader is as good as new.
        reader.feed_data(b"four\n")
        return [*found, await getattr(reader, method)(*arguments_of(method))]

    same_on_both(loop, use)


@pytest.mark.parametrize("method", READS)
def test_order_of_wake_ups(loop, method):
    async def use(module):
        log = []
        reader = module.StreamReader()

        async def watch():
            log.append(await getattr(reader, method)(*arguments_of(method)))

        task = asyncio.create_task(watch())
        await turns(1)
        for number in range(5):
            asyncio.get_running_loop().call_soon(log.append, number)
            if number == 2:
                reader.feed_data(b"four\n")
        await task
        log.append("end")
        return log

    same_on_both(loop, use)


def test_data_there_needs_no_turn(loop):
    async def use(module):
        reader = module.StreamReader()
        reader.feed_data(b"one\ntwo\n" * 10)
        passed = []
        asyncio.get_running_loop().call_soon(passed.append, 1)
        await reader.readline()
        await reader.readuntil(b"two")
        await reader.readexactly(3)
        await reader.read(3)
        await anext(reader)
        return passed.copy()

    assert same_on_both(loop, use) == []


# -- flow control ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("can_pause", [True, False])
@pytest.mark.parametrize("limit", [1, 4, 6, 2**70, float("inf"), 3.5])
def test_transport_is_paused_and_resumed(loop, method, can_pause, limit):
    async def use(module):
        log = []
        reader = module.StreamReader(limit=limit)
        reader.set_transport(Pausable(log, can_pause=can_pause))
        for number in range(12):
            reader.feed_data(b"abc\n" if number % 3 else b"\n")
            log.append(state_of(reader))
        for _ in range(14):
            task = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
            await turns(2)
            log += [task.result() if task.done() else "waits", state_of(reader)]
            task.cancel()
            await turns(1)
        return log, repr(reader._transport)

    same_on_both(loop, use)


def test_reading_more_than_the_limit_resumes(loop):
    async def use(module):
        log = []
        reader = module.StreamReader(limit=4)
        reader.set_transport(Pausable(log))
        task = asyncio.ensure_future(reader.readexactly(100))
        for _ in range(10):
            await turns(2)
            reader.feed_data(b"0123456789")
            log.append(state_of(reader))
        return log, await task

    same_on_both(loop, use)


@pytest.mark.parametrize("failing", ["pause_reading", "resume_reading"])
def test_failures_of_the_transport(loop, failing):
    class Failing(Pausable):
        pass

    def fail(self):
        raise OSError(failing)

    setattr(Failing, failing, fail)

    async def use(module):
        found = []
        for method in READS:
            reader = module.StreamReader(limit=4)
            reader.set_transport(Failing(found))
            found += [call_outcome(reader.feed_data, b"0123456\n89"), state_of(reader)]
            reader._paused = True
            reader._limit = 100
            found += [await outcome(getattr(reader, method)(*arguments_of(method))), state_of(reader)]
            reader = module.StreamReader(limit=4)
            reader.set_transport(Failing(found))
            reader._paused = True
            task = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
            await turns(2)
            found += [task.result() if task.done() else "waits", state_of(reader)]
            task.cancel()
            await turns(1)
        return found

    same_on_both(loop, use)


def test_transport_that_spoils_the_reader_when_it_resumes(loop):
    async def use(module):
        found = []
        for name in NAMES:
            for method in READS:
                log = []
                reader = module.StreamReader(limit=4)

                class Spoiler(Pausable):
                    def resume_reading(self, reader=reader, name=name):
                        delattr(reader, name)

                reader.set_transport(Spoiler(log))
                reader._paused = True
                task = asyncio.ensure_future(outcome(getattr(reader, method)(*arguments_of(method))))
                await turns(2)
                found.append((name, method, task.result() if task.done() else "waits", log))
                task.cancel()
                await turns(1)
        return found

    same_on_both(loop, use)


def test_feeding(loop):
    async def use(module):
        found = []
        for data in (b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), [1, 2], "abc", None, 5, (), [300]):
            reader = module.StreamReader()
            found += [call_outcome(reader.feed_data, data), state_of(reader)]
        reader = module.StreamReader()
        found += [call_outcome(reader.feed_data), call_outcome(reader.feed_data, b"a", b"b")]
        view = memoryview(reader._buffer)
        found.append(call_outcome(reader.feed_data, b"x"))
        view.release()
        reader.feed_eof()
        found += [call_outcome(reader.feed_data, b"x"), call_outcome(reader.feed_data, b""), state_of(reader)]
        return found

    same_on_both(loop, use)


# -- what programs override --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        "feed_data", "feed_eof", "_wakeup_waiter", "_maybe_resume_transport", "_wait_for_data", "exception", "at_eof",
        "read", "readuntil", "readline", "readexactly", "set_exception", "__anext__",
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["subclass", "object"])
def test_overridden_methods_are_called(loop, method, way):
    async def use(module):
        calls = []

        class Watched(module.StreamReader):
            pass

        def watched(self, *arguments):
            calls.append((method, arguments))
            return getattr(module.StreamReader, method)(self, *arguments)

        reader = (Watched if way == "subclass" else module.StreamReader)(limit=4)
        if way == "subclass":
            setattr(Watched, method, watched)
        else:
            setattr(reader, method, watched.__get__(reader))
        reader.set_transport(Pausable(calls))
        reader.feed_data(b"12345678901\n")
        calls += [await reader.readexactly(11), await reader.readline()]
        task = asyncio.ensure_future(reader.readline())
        await turns(2)
        reader.feed_data(b"1\n2\n--3")
        calls += [await task, await anext(reader), await reader.readuntil(b"--")]
        task = asyncio.ensure_future(reader.read())
        await turns(2)
        reader.feed_eof()
        calls += [await task, reader.at_eof(), reader.exception()]
        return calls

    same_on_both(loop, use)


@pytest.mark.parametrize("owner", ["own", "compiled"])
def test_patched_class_is_followed(loop, owner, monkeypatch):
    calls = []
    patched_class = asyncio.StreamReader if owner == "own" else hotloop.asyncio.StreamReader
    original = asyncio.StreamReader._wait_for_data

    async def patched(self, name):
        calls.append(name)
        return await original(self, name)

    async def use():
        reader = hotloop.asyncio.StreamReader()
        tasks = []
        with monkeypatch.context() as patch:
            before = reader.readline()
            patch.setattr(patched_class, "_wait_for_data", patched)
            for coroutine in (before, reader.read(5), reader.readexactly(2)):
                tasks.append(asyncio.ensure_future(coroutine))
                await turns(2)
                reader.feed_data(b"a\n")
                await turns(2)
        return [await task for task in tasks]

    assert loop.run_until_complete(use()) == [b"a\n"] * 3
    assert calls == ["readuntil", "read", "readexactly"]


def test_class_patched_while_waiting(loop, monkeypatch):
    async def use(module):
        found = []
        for method in READS:
            reader = module.StreamReader()
            task = asyncio.ensure_future(getattr(reader, method)(*arguments_of(method)))
            await turns(2)
            with monkeypatch.context() as patch:
                patch.setattr(asyncio.StreamReader, "unrelated", 1, raising=False)
                reader.feed_data(b"a")
                await turns(2)
                reader.feed_data(b"bc\n")
                found.append(await task)
        return found

    same_on_both(loop, use)


def test_attribute_of_the_program_on_a_reader(loop):
    async def use(module):
        reader = module.StreamReader()
        reader.peer = "somewhere"
        task = asyncio.ensure_future(reader.readline())
        await turns(2)
        reader.feed_data(b"one\ntwo\n")
        other = module.StreamReader()
        waiting = asyncio.ensure_future(other.readexactly(3))
        await turns(2)
        other.peer = "elsewhere"
        other.feed_data(b"abcd")
        return await task, await reader.readuntil(), vars(reader).get("peer"), await waiting, await other.read(9)

    same_on_both(loop, use)


# -- loops and tasks ---------------------------------------------------------------------------------------------------


def test_loop_that_makes_other_futures(impl, loop):
    class Other(asyncio.Future):
        pass

    async def use(module):
        running = asyncio.get_running_loop()
        found = []
        for waiter in (Other(loop=running), asyncio.futures._PyFuture(loop=running), "no future", None):

            class Loop:
                def create_future(self, waiter=waiter):
                    return waiter

                def get_debug(self):
                    return False

            reader = module.StreamReader(limit=5, loop=Loop())
            task = asyncio.ensure_future(outcome(reader.readline()))
            await turns(2)
            found += [type(reader._waiter).__name__, call_outcome(reader.feed_data, b"a\n")]
            await turns(2)
            found.append(task.result() if task.done() else "waits")
            task.cancel()
            await turns(1)
        return found

    same_on_both(loop, use)


def test_waiter_that_the_program_settles(loop):
    async def use(module):
        found = []
        for settle in ("cancel", "set_result", "set_exception"):
            for then in ("feed_data", "feed_eof", "set_exception"):
                reader = module.StreamReader()
                task = asyncio.ensure_future(outcome(reader.readline()))
                await turns(2)
                arguments = {"cancel": (), "set_result": (None,), "set_exception": (OSError("x"),)}[settle]
                getattr(reader._waiter, settle)(*arguments)
                given = {"feed_data": (b"a\n",), "feed_eof": (), "set_exception": (OSError("y"),)}[then]
                found.append(call_outcome(getattr(reader, then), *given))
                await turns(2)
                found += [task.cancelled() or (task.result() if task.done() else "waits"), state_of(reader)]
                task.cancel()
                await turns(1)
        return found

    same_on_both(loop, use)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_eager_tasks(loop):
    async def use(module):
        reader = module.StreamReader()
        reader.feed_data(b"one\n")
        running = asyncio.get_running_loop()
        done = asyncio.Task(outcome(reader.readline()), loop=running, eager_start=True)
        waits = asyncio.Task(outcome(reader.readline()), loop=running, eager_start=True)
        found = [done.done() and done.result(), waits.done()]
        reader.feed_data(b"two\n")
        return [*found, await waits]

    assert same_on_both(loop, use) == [b"one\n", False, b"two\n"]


def test_readers_are_collected(loop):
    async def use(module):
        reader = module.StreamReader()
        reader.itself = reader
        other = module.StreamReader()
        other._transport = [other]
        found = [weakref.ref(reader), weakref.ref(other)]
        del reader, other
        gc.collect()
        return [reference() for reference in found]

    assert same_on_both(loop, use) == [None, None]
