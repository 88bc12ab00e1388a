"""The demonstration: `make demo`, or `python examples/demo.py` where hotloop and aiohttp are installed.

First, ten pages of a site that takes 0.1 s for each response, fetched by every stage of the crawler's evolution. The
stages that use a selector or asyncio run through `python -m hotloop`, unchanged. Then a crawl of a large site that
answers at once, by the last stage, on asyncio, on both implementations of hotloop, and with asyncio itself compiled as
well. All must find the same pages. Each crawl runs in its own process, and the loops take turns, so that none of them
profits from the others.
"""

import contextlib
import importlib.util
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import common

FOLDER = Path(__file__).parent
CRAWLER = "09_aiohttp_crawler.py"
STAGE_PAGES = 10
STAGES = {  # file: (what it uses, whether it can run on hotloop)
    "01_blocking.py": ("blocking sockets", False),
    "02_process_pool.py": ("process pool", False),
    "03_thread_pool.py": ("thread pool", False),
    "04_busy_loop.py": ("busy loop", False),
    "05_callbacks.py": ("callbacks on a selector", True),
    "06_generators.py": ("generator coroutines", True),
    "07_yield_from.py": ("yield from", True),
    "08_async_await.py": ("async and await", True),
    CRAWLER: ("aiohttp crawler", True),
}
COMPILED = "hotloop c, asyncio compiled"  # left out where hotloop has no compiled asyncio
LOOPS = {  # name in the table: how to start a program on it
    "asyncio": [sys.executable],
    "hotloop c": [sys.executable, "-m", "hotloop", "--impl", "c"],
    COMPILED: [sys.executable, "-m", "hotloop", "--impl", "c", "--compiled-asyncio"],
    # With asyncio's tasks, as where no extension is installed: the tasks in Python are for debugging.
    "hotloop python": [sys.executable, "-m", "hotloop", "--impl", "python", "--tasks", "asyncio"],
}
SECONDS_TO_END = 3.0  # for a process that was told to end, before it is killed


# ---- Child processes ----


def end_once(signal_number: int, frame: object) -> NoReturn:
    """On Ctrl-C or SIGTERM: end, and do not let a second signal interrupt the cleanup."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(common.TERMINATED)


def run_child(command: list[str], limit: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process group of its own; no process of it is left when this returns or raises.

    In another group the child does not get the terminal's Ctrl-C: this program gets it, and ends the group.
    """
    process = None
    try:
        with common.held_back(signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0, **options
            )
        out, err = process.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        raise common.UserError(f"{' '.join(command)} did not end within {limit:.0f} s") from None
    finally:
        if process is not None:
            end_group(process)


def end_group(process: subprocess.Popen[str]) -> None:
    """End a child that still runs and every process it has started, and close this side of its pipes."""
    with process:
        if process.returncode is not None:
            return
        # It may be gone, if the signal that ends this program came right after the child was waited for.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
            os.killpg(process.pid, signal.SIGKILL)


def report_of(starter: list[str], stage: str, url: str, limit: float, *options: str) -> dict[str, Any]:
    done = run_child([*starter, str(FOLDER / stage), "--url", url, "--json", *options], limit)
    if done.returncode:
        raise common.UserError(f"{stage} failed with exit code {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    if "hotloop" in starter and not str(report["engine"]).startswith("hotloop."):
        raise common.UserError(f"{stage} did not run on hotloop but on {report['engine']}")
    if report["compiled_asyncio"] != ("--compiled-asyncio" in starter):
        raise common.UserError(f"{stage} ran {'with' if report['compiled_asyncio'] else 'without'} compiled asyncio")
    return report


# ---- The two parts ----


def check_installation() -> dict[str, str]:
    """What `python -m hotloop info` says; UserError if something is missing."""
    done = run_child([*LOOPS["hotloop c"], "info", "--json"], limit=60, stderr=subprocess.PIPE)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise common.UserError(f"the demonstration needs hotloop's compiled extension (`make build`): {lines[-1]}")
    if importlib.util.find_spec("aiohttp") is None:
        raise common.UserError("the demonstration needs aiohttp: python -m pip install aiohttp")
    facts: dict[str, str] = json.loads(done.stdout)
    return facts


def show_stages(pages: int, delay: float) -> None:
    print(f"\n{pages} pages at {delay:g} s a response:\n")
    print(f"{'stage':<27}{'runs on':<12}{'seconds':>9}{'cpu s':>8}{'pages/s':>10}")
    limit = 60 + 2 * pages * delay
    with common.running_site(pages, delay) as url:
        for number, (stage, (title, takes_hotloop)) in enumerate(STAGES.items(), 1):
            loop = "hotloop c" if takes_hotloop else "-"
            print(f"{number} {title:<25}{loop:<12}", end="", flush=True)
            starter = LOOPS["hotloop c"] if takes_hotloop else [sys.executable]
            report = report_of(starter, stage, url, limit, f"--pages={pages}")
            rate = report["pages"] / report["seconds"]
            print(f"{report['seconds']:>9.2f}{report['cpu']:>8.2f}{rate:>10.1f}", flush=True)
            if report["pages"] != pages:
                raise common.UserError(f"{stage} fetched {report['pages']} pages instead of {pages}")


def crawl_in_turns(names: list[str], pages: int, rounds: int, workers: int) -> dict[str, list[dict[str, Any]]]:
    """The reports of each loop's crawls. Every round begins with another loop."""
    reports: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with common.running_site(pages, delay=0) as url:
        for turn in range(rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                reports[name].append(report_of(LOOPS[name], CRAWLER, url, 60 + pages / 20, f"--workers={workers}"))
    return reports


def show_crawls(reports: dict[str, list[dict[str, Any]]]) -> None:
    print(f"{'loop':<28}{'pages':>9}{'seconds':>9}{'cpu s':>8}{'pages/s':>10}{'bytes':>13}{'errors':>8}")
    for name, runs in reports.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        cpu = statistics.median(run["cpu"] for run in runs)
        pages, size, errors = runs[-1]["pages"], runs[-1]["bytes"], len(runs[-1]["errors"])
        print(f"{name:<28}{pages:>9,}{seconds:>9.2f}{cpu:>8.2f}{pages / seconds:>10,.0f}{size:>13,}{errors:>8}")


def check_same_pages(reports: dict[str, list[dict[str, Any]]], pages: int) -> None:
    expected = set(reports["asyncio"][0]["found"])
    if len(expected) != pages:
        raise common.UserError(f"asyncio found {len(expected):,} of the site's {pages:,} pages")
    for name, runs in reports.items():
        for run in runs:
            missing, more = expected - set(run["found"]), set(run["found"]) - expected
            if missing or more:
                examples = ", ".join(sorted(missing | more)[:3])
                raise common.UserError(
                    f"{name} found other pages than asyncio: {len(missing)} missing, {len(more)} more ({examples})"
                )


def parse_arguments() -> Any:
    count = common.whole_number(1, common.MAX_PAGES)
    parser = common.Parser(description="Show every stage of the crawler, then hotloop beside asyncio.")
    parser.add_argument("--pages", type=count, default=2000, help="size of the site to crawl (%(default)s)")
    parser.add_argument(
        "--delay", type=common.seconds, default=0.1, help="seconds a response takes in the stages (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=common.whole_number(1, 100), default=3, help="crawls of each loop (%(default)s)"
    )
    parser.add_argument(
        "--workers", type=common.whole_number(1, 1000), default=20, help="fetches at once in a crawl (%(default)s)"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in a background job
        signal.signal(signal.SIGINT, end_once)
    signal.signal(signal.SIGTERM, end_once)
    os.environ.pop("HOTLOOP_COMPILED_ASYNCIO", None)  # the rows say where asyncio is compiled
    facts = check_installation()
    names = [name for name in LOOPS if name != COMPILED or facts.get("compiled_names")]
    about = f"hotloop {facts['hotloop']}, {facts['python']}, {platform.system()}, {os.cpu_count()} processors"
    print(about, flush=True)
    show_stages(min(STAGE_PAGES, arguments.pages), arguments.delay)
    print(f"\na crawl of {arguments.pages:,} pages without delay by {CRAWLER}, {arguments.workers} fetches at once")
    print(f"(median of {arguments.rounds} rounds, the loops taking turns):\n", flush=True)
    reports = crawl_in_turns(names, arguments.pages, arguments.rounds, arguments.workers)
    show_crawls(reports)
    check_same_pages(reports, arguments.pages)
    print(f"\nAll found the same {arguments.pages:,} pages.")
    return 0


if __name__ == "__main__":
    common.run(main)
