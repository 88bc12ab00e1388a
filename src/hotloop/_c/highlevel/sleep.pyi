import asyncio

sleep = asyncio.sleep

__test__: dict[str, str]
