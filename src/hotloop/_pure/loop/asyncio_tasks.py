"""A loop whose futures and tasks are asyncio's own: for tools that read asyncio's structures from outside the process,
and for interpreters without the extension, where asyncio's are compiled and hotloop's are not."""

import asyncio


class AsyncioTasks:
    """Part of hotloop.EventLoop, in front of the core."""

    # BaseEventLoop has the name even where asyncio.SelectorEventLoop is hotloop's own class.
    create_future = asyncio.BaseEventLoop.create_future
    create_task = asyncio.BaseEventLoop.create_task
