"""An aiohttp application that makes requests to itself: server and client on one loop."""

import time

from aiohttp import ClientSession, web
from facts import facts

routes = web.RouteTableDef()


@routes.get("/facts")
async def tell(request):
    if "inner" not in request.query:
        async with ClientSession() as session, session.get(request.url.with_query("inner=1")) as response:
            assert (await response.json())["pid"]
    return web.json_response(facts())


@routes.get("/busy")
async def busy(request):
    time.sleep(0.2)  # keeps the whole process from accepting
    return web.json_response(facts())


@routes.post("/echo")
async def echo(request):
    response = web.StreamResponse()
    await response.prepare(request)
    async for piece in request.content.iter_any():
        await response.write(piece)
    return response


async def shut_down(app):
    print("the application has been shut down", flush=True)


app = web.Application()
app.add_routes(routes)
app.on_cleanup.append(shut_down)


def make_app(argv):
    """For `python -m aiohttp.web`."""
    return app
