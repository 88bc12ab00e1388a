"""Facts that a program sees about the loop it runs on."""

import asyncio
import os

import hotloop


def facts():
    task = asyncio.current_task()
    return {
        "hotloop": isinstance(asyncio.get_running_loop(), hotloop.EventLoop),
        "implementation": hotloop.implementation,
        "task": task and ("hotloop" if isinstance(task, hotloop.Task) else type(task).__module__),
        "pid": os.getpid(),
    }
