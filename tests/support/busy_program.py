"""Every kind of I/O in use at once, for programs that fork or exit with everything open: connections over TCP, Unix
sockets and TLS, datagrams, a child process, a timer and a thread of the executor."""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import tempfile
import threading
from typing import Any

HOST = "127.0.0.1"


class BusyProgram:
    """Opens everything on the running loop. use() can be called again and again; close() closes everything."""

    def __init__(self, authority: str, identity: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(identity)
        self.trusting = ssl.create_default_context(cafile=authority)
        self.stack = contextlib.AsyncExitStack()
        self.connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self.serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        self.serving.discard(task)

    async def open(self) -> "BusyProgram":
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        path = f"{folder}/socket"
        self.servers = [
            await asyncio.start_server(self.serve, HOST, 0),
            await asyncio.start_server(self.serve, HOST, 0, ssl=self.context),
            await asyncio.start_unix_server(self.serve, path),
        ]
        tcp, tls = (server.sockets[0].getsockname()[1] for server in self.servers[:2])
        self.connections["tcp"] = await asyncio.open_connection(HOST, tcp)
        self.connections["tls"] = await asyncio.open_connection(HOST, tls, ssl=self.trusting)
        self.connections["unix"] = await asyncio.open_unix_connection(path)
        self.process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.connections["process"] = self.process.stdout, self.process.stdin  # type: ignore[assignment]
        self.datagrams, self.received = await self.open_datagrams()
        self.timer = self.loop.call_later(3600, print)
        await self.use()
        return self

    async def open_datagrams(self) -> tuple[asyncio.DatagramTransport, "asyncio.Queue[bytes]"]:
        """An endpoint that sends to itself."""
        received: asyncio.Queue[bytes] = asyncio.Queue()

        class Hearing(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: Any) -> None:
                received.put_nowait(data)

        transport, _ = await self.loop.create_datagram_endpoint(Hearing, local_addr=(HOST, 0), family=socket.AF_INET)
        return transport, received

    async def use(self) -> None:
        """Use everything once. Raises AssertionError if something does not work; the caller has to notice a hang."""
        for name, (reader, writer) in self.connections.items():
            for line in (b"%s\n" % name.encode(), b"x" * 100_000 + b"\n"):
                writer.write(line)
                answer = b""
                while len(answer) < len(line):
                    answer += await reader.read(65536)
                assert answer == line, (name, answer[:100])
        self.datagrams.sendto(b"datagram", self.datagrams.get_extra_info("sockname"))
        assert await self.received.get() == b"datagram"
        woken = asyncio.Event()
        await self.loop.run_in_executor(None, self.loop.call_soon_threadsafe, woken.set)
        await woken.wait()
        assert not self.timer.cancelled()

    async def close(self) -> None:
        self.timer.cancel()
        self.datagrams.close()
        for _, writer in self.connections.values():
            writer.close()
            await writer.wait_closed()
        assert await self.process.wait() == 0
        for server in self.servers:
            server.close()
        while self.serving:
            await asyncio.wait(self.serving)
        for server in self.servers:
            await server.wait_closed()
        await self.stack.aclose()


async def opened() -> BusyProgram:
    """Open everything, with the certificate files that are named in the program's arguments."""
    return await BusyProgram(*sys.argv[1:3]).open()


def until_asleep(thread: threading.Thread) -> None:
    """Return when another thread waits in the kernel; on systems other than Linux, at once."""
    path = f"/proc/self/task/{thread.native_id}/stat"
    while os.path.exists(path):
        with open(path) as file:
            if file.read().rpartition(")")[2].split()[0] == "S":
                return
