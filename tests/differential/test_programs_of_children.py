"""Random programs on subprocesses: what a program learns of its children is the same as on asyncio.

Children run beside the program, so their events come in no certain turn. A program waits for an event before it relies
on it, and compared are the data of each pipe, the exit code, and the order of one child's events as far as it is
certain.
"""

import asyncio
import contextlib
import signal
import sys

import hypothesis
import hypothesis.strategies as st
import pytest
from playing import SECONDS_BEFORE_A_PROGRAM_HANGS, counted, step
from support.endpoints import turns
from support.interpreter import uses_hypothesis

pytestmark = [
    pytest.mark.differential,
    uses_hypothesis,
    pytest.mark.skipif(sys.platform == "win32", reason="selector loops have no subprocesses on Windows"),
    # On 3.12 and 3.13 asyncio silences one of its own warnings around every spawn.
    pytest.mark.filterwarnings("ignore:'get_child_watcher' is deprecated:DeprecationWarning"),
]

MAX_CHILDREN = 3
MUCH = 200_000  # bytes; more than a pipe holds
PIPE, STDOUT, DEVNULL = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
SCRIPTS = {
    "cat": "exec cat",
    "exits": "exit 3",
    "prints": "printf out; printf error >&2; exit 4",
    "head": "head -c 10",  # the rest of its input finds no reader
    "sleeps": "exec sleep 600",
    "closes": "exec >&- 2>&-; exec sleep 600",
    "dies": "kill -KILL $$",
    "traps": "trap 'exit 5' TERM; echo ready; read line",
    "leaves": "sleep 0.02 & exit 6",  # another process keeps the pipes
}
RUNS_UNTIL_KILLED = {"sleeps", "closes"}

indexes = st.integers(0, MAX_CHILDREN - 1)
sizes = st.sampled_from([0, 1, 10, 300, 70_000])
spawning = st.tuples(st.sampled_from(sorted(SCRIPTS)), st.booleans(), st.sampled_from([PIPE, STDOUT, DEVNULL]))
steps = st.one_of(
    step("spawn", spawning),
    step("spawn", spawning),
    step("write", st.tuples(indexes, sizes)),
    step("write", st.tuples(indexes, sizes)),
    step("write_much", indexes),
    step("end_input", indexes),
    step("pause_reading", indexes),
    step("resume_reading", indexes),
    step("await_echo", indexes),
    step("kill", st.tuples(indexes, st.sampled_from(["kill", "terminate", "SIGINT"]))),
    step("await_exit", indexes),
    step("await_end", indexes),
    step("close", indexes),
    step("turns", st.integers(0, 3)),
)
programs = st.lists(steps, max_size=12)


class Child(asyncio.SubprocessProtocol):
    def __init__(self, stage, script):
        self.stage = stage
        self.script = script
        self.transport = None
        self.events = []
        self.received = {1: bytearray(), 2: bytearray()}
        self.lost_pipes = set()
        self.exited = self.lost = self.killed = self.closed = self.input_ended = self.paused = False
        self.written = 0

    def connection_made(self, transport):
        self.transport = transport
        self.happened("connection_made")

    def pipe_data_received(self, fd, data):
        assert not self.paused or fd != 1
        assert fd not in self.lost_pipes and not self.lost
        self.received[fd] += data
        self.happened()

    def pipe_connection_lost(self, fd, error):
        assert fd not in self.lost_pipes and not self.lost
        self.lost_pipes.add(fd)
        self.happened()

    def process_exited(self):
        assert not self.exited and not self.lost
        self.exited = True
        self.happened("process_exited", self.transport.get_returncode())

    def connection_lost(self, error):
        assert not self.lost
        self.lost = True
        self.happened("connection_lost", repr(error), sorted(self.lost_pipes))

    def happened(self, *what):
        if what:
            self.events.append(what)
        self.stage.changed.set()

    def ends_by_itself(self):
        if self.paused:
            return False  # what it prints may not fit into the pipe, and the end of the pipe is not read
        if self.script in ("cat", "traps", "head"):
            return self.input_ended
        return self.script not in RUNS_UNTIL_KILLED

    def outcome(self):
        """All that is certain."""
        out = bytes(self.received[1])
        if self.script == "cat":
            assert counted(0, self.written, 251).startswith(out)
            out = None if self.killed or self.closed else out
        elif self.closed or self.killed:
            out = None
        return self.script, self.events, out, self.transport.get_returncode()


class ChildrenStage:
    def __init__(self, program):
        self.program = program
        self.trace = []
        self.children = []

    def note(self, *what):
        self.trace.append(what)

    async def play(self):
        self.loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        async with asyncio.timeout(SECONDS_BEFORE_A_PROGRAM_HANGS):
            for one in self.program:
                await getattr(self, one.name)(one.argument)
            for index, child in enumerate(self.children):
                await self.resume_reading(index)
                if self.running_child(index):
                    await self.close(index)
                await self.end_input(index)
                await self.until(lambda child=child: child.lost)
                self.note(child.outcome())
                child.transport.close()  # else asyncio warns
        return self.trace

    async def until(self, condition):
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def child(self, index):
        return self.children[index % len(self.children)] if self.children else None

    def running_child(self, index):
        """A child that has not ended for certain, and is not about to."""
        child = self.child(index)
        if child and not (child.killed or child.closed) and (child.script in RUNS_UNTIL_KILLED or self.reads(child)):
            return child
        return None

    def reads(self, child):
        return child.script in ("cat", "traps") and not child.input_ended

    async def spawn(self, arguments):
        script, by_shell, errors = arguments
        if len(self.children) == MAX_CHILDREN:
            return
        make, command = self.loop.subprocess_exec, ("sh", "-c", SCRIPTS[script])
        if by_shell:
            make, command = self.loop.subprocess_shell, (SCRIPTS[script],)
        _, child = await make(lambda: Child(self, script), *command, stderr=errors)
        self.children.append(child)
        self.note("spawned", child.transport is not None)
        if script == "traps":
            await self.until(lambda: child.received[1])

    async def write(self, arguments):
        index, size = arguments
        if (child := self.running_child(index)) and self.reads(child) and child.script == "cat":
            child.transport.get_pipe_transport(0).write(counted(child.written, size, 251))
            child.written += size

    async def write_much(self, index):
        await self.write((index, MUCH))

    async def end_input(self, index):
        child = self.child(index)
        if child and not child.input_ended:
            child.input_ended = True
            child.transport.get_pipe_transport(0).close()

    async def pause_reading(self, index):
        child = self.running_child(index)  # of another one the pipe may have ended
        if child and not child.paused and child.script != "closes":
            child.transport.get_pipe_transport(1).pause_reading()
            await asyncio.sleep(0)  # the transport queues what it has read
            child.paused = True

    async def resume_reading(self, index):
        child = self.child(index)
        if child and child.paused:
            child.paused = False
            child.transport.get_pipe_transport(1).resume_reading()

    async def await_echo(self, index):
        child = self.running_child(index)
        if child and child.script == "cat" and not child.paused:
            await self.until(lambda: len(child.received[1]) == child.written)
            self.note("echo", child.written)

    async def kill(self, arguments):
        index, how = arguments
        if child := self.running_child(index):
            child.killed = True
            if how == "SIGINT":
                child.transport.send_signal(signal.SIGINT)
            else:
                getattr(child.transport, how)()
            if child.script == "traps":
                await self.end_input(index)  # a shell that is about to read sees the signal only after its read

    async def await_exit(self, index):
        child = self.child(index)
        if child and (child.killed or child.closed or child.ends_by_itself()):
            await self.until(lambda: child.exited)
            self.note("exited", child.transport.get_returncode())

    async def await_end(self, index):
        child = self.child(index)
        if child and (child.closed or (not child.paused and (child.killed or child.ends_by_itself()))):
            if child.script == "head" or child.killed:
                await self.end_input(index)
            await self.until(lambda: child.lost)
            self.note(child.outcome())

    async def close(self, index):
        child = self.child(index)
        if child and not child.closed:
            # asyncio reports 255 if close() finds that the child has ended.
            if not self.running_child(index):
                await self.resume_reading(index)
                await self.end_input(index)
                await self.until(lambda: child.exited)
            child.closed = True
            child.transport.close()

    turns = staticmethod(turns)


@hypothesis.given(program=programs)
def test_any_program_of_children_is_asyncios(load_implementation, impl, program):
    actual = impl.run(ChildrenStage(program).play())
    expected = load_implementation("asyncio").run(ChildrenStage(program).play())
    assert actual == expected


# -- asyncio.create_subprocess_exec() ----------------------------------------------------------------------------------

runs = st.one_of(
    st.tuples(st.just("communicates"), st.sampled_from(["cat", "exits", "prints", "dies", "leaves"]), sizes),
    st.tuples(st.just("times_out"), st.sampled_from(["sleeps", "closes"]), st.sampled_from([0, 0.001])),
    st.tuples(st.just("is_waited_for"), st.sampled_from(["sleeps", "traps"]), st.integers(0, 3)),
    st.tuples(st.just("talks"), st.just("cat"), st.lists(st.integers(1, 300), max_size=3)),
    st.tuples(st.just("is_read_late"), st.just("cat"), sizes),
    st.tuples(st.just("is_closed"), st.sampled_from(["sleeps", "cat", "closes"]), st.integers(0, 2)),
    st.tuples(st.just("is_cancelled"), st.sampled_from(["sleeps", "cat"]), st.integers(0, 8)),
)
groups = st.lists(st.lists(runs, min_size=1, max_size=3), max_size=4)


async def spawned(script):
    options = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    return await asyncio.create_subprocess_exec("sh", "-c", SCRIPTS[script], **options)


async def communicates(script, size):
    process = await spawned(script)
    out, err = await process.communicate(counted(0, size, 251) if script == "cat" else None)
    assert out == counted(0, size, 251) or script != "cat"
    return len(out), err, process.returncode


async def times_out(script, seconds):
    process = await spawned(script)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.communicate(b"input"), seconds)
    before = process.returncode
    process.kill()
    return before, await process.wait(), process.returncode


async def is_waited_for(script, cancelled):
    """Several tasks wait, of which the first ones are cancelled."""
    process = await spawned(script)
    if script == "traps":
        assert await process.stdout.readline() == b"ready\n"
    waiting = [asyncio.create_task(process.wait()) for _ in range(4)]
    await turns(2)
    for task in waiting[:cancelled]:
        task.cancel()
    await turns(1)
    process.terminate()
    process.stdin.close()  # a shell that is about to read sees the signal only after its read
    results = await asyncio.gather(*waiting, return_exceptions=True)
    return [repr(result) for result in results], await process.wait(), await process.stdout.read()


async def talks(script, lengths):
    process = await spawned(script)
    heard = []
    for length in lengths:
        process.stdin.write(b"x" * length + b"\n")
        await process.stdin.drain()
        heard.append(len(await process.stdout.readline()))
    process.stdin.close()
    await process.stdin.wait_closed()
    return heard, await process.wait(), await process.stdout.read()


async def is_read_late(script, size):
    """More may come than the reader's limit, so that it pauses the pipe."""
    process = await spawned(script)
    data = counted(0, 3 * size, 251)
    process.stdin.write(data)
    process.stdin.close()
    await turns(3)
    assert await process.stdout.readexactly(len(data)) == data
    return await process.stdout.read(), await process.wait()


async def is_closed(script, count):
    process = await spawned(script)
    await turns(count)
    process._transport.close()
    return await process.wait(), await process.stdout.read()


async def is_cancelled(script, count):
    """The task that starts it is cancelled. In which turn it has started is not certain."""
    starting = asyncio.create_task(spawned(script))
    await turns(count)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        process = await starting
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        await process.communicate()


async def run_groups(groups):
    results = []
    async with asyncio.timeout(SECONDS_BEFORE_A_PROGRAM_HANGS):
        for group in groups:
            results += await asyncio.gather(*(globals()[name](script, argument) for name, script, argument in group))
    return results


@hypothesis.settings(max_examples=hypothesis.settings().max_examples // 2)
@hypothesis.given(groups=groups)
def test_any_processes_are_asyncios(load_implementation, impl, groups):
    assert impl.run(run_groups(groups)) == load_implementation("asyncio").run(run_groups(groups))
