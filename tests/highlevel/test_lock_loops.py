"""asyncio's locks on several loops, without one and in debug mode: the compiled ones do what asyncio's own do."""

import asyncio
import sys
from collections import deque

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
                kind, *message = await outcome_of(asyncio.wait_for(condition.wait(), 0.001))
                # In it is the condition as asyncio has it by then: unlocked up to Python 3.12.
                return kind, "[unlocked]" in str(message), condition.locked()

        found.append([loop.run_until_complete(wait())])
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(wait()))
        other.close()
    assert found[0] == found[1]
    assert found[1][1][0] == "RuntimeError" and found[1][1][2]


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


@pytest.mark.parametrize("kind", ["Lock", "Semaphore", "Event", "Queue"])
@pytest.mark.parametrize("change", ["replaced", "deleted", "other"])
def test_loop_whose_create_future_changes_the_waiters(loop, monkeypatch, kind, change):
    """A waiter is put where asyncio puts it: among those that are there once it is made."""
    names = ("_getters", "_putters") if kind == "Queue" else ("_waiters",)

    async def use(module, method, name):
        lock = getattr(module, kind)(*{"Semaphore": (1,), "Queue": (1,)}.get(kind, ()))
        if method != "get" and kind != "Event":
            await getattr(lock, method)(*{"put": (1,)}.get(method, ()))

        def create_future():
            if change == "deleted":
                delattr(lock, name)
            else:
                setattr(lock, name, deque() if change == "replaced" else 3)
            return own()

        own = loop.create_future
        with monkeypatch.context() as patched:
            patched.setattr(loop, "create_future", create_future)
            waiting = asyncio.ensure_future(outcome_of(getattr(lock, method)(*{"put": (2,)}.get(method, ()))))
            await turns(2)
        if change == "replaced":
            found = len(getattr(lock, name))
            waiting.cancel()
            return found, await waiting
        waiting.cancel()
        return (await waiting)[:2]

    for name in names:
        method = {"_getters": "get", "_putters": "put"}.get(name, "wait" if kind == "Event" else "acquire")
        same_on_both(loop, lambda module, method=method, name=name: use(module, method, name))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("debug", [False, True])
def test_waiters_of_other_classes_are_asked_once(loop, kind, debug):
    class Asked(asyncio.Future):
        def cancelled(self):
            asked.append(self)
            return super().cancelled()

    async def enter(lock):
        async with lock:
            pass

    async def use(module):
        lock = getattr(module, kind)()
        inner = getattr(lock, "_lock", lock)
        await lock.acquire()
        inner._waiters = deque([Asked(loop=loop)])
        lock.release()
        asked.clear()
        waiting = asyncio.ensure_future(outcome_of(enter(lock)))
        await turns(2)
        waiting.cancel()
        await waiting
        return len(asked)

    asked = []
    loop.set_debug(debug)
    same_on_both(loop, use)


@pytest.mark.parametrize("kind", [*KINDS, "Event", "Queue", "PriorityQueue"])
def test_lock_whose_loop_is_deleted_takes_the_next_one(impl, loop, kind):
    async def bind(lock):
        return lock._get_loop() is lock._loop is asyncio.get_running_loop()

    found = []
    for module in BOTH:
        lock = getattr(module, kind)()
        found.append([loop.run_until_complete(bind(lock))])
        del lock._loop
        found[-1].append(lock._loop)
        other = impl.new_event_loop()
        found[-1].append(other.run_until_complete(bind(lock)))
        other.close()
    assert found == [[True, None, True]] * 2
