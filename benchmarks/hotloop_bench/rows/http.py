"""What does a request cost a real HTTP server? aiohttp, under the load of wrk."""

import contextlib
import functools
import importlib.util
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from .. import identity
from ..load import Load, LoadFailed, Network
from .registry import Rows
from .serving import Errors, Loop, context_of, offered, place_for, while_running

rows = Rows()

CONNECTIONS = 32
SECONDS = 1
"""Of a round: wrk takes whole seconds only."""
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def unavailable() -> str | None:
    if shutil.which("wrk") is None:
        return "it needs wrk, which is not installed"
    if importlib.util.find_spec("aiohttp") is None:
        return "it needs aiohttp, which is not installed"
    return None


def secure_unavailable() -> str | None:
    return unavailable() or identity.unavailable()


def report_of(output: str) -> tuple[int, float, float, float]:
    """Requests, seconds, p50 and p99 in seconds, from the output of wrk; LoadFailed if the server did not serve."""
    if found := re.search(r"Non-2xx or 3xx responses: .*|Socket errors: .*", output):
        raise LoadFailed(f"wrk: {found[0]}")
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)\b", output)
    parts = re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s|m)\b", output)
    quantiles = {part: float(value) * UNITS[unit] for part, value, unit in parts}
    if total is None or not int(total[1]) or not {"50", "99"} <= quantiles.keys():
        raise LoadFailed(f"wrk said nothing of use: {output.strip()[-200:]!r}")
    return int(total[1]), float(total[2]) * UNITS[total[3]], quantiles["50"], quantiles["99"]


def run_wrk(address: str) -> str:
    command = ["wrk", "--threads=1", f"--connections={CONNECTIONS}", f"--duration={SECONDS}s", "--latency", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 20, check=False)
    if done.returncode:
        raise LoadFailed(f"wrk ended with code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


class Requested:
    def __init__(self, loop: Loop, address: str, errors: Errors) -> None:
        self.loop, self.address, self.errors = loop, address, errors

    def run(self, n: int) -> Load:
        """As many requests as wrk makes in a round; n is ignored."""
        before = time.process_time()
        # wrk closes its first connection without a handshake. A server that reports this is right, so what it reports
        # is no failure; wrk's own report has the errors that matter.
        with self.errors.blamed():
            output = while_running(self.loop, run_wrk, self.address)
            cpu = time.process_time() - before
            requests, seconds, p50, p99 = report_of(output)
        return Load(requests, cpu, seconds, p50, p99)


@contextlib.contextmanager
def serving_http(loop: Loop, network: Network) -> Iterator[Requested]:
    from aiohttp import web  # only here: a worker that does not measure this row must not load it

    async def answer(request: Any) -> Any:
        return web.Response(text="Hello, world")

    async def start(path: str) -> Any:
        application = web.Application()
        application.router.add_get("/", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context_of(network, path)).start()
        return runner

    errors = Errors(loop)
    scheme = "https" if network == "tls" else "http"
    with place_for(network) as path:
        with offered(network):
            runner = loop.run_until_complete(start(path))
        try:
            yield Requested(loop, "{}://{}:{}/".format(scheme, *runner.addresses[0]), errors)
        finally:
            loop.run_until_complete(runner.cleanup())


rows.on_network(
    "aiohttp-wrk-32",
    "What does a GET of twelve bytes cost an aiohttp server, with 32 connections of wrk?",
    operations=1,
    opened=functools.partial(serving_http, network="tcp"),
    calibrated=False,
    table="Libraries",
    unavailable=unavailable,
)
rows.on_network(
    "aiohttp-https-wrk-32",
    "What does the same request cost over TLS, whose handshakes are few?",
    operations=1,
    opened=functools.partial(serving_http, network="tls"),
    calibrated=False,
    table="TLS",
    unavailable=secure_unavailable,
)
