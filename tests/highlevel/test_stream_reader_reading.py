"""The methods of asyncio.StreamReader that read: the compiled one does what asyncio's own does."""

import asyncio
import copy
import gc
import inspect

import pytest
from support.comparing import description, outcome, outcome_of, same_on_both, turns
from support.reader_states import READS, arguments_of, state_of


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
            coroutine = outcome(getattr(reader, method), *arguments)
            if inspect.isawaitable(coroutine):
                task = asyncio.ensure_future(outcome_of(coroutine))
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
                one = asyncio.ensure_future(outcome_of(getattr(reader, first)(*arguments_of(first))))
                await turns(1)
                found.append(await outcome_of(getattr(reader, second)(*arguments_of(second))))
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
                    found.append(outcome(reader.set_exception, copy.copy(error)))
                    await turns(2)
                    if task.done() and not task.cancelled():
                        found.append(description(task.exception()) or task.result())
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
                    task = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
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
