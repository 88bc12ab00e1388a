"""What glibc's malloc() has to do with the price of large reads: bodies of 1 MB over TCP, read with readexactly().

    python benchmarks/large_bodies.py [--loops asyncio,uvloop,hotloop-c] [--bodies 600] [--rounds 3]

Each loop serves with three settings of glibc: its own, which it raises when a program frees a large block; fixed at
128 KiB, from where it starts; and raised from the start. One process a figure, and a round goes once around all of
them. Shown are the medians of the server's processor time for a body, its page faults for a body, and its resident
memory at the end.
"""

import argparse
import asyncio
import resource
import socket
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path

from hotloop_bench.cli import Parser, loop_names, positive
from hotloop_bench.runner import environment, rotated
from hotloop_bench.targets import TARGETS, WrongImplementation, become

LOOPS = "asyncio,uvloop,hotloop-c"
BODY = 1_000_000  # bytes
WARM_UP = 50  # bodies
SETTINGS: dict[str, dict[str, str]] = {
    "its own": {},
    "fixed": {"MALLOC_TRIM_THRESHOLD_": str(128 << 10)},
    "raised": {"MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(16 << 20)},
}


async def serve(bodies: int) -> None:
    """Serve one connection, print the port first and the three figures at the end."""
    finished = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(WARM_UP + bodies):
            if number == WARM_UP:
                begin = resource.getrusage(resource.RUSAGE_SELF)
            await reader.readexactly(BODY)
            writer.write(b"ok")
        end = resource.getrusage(resource.RUSAGE_SELF)
        seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident = pages * resource.getpagesize() / 2**20
        print(seconds / bodies * 1e6, (end.ru_minflt - begin.ru_minflt) / bodies, resident)
        writer.close()
        finished.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await finished.wait()


def measure(loop: str, bodies: int, setting: dict[str, str]) -> list[float]:
    command = [sys.executable, __file__, "--serve", loop, "--bodies", str(bodies)]
    inherited = environment(TARGETS[loop])
    environ = {name: value for name, value in inherited.items() if not name.startswith("MALLOC_")} | setting
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as server:
        assert server.stdout is not None
        body = bytes(BODY)
        port = server.stdout.readline() or sys.exit(f"{loop}: the server has not started")
        with socket.create_connection(("127.0.0.1", int(port))) as client:
            for _ in range(WARM_UP + bodies):
                client.sendall(body)
                answer = b""
                while answer != b"ok":
                    answer += client.recv(2) or sys.exit(f"{loop}: the server has ended")
            return [float(word) for word in server.stdout.readline().split()]


def main() -> None:
    parser = Parser(prog="large_bodies.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=loop_names, default=LOOPS, help=f"of {', '.join(TARGETS)} (default: {LOOPS})")
    parser.add_argument("--bodies", type=positive, default=600, help=f"in each process, after {WARM_UP} others")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        target = TARGETS[options.serve]
        try:
            become(target)
        except (ImportError, WrongImplementation) as error:
            sys.exit(f"large_bodies.py: {error}")
        with asyncio.Runner(loop_factory=target.new_event_loop) as runner:
            runner.run(serve(options.bodies))
        return
    figures: dict[tuple[str, str], list[list[float]]] = {pair: [] for pair in product(SETTINGS, options.loops)}
    for number in range(options.rounds):
        # Another one begins each round: none always runs after the same one.
        for (name, loop), rounds in rotated(list(figures.items()), number):
            rounds.append(measure(loop, options.bodies, SETTINGS[name]))
    print(f"{'thresholds':12}{'loop':20}{'us/body':>10}{'faults/body':>14}{'MiB resident':>15}")
    for (name, loop), rounds in figures.items():
        time, faults, resident = map(statistics.median, zip(*rounds, strict=True))
        print(f"{name:12}{loop:20}{time:10.0f}{faults:14.1f}{resident:15.1f}")


if __name__ == "__main__":
    main()
