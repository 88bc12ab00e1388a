"""Other threads call a loop, its futures, tasks, handles and transports directly, which asyncio's documents forbid.

Such a call may raise, and its effect may come late. It must end neither the interpreter nor the loop. Without the GIL
the threads really run side by side. Each program has an interpreter of its own, so that a crash is one failed test.
"""

import pytest

pytestmark = pytest.mark.promise("P04")

# Each of THREADS threads calls `misuse(number, call)` CALLS times, while the loop runs `work()` again and again.
PRELUDE = """
import contextlib, contextvars, socket, threading, time, warnings
warnings.simplefilter("ignore")
THREADS, CALLS = 4, 100
loop = impl.new_event_loop()
loop.set_exception_handler(lambda loop, context: None)

def nothing(*args):
    pass

def work():
    pass

def end():
    pass
"""

DRIVER = """
remaining = THREADS

def work_again():
    if remaining:
        work()
        loop.call_soon(work_again)

def finished():
    global remaining
    remaining -= 1
    if not remaining:
        loop.call_later(0, loop.stop)

started = threading.Barrier(THREADS)

def thread(number):
    started.wait()
    for call in range(CALLS):
        with contextlib.suppress(Exception, asyncio.CancelledError):
            misuse(number, call)
    loop.call_soon_threadsafe(finished)

threads = [threading.Thread(target=thread, args=(number,)) for number in range(THREADS)]
loop.call_soon(lambda: [one.start() for one in threads])
loop.call_soon(work_again)
loop.run_forever()
for one in threads:
    one.join()

# The loop goes on as if nothing had been.
async def check():
    await asyncio.sleep(0)
    future = loop.create_future()
    loop.call_later(0.001, future.set_result, "well")
    return await future

end()
assert loop.run_until_complete(loop.create_task(check())) == "well"
for task in asyncio.all_tasks(loop):
    task.cancel()
for _ in range(3):
    loop.call_soon(loop.stop)
    loop.run_forever()
loop.close()
print("survived")
"""

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
    finally:
        coro.close()
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

# A transport to `here`; the program has its other end.
TRANSPORT = """
here, there = socket.socketpair()
there.settimeout(60)
received = bytearray()

class Connected(asyncio.Protocol):
    lost = False

    def data_received(self, data):
        received.extend(data)

    def connection_lost(self, error):
        self.lost = True

transport, protocol = loop.run_until_complete(loop.create_connection(Connected, sock=here))

def drain():
    there.setblocking(False)
    with contextlib.suppress(OSError):
        while there.recv(65536):
            pass

def end():
    transport.abort()
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert protocol.lost
    there.close()
"""

MISUSES_OF_TRANSPORTS = {
    "write": """
def work():
    transport.write(b"from the loop")
    drain()

def misuse(number, call):
    transport.write(b"from a thread")
    transport.write(bytearray(b"from a thread"))
    transport.writelines([b"from a thread"] * 10)
    transport.get_write_buffer_size()
    transport.set_write_buffer_limits(call)
    transport.is_closing()
""",
    "pause_reading": """
def work():
    there.send(b"x")
    drain()

def misuse(number, call):
    transport.pause_reading()
    transport.is_reading()
    transport.resume_reading()
    transport.get_protocol()
    transport.set_protocol(protocol)
    repr(transport)
""",
    "set_protocol and set_write_buffer_limits": """
# The transport takes new objects of the loop's thread, and frees the ones that other threads may be asking for.
def work():
    for size in range(10**6, 10**6 + 20):
        transport.set_protocol(Connected())
        transport.set_write_buffer_limits(size)
    transport.set_protocol(protocol)

def misuse(number, call):
    for _ in range(20):
        transport.get_protocol()
        transport.get_write_buffer_limits()
""",
    "close": """
connections = []

async def connect():
    for _ in range(20):
        one, other = socket.socketpair()
        connection, _ = await loop.create_connection(asyncio.Protocol, sock=one)
        connections.append((connection, other))

def work():
    if len(connections) < 10:
        task = loop.create_task(connect())
        task.add_done_callback(nothing)
    for connection, _ in connections:
        connection.write(b"from the loop")

def misuse(number, call):
    with contextlib.suppress(IndexError):
        connection, other = connections.pop()
        connection.write(b"x" * 100_000)
        connection.get_extra_info("socket")
        connection.get_extra_info("sockname")
        getattr(connection, ("close", "abort")[call % 2])()
        connection.write(b"too late")
        connection.is_closing()
        connection.get_protocol()
        repr(connection)
        other.close()

original_end = end

def end():
    for connection, other in connections:
        connection.abort()
        other.close()
    original_end()
""",
}

DATAGRAMS = """
async def open_endpoint():
    return await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))

transport, protocol = loop.run_until_complete(open_endpoint())
address = transport.get_extra_info("sockname")

def work():
    transport.sendto(b"from the loop", address)

def misuse(number, call):
    transport.sendto(b"from a thread", address)
    transport.get_write_buffer_size()

def end():
    transport.abort()
"""

PIPES = """
read_end, write_end = os.pipe()
transport, protocol = loop.run_until_complete(loop.connect_write_pipe(asyncio.BaseProtocol, open(write_end, "wb")))
reader, _ = loop.run_until_complete(loop.connect_read_pipe(asyncio.Protocol, open(read_end, "rb")))

def work():
    transport.write(b"from the loop")

def misuse(number, call):
    transport.write(b"from a thread" * 100)
    reader.pause_reading()
    reader.resume_reading()
    transport.get_write_buffer_size()

def end():
    transport.abort()
    reader.close()
"""

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


def run(impl, *sources, options=()):
    process = impl.run_script("\n".join(sources), *options, check=False)
    assert (process.returncode, process.stdout.splitlines()[-1:]) == (0, ["survived"]), process.stderr[-3000:]


@pytest.mark.parametrize("name", MISUSES)
def test_calls_from_other_threads(impl, name):
    if impl.name == "asyncio" and name in ("call_later", "call_at"):
        pytest.skip("asyncio's loop ends if its heap of timers is changed meanwhile")
    run(impl, PRELUDE, MISUSES[name], DRIVER)


def test_a_clock_that_is_patched_before_the_import_is_replaced(impl):
    run(
        impl,
        PRELUDE,
        REPLACING_THE_CLOCK,
        DRIVER,
        options=("-c", PATCHING_FIRST),
    )


@pytest.mark.parametrize("name", MISUSES_OF_TRANSPORTS)
def test_transports_used_by_other_threads(impl, name):
    run(impl, PRELUDE, TRANSPORT, MISUSES_OF_TRANSPORTS[name], DRIVER)


@pytest.mark.parametrize("source", [DATAGRAMS, PIPES], ids=["datagrams", "pipes"])
def test_other_transports_used_by_other_threads(impl, source):
    run(impl, PRELUDE, source, DRIVER)


def test_threads_prepare_a_loop_that_does_not_run(impl):
    """All threads call at once; no call is lost."""
    run(
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
    run(
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
