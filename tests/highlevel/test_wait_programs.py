"""asyncio.wait() in random programs: the compiled one does what asyncio's own does."""

import asyncio
import gc

import hypothesis
from hypothesis import strategies
from support.comparing import fail, give, on_both_loops, outcome_of, same_on_both, turns
from support.same_outcome import shown
from support.waits import WHEN, awaited

pytestmark = on_both_loops


kinds = strategies.lists(
    strategies.tuples(strategies.sampled_from(["future", "give", "fail", "done", "failed"]), strategies.integers(0, 3)),
    min_size=1,
    max_size=5,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "cancel", "cancel_task", "finish", "fail", "look", "remove", "again", "debug", "await"]
        ),
        strategies.integers(0, 4),
    ),
    max_size=8,
)


async def play(module, kinds, script, return_when, timeout):
    loop = asyncio.get_running_loop()
    log = []
    futures = []
    for kind, number in kinds:
        if kind in ("give", "fail"):
            futures.append(asyncio.ensure_future(give(1, number) if kind == "give" else fail(KeyError(1), number)))
            continue
        futures.append(loop.create_future())
        if kind == "done":
            futures[-1].set_result(1)
        elif kind == "failed":
            futures[-1].set_exception(KeyError(2))

    async def wait():
        log.append(("result", await awaited(futures, module.wait(futures, timeout=timeout, return_when=return_when))))

    waiting = [loop.create_task(wait())]
    for action, number in script:
        log.append(action)
        future = futures[number % len(futures)]
        match action:
            case "turn":
                await turns(number)
            case "cancel":
                log.append(future.cancel(number))
            case "cancel_task":
                log.append(waiting[number % len(waiting)].cancel(number))
            case "finish" | "fail" if not future.done() and not isinstance(future, asyncio.Task):
                future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "again":
                waiting.append(loop.create_task(wait()))
            case "await":
                waiting.append(loop.create_task(outcome_of(future)))
            case "remove":
                for callback, _ in (future._callbacks or ())[number % 2 :]:
                    log.append(future.remove_done_callback(callback))
                    if number > 2:
                        future.add_done_callback(callback)
            case "debug":
                loop.set_debug(bool(number % 2))
            case "look":
                log += [shown(future) for future in futures]
    await turns(6)
    log += [shown(future) for future in futures]
    loop.set_debug(False)
    for future in futures:
        future.cancel()
    await turns(5)
    log += [task.done() for task in waiting]
    for task in waiting:
        task.cancel()
    await turns(3)
    for future in futures:
        if not future.cancelled():
            future.exception()
    return log


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    kinds=kinds,
    script=actions,
    return_when=strategies.sampled_from(WHEN),
    timeout=strategies.sampled_from([None, None, 60, 0, -1]),
)
def test_random_programs(loop, asyncio_log, kinds, script, return_when, timeout):
    async def run(module):
        return await play(module, kinds, script, return_when, timeout)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of tasks that wait for ever, because the program has removed their callbacks
