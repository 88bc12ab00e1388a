"""What does a TLS connection cost in memory: while it is idle, after a burst, and when thousands have come and gone?

    python benchmarks/tls_memory.py --loop hotloop-c

One loop serves TLS in this process; the clients are another process with plain blocking sockets. Three figures, all of
this process and without the kernel's memory:

- the memory of an idle connection beyond its protocol object, after its handshake and the echo of a byte (anonymous
  memory: pages of files change with what other processes do);
- the same after each connection has echoed a burst of data and is idle again;
- the resident size after each of some rounds of connections that are opened, used and closed. The growth after the
  first round is memory that is not returned.

OpenSSL's own structures are part of the first two.
"""

import argparse
import asyncio
import gc
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from hotloop_bench import identity, machine
from hotloop_bench.cli import Parser, loop_name, positive
from hotloop_bench.targets import TARGETS, WrongImplementation, become
from idle import Echo, NotMeasured, anonymous_memory, resident_size, until_connected

IDLE, BURST = 1000, 1 << 20
CYCLES, ROUNDS = 15_000, 10
WARM_UP = 50
"""Connections that are opened before memory is read: what the first ones allocate for all must not count."""


@dataclass
class Report:
    """Of one loop. Memory in bytes."""

    loop: str
    tls: str
    """The version of TLS."""
    idle: int
    memory_of_a_connection: float
    """Idle, beyond the protocol object."""
    burst: int
    memory_after_a_burst: float
    memory_of_a_protocol: int
    cycles: int
    """Connections of a round."""
    resident: list[int]
    """After each round."""

    @property
    def growth(self) -> float:
        """The growth of the resident size after the first round, as a part of it."""
        return self.resident[-1] / self.resident[0] - 1


# The clients' process


def client_main(host: str, port: str, certificate: str, version: str) -> None:
    """Run the commands of stdin, one a line: `open N`, `burst SIZE`, `close`, `cycle N`. Prints a line after each."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    held: list[ssl.SSLSocket] = []

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection((host, int(port)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = context.wrap_socket(plain, server_hostname=host)
        exchange(secured, b"x")
        return secured

    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        if command == "open":
            held += [connect() for _ in range(int(number))]
        elif command == "burst":
            for one in held:
                exchange(one, b"b" * int(number))
        elif command == "cycle":
            for _ in range(int(number)):
                leave(connect())
        elif command == "close":
            while held:
                leave(held.pop())
        print("done", flush=True)


def exchange(secured: ssl.SSLSocket, data: bytes) -> None:
    """Send `data` and receive its echo, in pieces, so that the two directions never wait for each other."""
    piece = 65536
    for start in range(0, len(data), piece):
        sent = data[start : start + piece]
        secured.sendall(sent)
        missing = len(sent)
        while missing:
            missing -= len(secured.recv(missing)) or sys.exit("the server has left")


def leave(secured: ssl.SSLSocket) -> None:
    secured.unwrap().close()


# The server's process


class Experiment:
    """A server on a loop, and the process of its clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop, version: str, stack: ExitStack) -> None:
        if reason := identity.unavailable():
            raise NotMeasured(reason)
        certificate = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "certificate.pem")
        identity.make(certificate)
        context = identity.server_context(certificate)
        self.loop = loop
        server: Any = loop.run_until_complete(loop.create_server(Echo, "127.0.0.1", 0, ssl=context, backlog=256))
        stack.callback(server.close)
        host, port = server.sockets[0].getsockname()
        command = [sys.executable, os.path.abspath(__file__), "--client", host, str(port), certificate, version]
        self.client = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self.client.kill)

    def tell(self, command: str, connections: int) -> None:
        """Have the client run a command while the loop runs; wait until there are that many connections."""
        assert self.client.stdin is not None and self.client.stdout is not None
        self.client.stdin.write(f"{command}\n")
        self.client.stdin.flush()
        answer = self.loop.run_until_complete(self.loop.run_in_executor(None, self.client.stdout.readline))
        if answer != "done\n":
            raise NotMeasured(f"the client did not get through with {command!r}")
        self.loop.run_until_complete(until_connected(connections))
        gc.collect()

    def run(self, name: str, arguments: argparse.Namespace) -> Report:
        idle, protocol = arguments.idle, sys.getsizeof(Echo())
        self.tell(f"open {WARM_UP}", WARM_UP)
        self.tell("burst 65536", WARM_UP)
        before = anonymous_memory()
        self.tell(f"open {idle}", WARM_UP + idle)
        at_rest = anonymous_memory()
        self.tell(f"burst {arguments.burst}", WARM_UP + idle)
        after_burst = anonymous_memory()
        self.tell("close", 0)
        resident = []
        for _ in range(arguments.rounds):
            self.tell(f"cycle {arguments.cycles}", 0)
            resident.append(resident_size())
        return Report(
            loop=name,
            tls=arguments.tls,
            idle=idle,
            memory_of_a_connection=(at_rest - before) / idle - protocol,
            burst=arguments.burst,
            memory_after_a_burst=(after_burst - before) / idle - protocol,
            memory_of_a_protocol=protocol,
            cycles=arguments.cycles,
            resident=resident,
        )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="tls_memory.py", description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(TARGETS)
    parser.add_argument("--loop", type=loop_name, default="hotloop-c", help=f"one of {names} (default: hotloop-c)")
    parser.add_argument("--tls", choices=["TLSv1_2", "TLSv1_3"], default="TLSv1_3", help="default: TLSv1_3")
    parser.add_argument("--idle", type=positive, default=IDLE, help=f"idle connections (default: {IDLE})")
    parser.add_argument("--burst", type=positive, default=BURST, help=f"bytes each way (default: {BURST})")
    parser.add_argument("--cycles", type=positive, default=CYCLES, help=f"connections of a round (default: {CYCLES})")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help=f"(default: {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    return parser.parse_args(argv)


def show(report: Report) -> None:
    for key, value in machine.describe().items():
        print(f"{key + ':':<12} {value}")
    print(f"{'loop:':<12} {report.loop}\n{'TLS:':<12} {report.tls}\n")
    print(
        f"An idle connection takes {report.memory_of_a_connection:,.0f} bytes beyond its protocol object"
        f" ({report.memory_of_a_protocol} bytes); after an echo of {report.burst:,} bytes,"
        f" {report.memory_after_a_burst:,.0f} bytes ({report.idle:,} connections)."
    )
    print(f"Resident after each round of {report.cycles:,} connections that came and went, in KiB:")
    print(" ".join(f"{size // 1024:,}" for size in report.resident))
    print(f"Grown since the first round: {report.growth:+.1%}.")


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--client"]:
        client_main(*argv[1:])
        return 0
    arguments = parse(argv)
    target = TARGETS[arguments.loop]
    try:
        become(target)
        loop = target.new_event_loop()
        with ExitStack() as stack:
            stack.callback(loop.close)
            report = Experiment(loop, arguments.tls, stack).run(target.name, arguments)
            loop.run_until_complete(loop.shutdown_default_executor())
    except (ImportError, NotMeasured, WrongImplementation) as error:
        print(f"tls_memory.py: {arguments.loop}: not measured: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(asdict(report) | {"growth": report.growth}, indent=2))
    else:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
