"""A loop whose futures cannot be awaited: what waits for one ends with the error, and leaves nothing behind."""

import asyncio

import pytest
from support.comparing import on_both_loops, outcome_of, same_on_both, turns

pytestmark = on_both_loops


class Refused(asyncio.Future):
    def __await__(self):
        raise ZeroDivisionError

    __iter__ = __await__


@pytest.fixture
def refusing(loop, monkeypatch):
    """Whether the loop's next futures are such futures."""

    def refuse(refuses):
        if refuses:
            monkeypatch.setattr(loop, "create_future", lambda: Refused(loop=loop))
        else:
            monkeypatch.undo()

    return refuse


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "BoundedSemaphore", "Condition"])
def test_locks(loop, aio, refusing, kind):
    async def main():
        lock = getattr(aio, kind)()
        await lock.acquire()
        refusing(True)
        found = [await outcome_of(lock.acquire()), await outcome_of(entered(lock))]
        refusing(False)
        waiting = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        lock.release()
        await turns(3)
        has_acquired = waiting.done()  # waiters that were left behind would be before it
        waiting.cancel()
        return [name for name, *_ in found], has_acquired

    assert loop.run_until_complete(main()) == (["ZeroDivisionError"] * 2, True)


async def entered(lock):
    async with lock:
        pass


@pytest.mark.parametrize("method", ["wait", "wait_for"])
def test_a_condition_holds_its_lock_again(loop, aio, refusing, method):
    async def main():
        condition = aio.Condition()
        await condition.acquire()
        refusing(True)
        found = await outcome_of(condition.wait() if method == "wait" else condition.wait_for(bool))
        refusing(False)
        return found[0], condition.locked(), len(condition._waiters)

    assert loop.run_until_complete(main()) == ("ZeroDivisionError", True, 0)


@pytest.mark.parametrize("method", ["wait", "wait_for"])
def test_a_condition_whose_loop_makes_no_future_once(loop, aio, monkeypatch, method):
    """As a KeyboardInterrupt may come while it makes one."""

    def interrupted():
        monkeypatch.undo()
        raise ZeroDivisionError("no future")

    async def main():
        condition = aio.Condition()
        await condition.acquire()
        monkeypatch.setattr(loop, "create_future", interrupted)
        waiting = asyncio.create_task(outcome_of(condition.wait() if method == "wait" else condition.wait_for(bool)))
        await turns(3)
        waiting.cancel()  # if the exception is lost, it waits
        return (await waiting)[0], condition.locked(), len(condition._waiters)

    assert loop.run_until_complete(main()) == ("ZeroDivisionError", True, 0)


def test_events(loop, aio, refusing):
    async def main():
        event = aio.Event()
        refusing(True)
        return (await outcome_of(event.wait()))[0], len(event._waiters)

    assert loop.run_until_complete(main()) == ("ZeroDivisionError", 0)


@pytest.mark.parametrize("kind", ["Queue", "PriorityQueue", "LifoQueue"])
def test_queues(loop, aio, refusing, kind):
    async def main():
        queue = getattr(aio, kind)(1)
        refusing(True)
        found = [(await outcome_of(queue.get()))[0]]
        queue.put_nowait(1)
        found += [(await outcome_of(queue.put(2)))[0], (await outcome_of(queue.join()))[0]]
        return found, len(queue._getters), len(queue._putters), len(queue._finished._waiters)

    assert loop.run_until_complete(main()) == (["ZeroDivisionError"] * 3, 0, 0, 0)


@pytest.mark.parametrize("method", ["read", "readline", "readexactly", "readuntil"])
def test_readers(loop, aio, refusing, method):
    async def main():
        reader = aio.StreamReader(loop=loop)
        refusing(True)
        found = await outcome_of(getattr(reader, method)(*[1] * (method in ("read", "readexactly"))))
        refusing(False)
        reader.feed_data(b"x\n")
        return found[0], reader._waiter, await reader.readline()

    assert loop.run_until_complete(main()) == ("ZeroDivisionError", None, b"x\n")


def test_sleep_leaves_no_timer(loop, aio, refusing):
    async def main():
        made = []
        original = loop.call_later
        loop.call_later = lambda *arguments, **keywords: made.append(original(*arguments, **keywords)) or made[-1]
        refusing(True)
        found = await outcome_of(aio.sleep(3600))
        return found[0], [handle.cancelled() for handle in made]

    assert loop.run_until_complete(main()) == ("ZeroDivisionError", [True])


def test_task_groups(loop, refusing):
    async def use(module):
        group, tasks = module.TaskGroup(), []
        refusing(True)
        found = await outcome_of(grouped(group, tasks))
        refusing(False)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        return found[0], group._parent_task is None, group._errors

    same_on_both(loop, use)


async def grouped(group, tasks):
    async with group:
        tasks.append(group.create_task(asyncio.Event().wait()))
