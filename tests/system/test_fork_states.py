"""P16: a fork at any moment, with everything open. The child runs a loop of its own; the parent is unaffected.

The child must neither use the parent's loop nor close its TLS connections, because closing would notify the peers.
"""

import os
import sys
import sysconfig

import pytest

pytestmark = [
    pytest.mark.promise("P16"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork()"),
]

PROGRAM = """
import gc, signal, socket, threading, warnings
from support.busy_program import opened, until_asleep
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later: fork() in a process with threads

async def work():
    fresh = await opened()
    await fresh.use()
    await fresh.close()
    return "done"

def child():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a loop is running in the child")
    assert impl.run(work()) == "done"

def fork():
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException as error:
            print("child:", type(error).__name__, error, flush=True)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child has failed"

async def in_a_task():
    fork()

async def in_a_callback():
    await once(lambda done: asyncio.get_running_loop().call_soon(done))

async def in_a_timer():
    await once(lambda done: asyncio.get_running_loop().call_later(0.001, done))

async def in_a_done_callback():
    def arrange(done):
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda future: done())
        future.set_result(None)
    await once(arrange)

async def in_a_reader():
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    with one, other:
        other.send(b"x")
        await once(lambda done: loop.add_reader(one, lambda: (loop.remove_reader(one), done())))

async def in_a_signal_handler():
    loop = asyncio.get_running_loop()
    def arrange(done):
        loop.add_signal_handler(signal.SIGUSR1, done)
        os.kill(os.getpid(), signal.SIGUSR1)
    await once(arrange)
    loop.remove_signal_handler(signal.SIGUSR1)

class Forking(asyncio.Protocol):
    def __init__(self, done):
        self.done = done

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.close()
        self.done()

async def in_a_protocol():
    one, other = socket.socketpair()
    with other:
        other.send(b"x")
        making = []
        await once(lambda done: making.append(asyncio.ensure_future(
            asyncio.get_running_loop().create_connection(lambda: Forking(done), sock=one))))
        await making[0]

async def in_a_thread_while_the_loop_polls():
    loops = threading.current_thread()
    await asyncio.get_running_loop().run_in_executor(None, lambda: (until_asleep(loops), fork()))

async def once(arrange):
    forked = asyncio.get_running_loop().create_future()
    def happened():
        try:
            fork()
        except BaseException as error:
            forked.set_exception(error)
        else:
            forked.set_result(None)
    arrange(happened)
    await forked

async def main(state):
    here = await opened()
    await state()
    await here.use()
    await here.close()
"""

STATES = [
    "in_a_task",
    "in_a_callback",
    "in_a_timer",
    "in_a_done_callback",
    "in_a_reader",
    "in_a_signal_handler",
    "in_a_protocol",
    "in_a_thread_while_the_loop_polls",
]


def run(impl, files, program):
    arguments = f"sys.argv[1:] = {[files.authority, files.server]!r}\n"
    out = impl.run_script(arguments + PROGRAM + program + "\nprint('parent went on')\n").stdout
    assert out == "parent went on\n"


@pytest.mark.parametrize("state", STATES)
def test_a_fork_in_each_state(impl, certificate_files, state):
    run(impl, certificate_files, f"impl.run(main({state}))")


def test_a_fork_between_two_runs_of_a_loop(impl, certificate_files):
    run(
        impl,
        certificate_files,
        """
with asyncio.Runner(loop_factory=impl.new_event_loop) as runner:
    here = runner.run(opened())
    fork()
    runner.run(here.use())
    runner.run(here.close())
""",
    )


@pytest.mark.only(
    "c",
    reason="the standard library's selector shares its epoll set with the child, whose loop removes its socket there",
)
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14),
    reason="CPython 3.13 without the GIL frees nothing of a loop that has used threads, asyncio's own included",
)
def test_the_child_frees_what_it_has_inherited(impl, certificate_files):
    """The collector closes the loop and all transports, and no peer is notified."""
    run(
        impl,
        certificate_files,
        """
import contextlib, io, logging, weakref
own_loop = child
def child():
    global runner, here
    warnings.simplefilter("ignore", ResourceWarning)
    logging.disable()
    freed = [weakref.ref(thing) for thing in (runner.get_loop(), here.datagrams, here.connections["tls"][1].transport)]
    with contextlib.redirect_stderr(io.StringIO()):  # what is dropped in use complains
        runner = here = None
        gc.collect()
    assert [thing() for thing in freed] == [None] * 3
    own_loop()

runner = asyncio.Runner(loop_factory=impl.new_event_loop)
here = runner.run(opened())
fork()
runner.run(here.use())
runner.run(here.close())
runner.close()
""",
    )


def test_a_fork_of_a_fork(impl, certificate_files):
    run(
        impl,
        certificate_files,
        """
only_child = child
def child():
    global child
    child = only_child
    async def again():
        here = await opened()
        fork()
        await here.use()
        await here.close()
    impl.run(again())
impl.run(main(in_a_callback))
""",
    )
