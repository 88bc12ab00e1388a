"""Programs of several tasks that use one object, played action by action."""

import asyncio

from support.comparing import description, turns


class TaskPlayer:
    """One run of a program and a log of what each action came to, in order. act() does an action, unless it only pauses
    or cancels a task; look() tells what the object shows."""

    def __init__(self):
        self.log = []
        self.tasks = []

    async def act(self, action, *arguments):
        raise NotImplementedError

    def look(self):
        raise NotImplementedError

    async def play_tasks(self, program, number_of_turns):
        """Have each part of the program played by a task of its own, for that many turns."""
        self.tasks = [asyncio.create_task(self.play_task(*task)) for task in enumerate(program)]
        await turns(number_of_turns)

    async def end_tasks(self):
        while not all(task.done() for task in self.tasks):
            self.cancel_tasks()
            await turns(3)
        self.log += [[task.cancelled() for task in self.tasks], self.look()]

    def cancel_tasks(self):
        for task in self.tasks:
            task.cancel()

    async def play_task(self, name, actions):
        for action, *arguments in actions:
            try:
                result = await self.take(action, *arguments)
            except Exception as error:
                result = description(error)
            except asyncio.CancelledError as error:
                self.log.append((name, action, "cancelled", error.args, description(error), *self.look()))
                if len(self.log) % 2:  # a task goes on after some of its cancellations
                    raise
                continue
            self.log.append((name, action, result, *self.look()))

    async def take(self, action, *arguments):
        match action:
            case "pause":
                return await turns(*arguments)
            case "cancel":
                return self.tasks[arguments[0] % len(self.tasks)].cancel(f"by {arguments}")
            case _:
                return await self.act(action, *arguments)
