"""The load of wrk on an HTTP server, which is on a loop or the bare server in C."""

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator

from ..load import BareServer, Load, LoadFailed, Network
from .serving import Errors, Loop, Opener, Serve, started, while_running

CONNECTIONS = 32
SECONDS = 1
"""Of a round: wrk takes whole seconds only."""
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def unavailable() -> str | None:
    return "it needs wrk, which is not installed" if shutil.which("wrk") is None else None


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


def run_wrk(address: str, connections: int = CONNECTIONS, seconds: int = SECONDS) -> str:
    command = ["wrk", "--threads=1", f"--connections={connections}", f"--duration={seconds}s", "--latency", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 20, check=False)
    if done.returncode:
        raise LoadFailed(f"wrk ended with code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


def load_of(output: str, cpu: float) -> Load:
    """The load that wrk has made, with the seconds of processor time that the server used meanwhile."""
    requests, seconds, p50, p99 = report_of(output)
    return Load(requests, cpu, seconds, p50, p99)


class Requested:
    """A server on a loop. wrk makes as many requests as it can in a round; n is ignored."""

    def __init__(self, loop: Loop, address: str, errors: Errors) -> None:
        self.loop, self.address, self.errors = loop, address, errors

    def run(self, n: int) -> Load:
        before = time.process_time()
        # wrk closes its first connection without a handshake. A server that reports this is right, so what it reports
        # is no failure; wrk's own report has the errors that matter.
        with self.errors.blamed():
            output = while_running(self.loop, run_wrk, self.address)
            return load_of(output, time.process_time() - before)


class BareRequested:
    """The bare server under the same load."""

    def __init__(self, server: BareServer) -> None:
        self.server = server

    def run(self, n: int) -> Load:
        before = self.server.cpu()
        output = run_wrk(f"http://{self.server.address}/")
        return load_of(output, self.server.cpu() - before)


def under_wrk(serve: Serve, network: Network = "tcp") -> Opener:
    """A row's `opened`: the HTTP server on a loop."""
    scheme = "https" if network == "tls" else "http"

    @contextlib.contextmanager
    def opened(loop: Loop) -> Iterator[Requested]:
        errors = Errors(loop)
        with started(serve, loop, network) as (address, _):
            yield Requested(loop, f"{scheme}://{address}/", errors)

    return opened


@contextlib.contextmanager
def bare_under_wrk() -> Iterator[BareRequested]:
    """A row's `bare`."""
    with BareServer("tcp", "http") as server:
        yield BareRequested(server)
