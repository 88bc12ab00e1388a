"""An echo server on asyncio's cooperative socket calls, with a task for each client.

    python examples/echo_server.py --port 7777

sends back whatever a client sends, until the client closes its side. `sock_accept`, `sock_recv` and `sock_sendall` look
like the blocking calls of a server from a textbook, but each `await` lets all the other clients go on meanwhile. A slow
reader holds up only itself: sock_sendall waits until the kernel has taken everything, and only then the next sock_recv
runs, so at most one buffer for each client is in memory.

All clients belong to one task group. Ctrl-C or SIGTERM cancels the accepting task, and so the group cancels the
clients. Each of them closes its socket on the way out, and the program ends when the last one has.
"""

import argparse
import asyncio
import errno
import signal
import socket

import common

BUFFER = 64 * 1024  # bytes read at once
ACCEPT_PAUSE = 0.5  # seconds to wait for a free descriptor or memory: trying again at once yields neither
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


async def echo(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with connection:
        try:
            while data := await loop.sock_recv(connection, BUFFER):
                await loop.sock_sendall(connection, data)
        except OSError:
            return  # ConnectionError, or a TimeoutError if the client has vanished: that ends its own task only


async def accept_clients(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as clients:
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue  # the client left before its turn came
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            client = clients.create_task(echo(connection))
            # A task that is cancelled before it has begun does not come to the `with` in it.
            client.add_done_callback(lambda _, connection=connection: connection.close())


async def serve(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    server = asyncio.create_task(accept_clients(listener))
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, server.cancel)
    host, port = listener.getsockname()[:2]
    print(f"echo server on {host} port {port}", flush=True)
    # wait() does not raise what the task raised: only its cancellation is the normal end.
    await asyncio.wait([server])
    if not server.cancelled():
        server.result()


def main() -> int:
    parser = common.Parser(description="Send back whatever clients send.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=common.whole_number(0, 65535), default=0, help="port to listen on (default: any free one)"
    )
    arguments = parser.parse_args()
    with open_listener(arguments) as listener:
        asyncio.run(serve(listener))
    return 0


def open_listener(arguments: argparse.Namespace) -> socket.socket:
    family = socket.AF_INET6 if ":" in arguments.host else socket.AF_INET
    try:
        listener = socket.create_server((arguments.host, arguments.port), family=family, backlog=1024)
    except OSError as error:
        raise common.UserError(f"cannot listen on {arguments.host}:{arguments.port}: {common.reason(error)}") from error
    listener.setblocking(False)
    return listener


if __name__ == "__main__":
    common.run(main)
