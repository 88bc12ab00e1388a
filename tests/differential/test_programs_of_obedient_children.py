"""Random programs on subprocesses whose children act when the program says so: each event comes in asyncio's turn.

test_programs_of_children.py has children that run by themselves. Here a child obeys (controlled_child.py), and a turn
is one run of the loop. Before a turn begins, what a child was told and what its signals did is in the kernel. So a
program may close, kill, cancel and ask at any time, also while a child is being started, and may close the loop under
all that (`abandons`). A child's descriptors are pipes, files, terminals, sockets, a pipe that several children share,
or another child's pipe.

Each channel of a child has a trace of its own, because what one poll reports of several is in the kernel's order.
"""

import asyncio
import contextlib
import gc
import os
import pty
import select
import signal
import socket
import sys
import tempfile
import unittest.mock
import warnings
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import StageOfRuns, Step, step, traced
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds"),
    pytest.mark.filterwarnings("ignore:'get_child_watcher' is deprecated:DeprecationWarning"),
]

SCRIPT = Path(__file__).parent / "controlled_child.py"
MAX_CHILDREN = 3
MAX_REACTIONS = 8  # fewer than elsewhere: each may be a signal
PIPE, STDOUT, DEVNULL = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL

indexes = st.sampled_from([0, 0, 0, 0, 1, 1, 2])
fds = st.integers(0, 2)
sizes = st.sampled_from([0, 1, 10, 300, 4096, 5000, 70_000, 300_000])
small = st.sampled_from([1, 10, 300, 4000])
stdins = st.sampled_from([PIPE] * 8 + [DEVNULL, "shared", "file", "pty", "sibling", "socket", "bad"])
stdouts = st.sampled_from([PIPE] * 8 + [DEVNULL, "shared", "file", "pty", "sibling", "socket", "bad"])
stderrs = st.sampled_from([PIPE] * 6 + [STDOUT, STDOUT, DEVNULL, "shared", "file", "pty", "sibling"])
signals = st.sampled_from([signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT, 0, 9999])
spawns = st.tuples(
    st.sampled_from(["exec"] * 6 + ["shell"] + ["streams"] * 6 + ["missing", "no protocol", "no factory"]),
    stdins,
    stdouts,
    stderrs,
)


def on(*rest):
    return st.tuples(indexes, *rest)


transport_steps = st.one_of(
    step("close", on()),
    step("terminate", on()),
    step("kill", on()),
    step("send_signal", on(signals)),
    step("ask", on()),
    step("write", on(sizes)),
    step("write", on(sizes)),
    step("close_pipe", on(fds)),
    step("abort_pipe", on(fds)),
    step("pause_pipe", on(fds)),
    step("resume_pipe", on(fds)),
    step("write_eof", on()),
    step("wait_for", on()),
    step("wait_for", on()),
    step("poll", on()),
    step("ask_pipe", on(fds)),
)
stream_steps = st.one_of(
    step("communicate", on(st.sampled_from([None, 0, 10, 70_000, 300_000]))),
    step("read", on(st.sampled_from([1, 2]), st.sampled_from([-1, 5, 1000]))),
    step("drain", on()),
    step("wait_closed", on()),
    step("process_wait", on()),
)
cancels = st.one_of(step("cancel", st.integers(0, 6)), step("cancel_spawn", indexes))
child_steps = st.one_of(
    step("child", on(st.sampled_from(["put 1", "put 2"]), small)),
    step("child", on(st.sampled_from(["put 1", "put 2"]), small)),
    step("child", on(st.sampled_from(["fill 1", "fill 2"]), st.just(0))),
    step("child", on(st.just("eat"), st.sampled_from([5, 5000, 100_000, 1_000_000]))),
    step("child", on(st.just("eat"), st.sampled_from([5, 5000, 100_000, 1_000_000]))),
    step("child", on(st.just("close"), fds)),
    step("child", on(st.just("exit"), st.sampled_from([0, 3, 255]))),
    step("child", on(st.just("exit"), st.sampled_from([0, 3, 255]))),
    step("child", on(st.just("kill"), st.sampled_from([6, 9]))),
    step("child", on(st.sampled_from(["ignore", "fork"]), st.just(0))),
)
steps = st.one_of(
    transport_steps, transport_steps, stream_steps, stream_steps, cancels, st.builds(Step, st.just("spawn"), spawns)
)
waits = step("wait", st.integers(1, 6))
parts = st.one_of(
    waits,
    waits,
    child_steps,
    child_steps,
    child_steps,
    st.lists(steps, min_size=1, max_size=3).map(tuple),
    st.lists(steps, min_size=1, max_size=3).map(tuple),
)
programs = st.tuples(spawns, st.integers(0, 8), st.lists(parts, min_size=6, max_size=18)).map(
    lambda parts: [(Step("spawn", parts[0]),), Step("wait", parts[1]), *parts[2]]
)
reacting = st.lists(st.one_of(transport_steps), max_size=2)
reactions = st.dictionaries(
    st.sampled_from(
        [
            "connection_made",
            "pipe_data_received",
            "pipe_connection_lost",
            "process_exited",
            "connection_lost",
            "pause_writing",
            "resume_writing",
        ]
    ),
    reacting,
    max_size=2,
)


def error_of(error):
    return type(error).__name__, str(error)[:40] if not isinstance(error, OSError) else error.errno


class Protocol(asyncio.SubprocessProtocol):
    def __init__(self, child):
        self.child = child

    def connection_made(self, transport):
        self.child.transport = transport
        self.child.stage.happened_to(self.child, "process", "connection_made")

    def pipe_data_received(self, fd, data):
        self.child.stage.happened_to(self.child, fd, "pipe_data_received", len(data), sum(data))

    def pipe_connection_lost(self, fd, error):
        self.child.stage.happened_to(self.child, fd, "pipe_connection_lost", repr(error))

    def process_exited(self):
        self.child.stage.happened_to(self.child, "process", "process_exited", self.child.transport.get_returncode())

    def connection_lost(self, error):
        self.child.stage.happened_to(self.child, "process", "connection_lost", repr(error))

    def pause_writing(self):
        self.child.stage.happened_to(self.child, 0, "pause_writing")

    def resume_writing(self):
        self.child.stage.happened_to(self.child, 0, "resume_writing")


class SharedReader(asyncio.Protocol):
    """Reads from the pipe that several children write to."""

    def __init__(self, stage, name):
        self.stage = stage
        self.name = name

    def data_received(self, data):
        self.stage.noted(self.name, "data", len(data), sum(data))

    def eof_received(self):
        self.stage.noted(self.name, "eof")

    def connection_lost(self, error):
        self.stage.noted(self.name, "lost", repr(error))


class Child:
    """What the stage knows of one child."""

    def __init__(self, stage, number):
        self.stage = stage
        self.number = number
        self.control, self.its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(10)
        self.started = False
        self.alive = False
        self.stopped = False
        self.pid = None
        self.forked = None  # a pidfd of the process that acts in its place
        self.transport = self.process = self.task = None

    def command(self, *words):
        """What the child answers, or None if it has ended."""
        try:
            self.control.send(" ".join(map(str, words)).encode())
            answer = self.control.recv(100).decode()
        except TimeoutError:
            raise AssertionError(f"the child does not answer {words}") from None
        except OSError:
            answer = ""
        if not answer:
            self.alive = False
            self.control.close()
            self.wait_for_end()
            return None
        return answer

    def wait_for_end(self):
        if self.forked is not None:
            select.select([self.forked], [], [])
        elif self.pid is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def settle(self):
        if self.its_end and self.started:
            self.its_end.close()
            self.its_end = None
            answer = self.control.recv(100).decode()
            if answer:
                self.pid = int(answer)
                self.alive = True
            else:
                self.control.close()
        if self.alive and not self.stopped:
            self.command("ping")


class ChildrenStage(StageOfRuns):
    turns_to_settle = 12

    def __init__(self, loop, program, reactions, *, abandons, has_watcher):
        super().__init__(loop, program, reactions)
        self.abandons = abandons
        self.has_watcher = has_watcher  # asyncio's
        if sys.version_info < (3, 12):
            asyncio.get_child_watcher().attach_loop(loop)
        self.children = []
        self.exit_of = loop._child_watcher_callback
        if has_watcher:
            loop._child_watcher_callback = self.report_true_exit
        self.unfinished = False
        self.pidfds = set()
        self.pidfd_open = os.pidfd_open
        self.tasks = []
        self.resources = contextlib.ExitStack()
        self.shared_end = None
        self.shared = None
        with tempfile.TemporaryFile("w+b", 0) as file:
            file.write(b"file" * 100)
            file.seek(0)
            self.file = self.resources.enter_context(os.fdopen(os.dup(file.fileno()), "r+b", 0))

    def noted(self, actor, *what):
        self.trace.append((self.turn, str(actor), *what))

    note = noted

    def report_true_exit(self, pid, returncode, transport):
        """asyncio reports 255 if Popen.poll() has reaped the child (docs/differences.md)."""
        known = transport.get_extra_info("subprocess").returncode
        self.exit_of(pid, returncode if known is None else known, transport)

    def report(self, loop, context):
        if "destroyed" not in context["message"]:  # reference counts or the garbage collector decide when
            self.noted("loop", "reported", context["message"][:21], error_of(context.get("exception")))

    def happened_to(self, child, channel, name, *arguments):
        self.noted(f"{child.number}.{channel}", name, *arguments)
        for one in self.reactions.get(name, ()):
            self.reacted += 1
            if self.reacted <= MAX_REACTIONS:
                self.perform(one)

    def perform(self, step):
        try:
            getattr(self, step.name)(step.argument)
        except Exception as error:
            self.noted("program", step.name, *error_of(error))

    def run_once(self):
        super().run_once()
        for child in self.children:
            child.settle()

    def play(self):
        gc.collect()
        if self.has_watcher:
            patch = unittest.mock.patch.object(os, "pidfd_open", self.open_pidfd)
            self.resources.enter_context(patch)
            self.resources.callback(self.close_pidfds)
        with self.resources, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            unraisable = []
            hook, sys.unraisablehook = (
                sys.unraisablehook,
                lambda info: unraisable.append((type(info.exc_value).__name__, str(info.exc_value)[:60])),
            )
            try:
                self.play_it()
                self.loop.close()
                if sys.version_info < (3, 12):
                    asyncio.get_child_watcher()._callbacks.clear()  # it keeps the children of closed loops
                self.trace.append("closed")
                if self.abandons:
                    self.after_close()
                self.unfinished = any(
                    not task.done() for task in [*self.tasks, *(child.task for child in self.children)]
                )
                if self.unfinished:
                    self.trace, kept = [], self.trace
                self.trace.append("dropped")
                for child in self.children:
                    child.transport = child.process = child.task = None
                self.tasks.clear()
                self.shared = None
                gc.collect()
            finally:
                sys.unraisablehook = hook
                if self.unfinished:
                    self.trace = kept
            for child in self.children:
                if child.its_end:
                    child.its_end.close()
                child.control.close()
                if child.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(child.pid, 0)
            gc.collect()
        if self.unfinished:  # of what a coroutine that is freed leaves, garbage collection decides
            return self.trace
        self.trace.append(
            (
                "warnings",
                *sorted(
                    {
                        (
                            w.category.__name__,
                            str(w.message).split("<")[0].split(" pid")[0].rstrip("0123456789 isturnlg")[:12],
                        )
                        for w in caught
                        if w.category is not DeprecationWarning
                    }
                    - {("ResourceWarning", "subprocess 1")}
                ),
            )
        )
        self.trace.append(("unraisable", *sorted(set(unraisable))))
        return self.trace

    def close_pidfds(self):
        """asyncio's watcher leaves those of a closed loop open."""
        for fd in self.pidfds:
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[pidfd]":
                    os.close(fd)

    def open_pidfd(self, pid, *flags):
        fd = self.pidfd_open(pid, *flags)
        self.pidfds.add(fd)
        return fd

    def play_it(self):
        for part in self.program:
            if isinstance(part, Step) and part.name == "child":
                self.child(part.argument)
                self.run_once()
            elif isinstance(part, Step):
                for _ in range(part.argument):
                    self.run_once()
            else:
                self.take_part(part)
                self.run_once()
        self.trace.append("finish")
        if self.abandons:
            return
        self.run_some()
        for child in self.children:
            self.noted(f"{child.number}.process", "at the end", child.transport and child.transport.get_returncode())
        for task in self.tasks:
            task.cancel()
        self.run_some()
        for child in self.children:
            if child.stopped and child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGCONT)
                child.stopped = False
                child.settle()
            if child.transport:
                child.transport.close()
            child.settle()
        self.run_some()
        for child in self.children:
            if child.alive:
                child.command("exit", 9)
        if self.shared:
            self.shared.close()
        self.run_some()
        for number, task in enumerate(self.tasks):
            self.noted(f"task {number}", "done" if task.done() else "pending")
        for child in self.children:
            if child.task:
                self.noted(f"{child.number}.spawn", "done" if child.task.done() else "pending")
            if child.transport:
                self.noted(
                    f"{child.number}.process",
                    "in the end",
                    child.transport.get_returncode(),
                    [child.transport.get_pipe_transport(fd) is not None for fd in range(3)],
                )

    def after_close(self):
        for child in self.children:
            if child.transport:
                for name in ("ask", "write", "close", "ask", "kill", "write_eof"):
                    self.perform(Step(name, (child.number, 10)[: 2 if name == "write" else 1]))
                for fd in range(3):
                    for name in ("ask_pipe", "pause_pipe", "resume_pipe", "close_pipe", "abort_pipe", "ask_pipe"):
                        self.perform(Step(name, (child.number, fd)))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def get(self, index):
        return self.children[index % len(self.children)]

    def descriptor(self, what, fd):
        if what == "shared":
            if self.shared_end is None:
                reading, self.shared_end = os.pipe()
                self.resources.callback(os.close, self.shared_end)
                pipe = os.fdopen(reading, "rb", 0)
                self.resources.callback(pipe.close)

                async def connect():
                    self.shared, _ = await self.loop.connect_read_pipe(lambda: SharedReader(self, "shared"), pipe)

                self.tasks.append(self.loop.create_task(connect()))
            return self.shared_end
        if what == "file":
            return self.file if fd == 1 else self.file.fileno()
        if what == "pty":
            master, slave = pty.openpty()
            self.resources.callback(os.close, master)
            self.resources.callback(os.close, slave)
            return slave
        if what == "socket":
            ours, theirs = socket.socketpair()
            self.resources.callback(ours.close)
            self.resources.callback(theirs.close)
            ours.send(b"ours")
            return theirs
        if what == "bad":
            return 9999
        if what == "sibling":
            transport = self.children[0].transport
            pipe = transport and transport.get_pipe_transport(0 if fd else 1)
            pipe = pipe and pipe.get_extra_info("pipe")
            return pipe if pipe and not pipe.closed else DEVNULL
        return what

    def spawn(self, arguments):
        how, *files = arguments
        if len(self.children) == MAX_CHILDREN:
            return
        child = Child(self, len(self.children))
        self.children.append(child)
        child.task = self.loop.create_task(self.spawn_it(child, how, files))

    async def spawn_it(self, child, how, files):
        number = child.number
        options = dict(zip(("stdin", "stdout", "stderr"), map(self.descriptor, files, range(3)), strict=True))
        options["pass_fds"] = (child.its_end.fileno(),)
        command = [sys.executable, "-I", "-S", str(SCRIPT), str(child.its_end.fileno())]
        child.started = True
        child.has_terminal = "pty" in files
        try:
            if how == "streams":
                child.process = await asyncio.create_subprocess_exec(*command, limit=100, **options)
                child.transport = child.process._transport
            elif how == "shell":
                await self.loop.subprocess_shell(lambda: Protocol(child), "exec " + " ".join(command), **options)
            elif how == "missing":
                await self.loop.subprocess_exec(lambda: Protocol(child), "/nonexistent", **options)
            elif how == "no protocol":
                child.transport, _ = await self.loop.subprocess_exec(lambda: None, *command, **options)
            elif how == "no factory":
                child.transport, _ = await self.loop.subprocess_exec(lambda: 1 / 0, *command, **options)
            else:
                await self.loop.subprocess_exec(lambda: Protocol(child), *command, **options)
        except BaseException as error:
            self.noted(f"{number}.spawn", *error_of(error))
            if not isinstance(error, Exception):
                raise
        else:
            self.noted(f"{number}.spawn", "spawned")

    def child(self, arguments):
        if not self.children:
            return
        index, name, argument = arguments
        child = self.get(index)
        if not child.alive or child.stopped or (name == "fork" and child.forked is not None):
            return
        if name.startswith(("put", "fill")) and child.has_terminal:  # which takes another amount each time
            return
        answer = child.command(*name.split(), argument)
        if name == "fork" and child.forked is None:
            child.wait_for_end()
            child.forked = self.pidfd_open(int(answer.split()[1]))
            self.resources.callback(os.close, child.forked)
            answer = "forked"
        self.noted(f"{child.number}.child", name, argument, answer)

    def cancel_spawn(self, index):
        self.get(index).task.cancel()

    def cancel(self, number):
        if number < len(self.tasks):
            self.tasks[number].cancel()

    def close(self, arguments):
        self.get(*arguments).transport.close()

    def signalled(self, child, number):
        if number == signal.SIGSTOP:
            child.stopped = True
        elif number in (signal.SIGCONT, signal.SIGKILL):
            child.stopped = False

    def terminate(self, arguments):
        self.get(*arguments).transport.terminate()

    def kill(self, arguments):
        child = self.get(*arguments)
        child.transport.kill()
        self.signalled(child, signal.SIGKILL)

    def send_signal(self, arguments):
        child = self.get(arguments[0])
        child.transport.send_signal(arguments[1])
        self.signalled(child, arguments[1])

    def poll(self, arguments):
        child = self.get(*arguments)
        self.noted(f"{child.number}.process", "Popen", child.transport.get_extra_info("subprocess").returncode)

    def ask(self, arguments):
        child = self.get(*arguments)
        transport = child.transport
        self.noted(
            f"{child.number}.process",
            transport.is_closing(),
            transport.get_returncode(),
            [transport.get_pipe_transport(fd) is not None for fd in range(3)],
        )

    def pipe(self, index, fd):
        child = self.get(index)
        return child, child.transport.get_pipe_transport(fd)

    def write(self, arguments):
        index, size = arguments
        child, pipe = self.pipe(index, 0)
        pipe.write(b"w" * size)
        self.noted(f"{child.number}.0", "wrote", size, pipe.get_write_buffer_size())

    def close_pipe(self, arguments):
        self.pipe(*arguments)[1].close()

    def abort_pipe(self, arguments):
        _, pipe = self.pipe(arguments[0], 0)
        if not pipe.is_closing():  # asyncio's would call connection_lost() twice
            pipe.abort()

    def pause_pipe(self, arguments):
        self.pipe(*arguments)[1].pause_reading()

    def resume_pipe(self, arguments):
        self.pipe(*arguments)[1].resume_reading()

    def write_eof(self, arguments):
        self.pipe(*arguments, 0)[1].write_eof()

    def ask_pipe(self, arguments):
        child, pipe = self.pipe(*arguments)
        if pipe is not None:
            self.noted(
                f"{child.number}.{arguments[1]}",
                pipe.is_closing(),
                pipe.get_write_buffer_size() if arguments[1] == 0 else pipe.is_reading(),
            )

    def start(self, name, make):
        number = len(self.tasks)

        async def run():
            try:
                result = await make()
                if isinstance(result, bytes):
                    result = len(result), sum(result)
                elif isinstance(result, tuple):
                    result = [one and (len(one), sum(one)) for one in result]
            except BaseException as error:
                self.noted(f"task {number}", name, *error_of(error))
                if not isinstance(error, Exception):
                    raise
            else:
                self.noted(f"task {number}", name, result)

        self.tasks.append(self.loop.create_task(run()))

    def wait_for(self, arguments):
        transport = self.get(*arguments).transport
        self.start("_wait", lambda: transport._wait())

    def process_wait(self, arguments):
        process = self.get(*arguments).process
        self.start("wait", process.wait)

    def communicate(self, arguments):
        index, size = arguments
        process = self.get(index).process
        self.start("communicate", lambda: process.communicate(None if size is None else b"c" * size))

    def read(self, arguments):
        index, fd, size = arguments
        process = self.get(index).process
        reader = process.stdout if fd == 1 else process.stderr
        self.start("read", lambda: reader.read(size))

    def drain(self, arguments):
        process = self.get(*arguments).process
        self.start("drain", process.stdin.drain)

    def wait_closed(self, arguments):
        process = self.get(*arguments).process
        self.start("wait_closed", process.stdin.wait_closed)


def by_actor(trace):
    sections = [[]]
    for one in trace:
        if isinstance(one, str):
            sections.append([one])
        else:
            sections[-1].append(one)
    return [
        [part for part in section if isinstance(part, str)]
        + sorted(
            (one for one in section if not isinstance(one, str)), key=lambda one: (str(one[0]).rjust(9), str(one[1:2]))
        )
        for section in sections
    ]


@pytest.fixture(autouse=True)
def exact_watcher():
    """asyncio's own of Python 3.11 waits in a thread, so its turns are not certain."""
    gc.freeze()  # a program collects garbage twice; not that of everything before
    if sys.version_info < (3, 12):
        policy = asyncio.get_event_loop_policy()
        before, policy._watcher = policy._watcher, asyncio.PidfdChildWatcher()
        yield
        policy._watcher = before
    else:
        yield
    gc.unfreeze()


@hypothesis.given(program=programs, reactions=reactions, abandons=st.booleans())
def test_any_program_of_obedient_children_is_asyncios(
    load_implementation, impl, asyncio_log, program, reactions, abandons
):
    actual = traced(impl, ChildrenStage, program, reactions, abandons=abandons, has_watcher=impl.name != "c")
    expected = traced(
        load_implementation("asyncio"), ChildrenStage, program, reactions, abandons=abandons, has_watcher=True
    )
    asyncio_log.take()
    assert by_actor(actual) == by_actor(expected)
