"""Pictures of all tasks at a signal, of loops that wait, that are blocked, and that run in other threads."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading

import pytest

from hotloop import dump_tasks_on
from hotloop.instruments import dumps
from hotloop.instruments.dumps import write_to_stderr

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no signals to send")


@pytest.fixture
def written():
    return []


def test_a_loop_that_waits(impl, written):
    """The loop waits only for a future that the report of the signal sets."""

    async def wait(future):
        await future

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def write(text):
            written.append(text)
            loop.call_soon_threadsafe(future.set_result, None)

        with dump_tasks_on(loop, signal.SIGUSR1, write):
            task = asyncio.create_task(wait(future), name="waiter")
            await asyncio.sleep(0)
            loop.call_soon(threading.Timer(0, os.kill, [os.getpid(), signal.SIGUSR1]).start)
            await task

    impl.run(main())
    [text] = written
    assert text.startswith("2 tasks of the event loop in thread 'MainThread'\n")
    assert "\ntask 'waiter', test_a_loop_that_waits.<locals>.wait(), waits for a " in text
    assert f'\n  File "{__file__}", line ' in text


def test_a_loop_that_is_blocked(impl, written):
    """The loop's own signal handlers would wait until it is no longer blocked; dump_tasks_on() reports at once."""

    def block():
        os.kill(os.getpid(), signal.SIGUSR1)
        while not written:
            pass

    async def main():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR2, int)
        try:
            with dump_tasks_on(loop, signal.SIGUSR1, written.append):
                block()
        finally:
            loop.remove_signal_handler(signal.SIGUSR2)

    impl.run(main())
    [text] = written
    assert "main(), runs" in text
    assert ", in test_a_loop_that_is_blocked.<locals>.block" in text
    assert "dumps.py" not in text


def test_a_loop_in_another_thread(impl, written):
    def run():
        with contextlib.closing(impl.new_event_loop()) as loop:
            started.append(loop)
            loop.call_soon(ready.set)
            loop.run_forever()

    ready, started = threading.Event(), []
    thread = threading.Thread(target=run, name="another")
    thread.start()
    ready.wait()
    [loop] = started
    with dump_tasks_on(loop, signal.SIGUSR1, written.append):
        signal.raise_signal(signal.SIGUSR1)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    assert written == ["0 tasks of the event loop in thread 'another'\n"]


def test_the_handler_before_is_restored(loop, written):
    before = signal.getsignal(signal.SIGUSR1)
    received = []

    def handler(signum, frame):
        received.append(signum)

    signal.signal(signal.SIGUSR1, handler)
    try:
        dump = dump_tasks_on(loop, signal.SIGUSR1, written.append)
        signal.raise_signal(signal.SIGUSR1)
        assert (len(written), received) == (1, [])
        dump.stop()
        signal.raise_signal(signal.SIGUSR1)
        assert (len(written), received) == (1, [signal.SIGUSR1])
        dump.stop()
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_came_later_is_left_alone(loop, written):
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with dump_tasks_on(loop, signal.SIGUSR1, written.append):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_loop_that_is_gone(impl, written):
    loop = impl.new_event_loop()
    with dump_tasks_on(loop, signal.SIGUSR1, written.append):
        loop.close()
        signal.raise_signal(signal.SIGUSR1)
        assert written == [f"0 tasks of {loop!r}\n"]
        del loop
        signal.raise_signal(signal.SIGUSR1)
    assert len(written) == 1


def test_a_write_that_raises_is_logged(loop, caplog):
    def write(text):
        raise LookupError("text")

    with dump_tasks_on(loop, signal.SIGUSR1, write):
        signal.raise_signal(signal.SIGUSR1)
    [record] = [record for record in caplog.records if record.name == "hotloop.tasks"]
    assert record.exc_info[0] is LookupError


# -- the standard error ------------------------------------------------------------------------------------------------


def test_signals_that_come_while_the_tasks_are_written(loop, written, monkeypatch):
    """They do not pile up on the stack until nothing can be written."""

    def write(text):
        written.append(text)
        signal.raise_signal(signal.SIGUSR1)

    with dump_tasks_on(loop, signal.SIGUSR1, write):
        for count in 1, 2:
            signal.raise_signal(signal.SIGUSR1)
            assert len(written) == count
    monkeypatch.setattr(dumps, "write_to_stderr", write)
    before = signal.signal(signal.SIGUSR1, dumps._dump_all)
    try:
        for count in 3, 4:
            signal.raise_signal(signal.SIGUSR1)
            assert len(written) == count
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_standard_error_without_a_file(capsys):
    write_to_stderr("text\n")
    assert capsys.readouterr().err == "text\n"


class Stream:
    encoding = "ascii"

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def fileno(self):
        return self.descriptor


def test_past_the_buffer_of_the_standard_error(monkeypatch):
    reader, writer = os.pipe()
    with open(reader, "rb") as pipe:
        monkeypatch.setattr("sys.stderr", Stream(writer))
        write_to_stderr("täsk\n")
        os.close(writer)
        assert pipe.read() == b"t\\xe4sk\n"


def test_a_standard_error_that_is_full(monkeypatch):
    """A non-blocking standard error whose reader is slow, or does not read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    monkeypatch.setattr("sys.stderr", Stream(writer))
    text = "x" * 300_000
    chunks = []

    def read():
        while sum(map(len, chunks)) < len(text):
            chunks.append(os.read(reader, 65536))

    thread = threading.Thread(target=read)
    thread.start()
    monkeypatch.setattr("hotloop.instruments.dumps._MILLISECONDS_FOR_STDERR", 60_000)
    write_to_stderr(text)
    thread.join()
    assert b"".join(chunks) == text.encode()
    monkeypatch.setattr("hotloop.instruments.dumps._MILLISECONDS_FOR_STDERR", 1)
    write_to_stderr(text)
    assert len(os.read(reader, len(text))) < len(text)
    os.close(reader)
    os.close(writer)


def test_no_standard_error(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    write_to_stderr("text")


# -- hotloop.run() -----------------------------------------------------------------------------------------------------

ONLY_OURS = pytest.mark.only("c", "python", reason="asyncio.run() has none of these keywords")


@ONLY_OURS
def test_run(impl):
    source = """if True:
        import hotloop, signal

        async def main():
            await asyncio.create_task(child(), name="child")

        async def child():
            print("ready", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, input)

        hotloop.run(main(), dump_tasks_on=signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    """
    pipe = subprocess.PIPE
    with impl.popen(source, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        head = process.stderr.readline()
        process.stdin.write("\n")
        process.stdin.close()
        rest = process.stderr.read()
    assert process.returncode == 0
    assert head == "2 tasks of the event loop in thread 'MainThread'\n"
    assert "\ntask 'Task-1', main(), waits for task 'child'\n" in rest
    assert "\ntask 'child', child(), " in rest
    assert ", in child\n" in rest


@ONLY_OURS
def test_run_outside_the_main_thread(impl):
    impl.run_script("""if True:
        import hotloop, signal, threading
        async def main():
            raise AssertionError
        def run():
            coroutine = main()
            try:
                hotloop.run(coroutine, dump_tasks_on=signal.SIGUSR1)
            except RuntimeError as error:
                errors.append(str(error))
            coroutine.close()
        errors = []
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        [error] = errors
        assert "can only be started in the main thread" in error, error
    """)


# -- HOTLOOP_DUMP_TASKS_ON ---------------------------------------------------------------------------------------------

WAITING = """
import hotloop, signal, threading

async def main():
    task = asyncio.create_task(child(), name="child")
    await asyncio.sleep(0)
    signal.raise_signal(signal.SIGUSR1)
    task.cancel()

async def child():
    await asyncio.get_running_loop().create_future()
"""


@ONLY_OURS
@pytest.mark.parametrize("value", ["SIGUSR1", "usr1", str(int(getattr(signal, "SIGUSR1", 0)))])
@pytest.mark.parametrize(
    "run",
    [
        "hotloop.run(main())",
        "hotloop.run(main(), tasks='asyncio')",
        "with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner: runner.run(main())",
    ],
    ids=["run", "asyncio's tasks", "runner"],
)
def test_a_variable_dumps_the_tasks(impl, monkeypatch, value, run):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", value)
    done = impl.run_script(WAITING + run, check=False)
    assert done.returncode == 0
    assert done.stderr.startswith("2 tasks of the event loop in thread 'MainThread'\n")
    assert "\ntask 'child', child(), waits for a " in done.stderr
    assert "\ntask 'Task-1', main(), runs\n" in done.stderr
    assert "_dump_all" not in done.stderr


@ONLY_OURS
def test_a_variable_dumps_the_tasks_of_all_open_loops(impl, monkeypatch):
    """Whichever runs, and in which thread. The signal never ends the process, even when no loop is left."""
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", "SIGUSR1")
    done = impl.run_script(
        WAITING
        + """
def run_another():
    with asyncio.Runner(loop_factory=hotloop.new_event_loop) as runner:
        runner.run(another())

async def another():
    started.set()
    await asyncio.to_thread(ended.wait)

async def first():
    pass

hotloop.run(first())
started, ended = threading.Event(), threading.Event()
thread = threading.Thread(target=run_another, name="another")
thread.start()
started.wait()
hotloop.run(main())
ended.set()
thread.join()
signal.raise_signal(signal.SIGUSR1)
""",
        check=False,
    )
    assert done.returncode == 0
    assert "2 tasks of the event loop in thread 'MainThread'\n" in done.stderr
    assert "1 task of the event loop in thread 'another'\n" in done.stderr
    assert "first()" not in done.stderr
    assert done.stderr.endswith("\nno event loop is open\n")


@ONLY_OURS
def test_a_variable_dumps_the_tasks_while_a_loop_is_made(impl, loop, monkeypatch):
    def format_while_a_loop_is_made(loop):
        others.append(impl.new_event_loop())
        return f"{loop}\n"

    others, texts = [], []
    monkeypatch.setattr(dumps, "format_tasks", format_while_a_loop_is_made)
    monkeypatch.setattr(dumps, "write_to_stderr", texts.append)
    dumps._dump_all(signal.SIGUSR1, None)
    for other in others:
        other.close()
    [text] = texts
    assert str(loop) in text


REFUSED = """
import hotloop, logging, signal, threading

said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logger = logging.getLogger("hotloop.tasks")
logger.addHandler(handler)
"""


@ONLY_OURS
@pytest.mark.parametrize(
    ("value", "because"),
    [
        ("SIGNOTHING", "there is no signal 'SIGNOTHING'"),
        ("999", "there is no signal '999'"),
        ("-1", "there is no signal '-1'"),
        ("SIGKILL", "Invalid argument"),
        ("SIGINT", "the program handles this signal itself"),
    ],
)
def test_a_variable_that_is_no_signal_to_have(impl, monkeypatch, value, because):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", value)
    impl.run_script(
        REFUSED
        + f"""
hotloop.run(asyncio.sleep(0))
hotloop.run(asyncio.sleep(0))
[text] = said
assert text.startswith("HOTLOOP_DUMP_TASKS_ON={value}: tasks are not dumped: "), text
assert {because!r} in text, text
"""
    )


@ONLY_OURS
def test_a_variable_leaves_the_programs_own_handler(impl, monkeypatch):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", "SIGUSR1")
    impl.run_script(
        REFUSED
        + """
received = []
signal.signal(signal.SIGUSR1, lambda signum, frame: received.append(signum))
hotloop.run(asyncio.sleep(0))
signal.raise_signal(signal.SIGUSR1)
assert received == [signal.SIGUSR1]
[text] = said
assert text.endswith("the program handles this signal itself")
"""
    )


@ONLY_OURS
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not list handled signals")
def test_a_variable_leaves_a_handler_of_c_code(impl, monkeypatch):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", "SIGUSR1")
    impl.run_script(
        REFUSED
        + """
import faulthandler
with open(os.devnull, "w") as nowhere:
    faulthandler.register(signal.SIGUSR1, nowhere)
    hotloop.run(asyncio.sleep(0))
    signal.raise_signal(signal.SIGUSR1)
[text] = said
assert text.endswith("could not be restored")
"""
    )


@ONLY_OURS
def test_a_variable_outside_the_main_thread(impl, monkeypatch):
    """Refused once for all other threads. A loop in the main thread may still follow."""
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", "SIGUSR1")
    impl.run_script(
        REFUSED
        + """
for _ in range(2):
    thread = threading.Thread(target=lambda: hotloop.run(asyncio.sleep(0)))
    thread.start()
    thread.join()
[text] = said
assert "can only be started in the main thread" in text
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
hotloop.run(asyncio.sleep(0))
assert callable(signal.getsignal(signal.SIGUSR1))
assert len(said) == 1
"""
    )


@ONLY_OURS
def test_the_programs_own_dump_counts_more_than_the_variable(impl, monkeypatch):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", "SIGUSR1")
    impl.run_script(
        REFUSED
        + """
async def main():
    with hotloop.dump_tasks_on(asyncio.get_running_loop(), signal.SIGUSR1, written.append):
        signal.raise_signal(signal.SIGUSR1)

written = []
hotloop.run(main())
assert len(written) == 1
assert callable(signal.getsignal(signal.SIGUSR1))
assert said == []
"""
    )


@ONLY_OURS
@pytest.mark.parametrize("value", ["", "0", "off", "False"])
def test_a_variable_that_is_switched_off(impl, monkeypatch, value):
    monkeypatch.setenv("HOTLOOP_DUMP_TASKS_ON", value)
    impl.run_script(
        REFUSED
        + """
hotloop.run(asyncio.sleep(0))
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
assert said == []
"""
    )


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_bad_signals(loop):
    with pytest.raises(ValueError, match="there is no signal 0"):
        dump_tasks_on(loop, 0)
    with pytest.raises(ValueError, match="there is no signal 999"):
        dump_tasks_on(loop, 999)
    with pytest.raises(ValueError, match="signal 9 cannot be handled"):
        dump_tasks_on(loop, signal.SIGKILL)
    with pytest.raises(TypeError, match="a signal must be a number"):
        dump_tasks_on(loop, "SIGUSR1")


def test_other_bad_input(loop):
    with pytest.raises(TypeError, match="an event loop was expected"):
        dump_tasks_on(None, signal.SIGUSR1)
    with pytest.raises(TypeError, match="must be callable"):
        dump_tasks_on(loop, signal.SIGUSR1, "file")


def test_twice_on_one_signal(loop, written):
    with dump_tasks_on(loop, signal.SIGUSR1, written.append):
        with pytest.raises(RuntimeError, match="dumps tasks already"):
            dump_tasks_on(loop, signal.SIGUSR1)
        with dump_tasks_on(loop, signal.SIGUSR2, written.append):
            signal.raise_signal(signal.SIGUSR2)
            signal.raise_signal(signal.SIGUSR1)
    assert len(written) == 2


def test_a_handler_that_could_not_be_restored(loop, monkeypatch):
    monkeypatch.setattr("signal.getsignal", lambda signum: None)
    with pytest.raises(RuntimeError, match="could not be restored"):
        dump_tasks_on(loop, signal.SIGUSR1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not list handled signals")
def test_a_handler_of_c_code(impl):
    """The signal module does not know faulthandler's handler: replacing it by the default action kills the program."""
    impl.run_script("""if True:
        import faulthandler, signal, hotloop
        with open(os.devnull, "w") as nowhere:
            loop = impl.new_event_loop()
            faulthandler.register(signal.SIGUSR1, nowhere)
            try:
                hotloop.dump_tasks_on(loop, signal.SIGUSR1)
            except RuntimeError as error:
                refused = str(error)
            assert "could not be restored" in refused
            signal.raise_signal(signal.SIGUSR1)
            loop.close()
    """)


def test_another_thread(loop):
    def attempt(call):
        try:
            call()
        except RuntimeError as error:
            errors.append(str(error))

    errors = []
    with dump_tasks_on(loop, signal.SIGUSR1) as dump:
        for call in (lambda: dump_tasks_on(loop, signal.SIGUSR2), dump.stop):
            thread = threading.Thread(target=attempt, args=[call])
            thread.start()
            thread.join()
        assert isinstance(getattr(signal.getsignal(signal.SIGUSR1), "__self__", None), type(dump))
    assert ["can only be started" in errors[0], "can only be stopped" in errors[1]] == [True, True]
