"""demo.py from end to end: its output, its failures, and that it leaves no process behind however it ends."""

import os
import re
import signal
import subprocess
import sys

import pytest
from example_programs import CRAWLER, EXAMPLES, SECONDS_BEFORE_A_PROGRAM_HANGS, needs_aiohttp, needs_proc

import hotloop

SMALL = ("--pages=30", "--delay=0.01", "--rounds=1")


@needs_aiohttp
@pytest.mark.only("c", reason="the demonstration starts all implementations itself, the compiled one among them")
class TestDemo:
    def test_small(self, impl, programs):
        done = programs.run("demo.py", *SMALL)
        assert (done.returncode, done.stderr) == (0, ""), done
        stages = re.findall(r"^(\d) .* (-|hotloop c) +[\d.]+ +[\d.]+ +[\d.]+$", done.stdout, re.MULTILINE)
        assert stages == [(str(number), "-" if number < 5 else "hotloop c") for number in range(1, 10)]
        rows = re.findall(r"^(\w.*?)  +30 +\S+ +\S+ +\S+ +([\d,]+) +5$", done.stdout, re.MULTILINE)
        compiled = ["hotloop c, asyncio compiled"] if hotloop.compiled_asyncio().available else []
        assert [name for name, _ in rows] == ["asyncio", "hotloop c", *compiled, "hotloop python"]
        assert len({size for _, size in rows}) == 1
        assert done.stdout.endswith("\nAll found the same 30 pages.\n")

    @needs_proc
    def test_leaves_nothing_behind(self, impl, programs):
        assert programs.run("demo.py", "--pages=1", "--delay=0", "--rounds=1").returncode == 0
        programs.assert_all_gone()

    @needs_proc
    @pytest.mark.parametrize(
        "moment",
        [
            "hotloop 0",
            "1 blocking",
            "2 process",
            "3 thread",
            "4 busy",
            "5 callbacks",
            "8 async",
            "9 aiohttp",
            "taking turns",
        ],
    )
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ended_by_a_signal(self, impl, programs, moment, number):
        process = programs.start("demo.py", "--delay=0.05", process_group=0)
        read_until(process.stdout, moment)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS)
        assert (process.returncode, err) == (128 + number, "")
        programs.assert_all_gone()

    @needs_proc
    def test_leaves_nothing_behind_even_if_it_is_killed(self, impl, programs):
        process = programs.start("demo.py", "--delay=0.1")
        read_until(process.stdout, "2 process")
        process.kill()
        process.wait()
        programs.assert_all_gone()


def read_until(stream, text):
    """Read a program's output until `text` is in it; the rest stays unread."""
    seen = b""
    while text.encode() not in seen:
        chunk = os.read(stream.fileno(), 4096)
        assert chunk, f"the program ended without having said {text!r}: {seen!r}"
        seen += chunk


@needs_aiohttp
def test_demo_without_the_extension(programs, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['hotloop._c.scheduler.ready_queue'] = None\n")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure("demo.py", *SMALL)
    assert (code, "needs hotloop's compiled extension" in line) == (1, True)


def test_crawler_without_aiohttp(programs, tmp_path):
    (tmp_path / "aiohttp.py").write_text("raise ModuleNotFoundError('no aiohttp', name='aiohttp')\n")
    programs.environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), programs.environ.get("PYTHONPATH", "")])
    code, line = programs.failure(CRAWLER)
    assert (code, "aiohttp is not installed" in line) == (1, True)


def test_demo_tells_when_the_loops_disagree(programs):
    program = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import common, demo
sys.argv = ["demo.py"]
right, wrong = {{"found": ["/", "/1"]}}, {{"found": ["/", "/2", "/3"]}}
reports = {{"asyncio": [right, right], "hotloop c": [right, wrong], "hotloop python": [right, right]}}
common.run(lambda: demo.check_same_pages(reports, PAGES))
"""
    for pages, message in (
        (2, "hotloop c found other pages than asyncio: 1 missing, 2 more (/1, /2, /3)"),
        (3, "asyncio found 2 of the site's 3 pages"),
    ):
        source = program.replace("PAGES", str(pages))
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=programs.environ)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"demo.py: {message}\n")


def test_demo_with_bad_arguments(programs):
    for arguments in (["--pages=0"], ["--rounds=0"], ["--delay=never"], ["extra"]):
        assert programs.failure("demo.py", *arguments)[0] == 2
