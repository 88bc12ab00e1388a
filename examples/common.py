"""The parts that all stages of the crawler share: the command line, a site to fetch from, and the report at the end.

A stage file holds one function `fetch_all(target, paths)`, which returns the raw response to each path, and passes
it to `main`. What the stage teaches is in that function; nothing here knows how its pages are fetched.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

TIMEOUT = 30.0  # seconds without progress after which a stage gives up
MAX_PAGES = 100_000  # of website.py, which renders all before the first request, so that no client pays for another's
SITE = Path(__file__).with_name("website.py")
INTERRUPTED, TERMINATED = 130, 143  # exit codes that a shell gives a program ended by Ctrl-C or SIGTERM
Number = TypeVar("Number", int, float)


def _leave(signal_number: int, frame: object) -> None:
    os._exit(INTERRUPTED)


# Importing takes a while (aiohttp above all), and before run() takes over there is nothing to tidy up: Ctrl-C then
# simply ends the program, instead of a traceback from the middle of some import.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)


class UserError(Exception):
    """An error that is no bug of the program; the message is for the user."""


# ---- The site ----


@contextlib.contextmanager
def held_back(*signals: signal.Signals) -> Iterator[None]:
    """Block signals for a moment: the exceptions that they become must not lose a process that is being started.

    They arrive afterwards. The new process inherits the block; `run` lifts it there.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def running_site(pages: int, delay: float) -> Iterator[str]:
    """Run website.py in a process of its own; yields its URL.

    A terminal's signals to this process group do not reach it. It ends when this function ends it, after its clients
    have ended, or when its standard input closes because this process died.
    """
    command = [sys.executable, str(SITE), f"--pages={pages}", f"--delay={delay}", "--until-stdin-closes"]
    process = None
    try:
        with held_back(signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
            )
        assert process.stdout is not None
        url = process.stdout.readline().partition(" ")[0]
        if not url:
            raise UserError("the site to fetch from did not start")
        yield url
    finally:
        if process is not None:
            with process:
                process.terminate()
                process.wait()  # before its pipes are closed: it may be about to write that it is ready


@dataclass(frozen=True)
class Target:
    """The server that the raw-socket stages (1 to 8) talk to, its name resolved once."""

    family: socket.AddressFamily
    address: tuple[Any, ...]  # what socket.connect() takes for this family
    host: str  # for the Host header

    def request(self, path: str) -> bytes:
        """An HTTP/1.0 request: the server closes the connection after its answer, so the answer ends where it does."""
        return f"GET {path} HTTP/1.0\r\nHost: {self.host}\r\n\r\n".encode("ascii")


def resolve(url: str) -> Target:
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise UserError("the stages on raw sockets speak http only")
    family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)[0]
    return Target(family, address, parts.netloc)


def page_paths(count: int) -> list[str]:
    """The paths of the first `count` pages of website.py."""
    return ["/", *(f"/page/{number}" for number in range(1, count))]


def body_of(path: str, response: bytes) -> bytes:
    """The body of a raw response, once it is certain that it is a whole page."""
    head, separator, body = response.partition(b"\r\n\r\n")
    status_line, *headers = head.decode("latin-1").split("\r\n")
    words = status_line.split(" ", 2)
    if not separator or not words[0].startswith("HTTP/1."):
        raise UserError(f"{path}: the answer is not HTTP")
    if words[1] != "200":
        raise UserError(f"{path}: HTTP status {' '.join(words[1:])}")
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "content-length" and value.strip() != str(len(body)):
            raise UserError(f"{path}: {len(body)} bytes of {value.strip()} arrived")
    return body


# ---- The command line ----


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (--help shows the options)\n")


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """An argparse type: a whole number in this range."""

    def number(text: str) -> int:
        return _in_range(int(text), low, high)

    return number


def seconds(text: str) -> float:
    return _in_range(float(text), 0.0, 3600.0)


def http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"{text!r} is no http or https URL")
    return text


def _in_range(value: Number, low: Number, high: Number) -> Number:
    if not low <= value <= high:  # true for NaN as well
        raise argparse.ArgumentTypeError(f"{value:g} is not in the range {low:,g} to {high:,g}")
    return value


def argument_parser(description: str) -> Parser:
    """The options that all stages have."""
    parser = Parser(description=description)
    parser.add_argument("--url", type=http_url, help="site to fetch from (default: start examples/website.py)")
    parser.add_argument(
        "--delay", type=seconds, default=0.1, help="response delay of a site started here (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one line of JSON")
    return parser


def run(function: Callable[[], int]) -> NoReturn:
    """Exit with the code that `function` returns; an error becomes one line for the user.

    Ctrl-C and SIGTERM become exceptions, so that whatever was started is ended on the way out.
    """
    terminated = False

    def terminate(signal_number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        at_ctrl_c = signal.getsignal(signal.SIGINT)
        if not callable(at_ctrl_c) or at_ctrl_c is signal.default_int_handler:
            raise SystemExit(TERMINATED)
        # asyncio.run()'s, which cancels the main task. An exception would end the task that happens to run, and if that
        # is a library's, nobody may fetch it from there.
        at_ctrl_c(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, terminate)
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        status = function()
    except KeyboardInterrupt:
        status = TERMINATED if terminated else INTERRUPTED
    except (UserError, OSError) as error:
        print(f"{Path(sys.argv[0]).name}: {reason(error)}", file=sys.stderr)
        status = 1
    finally:
        # All is tidied up. From here on these may end the program at once, as in the middle of its imports.
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
    sys.exit(status)


def reason(error: BaseException) -> str:
    """The message for the user; some exceptions, timeouts above all, only have a name."""
    return str(error) or type(error).__name__


# ---- The report ----

_engine: str | None = None


def note_engine(engine: object) -> None:
    """Remember which selector or event loop does the work of this stage, for the report."""
    global _engine
    _engine = f"{type(engine).__module__}.{type(engine).__qualname__}"


def engine() -> dict[str, str | bool | None]:
    hotloop = sys.modules.get("hotloop")  # imported if the program was started with `python -m hotloop`
    if hotloop is None:
        return {"engine": _engine, "implementation": None, "compiled_asyncio": False}
    compiled = hotloop.compiled_asyncio().installed
    return {"engine": _engine, "implementation": hotloop.implementation, "compiled_asyncio": compiled}


class Stopwatch:
    """Seconds and seconds of processor time, child processes that were waited for included."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.cpu_started = self._cpu()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.started, "cpu": self._cpu() - self.cpu_started}

    @staticmethod
    def _cpu() -> float:
        return sum(os.times()[:4])


def main(fetch_all: Callable[[Target, list[str]], dict[str, bytes]]) -> None:
    """Run one of the stages 1 to 8 as a program."""
    parser = argument_parser("Fetch the first pages of a site and tell how long that took.")
    parser.add_argument(
        "--pages", type=whole_number(1, MAX_PAGES), default=10, help="number of pages to fetch (%(default)s)"
    )
    arguments = parser.parse_args()

    def stage() -> int:
        with contextlib.ExitStack() as stack:
            url = arguments.url or stack.enter_context(running_site(arguments.pages, arguments.delay))
            try:
                target = resolve(url)
                watch = Stopwatch()
                responses = fetch_all(target, page_paths(arguments.pages))
            except (UserError, OSError) as error:
                raise UserError(f"cannot fetch {url}: {reason(error)}") from error
            report = {"pages": len(responses), **watch.read(), **engine()}
            report["bytes"] = sum(len(body_of(path, response)) for path, response in responses.items())
        print(json.dumps(report) if arguments.json else _summary(report))
        return 0

    run(stage)


def _summary(report: dict[str, Any]) -> str:
    rate = report["pages"] / report["seconds"]
    line = f"{report['pages']:,} pages, {report['bytes']:,} bytes in {report['seconds']:.2f} s: {rate:,.1f} pages/s"
    return line + f" ({report['cpu']:.2f} s of processor time" + (f", {report['engine']})" if report["engine"] else ")")
