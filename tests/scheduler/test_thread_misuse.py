"""Other threads call a loop, its futures, tasks and handles directly, which asyncio's documents forbid: see
support/thread_misuse.py."""

import sys

import pytest
from support.thread_misuse import DRIVER, PRELUDE, run_misuse

pytestmark = pytest.mark.promise("P04")

REPLACING_THE_CLOCK = """
def work():
    for _ in range(20):
        loop.time()
        loop.call_later(0.00001, nothing)

def misuse(number, call):
    for _ in range(20):
        time.monotonic = Clock()
        loop.time()
"""

MISUSES = {
    "call_soon": """
def misuse(number, call):
    loop.call_soon(nothing, call)
""",
    "call_soon and cancel": """
def misuse(number, call):
    loop.call_soon(nothing, call).cancel()
""",
    "call_later": """
def work():
    loop.call_later(0, nothing)
    loop.call_later(100, nothing).cancel()

def misuse(number, call):
    loop.call_later(0, nothing, call)
    loop.call_later(call, nothing).cancel()
""",
    "call_at": """
def work():
    loop.call_at(loop.time(), nothing)

def misuse(number, call):
    handle = loop.call_at(loop.time() + call % 2 * 100, nothing, call)
    loop._scheduled
    handle.cancel()
""",
    "cancelling the loop's handles": """
handles = []

def work():
    handles[:] = [loop.call_soon(nothing, object()) for _ in range(20)]
    handles.extend(loop.call_later(0.00001, nothing, object()) for _ in range(20))

def misuse(number, call):
    for handle in handles:
        handle.cancel()
        repr(handle)
""",
    "looking at the loop's handles": """
def work():
    for _ in range(20):
        loop.call_soon(nothing, object())
        loop.call_later(0.00001, nothing, object())

def misuse(number, call):
    for handle in [*loop._ready, *loop._scheduled]:
        repr(handle)
        handle.cancelled()
""",
    "setting a handle's attributes": """
handles = []

def work():
    handles[:] = [loop.call_soon(nothing, object()) for _ in range(20)]
    handles.extend(loop.call_later(0.00001, nothing, object()) for _ in range(20))

def misuse(number, call):
    for handle in list(handles):
        handle._context = contextvars.copy_context()
        handle._args = (object(),)
        handle.get_context()
        if isinstance(handle, asyncio.TimerHandle):
            handle._when = loop.time()
            handle.when()
            handle in handles
""",
    "set_task_factory": """
class Factory:
    def __call__(self, loop, coro, **kwargs):
        return impl.Task(coro, loop=loop, **kwargs)

async def main():
    await asyncio.sleep(0)

def work():
    for _ in range(20):
        coro = main()
        try:
            loop.create_task(coro)
        except TypeError:
            # asyncio, too, looks at the factory twice, and may find none the second time.
            coro.close()

def misuse(number, call):
    for _ in range(20):
        loop.set_task_factory(Factory())
        loop.get_task_factory()
        loop.set_task_factory(None)

def end():
    loop.set_task_factory(None)
""",
    "replacing the loop's clock": """
class Clock:
    def __call__(self):
        return time.monotonic()

def work():
    for _ in range(20):
        loop.time()
        loop.call_later(0.00001, nothing)

def misuse(number, call):
    for _ in range(20):
        loop.time = Clock()
        with contextlib.suppress(AttributeError):
            del loop.time
        loop.call_soon_threadsafe(nothing)
""",
    "replacing time.monotonic()": """
class Clock:
    def __call__(self):
        return original()

original = time.monotonic

"""
    + REPLACING_THE_CLOCK
    + """
def end():
    time.monotonic = original
""",
    "the exception handler in debug mode": """
loop.set_debug(True)
loop.slow_callback_duration = 100

def work():
    for _ in range(20):
        loop.call_soon(nothing, object())

def misuse(number, call):
    for _ in range(20):
        loop.set_exception_handler(lambda loop, context: None)
        loop.call_exception_handler({"message": "from a thread"})
        loop._current_handle

def end():
    loop.set_debug(False)
""",
    "a task that ends in its eager start": """
loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))
seen = []

async def main():
    seen[:] = [asyncio.current_task()]

def work():
    for _ in range(20):
        loop.create_task(main())

def misuse(number, call):
    for task in [*seen, *asyncio.all_tasks(loop)]:
        for _ in range(20):
            task.get_coro()

def end():
    loop.set_task_factory(None)
""",
    "create_task": """
async def main(call):
    await asyncio.sleep(0)

def work():
    loop.create_task(main(0))

def misuse(number, call):
    loop.create_task(main(call))
""",
    "create_future and its result": """
def misuse(number, call):
    future = loop.create_future()
    future.add_done_callback(nothing)
    future.add_done_callback(nothing)
    future.set_result(call)
    future.result()
""",
    "set_result": """
futures = [loop.create_future() for _ in range(50)]

async def wait(future):
    await future

def work():
    for index, future in enumerate(futures):
        if future.done():
            futures[index] = future = loop.create_future()
            future.add_done_callback(nothing)
            loop.create_task(wait(future))
            loop.create_task(wait(future))

def misuse(number, call):
    for index, future in enumerate(futures):
        if not future.done():
            future.set_result([index])
        future.result()
""",
    "set_exception": """
futures = [loop.create_future() for _ in range(50)]

async def wait(future):
    with contextlib.suppress(ZeroDivisionError, asyncio.CancelledError):
        await future

def work():
    for index, future in enumerate(futures):
        if future.done():
            futures[index] = future = loop.create_future()
            loop.create_task(wait(future))

def misuse(number, call):
    for index, future in enumerate(futures):
        if not future.done():
            future.set_exception(ZeroDivisionError(str(call)))
        future.exception()
        repr(future)
""",
    "add_done_callback and remove_done_callback": """
futures = [loop.create_future() for _ in range(10)]

def work():
    for index, future in enumerate(futures):
        future.add_done_callback(nothing)
        future.set_result(None)
        futures[index] = loop.create_future()

def misuse(number, call):
    for future in futures:
        callback = lambda future: None
        future.add_done_callback(callback)
        future.add_done_callback(nothing)
        future._callbacks
        future.remove_done_callback(callback)
        future.remove_done_callback(nothing)
""",
    "the cancelling of a future": """
futures = [loop.create_future() for _ in range(50)]

async def wait(future):
    await future

def work():
    for index, future in enumerate(futures):
        if future.done():
            futures[index] = future = loop.create_future()
            loop.create_task(wait(future))

def misuse(number, call):
    for future in futures:
        future.cancel(f"{number} {call}")
        with contextlib.suppress(asyncio.CancelledError):
            future.result()
""",
    "the cancelling of a task": """
tasks = []

async def main():
    try:
        while True:
            await asyncio.sleep(0)
            await asyncio.sleep(0.00001)
            await loop.create_future()
    except asyncio.CancelledError as error:
        str(error)
        raise

def work():
    tasks[:] = [task for task in tasks if not task.done()]
    tasks.extend(loop.create_task(main()) for _ in range(20 - len(tasks)))

def misuse(number, call):
    for task in list(tasks):
        task.cancel(f"{number} {call}")
        task.cancelling()
        task.uncancel()
        repr(task)

def end():
    for task in tasks:
        task.cancel()
""",
    "looking at a task": """
tasks = []

async def main():
    for _ in range(5):
        await asyncio.sleep(0)
    return [1]

def work():
    tasks[:] = [task for task in tasks if not task.done()]
    tasks.extend(loop.create_task(main()) for _ in range(20 - len(tasks)))

def misuse(number, call):
    for task in list(tasks):
        task.get_name()
        task.set_name(f"{number} {call}")
        task.get_coro()
        task.get_context()
        task.get_stack()
        task._fut_waiter
        repr(task)
        if task.done():
            task.result()
""",
    "a task that is made to start at once": """
async def main(call):
    await asyncio.sleep(0)

def misuse(number, call):
    coro = main(call)
    try:
        impl.Task(coro, loop=loop, eager_start=True)
    except BaseException:
        # Not otherwise: the loop may be running it, and no coroutine of CPython's survives that.
        coro.close()
        raise
""",
    "awaiting a future of the loop on another loop": """
futures = [loop.create_future() for _ in range(50)]

async def wait(future):
    return await asyncio.wait_for(future, 1)

def work():
    for index, future in enumerate(futures):
        if not future.done():
            future.set_result([index])
        futures[index] = loop.create_future()

def misuse(number, call):
    if call % 25 == 0:
        with contextlib.closing(impl.new_event_loop()) as other:
            waiting = [other.create_task(wait(future)) for future in futures[:5]]
            other.run_until_complete(asyncio.wait(waiting))
            for task in waiting:
                task.exception()
""",
    "add_reader and remove_reader": """
pairs = [socket.socketpair() for _ in range(THREADS + 1)]
for pair in pairs:
    for sock in pair:
        sock.setblocking(False)
own = pairs.pop()

def work():
    loop.add_reader(own[0], nothing)
    loop.add_writer(own[0], nothing)
    loop.remove_writer(own[0])
    loop.remove_reader(own[0])

def misuse(number, call):
    one, other = pairs[number]
    for method, arguments in [
        (loop.add_reader, (one, one.recv, 1)), (loop.add_writer, (one, nothing)), (loop.remove_writer, (one,)),
        (loop.remove_reader, (one,)), (loop.add_writer, (own[0], nothing)), (loop.remove_writer, (own[0],)),
    ]:
        with contextlib.suppress(Exception):
            method(*arguments)
    other.send(b"x")

def end():
    for one in [own, *pairs]:
        for sock in one:
            loop.remove_reader(sock)
            loop.remove_writer(sock)
            sock.close()
""",
    "add_reader on many descriptors": """
socks = [sock for _ in range(200) for sock in socket.socketpair()]

def work():
    loop.add_reader(socks[0], nothing)
    loop.remove_reader(socks[0])

def misuse(number, call):
    sock = socks[(number + call * THREADS) % len(socks)]
    with contextlib.suppress(Exception):
        loop.add_reader(sock, nothing)

def end():
    for sock in socks:
        loop.remove_reader(sock)
        sock.close()
""",
    "sock_recv and sock_sendall": """
pairs = [socket.socketpair() for _ in range(THREADS)]
for pair in pairs:
    for sock in pair:
        sock.setblocking(False)

def misuse(number, call):
    one, other = pairs[number]
    with contextlib.closing(loop.sock_recv(one, 10)) as receiving:
        with contextlib.suppress(StopIteration):
            receiving.send(None)
        with contextlib.closing(loop.sock_sendall(other, b"x")) as sending, contextlib.suppress(StopIteration):
            sending.send(None)

def end():
    for pair in pairs:
        for sock in pair:
            loop.remove_reader(sock)
            loop.remove_writer(sock)
            sock.close()
""",
}

NOT_RUNNING = """
futures = [loop.create_future() for _ in range(100)]

async def main(future):
    await future

def thread(number):
    for future in futures:
        loop.call_soon(nothing)
        loop.call_later(0.0001, nothing)
        loop.create_task(main(future))
        loop.call_later(100, nothing).cancel()
        with contextlib.suppress(asyncio.InvalidStateError):
            future.set_result(number)

async def finish():
    await asyncio.gather(*asyncio.all_tasks(loop) - {asyncio.current_task()})

def all_at_once():
    threads = [threading.Thread(target=thread, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    return threads
"""


# Patches the clock before hotloop is imported, which then does not know the original. Its argument is the program.
PATCHING_FIRST = """
import sys, time

class Clock:
    def __call__(self):
        return original()

original = time.monotonic
time.monotonic = Clock()
exec(sys.argv[2])
"""


@pytest.mark.parametrize("name", MISUSES)
def test_calls_from_other_threads(impl, name):
    if impl.name == "asyncio" and name in ("call_later", "call_at"):
        pytest.skip("asyncio's loop ends if its heap of timers is changed meanwhile")
    if impl.name != "c" and name == "a task that ends in its eager start" and sys.version_info[:2] == (3, 12):
        pytest.skip("get_coro() of CPython 3.12's own task crashes then")
    run_misuse(impl, PRELUDE, MISUSES[name], DRIVER)


def test_a_clock_that_is_patched_before_the_import_is_replaced(impl):
    run_misuse(
        impl,
        PRELUDE,
        REPLACING_THE_CLOCK,
        DRIVER,
        options=("-c", PATCHING_FIRST),
    )


def test_threads_prepare_a_loop_that_does_not_run(impl):
    """All threads call at once; no call is lost."""
    run_misuse(
        impl,
        PRELUDE,
        NOT_RUNNING,
        """
for one in all_at_once():
    one.join()
assert len(asyncio.all_tasks(loop)) == THREADS * len(futures)
loop.run_until_complete(finish())
assert all(future.done() for future in futures)
loop.close()
print("survived")
""",
    )


def test_a_loop_begins_to_run_while_threads_prepare_it(impl):
    run_misuse(
        impl,
        PRELUDE,
        NOT_RUNNING,
        """
running = threading.Thread(target=loop.run_forever)
threads = all_at_once()
running.start()
for one in threads:
    one.join()
loop.call_soon_threadsafe(loop.stop)
running.join()
loop.run_until_complete(finish())
assert all(future.done() for future in futures)
loop.close()
print("survived")
""",
    )
