import asyncio

# What the queues have in C; not for programs.
class QueueFields: ...

Queue = asyncio.Queue
PriorityQueue = asyncio.PriorityQueue
LifoQueue = asyncio.LifoQueue

# Made by Cython: the functions that other compiled modules cimport.
__pyx_capi__: dict[str, object]
__test__: dict[str, str]
