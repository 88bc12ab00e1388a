"""Signals: add_signal_handler(), Ctrl-C, and handlers that Python runs between bytecodes."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import threading

import pytest
from support.stepping import run_once, run_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal handlers on loops")


def test_a_signal_runs_its_handler_on_the_loop(loop):
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "received")
    os.kill(os.getpid(), signal.SIGUSR1)
    run_until(loop, lambda: seen)
    assert seen == ["received"]
    assert loop.remove_signal_handler(signal.SIGUSR1) is True
    assert loop.remove_signal_handler(signal.SIGUSR1) is False
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_signal_wakes_an_idle_loop(loop):
    loop.add_signal_handler(signal.SIGUSR1, loop.stop)
    thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    loop.remove_signal_handler(signal.SIGUSR1)


def test_several_signals(loop):
    seen = []
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        loop.add_signal_handler(number, seen.append, number)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        os.kill(os.getpid(), number)
    run_until(loop, lambda: len(seen) == 3)
    assert set(seen) == {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP}
    for number in seen:
        assert loop.remove_signal_handler(number)


def test_a_signal_from_its_own_handler_takes_two_turns(loop):
    """One for the handler, after one for the loop's self-pipe."""
    seen = []

    def again():
        seen.append("handled")
        signal.raise_signal(signal.SIGUSR1)

    loop.add_signal_handler(signal.SIGUSR1, again)
    signal.raise_signal(signal.SIGUSR1)
    for _ in range(6):
        run_once(loop)
        seen.append("turn")
    assert seen == ["turn", "handled", "turn"] * 3
    loop.remove_signal_handler(signal.SIGUSR1)


def test_handles_from_a_signal_handler_wake_the_loop(loop):
    """Programs call asyncio's private method for it from a handler of their own, or from another thread."""
    answers = []

    def ask():
        for _ in range(100):
            answer = threading.Event()
            loop._add_callback_signalsafe(asyncio.Handle(answer.set, (), loop))
            answers.append(answer.wait(10))
            if not answers[-1]:
                break
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=ask)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert answers == [True] * 100


def test_a_second_handler_replaces_the_first(loop):
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "first")
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "second")
    os.kill(os.getpid(), signal.SIGUSR1)
    run_until(loop, lambda: seen)
    assert seen == ["second"]
    loop.remove_signal_handler(signal.SIGUSR1)


def test_closing_the_loop_removes_the_handlers(impl):
    before = signal.getsignal(signal.SIGINT)
    loop = impl.new_event_loop()
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.add_signal_handler(signal.SIGINT, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_the_handler_may_raise(loop):
    contexts = []
    loop.set_exception_handler(lambda loop, context: contexts.append(context["exception"]))
    loop.add_signal_handler(signal.SIGUSR1, lambda: 1 / 0)
    os.kill(os.getpid(), signal.SIGUSR1)
    run_until(loop, lambda: contexts)
    assert type(contexts[0]) is ZeroDivisionError
    loop.remove_signal_handler(signal.SIGUSR1)


def test_a_python_handler_runs_while_the_loop_waits(loop):
    """signal.signal() without the loop's help: the signal interrupts the wait, the handler runs, the wait goes on."""
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1))
        loop.call_soon(thread.start)
        run_until(loop, lambda: seen)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert seen == [signal.SIGUSR1]


def test_a_python_handler_that_raises_ends_the_wait(loop):
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        # The timer repeats, because the first signal may come before the loop waits, in asyncio's own Python code.
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        handle = loop.call_later(3600, print)
        with pytest.raises(Alarm):
            loop.run_forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert not loop.is_running()
    handle.cancel()
    assert loop.run_until_complete(asyncio.sleep(0, "usable")) == "usable"


def outcome_of_ctrl_c(impl, source, first_line):
    """Run a program, and interrupt it when it has printed its first line: (return code, stdout after it, stderr)."""
    with impl.popen(
        source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Children of a background shell start with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout.readline() == first_line
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.promise("P15")
def test_ctrl_c_on_an_idle_loop_ends_run(impl):
    """In a fresh interpreter that waits for nothing but the signal; the test sends it when the program prints that it
    waits."""
    source = """
async def main():
    print("waiting", flush=True)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        print("cleaned up", flush=True)

try:
    impl.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert outcome_of_ctrl_c(impl, source, "waiting\n") == (0, "cleaned up\ninterrupted\n", "")


@pytest.mark.promise("P15")
def test_ctrl_c_in_a_busy_loop_ends_run(impl):
    source = """
async def main():
    print("busy", flush=True)
    while True:
        await asyncio.sleep(0)

try:
    impl.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    assert outcome_of_ctrl_c(impl, source, "busy\n") == (0, "interrupted\n", "")


@pytest.mark.promise("P15")
def test_ctrl_c_without_a_runner_leaves_run_forever(loop):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(20):
            timer = threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                loop.run_forever()
            timer.join()
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.promise("P15")
def test_a_sigchld_handler_beside_subprocesses(impl):
    """The program has its own SIGCHLD handler, and the exit codes still arrive."""
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, seen.append, "child")
        try:
            processes = [
                await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", f"raise SystemExit({code})")
                for code in (0, 3)
            ]
            codes = [await process.wait() for process in processes]
            while not seen:
                await asyncio.sleep(0.001)
            return codes
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)

    assert impl.run(main()) == [0, 3]


def test_signals_on_a_loop_off_the_main_thread_are_refused(loop):
    errors = []

    def thread():
        try:
            loop.add_signal_handler(signal.SIGUSR1, print)
        except RuntimeError as error:
            errors.append(error)

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    assert len(errors) == 1


def test_a_signal_that_arrives_while_the_loop_does_not_run_is_kept(loop):
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "kept")
    os.kill(os.getpid(), signal.SIGUSR1)
    assert seen == []
    run_until(loop, lambda: seen)
    loop.remove_signal_handler(signal.SIGUSR1)
    run_once(loop)


@pytest.mark.parametrize("error", [ValueError, type("OwnError", (BaseException,), {})])
def test_what_a_handler_raises_after_a_long_call_in_c_is_reported(loop, error):
    # No bytecode runs between the end of a callback in C and the loop's own code.
    def handler(_number, _frame):
        raise error("from the handler")

    reports = []
    loop.set_exception_handler(lambda _, context: reports.append((context["message"], context["exception"])))
    previous = signal.signal(signal.SIGALRM, handler)
    try:
        loop.call_soon(signal.setitimer, signal.ITIMER_REAL, 0.01)
        loop.call_soon(hashlib.pbkdf2_hmac, "sha256", b"password", b"salt", 200_000)
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert [type(raised) for _, raised in reports] == [error]
    assert "pbkdf2_hmac(" in reports[0][0]
