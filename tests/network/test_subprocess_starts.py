"""Starts of subprocesses that are cancelled or fail."""

import asyncio
import contextlib
import gc
import os
import selectors
import subprocess
import sys
import warnings
from asyncio import base_subprocess

import pytest
from support.endpoints import settle, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no subprocesses on Windows")

PIPE = asyncio.subprocess.PIPE

# Whether asyncio's wait for a process ends after its pipes, too, as before 3.14.
process_exited = base_subprocess.BaseSubprocessTransport._process_exited
asyncio_waits_for_pipes = "_exit_waiters" not in process_exited.__code__.co_names


def test_a_cancelled_spawn(loop):
    """After any number of turns the child is gone and no descriptor is left."""

    async def main():
        for count in range(6):
            task = asyncio.ensure_future(asyncio.create_subprocess_exec("sleep", "3600", stdin=PIPE, stdout=PIPE))
            for _ in range(count):
                await asyncio.sleep(0)
            task.cancel()
            try:
                process = await task
            except asyncio.CancelledError:
                continue
            process.kill()
            await process.wait()
        await settle()

    loop.run_until_complete(main())


@pytest.mark.parametrize("fails", ["connect_write_pipe", "connect_read_pipe"])
def test_a_pipe_that_cannot_be_connected(impl, loop, fails):
    """The error reaches the program, and neither the child nor a pipe is left."""
    if impl.name == "asyncio" and asyncio_waits_for_pipes:
        pytest.skip("asyncio waits for ever for the end of a pipe that was not connected (CPython issue 119710)")

    async def fail(*arguments):
        raise OSError("no pipe")

    async def main():
        setattr(loop, fails, fail)
        for _ in range(3):
            with pytest.raises(OSError, match="no pipe"):
                await asyncio.create_subprocess_exec("sleep", "3600", stdin=PIPE, stdout=PIPE, stderr=PIPE)
        await settle()

    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        # The pipe that asyncio has not come to connect is closed by the collector.
        loop.run_until_complete(main())
        gc.collect()


def test_a_spawn_cancelled_after_the_child_has_ended(loop, asyncio_log):
    """Its pipes are connected later, and then the transport ends as any other."""

    class Ends(asyncio.SubprocessProtocol):
        lost = False

        def connection_lost(self, error):
            self.lost = True

    async def main():
        protocol = Ends()
        call = loop.subprocess_exec(lambda: protocol, "true", stdin=PIPE, stdout=PIPE, stderr=PIPE)
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        # Where a thread waits for it, that may be the first to learn it.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: protocol.lost)
        await settle()

    loop.run_until_complete(main())
    # asyncio has reaped it itself in transport.close().
    assert all("will report returncode 255" in message for message in asyncio_log.take())


def test_a_cancelled_spawn_ends_in_asyncios_turn(impl, load_implementation):
    """Counted from connection_lost(), because in which turn the child has ended is not certain."""

    class Cancels(asyncio.SubprocessProtocol):
        def connection_made(self, transport):
            self.task.cancel()

        def connection_lost(self, error):
            self.lost = True

    async def main():
        loop = asyncio.get_running_loop()
        protocol = Cancels()
        protocol.lost = False
        call = loop.subprocess_exec(lambda: protocol, "sleep", "3600", stdin=None, stdout=None, stderr=None)
        protocol.task = asyncio.ensure_future(call)
        count = 0
        while not protocol.task.done():
            await asyncio.sleep(0)
            count += protocol.lost
        assert protocol.task.cancelled()
        return count

    assert impl.run(main()) == load_implementation("asyncio").run(main())


def test_another_selector_while_the_process_is_started(loop, monkeypatch):
    own = loop._selector
    popen = subprocess.Popen

    def start(*args, **kwargs):
        loop._selector = other
        return popen(*args, **kwargs)

    async def main():
        transport, _ = await loop.subprocess_exec(
            asyncio.SubprocessProtocol, "true", stdin=None, stdout=None, stderr=None
        )
        await until(lambda: transport.get_returncode() is not None)
        transport.close()

    with selectors.SelectSelector() as other:
        # What wakes the loop, for the thread that waits for the process.
        other.register(loop._ssock, selectors.EVENT_READ, own.get_key(loop._ssock).data)
        monkeypatch.setattr(subprocess, "Popen", start)
        loop.run_until_complete(main())
        loop._selector = own
