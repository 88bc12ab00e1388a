"""An ASGI application that reports its loop, echoes, and blocks when asked to."""

import json
import time

from facts import facts


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        await answer(scope["path"], receive, send)


async def lifespan(receive, send):
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        assert event == "lifespan.startup"
        await send({"type": "lifespan.startup.complete"})
    print("the application has been shut down", flush=True)
    await send({"type": "lifespan.shutdown.complete"})


async def answer(path, receive, send):
    body = b""
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    if path == "/busy":
        time.sleep(0.2)  # keeps the whole process from accepting
    content = body if path == "/echo" else json.dumps(facts()).encode()
    headers = [(b"content-length", b"%d" % len(content)), (b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for begin in range(0, len(content), 65536):
        await send({"type": "http.response.body", "body": content[begin : begin + 65536], "more_body": True})
    await send({"type": "http.response.body", "body": b""})
