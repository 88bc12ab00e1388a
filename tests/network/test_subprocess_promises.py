"""Subprocesses: P02 (keywords, threads, pipes, waiting) and P15 (SIGCHLD and other children of the program)."""

import asyncio
import contextlib
import fcntl
import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from support.endpoints import settle, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no subprocesses on Windows")

PIPE, STDOUT, DEVNULL = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
PYTHON = (sys.executable, "-S", "-c")

# The promise speaks of 10 threads with 100 children each. The default number takes about a second; HOTLOOP_CHILDREN=100
# makes all of them.
THREADS = 10
CHILDREN_PER_THREAD = int(os.environ.get("HOTLOOP_CHILDREN", "10"))

# On 3.12 and 3.13 asyncio silences one of its own warnings around every spawn, which is not safe with threads.
spawning_in_threads = pytest.mark.filterwarnings("ignore:'get_child_watcher' is deprecated:DeprecationWarning")


@pytest.mark.promise("P02")
@spawning_in_threads
def test_ten_threads_with_a_loop_and_children_each(impl):
    """Every child has its own exit code and output, which reach the loop that spawned it."""

    async def child(number):
        process = await asyncio.create_subprocess_exec("sh", "-c", f"echo {number}; exit {number % 200}", stdout=PIPE)
        out, _ = await process.communicate()
        return int(out), process.returncode

    async def main(thread):
        numbers = range(thread * CHILDREN_PER_THREAD, (thread + 1) * CHILDREN_PER_THREAD)
        results = []
        for first in range(0, CHILDREN_PER_THREAD, 5):  # a few at a time
            results += await asyncio.gather(*(child(number) for number in numbers[first : first + 5]))
        assert results == [(number, number % 200) for number in numbers]

    finished = []

    def run(thread):
        impl.run(main(thread))
        finished.append(thread)

    async def with_threads():
        # On 3.11 the watcher wants a loop in the main thread.
        threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
        for one in threads:
            one.start()
        await asyncio.to_thread(lambda: [one.join() for one in threads])

    impl.run(with_threads())
    assert sorted(finished) == list(range(THREADS))


@pytest.mark.promise("P02")
def test_many_children_of_one_loop(loop):
    """More children than one poll returns descriptors; those that end at once are not missed."""

    async def main():
        processes = await asyncio.gather(
            *(asyncio.create_subprocess_exec("sh", "-c", f"exit {number}") for number in range(40))
        )
        assert await asyncio.gather(*(process.wait() for process in processes)) == list(range(40))
        assert len({process.pid for process in processes}) == 40

    loop.run_until_complete(main())


@pytest.mark.promise("P15")
@pytest.mark.parametrize("how", ["signal.signal", "add_signal_handler"])
def test_sigchld_is_the_users(loop, how):
    """A handler that the user has set is called, stays set, and keeps no exit code from the loop."""
    seen = []
    before = signal.getsignal(signal.SIGCHLD)

    async def main():
        for code in range(10):
            process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
            assert await process.wait() == code
        await until(lambda: seen)

    try:
        if how == "signal.signal":
            signal.signal(signal.SIGCHLD, lambda number, frame: seen.append(number))
            handler = signal.getsignal(signal.SIGCHLD)
        else:
            loop.add_signal_handler(signal.SIGCHLD, seen.append, signal.SIGCHLD)
            handler = signal.getsignal(signal.SIGCHLD)
        loop.run_until_complete(main())
        assert signal.getsignal(signal.SIGCHLD) is handler
        if how == "add_signal_handler":
            assert loop.remove_signal_handler(signal.SIGCHLD) is True
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert set(seen) == {signal.SIGCHLD}


@pytest.mark.promise("P15")
def test_spawning_sets_no_handler(loop):
    async def main():
        assert await (await asyncio.create_subprocess_exec("true")).wait() == 0

    before = signal.getsignal(signal.SIGCHLD)
    loop.run_until_complete(main())
    assert signal.getsignal(signal.SIGCHLD) is before is signal.SIG_DFL


@pytest.mark.promise("P15")
def test_children_of_others_are_left_alone(loop):
    """Children of the subprocess module and of os.posix_spawn() end while the loop waits for its own."""

    async def main():
        popen = subprocess.Popen(["sh", "-c", "exit 5"])
        forked = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 6"], os.environ)
        for code in range(5):
            process = await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}")
            assert await process.wait() == code
        assert popen.wait() == 5
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 6

    loop.run_until_complete(main())


def test_no_child_is_left_unreaped(loop):
    async def main():
        processes = [await asyncio.create_subprocess_exec("true") for _ in range(5)]
        await asyncio.gather(*(process.wait() for process in processes))
        for process in processes:
            with pytest.raises(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)

    loop.run_until_complete(main())


def test_a_child_that_other_code_has_reaped(loop, asyncio_log):
    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        waiting = asyncio.ensure_future(process.wait())
        await settle()
        os.kill(process.pid, signal.SIGKILL)
        try:
            os.waitpid(process.pid, 0)
        except ChildProcessError:  # a watcher in a thread has reaped the child first
            assert await waiting == -signal.SIGKILL
        else:
            assert await waiting == 255
            assert "returncode 255" in "".join(asyncio_log.take())

    loop.run_until_complete(main())


NOBODY = 65534
POPEN_KEYWORDS = {  # values other than the default, where asyncio accepts another one
    "args": None,  # the positional arguments of create_subprocess_exec()
    "bufsize": {"bufsize": 0},
    "close_fds": {"close_fds": False},
    "creationflags": {"creationflags": 0},
    "cwd": {"cwd": "/"},
    "encoding": {"encoding": None},
    "env": {"env": {"PATH": os.defpath, "MARK": "marked"}},
    "errors": {"errors": None},
    "executable": {"executable": "/bin/echo"},
    "extra_groups": {"extra_groups": [NOBODY]},
    "group": {"group": NOBODY},
    "pass_fds": {},  # the descriptor that the test opens
    "pipesize": None,  # see test_the_size_of_pipes
    "preexec_fn": {"preexec_fn": lambda: os.umask(0o27)},
    "process_group": {"process_group": 0},
    "restore_signals": {"restore_signals": False},
    "shell": {"shell": False},
    "start_new_session": {"start_new_session": True},
    "startupinfo": {"startupinfo": None},
    "stderr": {"stderr": STDOUT},
    "stdin": {"stdin": DEVNULL},
    "stdout": {"stdout": DEVNULL},
    "text": {"text": None},
    "umask": {"umask": 0o27},
    "universal_newlines": {"universal_newlines": False},
    "user": {"user": NOBODY},
}
# asyncio accepts only the default values of these keywords; each other keyword must make a difference.
ONLY_THE_DEFAULT = {
    *("bufsize", "creationflags", "encoding", "errors", "shell", "startupinfo", "text", "universal_newlines")
}
# Shows the effect of each keyword; $1 is a descriptor that the test has opened.
REPORT = """
pwd; umask; echo "$MARK"; id -u; id -g; id -G; grep SigIgn /proc/self/status; readlink /proc/$$/fd/0
test -e /proc/$$/fd/$1; echo inherited $?
read -r pid name state parent group session rest < /proc/$$/stat
test $group = $$; echo leads its group $?; test $session = $$; echo leads its session $?
echo error >&2
exit 9
"""


def test_every_keyword_is_in_the_table():
    """A keyword that a new Python adds must be added here."""
    assert set(inspect.signature(subprocess.Popen).parameters) <= set(POPEN_KEYWORDS)


@pytest.mark.promise("P02")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the child reads its own /proc")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # preexec_fn in a process that has had threads
@pytest.mark.parametrize("keyword", [keyword for keyword, value in POPEN_KEYWORDS.items() if value is not None])
def test_every_keyword_of_popen(loop, keyword):
    """The command prints the same with subprocess.run() and the same keyword, and something else without the
    keyword."""
    if keyword in ("extra_groups", "group", "user") and os.geteuid() != 0:
        pytest.skip("only root may set users and groups")
    usual = {"stdin": subprocess.PIPE, "stdout": PIPE, "stderr": PIPE, "env": {"PATH": os.defpath}}
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(descriptor, keyword == "close_fds")
    command = ["/bin/sh", "-c", REPORT, "sh", str(descriptor)]
    keywords = usual | ({"pass_fds": (descriptor,)} if keyword == "pass_fds" else POPEN_KEYWORDS[keyword])

    async def main():
        process = await asyncio.create_subprocess_exec(*command, **keywords)
        return *await process.communicate(), process.returncode

    def plain(keywords):
        if keywords["stdin"] == PIPE:
            keywords = {name: value for name, value in keywords.items() if name != "stdin"} | {"input": b""}
        done = subprocess.run(command, check=False, **keywords)
        return done.stdout, done.stderr, done.returncode

    def without_numbers(outcome):
        return tuple(re.sub(rb"(pipe|socket):\[\d+\]", b"", part or b"") for part in outcome[:2]), outcome[2]

    try:
        ours, expected, default = loop.run_until_complete(main()), plain(keywords), plain(usual)
    finally:
        os.close(descriptor)
    assert without_numbers(ours) == without_numbers(expected)
    assert default[2] == 9
    if keyword not in ONLY_THE_DEFAULT:
        assert without_numbers(ours) != without_numbers(default)


@pytest.mark.promise("P02")
@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="this platform does not report the size of a pipe")
def test_the_size_of_pipes(loop):
    async def main():
        for size in (4096, 65536):
            process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, pipesize=size)
            pipe = process._transport.get_pipe_transport(1).get_extra_info("pipe")
            assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == size
            assert await process.communicate(b"through") == (b"through", None)

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
@pytest.mark.parametrize(
    "keywords",
    [
        {"universal_newlines": True},
        {"shell": True},
        {"bufsize": 1},
        {"text": True},
        {"encoding": "utf-8"},
        {"errors": "strict"},
    ],
    ids=lambda keywords: next(iter(keywords)),
)
def test_keywords_that_asyncio_refuses(loop, keywords):
    async def main():
        with pytest.raises(ValueError, match="must be"):
            await asyncio.create_subprocess_exec("true", **keywords)

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
def test_bad_commands(loop):
    async def main():
        for arguments, error in (
            (("/nonexistent/program",), FileNotFoundError),
            (("/",), PermissionError),
            ((5,), TypeError),
            (("a\0b",), ValueError),
        ):
            with pytest.raises(error):
                await asyncio.create_subprocess_exec(*arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        with pytest.raises(ValueError, match="cmd must be a string"):
            await asyncio.create_subprocess_shell(["a", "list"])
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("true", cwd="/nonexistent", stdout=PIPE)

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
def test_standard_streams_may_be_files_numbers_and_sockets(loop, tmp_path):
    async def main():
        one, other = socket.socketpair()
        with one, other, open(tmp_path / "in", "w+b") as source, open(tmp_path / "out", "w+b") as target:
            source.write(b"through ")
            source.seek(0)
            process = await asyncio.create_subprocess_exec("cat", stdin=source, stdout=target)
            assert await process.wait() == 0
            target.seek(0)
            assert target.read() == b"through "
            process = await asyncio.create_subprocess_exec("echo", "socket", stdout=one.fileno())
            assert await process.wait() == 0
            assert other.recv(100) == b"socket\n"

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_much_in_and_much_out(loop, size):
    async def main():
        data = os.urandom(size)
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=STDOUT)
        assert await process.communicate(data) == (data, None)
        assert process.returncode == 0

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
def test_a_child_that_does_not_read_its_input(loop):
    async def main():
        process = await asyncio.create_subprocess_exec("true", stdin=PIPE, stdout=PIPE)
        assert await process.communicate(bytes(1_000_000)) == (b"", None)
        assert process.returncode == 0

    loop.run_until_complete(main())


@pytest.mark.promise("P02")
def test_line_by_line(loop):
    async def main():
        process = await asyncio.create_subprocess_exec(
            *PYTHON,
            "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)",
            stdin=PIPE,
            stdout=PIPE,
        )
        for number in range(20):
            process.stdin.write(b"line %d\n" % number)
            await process.stdin.drain()
            assert await process.stdout.readline() == b"LINE %d\n" % number
        process.stdin.close()
        assert await process.stdout.read() == b""
        assert await process.wait() == 0

    loop.run_until_complete(main())


def test_waiting(loop):
    """Several tasks call wait() at once, one is cancelled, one has a timeout, and one calls it after the end."""

    async def main():
        process = await asyncio.create_subprocess_exec("sh", "-c", "read line; exit 4", stdin=PIPE)
        assert process.returncode is None
        waiting = [asyncio.ensure_future(process.wait()) for _ in range(3)]
        await settle()
        waiting[0].cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.001)
        assert process.returncode is None
        process.stdin.close()
        assert await asyncio.gather(*waiting[1:]) == [4, 4]
        assert await process.wait() == process.returncode == 4
        assert waiting[0].cancelled()

    loop.run_until_complete(main())


@pytest.mark.parametrize("method", ["kill", "terminate", "send_signal"])
def test_signals(loop, method):
    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        number = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "send_signal": signal.SIGUSR1}[method]
        arguments = (number,) if method == "send_signal" else ()
        getattr(process, method)(*arguments)
        assert await process.wait() == -number
        await until(lambda: process._transport.get_returncode() is not None)
        await settle()
        with pytest.raises(ProcessLookupError):
            getattr(process, method)(*arguments)

    loop.run_until_complete(main())


def test_a_stopped_child_has_not_ended(loop):
    async def main():
        process = await asyncio.create_subprocess_exec("sleep", "3600")
        waiting = asyncio.ensure_future(process.wait())
        for number in (signal.SIGSTOP, signal.SIGCONT):
            process.send_signal(number)
            await settle()
            assert not waiting.done()
        process.kill()
        assert await waiting == -signal.SIGKILL

    loop.run_until_complete(main())


class Told(asyncio.SubprocessProtocol):
    """Records its callbacks."""

    def __init__(self):
        self.events = []
        self.data = {1: b"", 2: b""}

    def connection_made(self, transport):
        self.transport = transport
        self.events.append("made")

    def pipe_data_received(self, fd, data):
        assert self.events[0] == "made" and ("pipe lost", fd, None) not in self.events
        self.data[fd] += data

    def pipe_connection_lost(self, fd, error):
        self.events.append(("pipe lost", fd, error))

    def process_exited(self):
        self.events.append(("exited", self.transport.get_returncode()))

    def connection_lost(self, error):
        self.events.append(("lost", error))


def test_the_protocol_is_told_everything(loop):
    async def main():
        transport, protocol = await loop.subprocess_exec(
            Told, "sh", "-c", "cat; echo error >&2; exit 7", stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        assert protocol.events == ["made"]
        assert isinstance(transport, asyncio.SubprocessTransport)
        popen = transport.get_extra_info("subprocess")
        assert isinstance(popen, subprocess.Popen) and popen.pid == transport.get_pid()
        assert transport.get_returncode() is None and not transport.is_closing()
        pipes = [transport.get_pipe_transport(fd) for fd in range(4)]
        assert isinstance(pipes[0], asyncio.WriteTransport) and pipes[3] is None
        assert all(isinstance(pipe, asyncio.ReadTransport) for pipe in pipes[1:3])
        assert f"pid={transport.get_pid()}" in repr(transport) and "running" in repr(transport)
        pipes[0].write(b"in and out")
        pipes[0].close()
        await until(lambda: ("lost", None) in protocol.events)
        assert protocol.data == {1: b"in and out", 2: b"error\n"}
        assert protocol.events[0] == "made" and protocol.events[-1] == ("lost", None)
        expected = {("pipe lost", 0, None), ("pipe lost", 1, None), ("pipe lost", 2, None), ("exited", 7)}
        assert set(protocol.events[1:-1]) == expected and len(protocol.events) == 6
        assert popen.returncode == transport.get_returncode() == 7
        transport.close()

    loop.run_until_complete(main())


def test_closing_the_transport_kills_the_child(loop):
    async def main():
        transport, protocol = await loop.subprocess_exec(Told, "cat", stdin=PIPE, stdout=PIPE, stderr=None)
        transport.close()
        transport.close()
        assert transport.is_closing()
        await until(lambda: ("lost", None) in protocol.events)
        assert ("exited", -signal.SIGKILL) in protocol.events

    loop.run_until_complete(main())


def test_a_grandchild_that_keeps_the_pipe_open(impl, load_implementation):
    """Up to 3.14.6 asyncio's wait() waits for the pipes, too. The loop does the same as the running Python."""

    async def main():
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "sleep 3600 & echo $!; read line; exit 3", stdout=PIPE, stdin=PIPE
        )
        grandchild = int(await process.stdout.readline())
        waiting = asyncio.ensure_future(process.wait())
        await settle()
        process.stdin.close()
        await until(lambda: process.returncode is not None)
        await settle()
        done_before = waiting.done()
        os.kill(grandchild, signal.SIGKILL)
        assert await waiting == 3
        assert await process.stdout.read() == b""
        return done_before

    assert impl.run(main()) == load_implementation("asyncio").run(main())


def test_a_child_of_a_loop_that_is_stopped_meanwhile(loop):
    """The child ends while the loop does not run; the next run reports that."""
    process = loop.run_until_complete(asyncio.create_subprocess_exec("sh", "-c", "read line; exit 8", stdin=PIPE))
    process.stdin.close()
    loop.run_until_complete(settle())
    with contextlib.suppress(ChildProcessError):  # a watcher in a thread has seen it already
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert loop.run_until_complete(process.wait()) == 8
