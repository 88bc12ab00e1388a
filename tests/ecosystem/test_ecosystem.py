"""Tests of the ecosystem runner itself: it understands the page, pins the tools, and never reports a test as passed
that did not run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "tools"))

import document

HERE = Path(__file__).parent
PAGE = """# Page

## One

```sh
tool --port 8000 "an argument"
tool again
```

```python title="serve.py"
serve(port=8000)
```

## Two

Nothing.
"""


def run_py(*arguments, **variables):
    command = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def test_a_section_of_the_page(tmp_path):
    sections = document.sections(PAGE)
    assert list(sections) == ["One", "Two"]
    assert sections["One"].command(0, 1234) == ["tool", "--port", "1234", "an argument"]
    assert sections["One"].command(1) == ["tool", "again"]
    sections["One"].write(tmp_path, 1234)
    assert (tmp_path / "serve.py").read_text(encoding="utf-8") == "serve(port=1234)\n"
    assert sections["Two"] == document.Section({}, [])


@pytest.mark.parametrize(
    "block", ["```python\npass\n```\n", "```\npass\n```\n", '```python title="serve.py"\nagain\n```\n', "```sh\n"]
)
def test_a_block_that_would_not_be_run_is_an_error(block):
    with pytest.raises(ValueError, match="One: a block"):
        document.sections(PAGE.replace("\n## Two", block + "\n## Two"))


def test_each_block_of_the_page_is_used_by_a_test():
    source = "".join(path.read_text(encoding="utf-8") for path in (HERE / "tools").glob("check_*.py"))
    for heading, section in document.sections(document.PAGE.read_text(encoding="utf-8")).items():
        assert f'"{heading}"' in source, heading
        for name in section.files:
            program = name.endswith(".py") and not any(
                name[:-3] + "." in word for line in section.commands for word in line
            )
            if program and name != "conftest.py":
                assert f'"{name}"' in source, f"{heading}: {name}"


def test_every_tool_is_pinned_at_the_release_that_the_page_names():
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[\w.-]+", name) and re.fullmatch(r"[\w.]+", pin) for name, pin in pins.items())
    rows = re.findall(
        r"^\| ([\w -]+?)(?: \((\w+)\))? \| ([\d.]+) \|", document.PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) >= 11
    releases = {name.lower(): pin for name, pin in pins.items()}
    for tool, package, release in rows:
        name = (package or tool).lower().replace("_", "-")
        assert releases[name].startswith(release), tool


def test_the_changes_are_for_the_pinned_releases():
    pins = (HERE / "requirements.txt").read_text(encoding="utf-8").lower().split()
    page = document.PAGE.with_name("auto-detection.md").read_text(encoding="utf-8")
    releases = re.findall(r"^\| (\w+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(releases) == 7
    assert [f"{tool}=={release}" for tool, release in releases if f"{tool}=={release}" not in pins] == []


def test_tools_that_cannot_be_installed_are_a_failure(tmp_path):
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    run = run_py(f"--cache={tmp_path}", **nowhere)
    assert run.returncode == 1
    assert (
        "the tools could not be tried: pip could not install requirements.txt: Could not find a version" in run.stdout
    )


def test_wrong_usage():
    run = run_py("--impl=asyncio")
    assert run.returncode == 2
    assert "invalid choice: 'asyncio'" in run.stderr
