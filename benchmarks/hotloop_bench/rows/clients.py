"""What does a request cost a real client: of an HTTP server, of Redis, of PostgreSQL?"""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from .. import load
from ..databases import postgresql_server as postgresql
from ..databases import redis_server as redis
from ..load import BareServer
from .asking import Asking
from .registry import Rows, missing
from .serving import Loop

# The libraries are imported when their row begins: a worker that does not measure it must not load them.

rows = Rows()

CLIENTS = 32
KEPT_SECONDS = 600.0
"""Longer than the other loops' rounds: a connection must not be closed because this loop stood still."""


class WrongAnswer(Exception):
    """A server answered something else than it should."""


# -- HTTP --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def by_aiohttp(loop: Loop) -> Iterator[Asking]:
    async def opened() -> Any:
        from aiohttp import ClientSession, TCPConnector

        return ClientSession(connector=TCPConnector(keepalive_timeout=KEPT_SECONDS))

    async def get(session: Any, address: str) -> None:
        async with session.get(address) as response:
            if (text := await response.text()) != "Hello, world":
                raise WrongAnswer(text)

    with BareServer("tcp", "http") as server:
        session = loop.run_until_complete(opened())
        try:
            yield Asking(loop, [functools.partial(get, session, f"http://{server.address}/")] * CLIENTS)
        finally:
            loop.run_until_complete(session.close())


rows.on_network(
    "aiohttp-client-32",
    "What does a GET of twelve bytes cost aiohttp's client, 32 of them at a time, from the server in C?",
    operations=200,
    opened=by_aiohttp,
    table="Libraries",
    packages=("aiohttp",),
    unavailable=lambda: missing("aiohttp") or load.unavailable(),
)


# -- Redis -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def by_redis(loop: Loop) -> Iterator[Asking]:
    key, value = "key", b"v" * 100

    async def opened(port: int) -> Any:
        from redis.asyncio import Redis

        client = Redis(host="127.0.0.1", port=port)
        await client.set(key, value)
        return client

    async def get(client: Any) -> None:
        if (found := await client.get(key)) != value:
            raise WrongAnswer(found)

    with redis.redis_server() as port:
        client = loop.run_until_complete(opened(port))
        try:
            yield Asking(loop, [functools.partial(get, client)] * CLIENTS)
        finally:
            loop.run_until_complete(client.aclose())


rows.on_network(
    "redis-get-32",
    "What does a GET of 100 bytes cost redis-py, 32 of them at a time, from a Redis server?",
    operations=300,
    opened=by_redis,
    table="Libraries",
    packages=("redis",),
    unavailable=lambda: missing("redis") or redis.unavailable(),
)


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

POOL = 10
"""As many connections as a pool of asyncpg's has unless told otherwise: each is a process of the server's."""
PEOPLE = 1000


@contextlib.contextmanager
def by_asyncpg(loop: Loop) -> Iterator[Asking]:
    async def opened(port: int) -> list[Any]:
        import asyncpg

        where = {"host": "127.0.0.1", "port": port, "user": postgresql.USER, "database": "postgres", "ssl": False}
        connections = [await asyncpg.connect(**where) for _ in range(POOL)]
        await connections[0].execute(
            "CREATE TABLE people AS"
            f" SELECT id, 'name ' || id AS name, now() AS changed FROM generate_series(0, {PEOPLE - 1}) AS id;"
            " ALTER TABLE people ADD PRIMARY KEY (id); ANALYZE people"
        )
        return connections

    async def closed(connections: list[Any]) -> None:
        await asyncio.gather(*(connection.close() for connection in connections))

    numbers = itertools.cycle(range(PEOPLE))

    async def fetch(connection: Any) -> None:
        number = next(numbers)
        found = await connection.fetchrow("SELECT id, name, changed FROM people WHERE id = $1", number)
        if found["name"] != f"name {number}":
            raise WrongAnswer(found)

    with postgresql.postgresql_server() as port:
        connections = loop.run_until_complete(opened(port))
        try:
            yield Asking(loop, [functools.partial(fetch, connection) for connection in connections])
        finally:
            loop.run_until_complete(closed(connections))


rows.on_network(
    "asyncpg-fetch-10",
    "What does it cost asyncpg to fetch a row by its key, with 10 connections to a PostgreSQL server?",
    operations=200,
    opened=by_asyncpg,
    table="Libraries",
    packages=("asyncpg",),
    unavailable=lambda: missing("asyncpg") or postgresql.unavailable(),
)
