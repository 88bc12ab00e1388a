"""asyncio's own callbacks of gather() and wait() count in a cell, which a program that finds the callback may empty,
or set to anything."""

import re

import pytest
from support.comparing import on_both_loops, same_on_both, turns

pytestmark = on_both_loops
EMPTY = "empty"


@pytest.mark.parametrize("value", [EMPTY, "1", 1.5, -5, 2**70, 1 - 2**63, None], ids=str)
@pytest.mark.parametrize("function", ["gather", "wait"])
def test_the_count_of_futures_that_are_done(loop, function, value):
    async def use(module):
        reports = []
        loop.set_exception_handler(
            lambda loop, context: reports.append(
                (re.sub(r"0x\w+|<.*>", "", context["message"]), repr(context["exception"]))
            )
        )
        futures = [loop.create_future() for _ in range(3)]
        waiting = getattr(module, function)(*(futures if function == "gather" else [futures]))
        if function == "wait":
            waiting = loop.create_task(waiting)
        await turns(2)
        callback = futures[0]._callbacks[0][0]
        names = callback.__code__.co_freevars
        [cell] = [
            cell for name, cell in zip(names, callback.__closure__, strict=True) if name in ("nfinished", "counter")
        ]
        if value is EMPTY:
            del cell.cell_contents
        else:
            cell.cell_contents = value
        for future in futures:
            future.set_result(1)
        await turns(3)
        loop.set_exception_handler(None)
        ended = waiting.done()
        if not ended and function == "wait":
            waiting.cancel()
            await turns(2)
        try:
            return reports, ended, cell.cell_contents
        except ValueError:
            return reports, ended, EMPTY

    same_on_both(loop, use)
