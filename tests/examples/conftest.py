"""Programs to start, and a site for them to fetch from."""

import signal

import pytest
from example_programs import SECONDS_BEFORE_A_PROGRAM_HANGS, SITE_PAGES, Programs, start_site


@pytest.fixture
def programs():
    programs = Programs()
    yield programs
    programs.end()


@pytest.fixture(scope="module")
def site():
    """A small site without delay, for all tests that only fetch from it."""
    programs = Programs()
    process, url = start_site(programs, f"--pages={SITE_PAGES}")
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=SECONDS_BEFORE_A_PROGRAM_HANGS) == ("", "")
    assert process.returncode == 0
    programs.end()
