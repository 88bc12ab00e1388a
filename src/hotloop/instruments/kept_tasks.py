"""Tasks that nothing holds: asyncio's loops refer to a waiting task only weakly, so the garbage collector may end it.

hotloop.run(main(), keep_tasks=True) makes a loop that holds its tasks until they are done, and names in the log those
that are left when the program's coroutine has ended. See asyncio's documentation of create_task(), "Important".
"""

import asyncio
import logging
from typing import Any

from hotloop._asyncio.mixin import Behind
from hotloop.instruments.chains import name_key, summary

logger = logging.getLogger("hotloop.tasks")


class KeptTasks(Behind):  # type: ignore[misc]
    """Part of an event loop class, in front of the core: its loop holds the tasks of create_task()."""

    def __init__(self, *arguments: Any) -> None:
        self._kept: set[Any] = set()
        super().__init__(*arguments)

    def create_task(self, coro: Any, **keywords: Any) -> Any:
        """Run a coroutine as a Task, which the loop holds until it is done. See loop.create_task()."""
        task = super().create_task(coro, **keywords)
        if asyncio.isfuture(task) and not task.done():  # a task factory may return anything
            self._kept.add(task)
            task.add_done_callback(self._kept.discard)
        made_at = getattr(task, "_source_traceback", None)
        if made_at and made_at[-1].filename == __file__:
            del made_at[-1]  # in debug mode: the program's line is the place where the task was made
        return task

    def report_kept_tasks(self) -> None:
        """Name in the log the tasks that are not done."""
        pending = sorted((task for task in self._kept if not task.done()), key=name_key)
        if pending:
            count = "1 task was" if len(pending) == 1 else f"{len(pending)} tasks were"
            lines = [summary(task) if isinstance(task, asyncio.Task) else repr(task) for task in pending]
            logger.warning("%s pending at the end:\n  %s", count, "\n  ".join(lines))
