"""asyncio's building blocks, with independent events in a hundred orders: nothing is lost, and no task waits forever.

Much happens at the same moment, timeouts and cancellations included, so that every seed has something to decide. The
loop raises DeadlockError if a task waits forever. asyncio's own loop with the same clock is the oracle.
`--hotloop-seeds=5000` tries more.
"""

import asyncio
import contextlib
import random
import sys

import pytest

pytestmark = pytest.mark.hotloop(seeds=100)


@pytest.fixture
def chance(hotloop_loop):
    """Random choices of a test, which the seed decides."""
    return random.Random(f"chance {hotloop_loop._shuffler.seed}")


async def ended(tasks):
    """Wait for tasks, some of which are cancelled. Any other exception of theirs is an error."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    wrong = [result for result in results if isinstance(result, Exception)]
    assert not wrong, wrong
    return results


async def test_a_queue_loses_nothing_and_keeps_the_order_of_each_producer(hotloop_clock):
    queue = asyncio.Queue(maxsize=2)
    taken = []

    async def produce(name):
        for number in range(6):
            await asyncio.sleep(0.5)
            await queue.put((name, number))

    async def consume():
        while True:
            try:
                # Items come when this timeout is due.
                item = await asyncio.wait_for(queue.get(), 1)
            except TimeoutError:
                continue
            taken.append(item)
            queue.task_done()
            await asyncio.sleep(0.5)

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(produce(name) for name in "abc"))
        await queue.join()
    for consumer in consumers:
        consumer.cancel()
    await ended(consumers)
    assert sorted(taken) == [(name, number) for name in "abc" for number in range(6)]


async def test_a_semaphore_that_clients_leave_while_they_are_let_in(chance):
    """There are never more clients inside than the semaphore lets in, and all places are free at the end."""
    semaphore = asyncio.Semaphore(2)
    inside = most = served = 0

    async def client():
        nonlocal inside, most, served
        await asyncio.sleep(chance.randrange(3))
        async with semaphore:
            inside += 1
            most = max(most, inside)
            try:
                await asyncio.sleep(1)
                served += 1
            finally:
                inside -= 1

    async def leave(client):
        await asyncio.sleep(chance.randrange(1, 6))
        client.cancel()

    clients = [asyncio.create_task(client()) for _ in range(8)]
    await ended([*clients, *(asyncio.create_task(leave(client)) for client in clients[::2])])
    assert most == 2 and inside == 0 and not semaphore.locked()
    assert served >= 4, "the clients that were not cancelled"
    await semaphore.acquire()
    await semaphore.acquire()


async def test_a_lock_whose_timeouts_end_when_it_becomes_free():
    lock, holders = asyncio.Lock(), []

    async def client(name):
        try:
            async with asyncio.timeout(2):
                await lock.acquire()
        except TimeoutError:
            return "too late"
        assert not holders
        holders.append(name)
        await asyncio.sleep(1)
        holders.remove(name)
        lock.release()
        return "had it"

    results = await asyncio.gather(*map(client, "abcd"))
    assert not lock.locked() and not holders
    assert results.count("had it") in (2, 3), "the third may be let in when its time is over"


async def test_a_result_that_comes_when_the_timeout_is_due(hotloop_clock):
    """Each task gets either the result or the timeout, never both, and none stays cancelled."""
    loop = asyncio.get_running_loop()

    async def wait(future, how):
        try:
            if how == "wait_for":
                return await asyncio.wait_for(future, 1)
            if how == "shielded":
                return await asyncio.wait_for(asyncio.shield(future), 1)
            async with asyncio.timeout(1):
                return await future
        except TimeoutError:
            assert future.done() or how == "shielded"
            return "too late"
        finally:
            assert hotloop_clock.time() == 1
            assert asyncio.current_task().cancelling() == 0

    def answer(future):
        if not future.done():
            future.set_result("in time")

    waiting = []
    for how in ["wait_for", "shielded", "timeout"] * 2:
        future = loop.create_future()
        # Whichever timer is set first, the seed decides the order of those that are due together.
        loop.call_at(1, answer, future)
        waiting.append(wait(future, how))
    assert set(await asyncio.gather(*waiting)) <= {"in time", "too late"}
    # No cancelled timer fires later.
    await asyncio.sleep(1)


async def test_a_group_one_of_whose_tasks_fails_while_others_end(chance, hotloop_clock):
    ends = {}

    async def work(number, seconds):
        try:
            await asyncio.sleep(seconds)
            if number == 3:
                raise ZeroDivisionError
            return seconds
        finally:
            ends[number] = hotloop_clock.time()

    seconds = [chance.randrange(1, 4) for _ in range(6)]
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(*item)) for item in enumerate(seconds)]
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    failed_at = seconds[3]
    for number, task in enumerate(tasks):
        assert task.done() and ends[number] == min(seconds[number], failed_at)
        if number != 3 and seconds[number] != failed_at:
            assert task.cancelled() == (seconds[number] > failed_at)
    if sys.version_info >= (3, 13):  # before, a group did not undo the cancellation of its own task
        assert asyncio.current_task().cancelling() == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_around_the_moment_of_the_wake_up(chance):
    """A task that has its item is done; a cancelled one has passed its wake-up on."""
    queue, event = asyncio.Queue(), asyncio.Event()
    got = []

    async def take(name):
        got.append((name, await queue.get()))

    async def at_two(function, *arguments):
        await asyncio.sleep(2)
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        function(*arguments)

    takers = [asyncio.create_task(take(number)) for number in range(3)]
    watcher = asyncio.create_task(event.wait())
    await asyncio.sleep(1)
    acts = [at_two(queue.put_nowait, "item"), at_two(takers[0].cancel), at_two(event.set), at_two(watcher.cancel)]
    await asyncio.gather(*acts)
    await asyncio.sleep(2)
    assert [item for _, item in got] == ["item"] and queue.empty()
    assert takers[0].cancelled() == (got[0][0] != 0)
    assert [taker.done() for taker in takers] == [True, got[0][0] == 1, got[0][0] == 2]
    assert watcher.cancelled() or watcher.result() is True
    for taker in takers:
        taker.cancel()
    await ended(takers)


async def test_what_comes_first_comes_once(chance):
    """as_completed(), wait() and callbacks of the same futures each get every future once."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(6)]
    called = []
    for number, future in enumerate(futures):
        loop.call_at(chance.randrange(1, 3), future.set_result, number)
        future.add_done_callback(lambda future: called.append(future.result()))

    async def as_completed():
        return [await next_one for next_one in asyncio.as_completed(futures)]

    async def by_waiting():
        found, pending = [], set(futures)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found += [future.result() for future in done]
        return found

    completed, waited, gathered = await asyncio.gather(as_completed(), by_waiting(), asyncio.gather(*futures))
    assert sorted(completed) == sorted(waited) == sorted(called) == gathered == list(range(6))


async def test_generators_and_contexts_that_are_left_in_the_middle(chance):
    """Every finally block has run, however the code ended."""
    opened, closed = [], []

    @contextlib.asynccontextmanager
    async def resource(name):
        await asyncio.sleep(1)
        opened.append(name)
        try:
            yield
        finally:
            await asyncio.sleep(1)
            closed.append(name)

    async def use(name):
        async with resource(name), asyncio.timeout(3):
            await asyncio.sleep(3)

    users = [asyncio.create_task(use(name)) for name in "abcd"]
    for user in users[:2]:
        asyncio.get_running_loop().call_at(chance.randrange(1, 6), user.cancel)
    await asyncio.wait(users)
    # A cancelled closing does not come to its end.
    assert set(closed) <= set(opened) and set("cd") <= set(closed)
    for user in users[2:]:
        assert user.exception() is None or isinstance(user.exception(), TimeoutError)
