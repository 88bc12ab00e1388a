"""asyncio.as_completed() in random programs: the compiled one does what asyncio's own does."""

import asyncio
import gc

import hypothesis
import pytest
from hypothesis import strategies
from support.comparing import fail, give, on_both_loops, outcome_of, same_on_both, turns
from support.same_outcome import shown

pytestmark = on_both_loops


kinds = strategies.lists(
    strategies.tuples(strategies.sampled_from(["future", "give", "fail", "done", "task"]), strategies.integers(0, 3)),
    max_size=5,
)
actions = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(
            ["turn", "next", "anext", "cancel", "cancel_task", "finish", "fail", "look", "remove", "debug", "close"]
        ),
        strategies.integers(0, 3),
    ),
    max_size=10,
)


async def play(module, kinds, script, timeout):
    loop = asyncio.get_running_loop()
    log, given, tasks = [], [], []
    for place, (kind, number) in enumerate(kinds):
        match kind:
            case "give" | "fail":
                given.append(give(place, 1 + 2 * place) if kind == "give" else fail(KeyError(place), 1 + 2 * place))
            case "task":
                given.append(loop.create_task(give(place, 2 * number)))
            case "future" | "done":
                given.append(loop.create_future())
                if kind == "done":
                    given[-1].set_result(0)
    futures = [each for each in given if isinstance(each, asyncio.Future)]
    iterator = module.as_completed(given, timeout=timeout)

    async def wait(coroutine):
        found = await outcome_of(coroutine)
        log.append(("result", found.done() if isinstance(found, asyncio.Future) else found))

    for coroutine in iterator:  # up to Python 3.12 the first next() begins the waiting
        tasks.append(loop.create_task(wait(coroutine)))
        break
    for action, number in script:
        log.append(action)
        future = futures[number % len(futures)] if futures else loop.create_future()
        match action:
            case "turn":
                await turns(number)
            case "next":
                for coroutine in iterator:
                    tasks.append(loop.create_task(wait(coroutine)))
                    break
                else:
                    log.append("the end")
            case "anext" if hasattr(iterator, "__anext__"):
                tasks.append(loop.create_task(wait(anext(iterator))))
            case "close":
                for coroutine in iterator:
                    coroutine.close()
                    break
            case "cancel":
                log.append(future.cancel(number))
            case "cancel_task" if tasks:
                log.append(tasks[number % len(tasks)].cancel(number))
            case "finish" | "fail" if not future.done() and not isinstance(future, asyncio.Task):
                future.set_result(number) if action == "finish" else future.set_exception(KeyError(number))
            case "remove":
                for callback, _ in (future._callbacks or ())[:number]:
                    log.append(future.remove_done_callback(callback))
                    if number == 1:
                        future.add_done_callback(callback)
            case "debug":
                loop.set_debug(bool(number % 2))
            case "look":
                log += [shown(future) for future in futures]
                log.append(getattr(iterator, "_todo_left", None))
    await turns(10)
    loop.set_debug(False)
    log += [shown(future) for future in futures]
    for coroutine in iterator:
        tasks.append(loop.create_task(wait(coroutine)))
    for future in futures:
        future.cancel()
    await turns(4)
    log += [task.done() for task in tasks]
    for task in tasks:
        task.cancel()
    for timer in loop._scheduled:
        timer.cancel()
    await turns(4)
    return log


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # a cancelled task's argument
@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(kinds=kinds, script=actions, timeout=strategies.sampled_from([None, None, 60, 0]))
def test_random_programs(loop, asyncio_log, kinds, script, timeout):
    # If two end in the same turn, their addresses decide which comes first.
    ends = [number for kind, number in kinds if kind == "task"]
    hypothesis.assume(len(ends) == len(set(ends)) and sum(kind == "done" for kind, _ in kinds) <= 1)

    async def run(module):
        return await play(module, kinds, script, timeout)

    same_on_both(loop, run)
    gc.collect()
    asyncio_log.take()  # of exceptions that were not retrieved, and of tasks that wait for ever
