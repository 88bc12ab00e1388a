"""Programs that override methods of asyncio's locks: the compiled locks do what asyncio's own do."""

import asyncio

import pytest
from support.comparing import BOTH, outcome, same_on_both, turns
from support.locks import KINDS, cancelled, without_addresses

import hotloop.asyncio

METHODS = (
    *("acquire", "release", "locked", "_wake_up_first", "_wake_up_next", "_get_loop", "__aenter__", "__aexit__"),
    *("wait", "wait_for", "notify", "notify_all", "_notify", "__repr__"),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", ["subclass", "own", "compiled", "object"])
def test_overridden_methods_are_called(loop, kind, method, place, monkeypatch):
    if not hasattr(getattr(asyncio, kind)(), method):
        pytest.skip(f"no {method}() in {kind}")
    of_the_lock = kind == "Condition" and method in ("acquire", "release", "locked")
    if of_the_lock and place != "subclass":
        pytest.skip("the object has the lock's method, the class none")
    if place == "own" and method in dir(getattr(asyncio, kind)) and is_compiled(kind, method):
        pytest.skip("the compiled class overrides it")

    async def use(module):
        cls = getattr(module, kind)
        calls = []
        lock = cls()
        original = getattr(type(lock._lock) if of_the_lock else cls, method)

        def watched(self, *arguments):
            calls.append(method)
            return original(self._lock if of_the_lock else self, *arguments)

        with monkeypatch.context() as patch:
            if place == "subclass":
                lock = type(kind, (cls,), {method: watched})()
            elif place == "object":
                setattr(lock, method, watched.__get__(lock))
            else:
                patch.setattr(getattr(asyncio, kind) if place == "own" else cls, method, watched)
            found = await self_use(lock)
        return found, calls

    async def self_use(lock):
        tasks = [asyncio.ensure_future(hold(lock, number)) for number in range(3)]
        await turns(2)
        tasks[1].cancel()
        return [repr(lock).partition("[")[2], *without_addresses(await asyncio.gather(*tasks, return_exceptions=True))]

    async def hold(lock, number):
        await lock.acquire()
        await turns(2)
        lock.release()
        async with lock:
            if kind != "Condition":
                return lock.locked()
            if number == 0:
                await turns(4)
                lock.notify(1)
                return lock.notify_all()
            if number == 1:
                await asyncio.wait_for(lock.wait(), 0.01)
            return await lock.wait_for(lambda: True)

    same_on_both(loop, use)


def is_compiled(kind, method):
    classes = getattr(hotloop.asyncio, kind).__mro__
    return any(method in vars(cls) for cls in classes[: classes.index(getattr(asyncio, kind))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["acquire", "__aenter__", "__aexit__", "wait", "wait_for"])
def test_class_patched_between_call_and_first_step(loop, kind, call, monkeypatch):
    if not hasattr(getattr(asyncio, kind)(), call):
        pytest.skip(f"no {call}() in {kind}")

    async def use(module):
        lock = getattr(module, kind)()
        lock_class = module.Lock if kind == "Condition" else getattr(module, kind)
        await lock.acquire()
        calls = []
        arguments = {"__aexit__": [None] * 3, "wait_for": [lambda: calls.append("asked") or len(calls) > 2]}
        coroutine = getattr(lock, call)(*arguments.get(call, []))
        with monkeypatch.context() as patch:
            for name in ("release", "locked", "_get_loop"):
                original = getattr(lock_class, name)

                def watched(self, name=name, original=original):
                    calls.append(name)
                    return original(self)

                patch.setattr(lock_class, name, watched)
            task = asyncio.ensure_future(coroutine)
            await turns(2)
            if lock.locked():
                lock.release()
            if call in ("wait", "wait_for"):
                async with lock:
                    lock.notify_all()
            await turns(3)
        await turns(2)
        return without_addresses(await cancelled(task)), calls

    same_on_both(loop, use)


def test_subclass_of_condition_with_methods_of_the_same_names(loop):
    async def use(module):
        class Own(module.Condition):
            def locked(self):
                return "own"

            @property
            def release(self):
                return self._lock.release

            @release.setter
            def release(self, method):
                self.was_set = method.__name__

        condition = Own()
        return condition.locked(), condition.was_set, type(condition._lock) is module.Lock, sorted(vars(condition))[:1]

    # A plain function of the class gives way to the attribute that the constructor sets.
    assert same_on_both(loop, lambda module: first_three(use(module)))[0] is False


async def first_three(coroutine):
    return (await coroutine)[:3]


@pytest.mark.parametrize("inner", ["Lock", "Semaphore", "other module", "subclass"])
def test_condition_with_another_lock(loop, inner):
    async def use(module):
        other = BOTH[BOTH.index(module) - 1]
        lock = {
            "Lock": module.Lock,
            "Semaphore": module.Semaphore,
            "other module": other.Lock,
            "subclass": type("Own", (module.Lock,), {}),
        }[inner]()
        condition = module.Condition(lock)

        async def wait(number):
            async with condition:
                return await condition.wait(), number

        tasks = [asyncio.ensure_future(wait(number)) for number in range(4)]
        await turns(2)
        tasks[1].cancel()
        found = [condition.locked(), lock.locked(), outcome(condition.notify)]
        async with condition:
            found.append(condition.notify(2))
            tasks[2].cancel()
            await turns(1)
        await turns(3)
        found.append([task.done() for task in tasks])
        return without_addresses([*found, await cancelled(*tasks)])

    same_on_both(loop, use)
