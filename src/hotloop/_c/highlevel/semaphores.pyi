import asyncio

# What the semaphores have in C; not for programs.
class SemaphoreFields: ...

Semaphore = asyncio.Semaphore
BoundedSemaphore = asyncio.BoundedSemaphore

__test__: dict[str, str]
