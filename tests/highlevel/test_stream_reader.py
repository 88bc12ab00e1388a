"""asyncio.StreamReader's class, constructor and attributes: the compiled one does what asyncio's own does."""

import asyncio
import copy
import gc
import inspect
import weakref

import pytest
from support.comparing import BOTH, description, outcome, outcome_of, same_on_both, turns
from support.reader_states import NAMES, READS, Pausable, arguments_of, state_of

import hotloop.asyncio


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
                found.append(description(error))
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
            result = outcome(getattr(reader, method), *arguments)
            found.append((method, await outcome_of(result) if inspect.isawaitable(result) else result))
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
        waiting = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
        await turns(2)
        waiter = reader._waiter
        delattr(reader, name)
        waiter.set_result(None)
        await turns(3)
        done = waiting.done()
        waiting.cancel()
        return done, (await asyncio.gather(waiting, return_exceptions=True))[0] if done else None

    same_on_both(loop, use)


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
        waiting = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
        await turns(2)
        if when == "waiting":
            waiter = reader._waiter
            setattr(reader, name, copy.copy(value))
            if reader._waiter is waiter:
                waiter.set_result(None)
        await turns(2)
        if not waiting.done():
            log.append(outcome(reader.feed_data, b"--------\n"))
        await turns(2)
        log.append(waiting.result() if waiting.done() else "waits")
        waiting.cancel()
        return log, repr(reader._buffer), repr(reader._eof), repr(reader._paused)

    same_on_both(loop, use)


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


def test_docstring():
    class Reader(hotloop.asyncio.StreamReader):
        pass

    assert (
        inspect.getdoc(Reader) == inspect.getdoc(hotloop.asyncio.StreamReader) == inspect.getdoc(asyncio.StreamReader)
    )
