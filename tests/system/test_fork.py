"""After a fork: the child sees no running loop, and none of its actions reaches the parent's poller."""

import os

import pytest
from support.forking import IN_CHILD

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()")

# A child must not run the rest of the test suite, so each of these is a program of its own.
own_set = pytest.mark.only(
    "c", reason="the standard library's selector shares its epoll set with the child, and changes it"
)


@pytest.mark.promise("P16")
def test_a_child_of_a_running_loop_sees_none(impl):
    impl.run_script(
        IN_CHILD
        + """
def child():
    assert asyncio._get_running_loop() is None
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a running loop")

async def main():
    in_child(child)
    assert asyncio.get_running_loop() is not None
    await asyncio.sleep(0.001)

impl.run(main())
"""
    )


@pytest.mark.promise("P16")
def test_a_child_runs_a_loop_of_its_own(impl):
    out = impl.run_script(
        IN_CHILD
        + """
async def work():
    await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(5)))
    return await asyncio.to_thread(int)

def child():
    assert impl.run(work()) == 0
    print("child ran", flush=True)

async def main():
    await asyncio.sleep(0)
    in_child(child)
    assert await work() == 0

impl.run(main())
print("parent ran")
"""
    ).stdout
    assert out == "child ran\nparent ran\n"


@pytest.mark.promise("P16")
@own_set
def test_the_child_cannot_disturb_the_parents_poller(impl):
    """The child closes and unregisters all that it has inherited; the parent still gets its events and wake-ups."""
    out = impl.run_script(
        IN_CHILD
        + """
import socket, threading

def child():
    for close in (lambda: loop._selector.unregister(one), one.close, other.close):
        try:
            close()
        except Exception:
            pass

async def main():
    received = asyncio.Event()
    loop.add_reader(one, lambda: (one.recv(1), received.set()))
    await asyncio.sleep(0)
    in_child(child)
    other.send(b"x")
    await received.wait()
    loop.remove_reader(one)
    woken = asyncio.Event()
    threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set,)).start()
    await woken.wait()
    print("served and woken")

one, other = socket.socketpair()
one.setblocking(False)
loop = impl.new_event_loop()
loop.run_until_complete(main())
loop.close()
one.close(), other.close()
""",
    ).stdout
    assert out == "served and woken\n"


@pytest.mark.promise("P16")
@own_set
def test_a_child_may_close_the_parents_loop(impl):
    out = impl.run_script(
        IN_CHILD
        + """
def child():
    loop.close()
    assert loop.is_closed()
    assert impl.run(asyncio.sleep(0, "child's own")) == "child's own"

loop = impl.new_event_loop()
loop.run_until_complete(asyncio.sleep(0.001))
in_child(child)
import threading
thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
loop.call_soon(thread.start)
loop.run_forever()
thread.join()
print(loop.run_until_complete(asyncio.sleep(0.001, "parent's")))
loop.close()
"""
    ).stdout
    assert out == "parent's\n"


@pytest.mark.promise("P16")
@own_set
def test_the_child_has_descriptors_of_its_own(impl):
    """A child does not inherit a kqueue, so a new descriptor of the child may get its number. The selector must not
    touch that descriptor."""
    out = impl.run_script(
        IN_CHILD
        + """
import selectors, socket

def child():
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    if closing:
        selector.close()
    else:
        assert [key.fileobj for key, _ in selector.select(0)] == [one]
        assert selector.fileno() not in opened
        other.recv(10), one.send(b"x")
        selector.register(other, selectors.EVENT_READ)
        assert len(selector.select(0)) == 2
        selector.close()
    for fd in opened:
        os.close(fd)

one, other = socket.socketpair()
other.send(b"x"), one.send(b"x")
selector = impl.DefaultSelector()
selector.register(one, selectors.EVENT_READ)
for closing in (True, False):
    in_child(child)
print([key.fileobj for key, _ in selector.select()] == [one], len(selector.get_map()))
selector.close()
one.close(), other.close()
"""
    ).stdout
    assert out == "True 1\n"


@pytest.mark.promise("P16")
def test_a_child_that_leaves_normally(impl):
    """The interpreter is finalized in the child, with the parent's loop and its timers still there."""
    out = impl.run_script(
        IN_CHILD
        + """
loop = impl.new_event_loop()
handle = loop.call_later(3600, print)
loop.run_until_complete(asyncio.sleep(0))
pid = os.fork()
if pid == 0:
    warnings.simplefilter("ignore", ResourceWarning)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
handle.cancel()
print(status, loop.run_until_complete(asyncio.sleep(0.001, "parent's")))
loop.close()
"""
    ).stdout
    assert out == "0 parent's\n"


@pytest.mark.promise("P16")
def test_multiprocessing_with_fork(impl):
    out = impl.run_script(
        IN_CHILD
        + """
import multiprocessing

def child(connection):
    connection.send(impl.run(asyncio.sleep(0.001, "from the child")))

def start():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    answer = ours.recv()
    process.join()
    ours.close(), theirs.close()
    return answer

async def main():
    return await asyncio.to_thread(start)

print(start())
print(impl.run(main()))
"""
    ).stdout
    assert out == "from the child\n" * 2


@pytest.mark.promise("P16")
@pytest.mark.only("c", "python", reason="tests the import of hotloop")
def test_importing_registers_no_python_code_that_runs_at_fork(impl):
    out = impl.run_script(
        """
import subprocess
code = '''
import asyncio, os
hooks = []
os.register_at_fork = lambda **more: hooks.append(more)
import hotloop
hotloop.EventLoop, hotloop.DefaultSelector
print(hooks)
'''
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout, end="")
"""
    ).stdout
    assert out == "[]\n"


@pytest.mark.only("c", "asyncio", reason="asyncio itself does not forget tasks in Python")
def test_the_tasks_of_the_parent_in_the_child(impl):
    """From Python 3.14 on the child has none of them. Without the GIL, c's tasks register as tasks in Python do."""
    impl.run_script(
        IN_CHILD
        + """
import sysconfig
inherited = sys.version_info < (3, 14)
listed = inherited or (not impl.is_oracle and bool(sysconfig.get_config_var("Py_GIL_DISABLED")))

async def other():
    await asyncio.sleep(3600)

async def main():
    loop = asyncio.get_running_loop()
    tasks = {asyncio.ensure_future(other()) for _ in range(3)} | {asyncio.current_task()}

    def child():
        assert asyncio.all_tasks(loop) == (tasks if listed else set())
        assert (asyncio.current_task(loop) is None) == (not inherited)

        async def own():
            mine = asyncio.ensure_future(asyncio.sleep(0))
            assert asyncio.all_tasks() == {mine, asyncio.current_task()}
            await mine
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=impl.new_event_loop) as runner:
            runner.run(own())
        assert asyncio.all_tasks(loop) == (tasks if listed else set())
        # What ends there is none of the child's list.
        tasks.clear()
        in_child(lambda: None)

    in_child(child)
    assert asyncio.all_tasks() == tasks
    for task in tasks - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)

impl.run(main())
"""
    )
