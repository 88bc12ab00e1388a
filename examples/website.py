"""A small web site to crawl: the same pages, links, redirects and faults on every run.

    python examples/website.py --pages 2000 --delay 0.1

serves on a free port of 127.0.0.1, prints its address when it is ready, and ends on Ctrl-C or SIGTERM.

    /                   page 0, the home page
    /page/K             page K; pages form a tree of ten children each, so every page can be reached from /
    /redirect/K         one redirect to page K, with each of the five redirect statuses in turn
    /chain/N/K          N redirects one after another, the last one to page K (with relative Locations)
    /merge/W/K          for any W a redirect to page K: many addresses that lead to one page
    /loop/a, /loop/b    redirect to each other for ever
    /missing/K          404, like any other address not listed here
    /status/S           an empty answer with status S
    /file/K             binary data, which a crawler must not search for links
    /broken/close       the connection is closed without an answer
    /broken/short       the answer ends before its Content-Length
    /stats              what the server has seen so far, as JSON: requests by path, connections, requests at once

The server is one asyncio.Protocol and needs nothing outside the standard library. It speaks enough HTTP/1.1 and 1.0
for real clients: keep-alive, pipelined requests answered in order, GET and HEAD, 400 for anything that is not HTTP.
"""

import argparse
import asyncio
import html
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple

import common

CHILDREN = 10  # tree children of a page; a crawl of 10 pages then takes two rounds: the home page and the rest
MAX_HEAD = 16 * 1024  # bytes of one request head, and of requests read ahead on a connection
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
LONG_CHAIN = 12  # longer than the ten redirects that a crawler usually allows
TEXT = "The quick brown fox jumps over the lazy dog while the web crawler waits for the next response. "


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    location: str | None = None
    fault: str | None = None  # None, "close" or "short": see /broken in the module's docstring


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


class Site:
    """The contents of each address; knows nothing of connections."""

    def __init__(self, pages: int) -> None:
        self.pages = [Response(200, self._render(number, pages).encode()) for number in range(pages)]
        self.requests: Counter[str] = Counter()
        self.connections = 0
        self.active = 0
        self.most_active = 0

    def respond(self, path: str) -> Response:
        match path.split("/")[1:]:
            case [""]:
                return self.pages[0]
            case ["page", number] if is_number(number) and 0 < int(number) < len(self.pages):
                return self.pages[int(number)]
            case ["redirect", number] if is_number(number):
                return self._redirect(self._address(int(number)), int(number))
            case ["chain", hops, number] if is_number(hops) and int(hops) > 1 and is_number(number):
                return self._redirect(f"../{int(hops) - 1}/{number}", int(hops))
            case ["chain", "1", number] | ["merge", _, number] if is_number(number):
                return self._redirect(self._address(int(number)))
            case ["loop", ("a" | "b") as here]:
                return self._redirect("/loop/b" if here == "a" else "/loop/a")
            case ["status", status] if is_number(status) and 200 <= int(status) <= 599:
                return Response(int(status))
            case ["file", number] if is_number(number):
                return Response(200, b'\x00\xff<a href="/not-a-link">' * 100, "application/octet-stream")
            case ["broken", ("close" | "short") as fault]:
                return Response(200, b"only the beginning", fault=fault)
            case ["stats"]:
                return Response(200, json.dumps(self.statistics()).encode(), "application/json")
        return Response(404, b"<h1>404: there is no such page</h1>\n")

    def statistics(self) -> dict[str, object]:
        return {"requests": self.requests, "connections": self.connections, "most_at_once": self.most_active}

    def _redirect(self, location: str, variant: int = 1) -> Response:
        return Response(REDIRECT_STATUSES[variant % len(REDIRECT_STATUSES)], location=location)

    @staticmethod
    def _address(number: int) -> str:
        return f"/page/{number}" if number else "/"

    def _links(self, number: int, pages: int) -> Iterator[str]:
        """Addresses that page `number` of `pages` links to: all tree children, some cross links, some traps."""
        for child in range(CHILDREN * number + 1, min(CHILDREN * number + CHILDREN + 1, pages)):
            yield self._address(child)
        elsewhere = (number * 7 + 3) % pages
        yield self._address(elsewhere) + "#top"
        match number % 10:
            case 0 if number == 0:
                yield from ("/loop/a", f"/chain/{LONG_CHAIN}/0", "/status/500", "/file/1")
                yield from ("/broken/close", "/broken/short", "http://elsewhere.invalid/", "mailto:nobody@example.org")
            case 1 | 2:
                yield f"/merge/{number}/{number // 10}"
            case 3:
                yield f"/redirect/{elsewhere}"
            case 5:
                yield f"/chain/{1 + number // 10 % 4}/{elsewhere}"
            case 7:
                yield f"/missing/{number}"
        yield "/"

    def _render(self, number: int, pages: int) -> str:
        links = [html.escape(link) for link in self._links(number, pages)]
        items = "\n".join(f'<li><a href="{link}">{link}</a>' for link in links)
        text = TEXT * (5 + number % 7)
        return (
            f"<!DOCTYPE html>\n<title>Page {number}</title>\n<h1>Page {number} of {pages}</h1>\n"
            f"<p>{text}\n<ul>\n{items}\n</ul>\n"
        )


class BadRequest(Exception):
    """The client has sent a request that this server does not answer; the argument is the status to send."""


class Request(NamedTuple):
    method: str
    path: str
    version: str
    keep_alive: bool


def parse_request(head: bytes) -> Request:
    if len(head) > MAX_HEAD:
        raise BadRequest(431)
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest(400)
    method, target, version = words
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400)
        headers[name.lower()] = value.strip()
    if version == "HTTP/1.1" and "host" not in headers:
        raise BadRequest(400)
    if method not in ("GET", "HEAD"):
        raise BadRequest(405)
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(413)  # no page takes a body, and an unread body would be taken for the next request
    if target.startswith("http://"):
        target = "/" + target[len("http://") :].partition("/")[2]
    options = {option.strip() for option in headers.get("connection", "").lower().split(",")}
    keep_alive = "close" not in options if version == "HTTP/1.1" else "keep-alive" in options
    return Request(method, target.partition("?")[0], version, keep_alive)


def render_head(response: Response, *, keep_alive: bool) -> bytes:
    length = len(response.body) + (100 if response.fault == "short" else 0)
    lines = [
        f"HTTP/1.1 {response.status} {_phrase(response.status)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {length}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if response.location is not None:
        lines.append(f"Location: {response.location}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unassigned"


class Connection(asyncio.Protocol):
    """One client. Requests are answered one at a time and in order, each `delay` seconds after its turn came."""

    transport: asyncio.Transport

    def __init__(self, site: Site, delay: float, connections: set["Connection"]) -> None:
        self.site = site
        self.delay = delay
        self.connections = connections
        self.received = bytearray()
        self.timer: asyncio.TimerHandle | None = None  # set while an answer waits for its delay to pass
        self.client_finished = False
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.connections.add(self)
        self.site.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.site.active -= 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > MAX_HEAD and (self.timer is not None or not self.writable):
            self.transport.pause_reading()
        self.answer_requests()

    def eof_received(self) -> bool:
        # A client may say that it will send no more and still wait for its answers.
        self.client_finished = True
        return self.timer is not None or not self.writable

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.transport.resume_reading()
        self.answer_requests()

    def answer_requests(self) -> None:
        while self.timer is None and self.writable and not self.transport.is_closing():
            head, separator, rest = self.received.partition(b"\r\n\r\n")
            if not separator:
                if len(self.received) > MAX_HEAD:
                    self.refuse(431)
                elif self.client_finished:
                    self.transport.close()
                return
            self.received = rest
            try:
                request = parse_request(bytes(head))
            except BadRequest as refusal:
                self.refuse(refusal.args[0])
                return
            self.begin(request)

    def begin(self, request: Request) -> None:
        site = self.site
        response = site.respond(request.path)
        site.requests[request.path] += 1
        site.active += 1
        site.most_active = max(site.most_active, site.active)
        if self.delay:
            self.timer = asyncio.get_running_loop().call_later(self.delay, self.finish_later, request, response)
        else:
            self.finish(request, response)

    def finish_later(self, request: Request, response: Response) -> None:
        self.timer = None
        self.transport.resume_reading()
        self.finish(request, response)
        self.answer_requests()

    def finish(self, request: Request, response: Response) -> None:
        self.site.active -= 1
        if response.fault == "close":
            self.transport.close()
            return
        keep_alive = request.keep_alive and response.fault is None
        head = render_head(response, keep_alive=keep_alive)
        self.transport.write(head if request.method == "HEAD" else head + response.body)
        if not keep_alive:
            self.transport.close()

    def refuse(self, status: int) -> None:
        response = Response(status, f"<h1>{status}: {_phrase(status)}</h1>\n".encode())
        self.transport.write(render_head(response, keep_alive=False) + response.body)
        self.transport.close()


async def serve(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    if arguments.until_stdin_closes:
        # The write end of this pipe is in the parent process: however the parent ends, this process ends, too.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    site = Site(arguments.pages)
    connections: set[Connection] = set()
    server = await loop.create_server(
        lambda: Connection(site, arguments.delay, connections), arguments.host, arguments.port, backlog=1024
    )
    host, port = server.sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{port}/  ready: {arguments.pages:,} pages, {arguments.delay:g} s a response", flush=True)
    await stop.wait()
    server.close()
    for connection in list(connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # let the aborted transports close their sockets


def parse_arguments() -> argparse.Namespace:
    parser = common.Parser(prog="website.py", description="Serve a small web site to crawl.")
    pages, ports = common.whole_number(1, common.MAX_PAGES), common.whole_number(0, 65535)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=ports, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--pages", type=pages, default=200, help="number of pages (default: %(default)s)")
    parser.add_argument(
        "--delay", type=common.seconds, default=0.0, help="seconds before each response (default: none)"
    )
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input, a pipe, closes")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    try:
        asyncio.run(serve(arguments))
    except OSError as error:
        raise common.UserError(f"cannot serve on {arguments.host}:{arguments.port}: {common.reason(error)}") from error
    return 0


if __name__ == "__main__":
    common.run(main)
