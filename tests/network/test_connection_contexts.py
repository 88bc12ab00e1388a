"""In which context each call of a connection's protocols runs, at both ends: as on asyncio of Python 3.15, where a
server and a connection keep the context that they were made in (python/cpython#140947)."""

import asyncio
import contextvars
import socket
import sys

import pytest
from support.certificates import HOST

pytestmark = [
    pytest.mark.only("c", "python", reason="asyncio itself is what it is compared with"),
    pytest.mark.skipif(sys.version_info < (3, 15), reason="asyncio of earlier versions keeps no context"),
]

trace = contextvars.ContextVar("trace", default="unset")

KINDS = ["tcp", "unix", "socket", "accepted", "tls"]


class Protocol(asyncio.Protocol):
    """Notes in which context its methods are called, and lets each leave its mark there."""

    def __init__(self, log, changed):
        self.log = log
        self.changed = changed
        self.note("factory")

    def note(self, name):
        self.log.append((name, trace.get()))
        trace.set(f"{trace.get()}, {name}")
        self.changed.set()

    def connection_made(self, transport):
        self.transport = transport
        self.note("connection_made")

    def data_received(self, data):
        self.note("data_received")

    def eof_received(self):
        self.note("eof_received")

    def connection_lost(self, error):
        self.note("connection_lost")


class Scenario:
    def __init__(self, loop, kind, contexts, path):
        self.loop = loop
        self.kind = kind
        self.contexts = contexts
        self.path = path
        self.logs = {"server": [], "client": []}
        self.changed = asyncio.Event()

    def factory(self, side):
        return lambda: Protocol(self.logs[side], self.changed)

    async def as_(self, name, function, *arguments):
        """Call a function, and await what it returns, in a task in whose context `trace` is `name`."""

        async def call():
            trace.set(name)
            result = function(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return await asyncio.create_task(call())

    async def seen(self, side, name, number=1):
        while [called for called, _ in self.logs[side]].count(name) < number:
            self.changed.clear()
            await self.changed.wait()

    async def serve(self, start):
        if self.kind == "unix":
            server = await self.loop.create_unix_server(self.factory("server"), self.path, start_serving=start)
        else:
            context = self.contexts["server"] if self.kind == "tls" else None
            server = await self.loop.create_server(
                self.factory("server"), "127.0.0.1", 0, start_serving=start, ssl=context
            )
        trace.set("after create_server()")
        return server

    async def connect(self, server):
        address = server.sockets[0].getsockname()
        factory = self.factory("client")
        match self.kind:
            case "unix":
                transport, _ = await self.loop.create_unix_connection(factory, self.path)
            case "socket":
                transport, _ = await self.loop.create_connection(factory, sock=socket.create_connection(address))
            case "accepted":
                transport, _ = await self.loop.connect_accepted_socket(factory, socket.create_connection(address))
            case "tls":
                transport, _ = await self.loop.create_connection(
                    factory, *address, ssl=self.contexts["client"], server_hostname=HOST
                )
            case _:
                transport, _ = await self.loop.create_connection(factory, *address)
        connected_in = trace.get()
        trace.set("after create_connection()")
        return transport, connected_in

    async def play(self, starts_later):
        trace.set("main")
        server = await self.as_("server", self.serve, not starts_later)
        if starts_later:
            await self.as_("starter", server.start_serving)
        transport, connected_in = await self.as_("client", self.connect, server)
        for number in (1, 2):
            await self.as_(f"writer {number}", transport.write, b"data")
            await self.seen("server", "data_received", number)
            await self.as_("pauses", transport.pause_reading)
            await self.as_("resumes", transport.resume_reading)
        await self.as_("closes", transport.close)
        for side in self.logs:
            await self.seen(side, "connection_lost")
        server.close()
        return self.logs, connected_in, trace.get()


@pytest.mark.parametrize("starts_later", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_context_of_each_call(loop, load_implementation, certificates, tmp_path, kind, starts_later):
    contexts = {}
    if kind == "tls":
        contexts = {"server": certificates.server_context(), "client": certificates.client_context()}

    async def run(loop, name):
        return await Scenario(loop, kind, contexts, str(tmp_path / name)).play(starts_later)

    oracle = load_implementation("asyncio").new_event_loop()
    try:
        expected = oracle.run_until_complete(run(oracle, "oracle"))
    finally:
        oracle.close()
    assert loop.run_until_complete(run(loop, "socket")) == expected
