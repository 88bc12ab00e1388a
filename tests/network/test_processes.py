"""How the loop notices the end of a child, without asyncio's child watchers."""

import asyncio
import contextvars
import errno
import os
import signal
import sys
import threading

import pytest
from support.endpoints import reports_of, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no subprocesses on Windows")

ours = pytest.mark.only("c", reason="the pure loop uses asyncio's child watcher")
watchers_exist = pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 has no child watchers to set")


@pytest.fixture(params=[None, errno.ENOSYS, errno.EPERM, errno.EMFILE], ids=["pidfd", "ENOSYS", "EPERM", "EMFILE"])
def refusal(request, monkeypatch):
    """The kernel as it is, or one that refuses a pidfd."""
    from hotloop._c.network import child_process

    def refuse(pid):
        raise OSError(request.param, os.strerror(request.param))

    if request.param is not None:
        monkeypatch.setattr(child_process, "pidfd_open", refuse)
    return request.param


def threads_that_wait_for(pid):
    return [thread for thread in threading.enumerate() if thread.name == f"asyncio-waitpid-{pid}"]


@ours
def test_exit_codes(impl, refusal):
    async def main():
        processes = [await asyncio.create_subprocess_shell(f"exit {code}") for code in range(5)]
        assert [await process.wait() for process in processes] == list(range(5))
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        assert await process.communicate(b"text") == (b"text", None)

    impl.run(main())


@ours
def test_the_loops_own_thread_reaps(impl, refusal):
    """The loop's own thread waits for the child: until then the child keeps its pid, and may be signalled."""

    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        threads = threads_that_wait_for(process.pid)
        assert len(threads) == (0 if refusal is None else 1)
        process.kill()
        # While the loop does not run, the child ends and stays a zombie.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for thread in threads:
            thread.join()
        assert process.returncode is None
        assert os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG).si_pid == process.pid
        assert await process.wait() == -signal.SIGKILL

    impl.run(main())


@ours
def test_a_child_that_other_code_has_reaped(impl, refusal, asyncio_log):
    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        process.kill()
        os.waitpid(process.pid, 0)
        assert await process.wait() == 255
        (text,) = asyncio_log.take()
        assert f"pid {process.pid} exit status already read" in text

    impl.run(main())


@ours
def test_a_child_that_was_reaped_before_it_could_be_watched(impl, monkeypatch, asyncio_log):
    """The kernel reaps children itself where SIGCHLD is ignored."""
    from hotloop._c.network import child_process

    pidfd_open = child_process.pidfd_open

    def reap_first(pid):
        os.waitpid(pid, 0)
        return pidfd_open(pid)

    monkeypatch.setattr(child_process, "pidfd_open", reap_first)

    async def main():
        assert await (await asyncio.create_subprocess_exec("true")).wait() == 255
        assert "exit status already read" in "".join(asyncio_log.take())

    impl.run(main())


@ours
def test_a_child_that_its_popen_object_has_reaped(impl, refusal):
    """The Popen object knows the exit code. asyncio reports 255, unless its watcher reaps the child first."""

    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        popen = process._transport.get_extra_info("subprocess")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert popen.poll() == -signal.SIGKILL
        assert await process.wait() == -signal.SIGKILL

    impl.run(main())


@ours
def test_a_loop_closed_while_a_child_runs(impl, refusal, asyncio_log):
    """The fixture compares descriptors and threads: nothing may be left."""
    loop = impl.new_event_loop()
    transport, _ = loop.run_until_complete(
        loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "3600", stdin=None, stdout=None, stderr=None)
    )
    pid = transport.get_pid()
    threads = threads_that_wait_for(pid)
    loop.close()
    os.kill(pid, signal.SIGKILL)
    if refusal is not None:
        (thread,) = threads
        thread.join()
        assert f"that handles pid {pid} is closed" in "".join(asyncio_log.take())
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    else:
        os.waitpid(pid, 0)
    transport.close()


@ours
def test_waiting_fails(impl, monkeypatch):
    """The error is reported once, and the child is no longer watched."""
    loop = impl.new_event_loop()

    async def main():
        transport, _ = await loop.subprocess_exec(
            asyncio.SubprocessProtocol, "sleep", "3600", stdin=None, stdout=None, stderr=None
        )
        pid = transport.get_pid()
        with reports_of(loop) as reports, monkeypatch.context() as patch:
            patch.setattr(os, "waitpid", lambda pid, options: 1 / 0)
            os.kill(pid, signal.SIGKILL)
            await until(lambda: reports)
            await asyncio.sleep(0)
        assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
        os.waitpid(pid, 0)
        transport._process_exited(-signal.SIGKILL)
        transport.close()
        await transport._wait()

    loop.run_until_complete(main())
    loop.close()


@ours
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # of a Popen object
def test_no_thread_can_be_started(impl, monkeypatch):
    """If neither a pidfd nor a thread is available, spawning fails and the child is killed."""
    from hotloop._c.network import child_process

    def refuse(*arguments, **keywords):
        raise OSError(errno.EMFILE, "no descriptors")

    def no_thread(*arguments, **keywords):
        pids.append(arguments[1] if len(arguments) > 1 else None)
        raise RuntimeError("can't start new thread")

    pids = []
    monkeypatch.setattr(child_process, "pidfd_open", refuse)
    monkeypatch.setattr(child_process, "wait_in_thread", no_thread)

    async def main():
        with pytest.raises(RuntimeError, match="start new thread"):
            await asyncio.create_subprocess_exec("sleep", "3600")
        assert os.waitpid(pids[0], 0)[1] == signal.SIGKILL

    impl.run(main())


@ours
def test_asyncios_child_watchers_take_no_part(impl, monkeypatch):
    def refuse(*arguments):
        raise AssertionError("asyncio's child watcher was used")

    for name in ("PidfdChildWatcher", "_PidfdChildWatcher", "ThreadedChildWatcher", "_ThreadedChildWatcher"):
        if hasattr(asyncio.unix_events, name):
            monkeypatch.setattr(getattr(asyncio.unix_events, name), "add_child_handler", refuse)

    async def main():
        return await (await asyncio.create_subprocess_shell("exit 3")).wait()

    assert impl.run(main()) == 3


@watchers_exist
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_watcher_that_the_program_has_set_is_used(loop):
    class Watcher(asyncio.ThreadedChildWatcher):
        def add_child_handler(self, pid, callback, *arguments):
            asked.append(pid)
            super().add_child_handler(pid, callback, *arguments)

    asked = []
    policy = asyncio.get_event_loop_policy()
    before, policy._watcher = policy._watcher, Watcher()
    try:

        async def main():
            process = await asyncio.create_subprocess_shell("exit 3")
            assert asked == [process.pid]
            return await process.wait()

        assert loop.run_until_complete(main()) == 3
    finally:
        policy._watcher = before


@pytest.mark.only("c", reason="on 3.11 asyncio waits in a thread, which has its own context")
def test_the_protocol_is_told_in_the_context_of_the_call(loop, refusal):
    """All callbacks run in that context, even process_exited(), which the end of the child causes."""
    variable = contextvars.ContextVar("variable", default="none")
    seen = []

    class Protocol(asyncio.SubprocessProtocol):
        def connection_made(self, transport):
            seen.append(variable.get())

        def process_exited(self):
            seen.append(variable.get())

        def connection_lost(self, error):
            seen.append(variable.get())

    async def main():
        variable.set("call")
        transport, _ = await loop.subprocess_exec(Protocol, "true", stdin=None, stdout=None, stderr=None)
        variable.set("later")
        await until(lambda: len(seen) == 3)
        transport.close()

    loop.run_until_complete(main())
    assert seen == ["call"] * 3
