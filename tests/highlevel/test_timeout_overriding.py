"""Programs that override methods of asyncio.Timeout or of the loop: the compiled class does what asyncio's own does."""

import asyncio
import sys

from support.comparing import outcome_of, same_on_both, turns


def test_patched_class_is_followed(impl):
    # In a process of its own: a class that was changed takes no short cut any more.
    impl.run_script(
        """
import hotloop.asyncio

calls = []

def note(name, original):
    def patched(self, *arguments):
        calls.append(name)
        return original(self, *arguments)

    setattr(hotloop.asyncio.Timeout, name, patched)

async def use():
    timeout = hotloop.asyncio.timeout(100)
    entering = timeout.__aenter__()
    for name in ("reschedule", "_on_timeout", "when"):
        note(name, getattr(asyncio.Timeout, name))
    await entering  # made before
    timeout.when()
    timeout.reschedule(-1)
    try:
        await hotloop.asyncio.sleep(100)
    except asyncio.CancelledError:
        asyncio.current_task().uncancel()
    await timeout.__aexit__(None, None, None)
    assert calls == ["reschedule", "when", "reschedule", "_on_timeout"], calls

impl.run(use())
"""
    )


def test_methods_replaced_on_the_object_are_called(loop):
    async def use(module):
        calls = []
        timeout = module.timeout(100)
        timeout.reschedule = lambda when: calls.append(("reschedule", when is timeout.when()))
        async with timeout:
            pass
        other = module.timeout(-1)
        other._on_timeout = lambda: calls.append("expired")
        async with other:
            await turns(3)
        return calls, str(timeout), str(other)

    assert same_on_both(loop, use)[0] == [("reschedule", True), "expired"]


def test_subclasses(loop):
    async def use(module):
        calls = []

        class Noting(module.Timeout):
            def reschedule(self, when):
                calls.append("reschedule")
                super().reschedule(when)

            def _on_timeout(self):
                calls.append("expired")
                super()._on_timeout()

            async def __aexit__(self, *arguments):
                calls.append(arguments[0])
                return await super().__aexit__(*arguments)

        found = [await outcome_of(expiring(Noting(None))), await outcome_of(expiring(Noting(-1)))]
        return found, calls

    async def expiring(timeout):
        async with timeout:
            await turns(3)
        return repr(timeout)

    same_on_both(loop, use)


def test_loop_with_methods_of_its_own(impl):
    calls = []

    class Loop(impl.EventLoop):
        def time(self):
            calls.append("time")
            return super().time()

        def call_at(self, when, callback, *arguments, context=None):
            calls.append(("call_at", callback.__qualname__, arguments, context))
            return super().call_at(when, callback, *arguments, context=context)

    async def use(module):
        calls.clear()
        async with module.timeout(100) as timeout:
            timeout.reschedule(loop.time() + 50)
        await module.wait_for(turns(0), 100)
        return [name if isinstance(name, str) else name[:2] for name in calls]

    loop = Loop()
    try:
        same_on_both(loop, use)
    finally:
        loop.close()


def test_a_deadline_that_deletes_an_attribute_when_it_is_dropped(loop):
    async def use(module):
        class Dropped(float):
            def __del__(self):
                del timeout._timeout_handler

        timeout = module.timeout(None)
        async with timeout:
            timeout._when = Dropped(1e9)
            try:
                timeout.reschedule(None)
            except AttributeError:
                raised = True
            else:
                raised = False
            timeout._timeout_handler = None
        return raised, timeout.when()

    assert same_on_both(loop, use) == (True, None)


def test_class_in_the_place_of_timeout_is_used(loop, aio, monkeypatch):
    made = []

    class Timeout(asyncio.Timeout):
        def __init__(self, when):
            made.append(self)
            super().__init__(when)

    async def use():
        monkeypatch.setattr(asyncio.timeouts, "Timeout", Timeout)
        async with aio.timeout(100) as first, aio.timeout_at(None) as second:
            assert made == [first, second]
        await aio.wait_for(asyncio.sleep(0), 100)

    loop.run_until_complete(use())
    assert len(made) == (3 if sys.version_info >= (3, 12) else 2)


def test_function_in_the_place_of_timeout_is_used(loop, aio, monkeypatch):
    calls = []
    original = asyncio.timeout

    def timeout(delay):
        calls.append(delay)
        return original(delay)

    monkeypatch.setattr(asyncio.timeouts, "timeout", timeout)
    loop.run_until_complete(aio.wait_for(asyncio.sleep(0), 100))
    assert calls == ([100] if sys.version_info >= (3, 12) else [])
