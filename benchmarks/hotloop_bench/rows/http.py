"""What does a request cost a real HTTP server: aiohttp, uvicorn, FastAPI, Tornado, under the load of wrk?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from .. import identity
from ..load import Network
from . import wrk
from .registry import Rows, missing
from .serving import BACKLOG, Loop, Serve, context_of

# The libraries are imported when their row begins: a worker that does not measure it must not load them.

rows = Rows()

TEXT = "Hello, world"


# -- aiohttp -----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def by_aiohttp(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    from aiohttp import web

    async def hello(request: Any) -> Any:
        return web.Response(text=TEXT)

    application = web.Application()
    application.router.add_get("/", hello)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context_of(network, path)).start()
    yield "{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


# -- uvicorn, alone and with FastAPI -----------------------------------------------------------------------------------


def plain_application() -> Any:
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(TEXT))]}
    body = {"type": "http.response.body", "body": TEXT.encode()}

    async def hello(scope: Any, receive: Any, send: Any) -> None:
        await send(head)
        await send(body)

    return hello


def fastapi_application() -> Any:
    from fastapi import FastAPI

    async def hello() -> dict[str, str]:
        return {"message": TEXT}

    application = FastAPI()
    application.get("/")(hello)
    return application


def by_uvicorn(make_application: Callable[[], Any]) -> Serve:
    @contextlib.asynccontextmanager
    async def serve(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
        import uvicorn

        application = make_application()
        options = {"http": "httptools", "ws": "none", "lifespan": "off", "log_config": None, "access_log": False}
        server = uvicorn.Server(uvicorn.Config(application, "127.0.0.1", 0, **options))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            if serving.done():
                raise RuntimeError("uvicorn did not start") from serving.exception()
            await asyncio.sleep(0.01)
        yield "{}:{}".format(*server.servers[0].sockets[0].getsockname())
        server.should_exit = True
        await serving

    return serve


# -- Tornado -----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def by_tornado(loop: Loop, network: Network, path: str) -> AsyncIterator[str]:
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets
    from tornado.web import Application, RequestHandler

    class Hello(RequestHandler):  # type: ignore[misc]  # mypy does not look into tornado
        def get(self) -> None:
            self.write(TEXT)

    server = HTTPServer(Application([("/", Hello)]))
    listeners = bind_sockets(0, "127.0.0.1", backlog=BACKLOG)
    server.add_sockets(listeners)
    yield "{}:{}".format(*listeners[0].getsockname())
    server.stop()
    await server.close_all_connections()


# -- the rows ----------------------------------------------------------------------------------------------------------


def add(name: str, question: str, serve: Serve, *packages: str, on_transports: bool = True) -> None:
    rows.on_network(
        name,
        question,
        operations=1,
        opened=wrk.under_wrk(serve),
        bare=wrk.bare_under_wrk,
        calibrated=False,
        table="Libraries",
        packages=packages,
        on_transports=on_transports,
        unavailable=lambda: wrk.unavailable() or missing(*packages),
    )


add(
    "aiohttp-wrk-32",
    "What does a GET of twelve bytes cost an aiohttp server, with 32 connections of wrk?",
    by_aiohttp,
    "aiohttp",
)
add(
    "uvicorn-wrk-32",
    "What does the same request cost uvicorn with httptools and a plain ASGI application?",
    by_uvicorn(plain_application),
    "uvicorn",
    "httptools",
)
add(
    "fastapi-wrk-32",
    "What does a GET of a small JSON object cost FastAPI on uvicorn with httptools?",
    by_uvicorn(fastapi_application),
    "fastapi",
    "uvicorn",
    "httptools",
)
add(
    "tornado-wrk-32",
    "What does a GET of twelve bytes cost a Tornado server?",
    by_tornado,
    "tornado",
    on_transports=False,  # its streams are watched sockets of its own
)


def secure_unavailable() -> str | None:
    return wrk.unavailable() or missing("aiohttp") or identity.unavailable()


rows.on_network(
    "aiohttp-https-wrk-32",
    "What does a GET of twelve bytes cost an aiohttp server over TLS, whose handshakes are few?",
    operations=1,
    opened=wrk.under_wrk(by_aiohttp, "tls"),
    calibrated=False,
    table="TLS",
    packages=("aiohttp",),
    unavailable=secure_unavailable,
)
