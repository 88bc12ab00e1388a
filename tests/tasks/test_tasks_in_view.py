"""Tasks that tools outside the process see, such as `python -m asyncio pstree`: on asyncio's lists, with its layout.
And what asyncio itself does with the lists: all_tasks(), threads that end, and fork()."""

import asyncio
import os
import re
import subprocess
import sys
import sysconfig
import threading

import pytest
from support.forking import IN_CHILD

publishes_tasks = pytest.mark.skipif(
    not (3, 14) <= sys.version_info < (3, 16) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="CPython publishes where its tasks are since 3.14; without the GIL its lists belong to threads",
)
reads_memory = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the superuser reads other processes")
compiled = pytest.mark.only("c", "asyncio", reason="a task in Python has no fields")

PROGRAM = """
async def leaf():
    global left
    left -= 1
    if left == 0:
        asyncio.get_running_loop().call_soon(lambda: print("begun", flush=True))
    await asyncio.get_running_loop().create_future()

async def gathers():
    await asyncio.gather(leaf(), leaf())

async def groups():
    async with asyncio.TaskGroup() as group:
        group.create_task(gathers(), name="gathers")
        group.create_task(leaf(), name="leaf-3").set_name("leaf")

async def main():
    await asyncio.create_task(groups(), name="groups")

left = 3
"""
# Asyncio's own TaskGroup is Python code, and so has frames.
TREE = """
└── (T) Task-1
    └── main
        └── (T) groups
            └── groups
                └── TaskGroup.__aexit__
                    └── TaskGroup._aexit
                        ├── (T) gathers
                        │   └── gathers
                        │       ├── (T) Task-2
                        │       │   └── leaf
                        │       └── (T) Task-3
                        │           └── leaf
                        └── (T) leaf
                            └── leaf
"""
# Of hotloop's, which only hotloop's loop has.
COMPILED_TREE = """
└── (T) Task-1
    └── main
        └── (T) groups
            └── groups
                ├── (T) gathers
                │   └── gathers
                │       ├── (T) Task-2
                │       │   └── leaf
                │       └── (T) Task-3
                │           └── leaf
                └── (T) leaf
                    └── leaf
"""


@pytest.fixture
def tree_of(impl, capsys):
    """What `python -m asyncio pstree` prints of a program that has printed a line, without the places of functions."""
    processes = []

    def run(beginning, end):
        from asyncio import tools

        process = impl.popen(beginning + PROGRAM + end, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        assert process.stdout.readline() == "begun\n"
        tools.display_awaited_by_tasks_tree(process.pid)
        out, err = capsys.readouterr()
        assert err == ""
        return "\n" + re.sub(r"── +(?!\(T\))(\S+) .*", r"── \1", out)

    yield run
    for process in processes:
        process.kill()
        assert process.communicate() == ("", "")


@pytest.mark.only("c", reason="looks into the extension")
@publishes_tasks
def test_tasks_are_in_view(loop):
    from hotloop._c.tasks import task

    assert task.are_in_view()


@publishes_tasks
@reads_memory
@compiled
def test_tree(tree_of):
    """Through `await task`, and asyncio's own gather() and TaskGroup."""
    assert tree_of("", "impl.run(main())") == TREE


@publishes_tasks
@reads_memory
@pytest.mark.only("c", reason="asyncio has no compiled TaskGroup")
def test_tree_of_the_compiled_asyncio(tree_of):
    assert tree_of("import hotloop; from hotloop import asyncio", "hotloop.run(main())") == COMPILED_TREE


@publishes_tasks
@reads_memory
@compiled
def test_coroutines_that_are_no_coroutine_objects(tree_of):
    """Tools can read frames of coroutine objects only. A task of another kind of coroutine must not end the list."""
    end = """
class Other:
    def __init__(self):
        self.steps = leaf()
    def send(self, value):
        return self.steps.send(value)
    def throw(self, *error):
        return self.steps.throw(*error)
    def close(self):
        self.steps.close()
    def __await__(self):
        return self
    __iter__ = __await__
    def __next__(self):
        return self.send(None)

async def other():
    import collections.abc
    collections.abc.Coroutine.register(Other)
    global left
    left = 1
    await asyncio.create_task(Other(), name="other")

impl.run(other())
"""
    assert "(T) other" in tree_of("", end)


def test_tasks_of_a_thread_that_has_ended(impl):
    """The interpreter moves them to another list."""
    loop = impl.new_event_loop()
    kept = []

    async def main():
        kept.append(loop.create_task(asyncio.sleep(3600)))
        kept.append(loop.create_task(asyncio.sleep(3600)))
        await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    thread.join()
    assert asyncio.all_tasks(loop) == set(kept)
    kept[0].cancel()
    loop.run_until_complete(asyncio.wait(kept[:1]))
    assert asyncio.all_tasks(loop) == {kept[1]}
    kept[1].cancel()
    loop.run_until_complete(asyncio.wait(kept[1:]))
    assert asyncio.all_tasks(loop) == set()
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")
def test_a_forked_child_frees_the_tasks_of_its_parent(impl):
    """The child's lists begin empty, though the parent's tasks were linked to each other."""
    script = f"""
{IN_CHILD}
async def forever():
    await asyncio.get_running_loop().create_future()

loop = impl.new_event_loop()
tasks = [loop.create_task(forever()) for _ in range(5)]
loop.call_soon(loop.stop)
loop.run_forever()

def child():
    for index in 2, 0, 2, 1, 0:
        task = tasks.pop(index)
        task._log_destroy_pending = False
        task.get_coro().close()
        del task
    other = impl.new_event_loop()
    made = [other.create_task(forever()) for _ in range(3)]
    assert asyncio.all_tasks(other) == set(made), asyncio.all_tasks(other)
    for task in made:
        task.cancel()
    other.run_until_complete(asyncio.wait(made))
    assert asyncio.all_tasks(other) == set()
    other.close()

in_child(child)
for task in tasks:
    task.cancel()
loop.run_until_complete(asyncio.wait(tasks))
assert asyncio.all_tasks(loop) == set()
loop.close()
"""
    impl.run_script(script)
