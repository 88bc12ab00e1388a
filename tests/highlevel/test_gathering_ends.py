"""asyncio.gather() when children fail or are cancelled: the compiled one does what asyncio's own does."""

import asyncio
import gc

import pytest
from support.comparing import BOTH, fail, give, on_both_loops, run_through, same_on_both, turns
from support.same_outcome import description_with_frames, normal, outcome_with_frames

pytestmark = on_both_loops


@pytest.mark.parametrize("return_exceptions", [False, True])
@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
def test_children_that_fail(loop, return_exceptions, kind):
    async def use(module):
        outer = module.gather(
            give(1), fail(kind("first"), 2), fail(kind("second"), 3), give(4, 5), return_exceptions=return_exceptions
        )
        found = [normal(str(await outcome_with_frames(outer))), normal(repr(outer))]
        await turns(8)
        return [*found, [child._log_traceback for child in outer._children]]

    same_on_both(loop, use)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_errors_that_end_the_loop(loop, kind, position):
    found = []
    for module in BOTH:
        outers = []

        async def use(module=module, outers=outers):
            outers.append(module.gather(*[fail(kind(9)) if at == position else give(at) for at in range(4)]))
            return await outers[0]

        task = loop.create_task(use())
        ends = run_through(loop, kind)
        found.append((ends, normal(repr(outers[0])), description_with_frames(task.exception())))
    assert found[0] == found[1]


@pytest.mark.parametrize("return_exceptions", [False, True])
@pytest.mark.parametrize("when", [0, 1, 2, 3, 4])
def test_cancelled_waiter(loop, when, return_exceptions):
    async def use(module):
        outers = []

        async def wait():
            outers.append(module.gather(give(1, 1), give(2, 2), give(3, 3), return_exceptions=return_exceptions))
            return await outers[0]

        task = asyncio.ensure_future(wait())
        await turns(when)
        found = [task.cancel("why"), await outcome_with_frames(task), task.cancelling()]
        return [*found, [(normal(repr(outer)), outer._cancel_requested) for outer in outers]]

    same_on_both(loop, use)


def test_stubborn_child(loop):
    """Cancelling ends gather() in a cancellation, even if a child goes on to return."""

    async def stubborn():
        try:
            await turns(5)
        except asyncio.CancelledError:
            await turns(1)
        return "done"

    async def use(module):
        found = []
        for return_exceptions in (False, True):
            outer = module.gather(stubborn(), give(1), return_exceptions=return_exceptions)
            await turns(2)
            found += [outer.cancel("why"), await outcome_with_frames(outer), outer._cancel_requested, outer.cancelled()]
        return found

    same_on_both(loop, use)


def test_reports(loop, asyncio_log):
    """asyncio's logger gets a report of an exception that no code retrieves."""
    found = []
    for module in BOTH:

        async def use(module=module):
            outer = module.gather(fail(ValueError("x")), give(1))
            await turns(5)
            del outer

        loop.run_until_complete(use())
        gc.collect()
        found.append([normal(message) for message in asyncio_log.take()])
    assert found[0] == found[1]
    assert "_GatheringFuture exception was never retrieved" in found[0][0]


def test_children_that_are_destroyed_are_not_reported(loop):
    """The program has no reference to the tasks that gather() makes."""

    async def use(module):
        outer = module.gather(give(1), asyncio.ensure_future(give(2)))
        found = [child._log_destroy_pending for child in outer._children]
        return found, await outer

    assert same_on_both(loop, use)[0] == [False, True]
