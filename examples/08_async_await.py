"""Stage 8: `async` and `await` on asyncio's event loop.

Nothing new happens here, it only has better names. `await` is `yield from`, an `async def` is a generator that cannot
be mistaken for an iterator, `asyncio.gather` makes the tasks, and the loop's sock_connect, sock_sendall and sock_recv
are stage 7's connect and read. Compare `fetch` with stage 1: the same lines in the same order, and ten of them at once.

asyncio adds to the toy of stage 7 all that makes it reliable: exceptions arrive where the result is awaited, tasks can
be cancelled, waits can be timed out, signals and threads and subprocesses can join in. And because every asyncio
program leaves "sleep until something is ready, then call it" to its event loop, another loop can do that faster without
a change to the program: `python -m hotloop examples/08_async_await.py` is this file, unchanged.

The limit is only that this is no crawler yet. It speaks just enough HTTP for our own site, opens a connection per page
and starts as many fetches at once as there are pages. Stage 9 leaves HTTP to aiohttp and gets all of that right.
"""

import asyncio
import socket

import common


async def fetch(target: common.Target, path: str) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(target.family) as sock:
        sock.setblocking(False)
        async with asyncio.timeout(common.TIMEOUT):
            await loop.sock_connect(sock, target.address)
            await loop.sock_sendall(sock, target.request(path))
            chunks = []
            while chunk := await loop.sock_recv(sock, 4096):
                chunks.append(chunk)
    return b"".join(chunks)


async def fetch_concurrently(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    common.note_engine(asyncio.get_running_loop())
    responses = await asyncio.gather(*(fetch(target, path) for path in paths))
    return dict(zip(paths, responses, strict=True))


def fetch_all(target: common.Target, paths: list[str]) -> dict[str, bytes]:
    return asyncio.run(fetch_concurrently(target, paths))


if __name__ == "__main__":
    common.main(fetch_all)
