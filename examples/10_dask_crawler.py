"""Stage 10: the crawler on a Dask cluster, on more than one core and, where there are some, on more than one machine.

The state of the crawl stays here, in one process: the seen set, the redirects, the errors. The work that takes the
time, fetching and the search for links, is spread over **workers**, each a process with an event loop of its own. The
crawl goes in rounds. The waiting addresses are dealt out by hash, so that an address always belongs to the same worker;
each worker gets a `fetch_shard()` for its addresses; the answers lead to the addresses of the next round.

`fetch_shard()` is a coroutine function. Dask runs such a task on the worker's event loop itself, not in its threads, so
one worker has many fetches in flight, as stage 9 has.

The cluster is started here and ended afterwards: a scheduler and `--workers` workers, by the commands that would start
them on any machine. They run on the same event loop as this program: if it was started by `python -m hotloop`, so are
they. `--scheduler ADDRESS` uses a cluster that is already running. Its workers need aiohttp, and this folder on their
PYTHONPATH.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import common
from progress import ProgressBar

try:
    import aiohttp
    from distributed import Client
except ModuleNotFoundError as missing:
    sys.exit(f"10_dask_crawler.py: {missing.name} is not installed: python -m pip install aiohttp distributed")

stage9 = importlib.import_module("09_aiohttp_crawler")  # no name for an import statement

FOLDER = Path(__file__).parent
SECONDS_TO_START = 60
SECONDS_TO_CONNECT = 10
SECONDS_TO_END = 10


# ---- On the workers ----


async def fetch_shard(addresses: list[str], fetches_at_once: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer to each address, and what they were fetched on. Runs on a worker's own event loop."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=common.TIMEOUT, sock_read=common.TIMEOUT)
    connector = aiohttp.TCPConnector(limit=fetches_at_once)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        answers = await asyncio.gather(*(stage9.fetch(session, address) for address in addresses))
    common.note_engine(asyncio.get_running_loop())
    task = type(asyncio.current_task())
    where = common.engine() | {"task": f"{task.__module__}.{task.__qualname__}", "process": os.getpid()}
    return dict(zip(addresses, answers, strict=True)), where


# ---- The cluster ----


def dask_command(module: str, *arguments: str) -> list[str]:
    """How to start a part of the cluster, through hotloop if this program was."""
    through = ["-m", "hotloop"] if "hotloop" in sys.modules else []
    return [sys.executable, *through, "-m", f"distributed.cli.{module}", *arguments]


@contextlib.asynccontextmanager
async def running(command: list[str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A part of the cluster, ended when the block ends. Its output is in the file `log`."""
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # the terminal's Ctrl-C is for this program, which ends the child
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), SECONDS_TO_END)
        except TimeoutError:
            process.kill()
            await process.wait()


async def address_in(file: Path, scheduler: asyncio.subprocess.Process, log: Path) -> str:
    """Where a scheduler listens; it writes its address into a file when it does."""
    for _ in range(SECONDS_TO_START * 20):
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):  # not there yet, or not complete
            return str(json.loads(file.read_text(encoding="utf-8"))["address"])
        if scheduler.returncode is not None:
            break
        await asyncio.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    raise common.UserError(f"the scheduler did not start: {said}")


@contextlib.asynccontextmanager
async def cluster(workers: int) -> AsyncIterator[str]:
    """A scheduler with this many workers on this machine; yields its address."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crawler-")))
        file, log = folder / "scheduler.json", folder / "scheduler.log"
        command = dask_command("dask_scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard")
        scheduler = await stack.enter_async_context(running([*command, f"--scheduler-file={file}"], log))
        address = await address_in(file, scheduler, log)
        # No nanny: it would start the worker again, on a loop that it chooses itself.
        options = ("--no-nanny", "--nthreads=1", "--no-dashboard", f"--local-directory={folder}")
        for number in range(workers):
            command = dask_command("dask_worker", address, *options)
            await stack.enter_async_context(running(command, folder / f"worker-{number}.log"))
        yield address


# ---- The crawl ----


class DaskCrawler(stage9.Crawler):
    """Stage 9's knowledge of a crawl, with the fetches on the workers of a cluster."""

    def __init__(self, start: str, fetches_at_once: int, max_redirects: int, max_pages: int | None) -> None:
        super().__init__(start, fetches_at_once, max_redirects, max_pages)
        self.fetched_by: dict[str, dict[str, Any]] = {}  # address of a worker -> its event loop, and how much it did

    async def crawl_on(self, client: Client) -> None:
        """Fetch everything that can be reached, in rounds."""
        names = sorted((await client.scheduler.identity(n_workers=-1))["workers"])
        bar = ProgressBar()
        self.add_address(self.start, self.max_redirects)
        try:
            while not self.queue.empty() and not self.enough.is_set():
                await self.fetch_round(client, names)
                if bar.visible:
                    bar.draw(len(self.hops_left) - self.queue.qsize(), len(self.hops_left))
        finally:
            bar.erase()
        self.report_loops()

    async def fetch_round(self, client: Client, names: list[str]) -> None:
        shards = defaultdict(list)
        while not self.queue.empty():
            address = self.queue.get_nowait()
            shards[names[zlib.crc32(address.encode()) % len(names)]].append(address)
        # pure=False: another round with the same addresses would be another fetch.
        futures = [
            client.submit(fetch_shard, shard, self.workers, workers=[name], pure=False)
            for name, shard in shards.items()
        ]
        for name, (answers, where) in zip(shards, await client.gather(futures), strict=True):
            before = self.fetched_by.get(name, {"fetches": 0})
            self.fetched_by[name] = where | {"fetches": before["fetches"] + len(answers)}
            for address, answer in answers.items():
                self.take(address, answer)

    def report(self) -> dict[str, Any]:
        return super().report() | {"workers": list(self.fetched_by.values())}


async def crawl(arguments: argparse.Namespace, url: str) -> dict[str, Any]:
    common.note_engine(asyncio.get_running_loop())
    async with contextlib.AsyncExitStack() as stack:
        address = arguments.scheduler or await stack.enter_async_context(cluster(arguments.workers))
        client = await stack.enter_async_context(
            Client(address, asynchronous=True, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        )
        await client.wait_for_workers(1 if arguments.scheduler else arguments.workers, timeout=SECONDS_TO_START)
        crawler = DaskCrawler(url, arguments.fetches, arguments.max_redirects, arguments.pages)
        watch = common.Stopwatch()
        await crawler.crawl_on(client)
        report: dict[str, Any] = crawler.report() | watch.read() | common.engine()
    if not report["pages"]:
        why = report["errors"].get(crawler.start, "no answer was a page")
        raise common.UserError(f"found no page at {url}: {why}")
    return report


def print_report(report: dict[str, Any]) -> None:
    stage9.print_report(report)
    for worker in report["workers"]:
        implementation = f" ({worker['implementation']})" if worker["implementation"] else ""
        print(f"worker {worker['process']}: {worker['fetches']:,} fetches on {worker['engine']}{implementation}")


def parse_arguments() -> argparse.Namespace:
    count = common.whole_number(1, common.MAX_PAGES)
    parser = common.argument_parser("Crawl a site with the workers of a Dask cluster.")
    parser.add_argument("--pages", type=count, help="end after so many pages (default: when there are no more)")
    parser.add_argument("--workers", type=common.whole_number(1, 100), default=2, help="worker processes (%(default)s)")
    parser.add_argument(
        "--fetches", type=common.whole_number(1, 1000), default=20, help="fetches at once of each worker (%(default)s)"
    )
    parser.add_argument(
        "--max-redirects", type=common.whole_number(0, 100), default=10, help="redirects followed (%(default)s)"
    )
    parser.add_argument("--scheduler", help="address of a cluster that is there already, as in tcp://HOST:8786")
    parser.add_argument("--site-pages", type=count, default=200, help="size of a site started here (%(default)s)")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    with contextlib.ExitStack() as stack:
        url = arguments.url or stack.enter_context(common.running_site(arguments.site_pages, arguments.delay))
        report = asyncio.run(crawl(arguments, url))
    if arguments.json:
        print(json.dumps(report))
    else:
        print_report(report)
    return 0


if __name__ == "__main__":
    common.run(main)
