"""Ctrl-C and SIGTERM at the stages: the exit code a shell expects, no traceback, and nothing left running."""

import os
import signal

import pytest
from example_programs import (
    CRAWLER,
    EXAMPLES,
    LOOP_STAGE,
    SECONDS_BEFORE_A_PROGRAM_HANGS,
    STAGES,
    is_connected_to,
    needs_aiohttp,
    needs_proc,
    start_site,
    wait_until,
    wait_until_it_waits,
)

pytestmark = needs_proc


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stage(programs, stage, number):
    site, url = start_site(programs, "--delay=5")  # longer than anything takes on a loaded machine
    process = programs.start(stage, "--url", url, "--pages=10", process_group=0)
    wait_until(lambda: is_connected_to(url))
    if stage != "04_busy_loop.py":
        wait_until_it_waits(process)
    os.killpg(process.pid, number)  # as a terminal does: to all processes of the group
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 128 + number
    site.kill()
    programs.assert_all_gone()


@needs_aiohttp
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_crawler(impl, programs, number):
    site, url = start_site(programs, "--delay=30")
    process = programs.start(CRAWLER, "--url", url, on=impl.name, process_group=0)
    wait_until(lambda: is_connected_to(url))
    wait_until_it_waits(process)
    os.killpg(process.pid, number)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 128 + number
    site.kill()
    programs.assert_all_gone()


def test_sigterm_while_a_task_runs_that_nobody_awaits(impl, programs, tmp_path):
    """As those of a library: an exception in it would be reported as never retrieved."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import asyncio, os, signal, common\n"
        "async def of_a_library():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "async def main():\n"
        "    task = asyncio.create_task(of_a_library())\n"
        "    await asyncio.sleep(60)\n"
        "common.run(lambda: asyncio.run(main()))\n"
    )
    process = programs.start(program, on=impl.name)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 143


@pytest.mark.parametrize("stage", ["01_blocking.py", LOOP_STAGE])
def test_stage_with_a_site_of_its_own(programs, stage):
    process = programs.start(stage, "--delay=30", process_group=0)
    wait_until(lambda: any("website.py" in line for line in programs.left_behind().values()))
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 130
    programs.assert_all_gone()


def test_site_ends_even_if_the_stage_is_killed(programs):
    process = programs.start("01_blocking.py", "--delay=30")
    wait_until(lambda: any("website.py" in line for line in programs.left_behind().values()))
    process.kill()
    process.wait()
    programs.assert_all_gone()
