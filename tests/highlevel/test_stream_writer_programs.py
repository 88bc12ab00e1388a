"""asyncio.StreamWriter and StreamReaderProtocol in random programs: the compiled ones do what asyncio's own do."""

import hypothesis
from hypothesis import strategies
from support.comparing import same_on_both
from support.overriding import module_with, overrides
from support.task_programs import TaskPlayer
from support.writer_states import end, streams

actions = strategies.one_of(
    strategies.tuples(
        strategies.sampled_from(
            ["drain", "drain", "wait_closed", "pause_writing", "resume_writing", "close", "lost", "broken", "fail"]
        )
    ),
    strategies.tuples(strategies.sampled_from(["pause", "cancel"]), strategies.integers(0, 4)),
)
tasks_of_a_program = strategies.lists(strategies.lists(actions, max_size=7), min_size=1, max_size=4)


class Player(TaskPlayer):
    def __init__(self, module):
        super().__init__()
        self.reader, self.protocol, self.writer = streams(module, self.log)

    async def play(self, program):
        await self.play_tasks(program, 40)
        await self.end_tasks()
        end(self.protocol, self.writer)
        return self.log

    def look(self):
        return len(self.protocol._drain_waiters), self.protocol._paused, self.protocol._connection_lost

    async def act(self, action, *arguments):
        match action:
            case "drain" | "wait_closed":
                return await getattr(self.writer, action)()
            case "pause_writing" | "resume_writing":
                return getattr(self.protocol, action)()
            case "close":
                return self.writer.close()
            case "lost":
                return self.protocol.connection_lost(None)
            case "broken":
                return self.protocol.connection_lost(OSError("broken"))
            case "fail":
                return self.reader.set_exception(OSError("set"))


@hypothesis.settings(max_examples=200, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(program=tasks_of_a_program)
def test_random_programs(loop, program):
    async def run(module):
        return await Player(module).play(program)

    same_on_both(loop, run)


@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    program=tasks_of_a_program,
    chosen=strategies.dictionaries(
        strategies.sampled_from(["StreamReader", "StreamReaderProtocol", "StreamWriter"]), overrides, min_size=1
    ),
)
def test_random_programs_of_subclasses(loop, program, chosen):
    async def run(module):
        calls = []
        return await Player(module_with(module, calls, chosen)).play(program), calls

    same_on_both(loop, run)
