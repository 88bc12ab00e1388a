"""docs/paths.md and docs/architecture.md quote files, functions and a class head: they must match the code."""

import re

import pytest
from support.documents import ROOT

from hotloop import loop

SOURCES = ROOT / "ext" / "hotloop" / "_c"
WALKS = re.split(r"^## ", (ROOT / "docs" / "paths.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
STOP = re.compile(r"^\| (\d+) \| `([\w/.]+)` \| ([^|]+) \|", re.MULTILINE)


def stops(head):
    (walk,) = (walk for walk in WALKS if walk.startswith(head))
    return STOP.findall(walk)


@pytest.mark.parametrize("head", ["A byte", "A task"])
def test_a_walk_opens_eight_files_at_most(head):
    numbers = {(number, file) for number, file, _ in stops(head)}
    files = {file for _, file in numbers}
    assert 3 < len(files) == len(numbers) <= 8
    assert {int(number) for number, _ in numbers} == set(range(1, len(files) + 1))


@pytest.mark.parametrize("head", ["A byte", "A task"])
def test_each_function_of_a_walk_is_defined_in_its_file(head):
    for _, file, functions in stops(head):
        source = (SOURCES / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(?:\w+\.)?(\w+)(?:\(\))?`", functions):
            defined = rf"^ *(?:cdef|def|class|static inline) (?:[\w *]+ \*?)?{name}\b[(:]"
            assert re.search(defined, source, re.MULTILINE), f"{file} defines no {name}"


def test_the_architecture_quotes_the_head_of_the_loop_class():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^(class EventLoop\(.*\):) \.\.\.$", page, re.MULTILINE)
    with open(loop.__file__, encoding="utf-8") as file:
        assert f"    {head}" in file.read()


def test_the_architecture_has_a_row_for_each_folder():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    floors = {path.parent.name for path in SOURCES.glob("*/*.pyx")}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == floors
