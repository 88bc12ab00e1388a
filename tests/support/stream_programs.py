"""Programs of several tasks that use one stream, played action by action."""

import asyncio

from support.comparing import description, turns


class StreamPlayer:
    """One run of a program and a log of what each action came to. act() does an action; look() tells what it shows."""

    def __init__(self):
        self.log = []
        self.tasks = []

    async def act(self, action, *arguments):
        raise NotImplementedError

    def look(self):
        raise NotImplementedError

    def start(self, program):
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]

    async def end_tasks(self):
        while not all(task.done() for task in self.tasks):
            for task in self.tasks:
                task.cancel()
            await turns(3)

    async def play_task(self, name, program):
        for action, *arguments in program:
            try:
                result = await self.act(action, *arguments)
            except Exception as error:
                result = description(error)
            except asyncio.CancelledError as error:
                self.log.append((name, action, "cancelled", error.args))
                if len(self.log) % 2:
                    raise
                continue
            self.log.append((name, action, result, *self.look()))
