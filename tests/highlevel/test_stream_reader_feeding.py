"""How an asyncio.StreamReader is fed, and pauses its transport: the compiled one does what asyncio's own does."""

import asyncio

import pytest
from support.comparing import outcome, outcome_of, same_on_both, turns
from support.reader_states import NAMES, READS, Pausable, arguments_of, state_of


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
            task = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
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
            found += [outcome(reader.feed_data, b"0123456\n89"), state_of(reader)]
            reader._paused = True
            reader._limit = 100
            found += [await outcome_of(getattr(reader, method)(*arguments_of(method))), state_of(reader)]
            reader = module.StreamReader(limit=4)
            reader.set_transport(Failing(found))
            reader._paused = True
            task = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
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
                task = asyncio.ensure_future(outcome_of(getattr(reader, method)(*arguments_of(method))))
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
            found += [outcome(reader.feed_data, data), state_of(reader)]
        reader = module.StreamReader()
        found += [outcome(reader.feed_data), outcome(reader.feed_data, b"a", b"b")]
        view = memoryview(reader._buffer)
        found.append(outcome(reader.feed_data, b"x"))
        view.release()
        reader.feed_eof()
        found += [outcome(reader.feed_data, b"x"), outcome(reader.feed_data, b""), state_of(reader)]
        return found

    same_on_both(loop, use)
