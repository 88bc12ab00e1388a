import asyncio

# What the queues have in C; not for programs.
class QueueFields: ...

Queue = asyncio.Queue
PriorityQueue = asyncio.PriorityQueue
LifoQueue = asyncio.LifoQueue

__test__: dict[str, str]
