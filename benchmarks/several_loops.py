"""What do several event loops serve together: one port of aiohttp's, by loops in threads or in processes?

    python3.14t benchmarks/several_loops.py --loop hotloop-c        # less than a minute

Each loop has a listening socket of its own (SO_REUSEPORT) and answers GET requests with twelve bytes. wrk makes the
requests, in a thread of its own: with as many processors as loops it takes its share of them. Only on a
free-threaded Python do several threads serve more than one.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hotloop_bench import machine
from hotloop_bench.cli import Parser, loop_name, positive
from hotloop_bench.load import LoadFailed
from hotloop_bench.rows import wrk
from hotloop_bench.rows.registry import missing
from hotloop_bench.targets import TARGETS, WrongImplementation, become

CONNECTIONS = 64
BACKLOG = 256


class NotMeasured(Exception):
    """The reason why there are no figures."""


@dataclass
class Report:
    """Of so many loops. Medians of the rounds."""

    kind: str
    """threads or processes."""
    loops: int
    requests_per_second: float
    cpu_per_request: float
    """Seconds of processor time, of all loops."""
    p99: float
    """Seconds."""


# A process that serves


def serve(port: int, loops: int, target_name: str) -> None:
    """Serve by `loops` event loops, each in a thread. Prints the seconds of processor time for each line of stdin, and
    ends with it."""
    target = TARGETS[target_name]
    become(target)
    ready = threading.Barrier(loops + 1)
    for _ in range(loops):
        # Before its parent ends it, this process only answers.
        threading.Thread(target=serve_in_thread, args=(target.new_event_loop(), port, ready), daemon=True).start()
    ready.wait(60)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)
    os._exit(0)


def serve_in_thread(loop: asyncio.AbstractEventLoop, port: int, ready: threading.Barrier) -> None:
    from aiohttp import web

    async def hello(request: Any) -> Any:
        return web.Response(text="Hello, world")

    async def start() -> None:
        application = web.Application()
        application.router.add_get("/", hello)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_port=True, backlog=BACKLOG).start()

    asyncio.set_event_loop(loop)
    loop.run_until_complete(start())
    ready.wait(60)
    loop.run_forever()


# The process that measures


@contextlib.contextmanager
def servers(kind: str, loops: int, target: str) -> Iterator[tuple[int, list[subprocess.Popen[str]]]]:
    """The port, and the processes that serve it."""
    with contextlib.ExitStack() as stack:
        keeper = stack.enter_context(socket.socket())
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind(("127.0.0.1", 0))
        port = keeper.getsockname()[1]
        threads, count = (loops, 1) if kind == "threads" else (1, loops)
        command = [sys.executable, os.path.abspath(__file__), "--serve", str(port), str(threads), target]
        environment = os.environ | dict(TARGETS[target].environment)
        processes = []
        for _ in range(count):
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            answer_of(process)  # it is ready
        yield port, processes


def answer_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise NotMeasured("a server has ended; its message is above")
    return line


def processor_time(processes: Sequence[subprocess.Popen[str]]) -> float:
    total = 0.0
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        total += float(answer_of(process))
    return total


def measure(kind: str, loops: int, arguments: argparse.Namespace) -> Report:
    rounds = []
    with servers(kind, loops, arguments.loop) as (port, processes):
        for seconds in [1] + [arguments.seconds] * arguments.rounds:
            before = processor_time(processes)
            output = wrk.run_wrk(f"http://127.0.0.1:{port}/", CONNECTIONS, seconds)
            cpu = processor_time(processes) - before
            requests, passed, _, p99 = wrk.report_of(output)
            rounds.append((requests / passed, cpu / requests, p99))
    # The first has warmed the servers up.
    return Report(kind, loops, *(statistics.median(figures) for figures in zip(*rounds[1:], strict=True)))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="several_loops.py", description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(TARGETS)
    parser.add_argument("--loop", type=loop_name, default="hotloop-c", help=f"one of {names} (default: hotloop-c)")
    parser.add_argument("--loops", type=positive, default=2, help="how many at once, after a single one (default: 2)")
    parser.add_argument("--seconds", type=positive, default=3, help="of a round (default: 3)")
    parser.add_argument("--rounds", type=positive, default=3, help="(default: 3)")
    parser.add_argument("--json", action="store_true", help="the reports as JSON")
    return parser.parse_args(argv)


def show(loop: str, reports: Sequence[Report]) -> None:
    for key, value in machine.describe().items():
        print(f"{key + ':':<12} {value}")
    print(f"{'loop:':<12} {loop}\n")
    print(f"{'':<14}{'requests/s':>12}{'processor time':>18}{'p99':>12}")
    for report in reports:
        print(
            f"{report.kind + ':':<12}{report.loops:>2}{report.requests_per_second:>12,.0f}"
            f"{report.cpu_per_request * 1e6:>15.1f} us{report.p99 * 1e3:>9.2f} ms"
        )


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--serve"]:
        serve(int(argv[1]), int(argv[2]), argv[3])
        return 0
    arguments = parse(argv)
    reports = []
    try:
        become(TARGETS[arguments.loop])
        if reason := wrk.unavailable() or missing("aiohttp"):
            raise NotMeasured(reason)
        for kind, loops in [("threads", 1), ("threads", arguments.loops), ("processes", arguments.loops)]:
            reports.append(measure(kind, loops, arguments))
    except (ImportError, LoadFailed, NotMeasured, WrongImplementation) as error:
        print(f"several_loops.py: {arguments.loop}: not measured: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps([asdict(report) for report in reports], indent=2))
    else:
        show(arguments.loop, reports)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
