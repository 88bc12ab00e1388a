"""The futures and tasks that wait for an asyncio.StreamReader: the compiled one does what asyncio's own does."""

import asyncio
import sys

import pytest
from support.comparing import outcome, outcome_of, same_on_both, turns
from support.reader_states import READS, arguments_of, state_of


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
            task = asyncio.ensure_future(outcome_of(reader.readline()))
            await turns(2)
            found += [type(reader._waiter).__name__, outcome(reader.feed_data, b"a\n")]
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
                task = asyncio.ensure_future(outcome_of(reader.readline()))
                await turns(2)
                arguments = {"cancel": (), "set_result": (None,), "set_exception": (OSError("x"),)}[settle]
                getattr(reader._waiter, settle)(*arguments)
                given = {"feed_data": (b"a\n",), "feed_eof": (), "set_exception": (OSError("y"),)}[then]
                found.append(outcome(getattr(reader, then), *given))
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
        done = asyncio.Task(outcome_of(reader.readline()), loop=running, eager_start=True)
        waits = asyncio.Task(outcome_of(reader.readline()), loop=running, eager_start=True)
        found = [done.done() and done.result(), waits.done()]
        reader.feed_data(b"two\n")
        return [*found, await waits]

    assert same_on_both(loop, use) == [b"one\n", False, b"two\n"]


@pytest.mark.parametrize("read", READS)
def test_line_where_a_task_waits(loop, read):
    async def use(module):
        reader = module.StreamReader()
        task = asyncio.create_task(getattr(reader, read)(*arguments_of(read)))
        await turns(1)
        found = [(frame.f_code.co_qualname, frame.f_lineno) for frame in task.get_stack()]
        task.cancel()
        await asyncio.wait([task])
        return found

    same_on_both(loop, use)
