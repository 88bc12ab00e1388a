"""A program may put its own objects into the sets of a group of tasks or of as_completed(): one with the hash of a task
is compared with it, and that comparison may delete or replace any attribute."""

import re

import pytest
from support.comparing import on_both_loops, same_on_both, text_of, turns

pytestmark = on_both_loops
ACTIONS = ["deletes", "replaces", "empties"]


class Comparing:
    """Calls `action` once when it is compared with the object that it has the hash of."""

    def __init__(self, compared, action):
        self.hash = hash(compared)
        self.action = action

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        action, self.action = self.action, None
        if action is not None:
            action()
        return False


def put_before(items, item, action):
    """Add one to a set that has the item."""
    items.discard(item)
    comparing = Comparing(item, None)
    items.add(comparing)
    items.add(item)
    comparing.action = action
    return comparing


def report(context):
    error = context["exception"]
    message = re.sub(r"\bat 0x\w+|Task-\d+|TaskGroup\S*|<Future.*|coro=.*", "", context["message"])
    return message, type(error).__name__, text_of(error)


def change(owner, name, action):
    if action == "deletes":
        delattr(owner, name)
    elif action == "replaces":
        setattr(owner, name, object())
    else:
        setattr(owner, name, set() if isinstance(getattr(owner, name), set) else None)


@pytest.mark.parametrize("name", ["_tasks", "_on_completed_fut", "_parent_task"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_tasks_of_a_group(loop, name, action):
    async def use(module):
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(report(context)))
        group = module.TaskGroup()
        ended = loop.create_future()

        async def wait():
            async with group:
                task = group.create_task(module.wait_for(ended, None))
                comparing = put_before(group._tasks, task, lambda: change(group, name, action))
                loop.call_soon(group._tasks.discard, comparing)
                await module.sleep(0)
                comparing.action = None
                group._tasks.add(comparing)
                put_before(group._tasks, task, lambda: change(group, name, action))

        waiting = loop.create_task(wait())
        await turns(4)
        ended.set_result(None)
        await turns(4)
        group._tasks = set()
        waiting.cancel()
        await turns(4)
        loop.set_exception_handler(None)
        return reports, waiting.done()

    same_on_both(loop, use)


@pytest.mark.parametrize("name", ["_done", "_todo", "_timeout_handle"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_futures_of_as_completed(loop, name, action):
    async def use(module):
        reports = []
        loop.set_exception_handler(lambda loop, context: reports.append(report(context)))
        first, second = loop.create_future(), loop.create_future()
        iterator = module.as_completed([first, second])
        if not hasattr(iterator, "_todo"):
            pytest.skip("as_completed() is a generator before Python 3.13")
        put_before(iterator._todo, first, lambda: change(iterator, name, action))
        first.set_result(1)
        await turns(3)
        second.set_result(2)
        await turns(3)
        loop.set_exception_handler(None)
        return reports

    same_on_both(loop, use)
