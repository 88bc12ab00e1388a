"""P04: the interpreter exits at any moment while loops in daemon threads have everything open."""

import pytest

pytestmark = pytest.mark.promise("P04")

PROGRAM = """
import threading, time, warnings
from support.busy_program import opened
# What is dropped at exit; and what asyncio means to ignore itself, in a way that is not for several threads.
warnings.simplefilter("ignore")
started, failures = threading.Barrier(LOOPS + 1), []

async def idle(here):
    await asyncio.get_running_loop().create_future()

async def using(here):
    while True:
        await here.use()

async def reconnecting(here):
    while True:
        await (await opened()).close()

async def starting_jobs(here):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # the executor takes no more
    def again(*_):
        loop.run_in_executor(None, int).add_done_callback(again)
    for _ in range(20):
        again()
    await idle(here)

async def waiting_for_jobs(here):
    loop = asyncio.get_running_loop()
    # The interpreter waits for them before it goes on to exit.
    jobs = [loop.run_in_executor(None, time.sleep, 0.01) for _ in range(50)]
    await asyncio.gather(*jobs)
    await idle(here)

async def calling(here):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    def call():
        while True:
            loop.call_soon_threadsafe(int)
    for _ in range(2):
        threading.Thread(target=call, daemon=True).start()
    await using(here)

async def with_timers(here):
    loop = asyncio.get_running_loop()
    def again():
        loop.call_later(0, again)
        loop.call_later(0.0005, int)
    again()
    await idle(here)

async def cancelling(here):
    while True:
        tasks = [asyncio.ensure_future(reader.read(1)) for reader, _ in here.connections.values()]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

async def main():
    try:
        here = await opened()
    except BaseException as error:
        failures.append(error)
    started.wait()
    await doing(here)

def thread():
    with asyncio.Runner(loop_factory=impl.new_event_loop) as runner:
        runner.run(main())

def start(what):
    global doing
    doing = what
    for _ in range(LOOPS):
        threading.Thread(target=thread, daemon=True).start()
    started.wait()
    assert not failures, failures
    print("exiting", flush=True)
"""

DOING = ["idle", "using", "reconnecting", "starting_jobs", "waiting_for_jobs", "calling", "with_timers", "cancelling"]
ENDS = {"the end": (0, ""), "sys.exit": (3, "sys.exit(3)"), "an exception": (1, "raise ZeroDivisionError")}


def run(impl, files, program, *, loops=2):
    arguments = f"sys.argv[1:], LOOPS = {[files.authority, files.server]!r}, {loops}\n"
    return impl.run_script(arguments + PROGRAM + program, check=False)


def check(out, code):
    assert (out.returncode, out.stdout) == (code, "exiting\n"), out.stderr[-3000:]
    assert "Fatal Python error" not in out.stderr


@pytest.mark.parametrize("doing", DOING)
def test_loops_in_daemon_threads_at_exit(impl, certificate_files, doing):
    check(run(impl, certificate_files, f"start({doing})\n"), 0)


@pytest.mark.parametrize("end", ENDS)
def test_every_way_to_exit(impl, certificate_files, end):
    code, statement = ENDS[end]
    check(run(impl, certificate_files, f"start(using)\n{statement}\n"), code)


def test_the_main_loop_is_abandoned(impl, certificate_files):
    """The loop is never closed, a module refers to it, and everything is open."""
    out = run(
        impl,
        certificate_files,
        """
import logging
logging.disable()
loop = impl.new_event_loop()
here = loop.run_until_complete(opened())
loop.run_until_complete(here.use())
print("exiting", flush=True)
sys.kept = [loop, here]
""",
        loops=0,
    )
    check(out, 0)


def test_exit_out_of_a_loop_with_everything_open(impl, certificate_files):
    out = run(
        impl,
        certificate_files,
        """
import logging
logging.disable()
loop = impl.new_event_loop()
async def leave():
    global here
    here = await opened()
    print("exiting", flush=True)
    loop.call_soon(sys.exit, 3)
    await here.use()
loop.create_task(leave())
loop.run_forever()
""",
        loops=0,
    )
    check(out, 3)
