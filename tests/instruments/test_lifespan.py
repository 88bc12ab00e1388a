"""The ASGI application of docs/stalls.md, run as a server runs it: its lifespan begins and ends the instruments."""

import asyncio
import contextlib
import signal
import threading

import pytest
from support import documents
from support.documents import ROOT

from hotloop.instruments import dumps, inspection
from hotloop.instruments.watchdog import WATCHDOG

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no signals to send")


class Server:
    """An ASGI server without a network: it starts an application, has it answer requests, and shuts it down."""

    def __init__(self, app):
        self.app = app

    async def __aenter__(self):
        self.to_app, self.from_app = asyncio.Queue(), asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self.lifespan = asyncio.create_task(self.app(scope, self.to_app.get, self.from_app.put))
        await self.say("startup")
        return self

    async def __aexit__(self, *_):
        await self.say("shutdown")
        await self.lifespan

    async def say(self, what):
        await self.to_app.put({"type": f"lifespan.{what}"})
        answer = asyncio.create_task(self.from_app.get())
        await asyncio.wait([answer, self.lifespan], return_when=asyncio.FIRST_COMPLETED)
        if self.lifespan.done():
            self.lifespan.result()
        assert await answer == {"type": f"lifespan.{what}.complete"}

    async def request(self):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        await self.app({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send)
        return sent


@pytest.fixture
def app(impl, monkeypatch):
    """The application of the page, on this implementation's loop."""
    [block] = [block for block in documents.blocks(ROOT / "docs" / "stalls.md") if block.title == "app.py"]
    names = {}
    exec(compile(block.code, block.where, "exec"), names)
    if impl.name != "asyncio":
        monkeypatch.setattr("hotloop.EventLoop", impl.EventLoop)
    return names["app"]


async def serve(app, seen):
    async with Server(app) as server:
        start, body = await server.request()
        seen["answer"] = (start["status"], body["body"])
        seen["during"] = instruments()
    seen["after"] = instruments()


def instruments():
    """How many loops are watched, dumped at the signal, and open to inspection."""
    dumped = isinstance(getattr(signal.getsignal(signal.SIGUSR1), "__self__", None), dumps.TaskDump)
    return len(WATCHDOG._due), dumped, len(list(inspection._inspections))


def test_the_lifespan_has_the_instruments(impl, app):
    seen = {}
    impl.run(serve(app, seen))
    watched = impl.name != "asyncio"
    assert seen["answer"] == (200, b"Hello\n")
    assert seen["during"] == (watched, True, watched)
    assert seen["after"][1:] == (False, False)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_the_lifespan_in_another_thread(impl, app):
    """As with a test client: only signals need the main thread."""
    seen = {}

    def run():
        with contextlib.closing(impl.new_event_loop()) as loop:
            loop.run_until_complete(serve(app, seen))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen["during"][1] is False
    assert seen["answer"] == (200, b"Hello\n")
