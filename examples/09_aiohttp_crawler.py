"""Stage 9: a complete crawler, with aiohttp.

It starts at one address, follows the links and ends when there is nothing new. aiohttp speaks HTTP, keeps connections
open and uses them again. The rest is what a crawler is about:

* A **queue** of addresses, and a bounded number of **workers**, each a task that takes an address, fetches it and puts
  the links it finds back on the queue. The number of workers, not the number of links, is the load on the server.
* The crawl is over when the queue is empty *and* no worker is busy, for a busy one may still find links. That is what
  `queue.join()` waits for: each get() is answered by a task_done(). Then the workers, which wait for more, are
  cancelled.
* `hops_left` is the **seen set**: an address in it is never fetched again. It also says how many redirects may follow.
* **Redirects** are not left to aiohttp, which would follow a hundred links to one page and fetch it a hundred times. A
  redirect is a link that costs a hop: its target goes through the same seen set, so two that lead to the same page
  merge there. When the hops are used up, that is an error of this address. If an address turns up again with more hops
  left than before, what is known about it is followed further and not fetched again. So the result does not depend on
  the order in which the answers arrive.
* An **error** belongs to its address. It is written down, and the crawl goes on.

There are no locks: between two `await`s nothing else runs.
"""

import argparse
import asyncio
import contextlib
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import common
from progress import ProgressBar

try:
    import aiohttp
except ModuleNotFoundError:
    sys.exit("09_aiohttp_crawler.py: aiohttp is not installed: python -m pip install aiohttp")

LINK = re.compile(r"""<a\s[^>]*?href\s*=\s*["']?([^\s"'<>]+)""", re.IGNORECASE)
REDIRECTS = {301, 302, 303, 307, 308}
HTML = {"text/html", "application/xhtml+xml"}


@dataclass
class Answer:
    """The answer for an address: a page, a redirect, an error, or something else that leads nowhere."""

    status: int | None = None  # None if there was not even a status
    size: int | None = None  # of a page, in bytes
    links: list[str] = field(default_factory=list)  # on that page
    redirect: str | None = None  # where it leads
    error: str | None = None


class Crawler:
    def __init__(self, start: str, workers: int, max_redirects: int, max_pages: int | None) -> None:
        self.start = normalized(start)
        self.workers = workers
        self.max_redirects = max_redirects
        self.max_pages = max_pages
        self.queue: asyncio.Queue[str] = asyncio.Queue()
        self.hops_left: dict[str, int] = {}  # every address seen, and how many redirects may follow it
        self.redirects: dict[str, str] = {}  # address -> where it leads
        self.pages: dict[str, int] = {}  # address of a page (status 200, HTML) -> its size in bytes
        self.errors: dict[str, str] = {}
        self.statuses: Counter[int] = Counter()
        self.enough = asyncio.Event()

    async def crawl(self) -> None:
        """Fetch everything that can be reached; the results are in the attributes."""
        self.add_address(self.start, self.max_redirects)
        timeout = aiohttp.ClientTimeout(total=common.TIMEOUT)
        connector = aiohttp.TCPConnector(limit=self.workers)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            # A bug in a worker would leave join() waiting for ever; the task group cancels all and reports it instead.
            tasks = [group.create_task(self.work(session)) for _ in range(self.workers)]
            tasks.append(group.create_task(self.show_progress()))
            ends = [group.create_task(self.queue.join()), group.create_task(self.enough.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, *ends):
                task.cancel()
        self.report_loops()

    async def work(self, session: aiohttp.ClientSession) -> None:
        while True:
            address = await self.queue.get()
            try:
                self.take(address, await fetch(session, address))
            finally:
                self.queue.task_done()

    def take(self, address: str, answer: Answer) -> None:
        """Record the answer for an address, and queue the addresses that it leads to."""
        if answer.status is not None:
            self.statuses[answer.status] += 1
        if answer.error is not None:
            self.errors[address] = answer.error
        elif answer.redirect is not None:
            self.redirects[address] = answer.redirect
            self.follow_redirect(address)
        elif answer.size is not None and not self.enough.is_set():
            self.pages[address] = answer.size
            if len(self.pages) == self.max_pages:
                self.enough.set()
            for link in answer.links:
                self.add_address(link, self.max_redirects)

    def add_address(self, address: str, hops_left: int) -> None:
        """Queue an address of this site unless it was seen before with as many redirects left."""
        if not self.is_ours(address) or hops_left <= self.hops_left.get(address, -1):
            return
        new = address not in self.hops_left
        self.hops_left[address] = hops_left
        if new:
            self.queue.put_nowait(address)
        elif address in self.redirects:
            self.follow_redirect(address)

    def follow_redirect(self, address: str) -> None:
        if self.hops_left[address] == 0:
            self.errors[address] = f"more than {self.max_redirects} redirects"
            return
        self.errors.pop(address, None)  # it may have run out of redirects on another way
        self.add_address(self.redirects[address], self.hops_left[address] - 1)

    def is_ours(self, address: str) -> bool:
        return address.startswith(("http://", "https://")) and urlsplit(address).netloc == urlsplit(self.start).netloc

    def report_loops(self) -> None:
        """The seen set breaks redirect loops silently; an address in one leads nowhere, and that is an error."""
        for address in self.redirects:
            visited = set()
            target: str | None = address
            while target is not None and target not in visited:
                visited.add(target)
                target = self.redirects.get(target)
            if target == address:
                self.errors[address] = "redirect loop"

    async def show_progress(self) -> None:
        bar = ProgressBar()
        try:
            while bar.visible:
                bar.draw(len(self.hops_left) - self.queue.qsize(), len(self.hops_left))
                await asyncio.sleep(0.1)
        finally:
            bar.erase()

    def report(self) -> dict[str, Any]:
        return {
            "pages": len(self.pages),
            "bytes": sum(self.pages.values()),
            "addresses": len(self.hops_left),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "errors": dict(sorted(self.errors.items())),
            "found": sorted(self.pages),
        }


async def fetch(session: aiohttp.ClientSession, address: str) -> Answer:
    answer = Answer()
    try:
        async with session.get(address, allow_redirects=False) as response:
            answer.status = response.status
            if response.status in REDIRECTS and "Location" in response.headers:
                answer.redirect = normalized(urljoin(address, response.headers["Location"]))
                return answer
            body = await response.read()
        if response.status == 200 and response.content_type in HTML:
            answer.size = len(body)
            answer.links = list(find_links(address, body, response.charset))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # ValueError: the address is one for urllib.parse, but not for aiohttp.
        answer.error = common.reason(error)
    return answer


def find_links(base: str, body: bytes, charset: str | None) -> Iterator[str]:
    """The absolute addresses that a page links to; text that is no valid address is no link."""
    try:
        text = body.decode(charset or "utf-8", errors="replace")
    except LookupError:  # a charset that Python does not know; its links are ASCII anyway
        text = body.decode("latin-1")
    for link in LINK.findall(text):
        with contextlib.suppress(ValueError):
            yield normalized(urljoin(base, html.unescape(link)))


def normalized(address: str) -> str:
    """One spelling for one page: without a fragment, and with a path even if it is empty."""
    parts = urlsplit(address)
    return parts._replace(path=parts.path or "/" if parts.netloc else parts.path, fragment="").geturl()


def print_report(report: dict[str, Any]) -> None:
    pages, seconds = report["pages"], report["seconds"]
    print(f"{pages:,} pages, {report['bytes']:,} bytes in {seconds:.2f} s: {pages / seconds:,.1f} pages/s", end="")
    print(f" ({report['cpu']:.2f} s of processor time, {report['engine']})")
    print("answers:", ", ".join(f"{count:,} x {status}" for status, count in report["statuses"].items()))
    print(f"errors: {len(report['errors']):,}")
    for address, error in report["errors"].items():
        print(f"  {address}  {error}")


async def crawl(crawler: Crawler) -> dict[str, Any]:
    common.note_engine(asyncio.get_running_loop())
    watch = common.Stopwatch()
    await crawler.crawl()
    return crawler.report() | watch.read() | common.engine()


def parse_arguments() -> argparse.Namespace:
    count = common.whole_number(1, common.MAX_PAGES)
    parser = common.argument_parser("Crawl a site: fetch every page that can be reached by links from --url.")
    parser.add_argument("--pages", type=count, help="end after so many pages (default: when there are no more)")
    parser.add_argument(
        "--workers", type=common.whole_number(1, 1000), default=20, help="fetches at once (%(default)s)"
    )
    parser.add_argument(
        "--max-redirects", type=common.whole_number(0, 100), default=10, help="redirects followed (%(default)s)"
    )
    parser.add_argument("--site-pages", type=count, default=200, help="size of a site started here (%(default)s)")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    with contextlib.ExitStack() as stack:
        url = arguments.url or stack.enter_context(common.running_site(arguments.site_pages, arguments.delay))
        crawler = Crawler(url, arguments.workers, arguments.max_redirects, arguments.pages)
        report = asyncio.run(crawl(crawler))
    if not report["pages"]:
        why = report["errors"].get(crawler.start, "no answer was a page")
        raise common.UserError(f"found no page at {url}: {why}")
    if arguments.json:
        print(json.dumps(report))
    else:
        print_report(report)
    return 0


if __name__ == "__main__":
    common.run(main)
