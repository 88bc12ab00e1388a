"""Stage 11: one port, served by several event loops, each in a thread of its own.

    python -m hotloop examples/11_threads.py --threads 2 --port 7777

is the echo server of `echo_server.py` on two event loops. An event loop runs in one thread, so a program with one loop
uses one processor. On a free-threaded Python, loops in several threads run at the same time. With the GIL only one of
them runs at a time, and `--processes` is the way to use more processors: it starts this program once for each loop.

* **The port.** Each loop has a listening socket of its own, with SO_REUSEPORT. Linux spreads new connections over the
  sockets by a hash of the addresses. macOS allows the sockets, but gives one of them all connections.
* **A connection** belongs to the loop that has accepted it. So handlers of different loops share nothing, and no lock
  is needed. Whatever they do share, such as a cache, other threads can change between any two lines, not only at an
  `await`.
* **Signals** reach the main thread only, which serves no client. It has a small loop of its own that waits for them.
* **Other threads** may call just one method of a running loop, `call_soon_threadsafe()`. By it the main thread asks
  each loop to end.
* **Shutdown.** Each loop accepts what waits in its socket's queue, and closes the socket. Its open connections have
  `--grace` seconds to end by themselves; then it cuts them off. When the last loop has ended, so does the program, with
  exit code 0. The loops accept by themselves, because a server of asyncio's does not say which connections it has
  accepted but not yet passed to a protocol.
* **Numbers.** Each loop takes its own, in its own thread, and returns them when it ends. Counters of several loops can
  be added. On hotloop they are those of `loop.metrics()`; on asyncio there are only the connections.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import common
import echo_server

DEFAULT_LOOPS = 2
BACKLOG = 1024  # connections that wait to be accepted, on each listening socket
COUNTERS = ("callbacks", "task_steps", "bytes_received", "bytes_sent", "busy_ns", "idle_ns")  # of loop.metrics()
Report = dict[str, Any]


# ---- One loop ----


class Worker:
    """An event loop with its share of the clients. The main thread makes it, and run() is for another thread."""

    def __init__(self, listener: socket.socket, grace: float) -> None:
        self.listener = listener
        self.grace = grace
        self.loop = asyncio.new_event_loop()  # not only in run(): stop() may be called before the thread has begun
        self.stopping = asyncio.Event()
        self.clients: set[asyncio.Task[None]] = set()
        self.connections = 0

    def run(self) -> Report:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(self.serve())

    def stop(self) -> None:
        """Ask the loop to end; for the main thread."""
        with contextlib.suppress(RuntimeError):  # this loop has failed, and is closed already
            self.loop.call_soon_threadsafe(self.stopping.set)

    async def serve(self) -> Report:
        # hotloop's loops have metrics(), asyncio's have not.
        metrics = getattr(self.loop, "metrics", None)
        before = metrics and metrics()
        self.loop.add_reader(self.listener, self.accept)
        await self.stopping.wait()
        self.loop.remove_reader(self.listener)
        self.accept()  # the kernel would reset the connections that wait in its queue
        self.listener.close()
        if self.clients:
            await asyncio.wait(self.clients, timeout=self.grace)
        for client in self.clients:
            client.cancel()
        if self.clients:
            await asyncio.wait(self.clients)
        common.note_engine(self.loop)
        report = {"connections": self.connections} | common.engine()
        if metrics:
            between = metrics() - before
            report |= {name: getattr(between, name) for name in COUNTERS}
        return report

    def accept(self) -> None:
        """Begin to serve the clients that are waiting."""
        for _ in range(BACKLOG):
            try:
                connection, _ = self.listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # the client left before its turn came
            except OSError as error:
                if error.errno not in echo_server.SHORTAGES:
                    raise
                self.loop.remove_reader(self.listener)
                self.loop.call_later(echo_server.ACCEPT_PAUSE, self.accept_again)
                return
            connection.setblocking(False)
            client = self.loop.create_task(echo_server.echo(connection))
            self.clients.add(client)
            client.add_done_callback(self.clients.discard)
            self.connections += 1

    def accept_again(self) -> None:
        if not self.stopping.is_set():
            self.loop.add_reader(self.listener, self.accept)


# ---- All loops, in the main thread ----


async def serve_in_threads(arguments: argparse.Namespace, port: int) -> list[Report]:
    """The reports of the loops."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(open_listener(arguments.host, port)) for _ in range(arguments.threads)]
        workers = [Worker(listener, arguments.grace) for listener in listeners]
        pool = stack.enter_context(ThreadPoolExecutor(len(workers)))
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(pool, worker.run) for worker in workers]
        stop = stop_event(arguments)
        announce(arguments.host, port, f"{counted(len(workers), 'thread')} {gil()}")
        await either(stop, running)
        for worker in workers:
            worker.stop()
        await asyncio.wait(running)
        return [future.result() for future in running]


async def serve_in_processes(arguments: argparse.Namespace, port: int) -> list[Report]:
    """The same with a process for each loop: this program, with one thread."""
    # Through hotloop if this program was; what its options say is in the environment.
    through = ["-m", "hotloop"] if "hotloop" in sys.modules else []
    options = [f"--host={arguments.host}", f"--port={port}", f"--grace={arguments.grace}"]
    command = [sys.executable, *through, __file__, *options, "--threads=1", "--json", "--until-stdin-closes"]
    stop = stop_event(arguments)
    processes = []
    try:
        for _ in range(arguments.processes):
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # the terminal's Ctrl-C is for this process, which ends the others
            )
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            await process.stdout.readline()  # empty if it fails, and then it ends
        announce(arguments.host, port, counted(len(processes), "process", "es"))
        await either(stop, [asyncio.create_task(process.wait()) for process in processes])
    finally:
        # However this process ends, the pipes close, and the others end too.
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
    answers = [await process.communicate() for process in processes]
    if any(process.returncode for process in processes):
        raise common.UserError("one of the processes has failed")
    return [report for answer, _ in answers for report in json.loads(answer)["loops"]]


def stop_event(arguments: argparse.Namespace) -> asyncio.Event:
    """Set when this program is asked to end."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    if arguments.until_stdin_closes:
        # The write end of this pipe is in the parent process: however the parent ends, this process ends, too.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    return stop


async def either(stop: asyncio.Event, running: list[asyncio.Future[Any]]) -> None:
    """Wait until the program is asked to end, or one of the loops ends, which means that it has failed."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


# ---- The port ----


def reserve_port(host: str, port: int) -> socket.socket:
    """A socket that keeps the port for this program without listening on it, so that it gets no connection."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise common.UserError("this system has no SO_REUSEPORT, by which several loops share a port")
    keeper = socket.socket(family_of(host))
    try:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind((host, port))
    except OSError as error:
        keeper.close()
        raise common.UserError(f"cannot listen on {host}:{port}: {common.reason(error)}") from error
    return keeper


def open_listener(host: str, port: int) -> socket.socket:
    listener = socket.create_server((host, port), family=family_of(host), backlog=BACKLOG, reuse_port=True)
    listener.setblocking(False)
    return listener


def family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


# ---- What the user sees ----


def announce(host: str, port: int, how: str) -> None:
    print(f"echo server on {host} port {port}: {how}", flush=True)


def counted(number: int, name: str, plural: str = "s") -> str:
    return f"{number} {name}{'' if number == 1 else plural}"


def gil() -> str:
    return "with the GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without the GIL"


def together(loops: list[Report]) -> Report:
    """The sums of what all loops have counted."""
    return {name: sum(loop[name] for loop in loops) for name in ("connections", *COUNTERS) if name in loops[0]}


def described(report: Report) -> str:
    text = counted(report["connections"], "connection")
    if "callbacks" in report:
        running = report["busy_ns"] + report["idle_ns"]
        text += f", {report['callbacks']:,} callbacks, {report['task_steps']:,} task steps"
        text += f", {report['bytes_received']:,} bytes received, {report['bytes_sent']:,} sent"
        text += f", {report['busy_ns'] / running if running else 0:.0%} busy"
    return text


def print_report(loops: list[Report]) -> None:
    for number, report in enumerate(loops, 1):
        print(f"loop {number}: {described(report)} ({report['engine']})")
    print(f"together: {described(together(loops))}")


def parse_arguments() -> argparse.Namespace:
    loops = common.whole_number(1, 1000)
    parser = common.Parser(description="Send back whatever clients send, on several event loops.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=common.whole_number(0, 65535), default=0, help="port to listen on (default: any free one)"
    )
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--threads", type=loops, help=f"event loops, each in a thread ({DEFAULT_LOOPS})")
    number.add_argument("--processes", type=loops, help="event loops, each in a process instead")
    parser.add_argument(
        "--grace", type=common.seconds, default=5.0, help="seconds for open connections at the end (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input, a pipe, closes")
    arguments = parser.parse_args()
    arguments.threads = arguments.threads or DEFAULT_LOOPS  # as a default, argparse would take it for not given
    return arguments


def main() -> int:
    arguments = parse_arguments()
    serve = serve_in_processes if arguments.processes else serve_in_threads
    with reserve_port(arguments.host, arguments.port) as keeper:
        served: Coroutine[Any, Any, list[Report]] = serve(arguments, keeper.getsockname()[1])
        loops = asyncio.run(served)
    if arguments.json:
        print(json.dumps({"loops": loops, "together": together(loops)}))
    else:
        print_report(loops)
    return 0


if __name__ == "__main__":
    common.run(main)
