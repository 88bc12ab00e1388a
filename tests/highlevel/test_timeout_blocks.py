"""Entering and leaving an asyncio.Timeout, and its end: the compiled one does what asyncio's own does."""

import asyncio
import fractions
import inspect

import pytest
from support.comparing import BOTH, outcome, outcome_of, pending_timers, same_on_both, turns
from support.stepping import Clock


def test_every_state_refuses_what_asyncio_refuses(loop):
    async def use(module):
        found = []
        timeout = module.timeout(None)
        found += [outcome(timeout.reschedule, 1), repr(timeout), timeout.expired(), timeout.when()]
        found.append(await outcome_of(timeout.__aexit__(None, None, None)))
        async with timeout:
            found += [await outcome_of(timeout.__aenter__()), repr(timeout)]
            for when in (None, 5, 5.0004, -1, True, fractions.Fraction(1, 3), "x", b""):
                found += [outcome(timeout.reschedule, when), timeout.when(), timeout._timeout_handler is None]
                try:
                    found.append(repr(timeout))
                except TypeError as error:
                    found.append(str(error))
            found += [
                outcome(timeout.reschedule),
                outcome(timeout.reschedule, 1, 2),
                outcome(timeout.reschedule, when=None),
            ]
        found += [outcome(timeout.reschedule, 1), repr(timeout), timeout.expired()]
        found += [await outcome_of(timeout.__aenter__()), await outcome_of(timeout.__aexit__(None, None, None))]
        found.append(outcome(timeout._on_timeout))
        return found, pending_timers(loop)

    same_on_both(loop, use)


def test_without_a_task_or_a_loop(impl, loop):
    def enter(module):
        timeout = module.Timeout(5)
        entering = timeout.__aenter__()
        return outcome(entering.send, None), repr(timeout), outcome(entering.send, None)

    found = []
    for module in BOTH:
        found.append([enter(module)])
        loop.call_soon(lambda module=module: found[-1].append(enter(module)))
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert found[0] == found[1]


@pytest.mark.parametrize("when", [5, 5.5, True, fractions.Fraction(11, 2)], ids=repr)
def test_handle_that_expires_it(loop, when):
    async def use(module):
        Clock.replacing_time_of(loop).now = 1.0
        timeout = module.timeout_at(when)
        async with timeout:
            handle = timeout._timeout_handler
            found = [
                type(handle) is type(loop.call_soon(lambda: None)),
                repr(handle),
                handle._callback.__self__ is timeout,
                handle._callback.__func__ is type(timeout)._on_timeout,
                handle._args,
                outcome(lambda: handle.when()),
            ]
            timeout.reschedule(0.5)
            found += [repr(timeout._timeout_handler), handle.cancelled()]
            timeout.reschedule(None)
        del loop.time
        return [*found, repr(handle)]

    same_on_both(loop, use)


def test_debug_mode_names_asyncios_line(loop):
    loop.set_debug(True)

    async def use(module):
        async with module.timeout(100) as timeout:
            found = [repr(timeout._timeout_handler).partition(" ")[2].partition(" ")[2]]
            found += [tuple(frame)[:3] for frame in timeout._timeout_handler._source_traceback[-3:]]
            handle = timeout._timeout_handler
            timeout.reschedule(loop.time() + 50)
            found += [tuple(frame)[:3] for frame in timeout._timeout_handler._source_traceback[-2:]]
            timeout.reschedule(-5)
            found.append(repr(timeout._timeout_handler))
            timeout.reschedule(None)
        return [*found, handle.cancelled()]

    same_on_both(loop, use)


def test_expires_and_raises(loop):
    async def use(module):
        found = []
        for body in ("sleep", "swallow", "other error", "group", "nested", "cancelled before", "cancelled too"):
            task = asyncio.ensure_future(expire(module, body, found))
            if body == "cancelled before":
                task.cancel()
            await turns(1)
            if body == "cancelled too":
                task.cancel("from outside")
            found.append(await outcome_of(task))
        return found, pending_timers(loop)

    async def expire(module, body, found):
        try:
            if body == "cancelled before":
                try:
                    await turns(1)
                except asyncio.CancelledError:
                    found.append("cancelled")
            async with module.timeout(0) as timeout:
                match body:
                    case "swallow":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            found.append("swallowed")
                    case "other error":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            raise ValueError(body) from None
                    case "group":
                        try:
                            await module.sleep(100)
                        except asyncio.CancelledError:
                            raise ExceptionGroup(body, [KeyError(1)])  # noqa: B904
                    case "nested":
                        async with module.timeout(0):
                            await module.sleep(100)
                    case _:
                        await module.sleep(100)
        finally:
            task = asyncio.current_task()
            found += [
                repr(timeout),
                timeout.expired(),
                task.cancelling(),
                timeout._timeout_handler,
                timeout._cancelling,
            ]

    same_on_both(loop, use)


@pytest.mark.parametrize("method", ["__aenter__", "__aexit__"])
def test_driven_by_hand(loop, method):
    class Oops(Exception):
        pass

    async def use(module):
        found = []
        for act in (
            lambda c: c.send(None),
            lambda c: c.send(5),
            lambda c: c.throw(Oops("thrown")),
            lambda c: c.throw(GeneratorExit()),
            lambda c: c.close(),
            lambda c: (c.cr_running, c.cr_await, c.cr_frame.f_lineno, c.__name__, c.__qualname__),
        ):
            timeout = module.timeout(100)
            if method == "__aexit__":
                await timeout.__aenter__()
            coroutine = getattr(timeout, method)(*([] if method == "__aenter__" else [None, None, None]))
            for _ in range(2):
                result = outcome(act, coroutine)
                found.append("timeout" if result is timeout or "<Timeout" in str(result) else result)
                found.append((inspect.getcoroutinestate(coroutine), str(timeout)[:15]))
            coroutine.close()
            if timeout._timeout_handler is not None:
                timeout._timeout_handler.cancel()
        return found

    same_on_both(loop, use)


def test_calls_of_aexit_with_an_exception(loop):
    async def use(module):
        found = []
        for arguments in [(), (None,), (ValueError, ValueError(1), None), (ValueError, None, None), (1, 2, 3, 4)]:
            timeout = module.timeout(100)
            await timeout.__aenter__()
            made = outcome(timeout.__aexit__, *arguments)
            found += [made if isinstance(made, tuple) else await outcome_of(made), str(timeout)[:17]]
            if timeout._timeout_handler is not None:
                timeout._timeout_handler.cancel()
        return found

    same_on_both(loop, use)
