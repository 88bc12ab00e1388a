"""asyncio's locks on several loops, without one and in debug mode: the compiled ones do what asyncio's own do."""

import asyncio
import sys

import pytest
from support.comparing import BOTH, outcome_of, same_on_both, turns
from support.locks import KINDS, outcome_of_throw, state


@pytest.mark.parametrize("kind", KINDS)
def test_lock_of_another_loop_is_refused(impl, loop, kind):
    async def wait(lock):
        try:
            await asyncio.wait_for(lock.acquire(), 0.001)
        except TimeoutError:
            return "timeout"
        except RuntimeError as error:
            return str(error).partition("<")[0], str(error).rpartition("> ")[2]
        return "acquired"

    found = []
    for module in BOTH:
        lock = getattr(module, kind)()
        found.append([loop.run_until_complete(wait(lock)) for _ in range(2)])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait(lock)))
        lock.release()
        found[-1].append(other.run_until_complete(wait(lock)))
        other.close()
    assert found[0] == found[1]
    assert found[1][:2] == ["acquired", "timeout"]
    assert found[1][2][1] == "is bound to a different event loop"


def test_condition_wait_on_another_loop(impl, loop):
    found = []
    for module in BOTH:
        condition = module.Condition()

        async def wait(condition=condition):
            async with condition:
                return (await outcome_of(asyncio.wait_for(condition.wait(), 0.001)))[0], condition.locked()

        found.append([loop.run_until_complete(wait())])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait()))
        other.close()
    assert found[0] == found[1]
    assert found[1][1] == ("RuntimeError", True)


def test_several_runs_of_a_loop(loop):
    def use(module):
        semaphore = module.Semaphore(0)
        waiting = loop.create_task(semaphore.acquire())
        loop.run_until_complete(turns(2))
        semaphore.release()
        found = [waiting.done(), loop.run_until_complete(waiting), state(semaphore)]
        return found

    own, compiled = map(use, BOTH)
    assert own == compiled


def test_without_a_running_loop():
    def use(module):
        found = []
        for kind in KINDS:
            lock = getattr(module, kind)()
            for call in ("acquire", "__aenter__", "acquire", "wait"):
                if hasattr(lock, call):
                    found.append(outcome_of_throw(getattr(lock, call)(), None))
            found.append(state(lock))
        return found

    own, compiled = map(use, BOTH)
    assert own == compiled


def test_the_same_turns_in_debug_mode(loop):
    loop.set_debug(True)

    async def use(module):
        log = []
        lock, semaphore, condition = module.Lock(), module.Semaphore(2), module.Condition()

        async def work(name):
            async with semaphore:
                log.append(("semaphore", name))
                async with lock:
                    log.append(("lock", name))
                    await turns(1)
            async with condition:
                if name < 3:
                    log.append(("waited", name, await condition.wait()))
                else:
                    condition.notify_all()

        async def count():
            for turn in range(30):
                log.append(turn)
                await turns(1)

        await asyncio.gather(count(), *map(work, range(4)))
        return log

    same_on_both(loop, use)


if sys.version_info >= (3, 12):

    def test_eager_tasks(loop):
        loop.set_task_factory(asyncio.eager_task_factory)

        async def use(module):
            log = []
            lock, condition = module.Lock(), module.Condition()

            async def work(name):
                async with lock:
                    log.append(name)
                    await turns(1)
                async with condition:
                    if name < 2:
                        await condition.wait()
                    condition.notify(1)
                    log.append((name, "notified"))

            await asyncio.gather(*map(work, range(4)))
            return log

        same_on_both(loop, use)
