"""Programs in which other threads call a loop and its objects directly, which asyncio's documents forbid.

Such a call may raise, and its effect may come late. It must end neither the interpreter nor the loop. Without the GIL
the threads really run side by side. Each program has an interpreter of its own, so that a crash is one failed test.
"""

from collections.abc import Sequence

from support.implementations import Implementation

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


def run_misuse(impl: Implementation, *sources: str, options: Sequence[str] = ()) -> None:
    process = impl.run_script("\n".join(sources), *options, check=False)
    assert (process.returncode, process.stdout.splitlines()[-1:]) == (0, ["survived"]), process.stderr[-3000:]
