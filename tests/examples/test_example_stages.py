"""Stages 1 to 8: each fetches its pages, on the engine that it reports."""

import re
import socket

import pytest
from example_programs import (
    LOOP_STAGE,
    RAW_STAGES,
    SELECTOR_STAGES,
    SITE_PAGES,
    STAGES,
    check_loop,
    page_sizes,
    requests_seen,
    start_site,
)


def fetch_ten(programs, stage, site, on):
    report = programs.report(stage, "--url", site, "--pages=10", on=on)
    assert (report["pages"], report["bytes"]) == (10, sum(page_sizes(site, 10)))
    return report


@pytest.mark.only("asyncio", reason="these stages use neither a selector nor an event loop")
@pytest.mark.parametrize("stage", RAW_STAGES)
def test_raw_stage(impl, programs, stage, site):
    assert fetch_ten(programs, stage, site, impl.name)["engine"] is None


@pytest.mark.parametrize("stage", SELECTOR_STAGES)
def test_selector_stage_uses_the_default_selector(impl, programs, stage, site):
    report = fetch_ten(programs, stage, site, impl.name)
    selector = impl.DefaultSelector
    assert report["engine"] == f"{selector.__module__}.{selector.__qualname__}"
    assert report["implementation"] == (None if impl.is_oracle else impl.name)


def test_loop_stage_uses_the_loop(impl, programs, site):
    check_loop(fetch_ten(programs, LOOP_STAGE, site, impl.name), impl)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_alone_starts_its_own_site(programs, stage):
    done = programs.run(stage, "--pages=3", "--delay=0")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"3 pages, [\d,]+ bytes in ", done.stdout)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_that_cannot_fetch(programs, stage, site):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    code, line = programs.failure(stage, "--url", f"http://127.0.0.1:{port}")
    assert (code, "cannot fetch" in line, "refused" in line or "failed" in line) == (1, True, True)
    code, line = programs.failure(stage, "--url", site, f"--pages={SITE_PAGES + 1}")
    assert (code, f"/page/{SITE_PAGES}: HTTP status 404" in line) == (1, True)


def test_bad_arguments(programs):
    for arguments in (["--pages=0"], ["--pages=ten"], ["--url=nonsense"], ["--url=http://x:99999"], ["--delay=-1"]):
        assert programs.failure("01_blocking.py", *arguments)[0] == 2
    assert programs.failure("01_blocking.py", "--url=https://127.0.0.1")[0] == 1
    assert programs.failure("01_blocking.py", "--url=http://no.such.host.invalid")[0] == 1


def test_concurrent_stages_wait_at_the_same_time(programs):
    _, url = start_site(programs, "--delay=0.1", "--pages=10")
    for stage in STAGES:
        before = requests_seen(url)["most_at_once"]
        programs.report(stage, "--url", url)
        expected = 1 if stage == "01_blocking.py" else 5  # of ten; a loaded machine may start the last ones late
        assert requests_seen(url)["most_at_once"] >= max(before, expected), stage
