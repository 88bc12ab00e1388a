"""The common parts of random programs: a step and, for transports, the stage that plays a program turn by turn.

A stage's methods are the steps. A program is a list of parts: a tuple of steps, taken within one callback, or a step
`wait` with a number of turns to let pass. Reactions are steps that a protocol's callback takes, by its name.
"""

import asyncio.sslproto
import dataclasses

import hypothesis.strategies as st

SECONDS_BEFORE_A_PROGRAM_HANGS = 60  # where not its turns are counted
MAX_REACTIONS = 12  # steps taken by callbacks in one program, because each may bring the next


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    argument: object = None


def step(name, argument=None):
    return st.builds(Step, st.just(name), st.none() if argument is None else argument)


def counted(first, size, modulus):
    """`size` bytes that count on from `first`, so that a loss, a duplicate or a change of order shows."""
    begin = first % modulus
    return (bytes(range(modulus)) * (size // modulus + 2))[begin : begin + size]


def close_again(transport):
    """Nothing may happen. asyncio's TLS transport forgets its connection, so that its other methods fail."""
    if type(transport) is not asyncio.sslproto._SSLProtocolTransport:
        transport.close()


class Stage:
    """Plays a program on a loop, in one run of the loop."""

    def __init__(self, loop, program, reactions):
        self.loop = loop
        self.program = list(program)
        self.reactions = reactions
        self.reacted = 0
        self.trace = []
        self.turn = self.waiting = 0
        loop.set_exception_handler(self.report)

    def begun(self):
        """Whether the program may begin; the turns before it do not count."""
        raise NotImplementedError

    def finish(self):
        """End everything that the program has left open, and note the outcome."""
        raise NotImplementedError

    def note(self, *what):
        self.trace.append((self.turn, *what))

    def report(self, loop, context):
        self.note("reported", context["message"].split(":")[0][:30], repr(context.get("exception")))

    def happened(self, name, *arguments):
        self.note(name, *arguments)
        for one in self.reactions.get(name, ()):
            self.reacted += 1
            if self.reacted <= MAX_REACTIONS:
                self.perform(one)

    def perform(self, step):
        try:
            getattr(self, step.name)(*([] if step.argument is None else [step.argument]))
        except Exception as error:
            if getattr(error, "obj", None) is self:
                raise  # a mistake in the stage
            self.note(step.name, type(error).__name__, getattr(error, "errno", None))

    def take_turn(self):
        self.turn += 1
        self.loop.call_soon(self.take_turn)
        if not self.begun():
            return
        if self.waiting:
            self.waiting -= 1
        elif self.program:
            part = self.program.pop(0)
            if isinstance(part, Step):
                self.waiting = part.argument
            else:
                for one in part:
                    self.perform(one)
        else:
            self.loop.stop()

    def play(self):
        self.loop.call_soon(self.take_turn)
        self.loop.run_forever()
        self.trace.append("finish")
        self.finish()
        return self.trace

    def run_once(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()


class StageOfRuns(Stage):
    """Plays a program with one run of the loop for each turn, so that peers can act between two turns."""

    turns_to_settle = 10

    def take_parts(self):
        for part in self.program:
            if isinstance(part, Step):
                for _ in range(part.argument):
                    self.run_once()
            else:
                self.take_part(part)
                self.run_once()

    def take_part(self, part):
        """Have the steps of a part performed in the next turn."""
        self.loop.call_soon(self.perform_all, part)

    def perform_all(self, steps):
        for one in steps:
            self.perform(one)

    def run_once(self):
        self.turn += 1
        super().run_once()

    def run_some(self):
        for _ in range(self.turns_to_settle):
            self.run_once()


def traced(implementation, stage, *arguments, **options):
    """The trace of a stage's program on an implementation."""
    loop = implementation.new_event_loop()
    try:
        return stage(loop, *arguments, **options).play()
    finally:
        loop.close()
