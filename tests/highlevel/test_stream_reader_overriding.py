"""Programs that override methods of asyncio.StreamReader: the compiled one does what asyncio's own does."""

import asyncio

import pytest
from support.comparing import outcome_of, same_on_both, turns
from support.reader_states import READS, Pausable, arguments_of

import hotloop.asyncio


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


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("change", ["attribute", "deleted", "export"])
def test_reader_that_is_changed_while_a_read_waits(loop, method, change):
    """Data that came before an exception is still read, also by asyncio's own code: it looks only at its beginning."""

    async def use(module):
        reader = module.StreamReader()
        waiting = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
        await turns(2)
        reader.feed_data(b"ab\n")
        reader.set_exception(ConnectionResetError("after the data"))
        if change == "attribute":
            reader.peer = "somewhere"
        elif change == "deleted":
            del reader._exception
        exported = memoryview(reader._buffer) if change == "export" else None
        return await waiting, exported

    same_on_both(loop, use)


def test_buffer_that_cannot_be_cut_after_a_limit(loop):
    """What readline() raises then has the exception that it was handling as its context."""

    async def use(module):
        reader = module.StreamReader()
        reader.feed_data(b"a")
        waiting = asyncio.ensure_future(outcome_of(reader.readline()))
        await turns(2)
        exported = memoryview(reader._buffer)
        reader._waiter.set_exception(asyncio.LimitOverrunError("text", 1))
        return await waiting, exported

    same_on_both(loop, use)
