import asyncio

wait_for = asyncio.wait_for

__test__: dict[str, str]
