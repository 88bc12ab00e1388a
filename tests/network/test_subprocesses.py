"""Subprocesses (the basics of P02) and executors."""

import asyncio
import concurrent.futures
import signal
import sys
import threading

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no subprocesses on Windows")

PYTHON = (sys.executable, "-S", "-c")


@pytest.mark.promise("P02")
def test_input_output_and_exit_code(impl):
    async def main():
        process = await asyncio.create_subprocess_exec(
            *PYTHON,
            "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('error'); sys.exit(7)",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert await process.communicate(b"text") == (b"TEXT", b"error")
        assert process.returncode == 7

    impl.run(main())


@pytest.mark.promise("P02")
def test_cat_dev_stdin(impl):
    async def main():
        process = await asyncio.create_subprocess_exec(
            "cat", "/dev/stdin", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate(b"x" * 200_000)
        assert out == b"x" * 200_000

    impl.run(main())


@pytest.mark.promise("P02")
def test_shell(impl):
    async def main():
        process = await asyncio.create_subprocess_shell("exit 3")
        return await process.wait()

    assert impl.run(main()) == 3


@pytest.mark.promise("P02")
def test_signals(impl):
    async def main():
        codes = []
        for how in ("terminate", "kill"):
            process = await asyncio.create_subprocess_exec("sleep", "3600")
            getattr(process, how)()
            codes.append(await process.wait())
        return codes

    assert impl.run(main()) == [-signal.SIGTERM, -signal.SIGKILL]


@pytest.mark.promise("P02")
def test_a_program_that_does_not_exist(impl):
    async def main():
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nonexistent/program")

    impl.run(main())


@pytest.mark.promise("P02")
def test_popen_keywords(impl, tmp_path):
    async def main():
        process = await asyncio.create_subprocess_exec(
            *PYTHON,
            "import os; print(os.getcwd(), os.environ['KEY'], os.getpgid(0) == os.getpid())",
            cwd=tmp_path,
            env={"KEY": "value"},
            start_new_session=True,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return out.decode().split()

    assert impl.run(main()) == [str(tmp_path), "value", "True"]


# On 3.12 and 3.13 asyncio silences one of its own warnings around every spawn, which is not safe with threads.
@pytest.mark.promise("P02")
@pytest.mark.filterwarnings("ignore:'get_child_watcher' is deprecated:DeprecationWarning")
def test_many_children_from_many_threads(impl):
    async def main():
        processes = await asyncio.gather(*(asyncio.create_subprocess_exec("true") for _ in range(5)))
        return await asyncio.gather(*(process.wait() for process in processes))

    results = []

    def thread():
        results.append(impl.run(main()))

    async def with_threads():
        # On 3.11 the watcher wants a loop in the main thread.
        threads = [threading.Thread(target=thread) for _ in range(4)]
        for one in threads:
            one.start()
        await asyncio.to_thread(lambda: [one.join() for one in threads])

    impl.run(with_threads())
    assert results == [[0] * 5] * 4


def test_run_in_executor(loop):
    async def main():
        assert await loop.run_in_executor(None, int, "5") == 5
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)
        results = await asyncio.gather(*(loop.run_in_executor(None, str, number) for number in range(100)))
        assert results == [str(number) for number in range(100)]

    loop.run_until_complete(main())


def test_an_executor_of_ones_own(loop):
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="mine") as executor:

        async def main():
            name = await loop.run_in_executor(executor, lambda: threading.current_thread().name)
            assert name.startswith("mine")

        loop.run_until_complete(main())


def test_the_default_executor_can_be_set_and_shut_down(loop):
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="default"))

    async def main():
        assert (await asyncio.to_thread(lambda: threading.current_thread().name)).startswith("default")
        await loop.shutdown_default_executor()
        with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
            await asyncio.to_thread(int)

    loop.run_until_complete(main())


def test_cancelling_a_wait_for_an_executor(loop):
    release = threading.Event()

    async def main():
        future = loop.run_in_executor(None, release.wait)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(future), 0.001)
        release.set()
        assert await future is True

    loop.run_until_complete(main())
