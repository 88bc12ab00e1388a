"""Dask: a cluster as the page says, and the example crawler that starts a cluster of its own."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from document import section
from serving import SECONDS_TO_END, started

EXAMPLES = Path(__file__).parents[3] / "examples"
CRAWLER = "10_dask_crawler.py"
ON_HOTLOOP = [sys.executable, "-m", "hotloop"]


@pytest.fixture
def site(tmp_path):
    """The address of a web site whose answers take a moment, so that a test can end a crawl halfway."""
    command = [sys.executable, str(EXAMPLES / "website.py"), "--pages=200", "--delay=0.02"]
    with started(command, tmp_path) as server:
        yield server.wait_until(lambda: re.match(r"http://\S+/", server.output), "the site's start")[0]


def crawl(folder, starter, program, *options):
    """The report of a crawler that must succeed without a message."""
    with started([*starter, str(EXAMPLES / program), "--json", *options], folder) as crawler:
        assert crawler.process.wait(120) == 0, crawler.output
        crawler.reader.join(SECONDS_TO_END)
        return json.loads(crawler.output)


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_crawler_and_a_cluster_of_two_workers(tmp_path, site):
    """One command. It finds the same pages as the crawler without a cluster, and leaves no process."""
    words = section("Dask").command(2)
    assert words == ["python", "-m", "hotloop", CRAWLER]
    report = crawl(tmp_path, ON_HOTLOOP, CRAWLER, "--url", site)
    expected = crawl(tmp_path, [sys.executable], "09_aiohttp_crawler.py", "--url", site)
    assert expected["pages"] == 200
    for part in ("found", "bytes", "addresses", "statuses", "errors"):
        assert report[part] == expected[part], part
    assert report["engine"] == "hotloop.loop.EventLoop"
    assert len(report["workers"]) == len({worker["process"] for worker in report["workers"]}) == 2
    assert sum(worker["fetches"] for worker in report["workers"]) == report["addresses"]
    for worker in report["workers"]:
        assert worker["engine"] == "hotloop.loop.EventLoop"
        assert worker["task"].startswith("hotloop.") and worker["task"].endswith(".Task")
        assert worker["implementation"] == os.environ["HOTLOOP_IMPL"]
        assert worker["fetches"] > report["addresses"] / 4
        assert is_gone(worker["process"])


def test_a_crawl_that_may_end_early(tmp_path, site):
    report = crawl(tmp_path, ON_HOTLOOP, CRAWLER, "--url", site, "--pages=15", "--workers=1", "--fetches=3")
    assert (report["pages"], len(report["found"]), len(report["workers"])) == (15, 15, 1)


def test_workers_on_another_loop_are_found_out(tmp_path, site):
    report = crawl(tmp_path, [sys.executable], CRAWLER, "--url", site)
    assert report["pages"] == 200
    assert {worker["engine"].partition(".")[0] for worker in report["workers"]} == {"asyncio"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ended_crawl_leaves_nothing_behind(tmp_path, site, number, code):
    with started([*ON_HOTLOOP, str(EXAMPLES / CRAWLER), "--url", site], tmp_path) as crawler:

        def requests():
            with urllib.request.urlopen(f"{site}stats") as response:
                return json.load(response)["requests"].get("/page/1")

        crawler.wait_until(requests, "a request")
        children = Path(f"/proc/{crawler.process.pid}/task/{crawler.process.pid}/children").read_text().split()
        assert len(children) == 3
        assert crawler.end(number) == code, crawler.output
    assert all(is_gone(int(child)) for child in children)


def test_a_cluster_that_is_there(tmp_path, site, port):
    """The commands of the page start it; the crawler uses it, and leaves it as it was."""
    shutil.copy(EXAMPLES / "website.py", tmp_path)
    page = section("Dask")
    with contextlib.ExitStack() as stack:
        path = os.pathsep.join([str(EXAMPLES), os.environ["PYTHONPATH"]])
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("PYTHONPATH", path)
        scheduler = stack.enter_context(started(page.command(0, port), tmp_path))
        scheduler.wait_until(lambda: "Scheduler at:" in scheduler.output, "the scheduler's start")
        workers = [stack.enter_context(started(page.command(1, port), tmp_path)) for _ in range(2)]
        for worker in workers:
            worker.wait_until(lambda worker=worker: "Registered to:" in worker.output, "a worker's start")
        report = crawl(tmp_path, ON_HOTLOOP, CRAWLER, "--url", site, f"--scheduler=tcp://127.0.0.1:{port}")
        assert report["pages"] == 200
        assert {worker["process"] for worker in report["workers"]} == {worker.process.pid for worker in workers}
        assert {worker["engine"] for worker in report["workers"]} == {"hotloop.loop.EventLoop"}
        for program in (*workers, scheduler):
            assert program.process.poll() is None, program.output
            program.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scheduler=tcp://127.0.0.1:1"], "127.0.0.1:1"),
        (["--url=http://127.0.0.1:1/", "--workers=1"], "found no page"),
    ],
)
def test_what_cannot_be_reached(tmp_path, options, words):
    done = subprocess.run(
        [*ON_HOTLOOP, str(EXAMPLES / CRAWLER), *options], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{CRAWLER}: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
