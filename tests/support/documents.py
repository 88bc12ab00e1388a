"""The Markdown pages of the project, and the blocks of code in them.

A comment before a block restricts where it is run:

    <!-- test: not run, REASON -->          it is a fragment, or needs something that no test has
    <!-- test: python 3.12 -->              it needs this version or a newer one, as the page says
    <!-- test: python 3.11 to 3.13 -->      it needs a version in this range
    <!-- test: needs MODULE -->             it needs this module

A block with a title is also a file, which the page's other blocks find in the folder in which they are run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

RUN_ELSEWHERE = dict.fromkeys(
    ("ecosystem.md", "auto-detection.md"), "tests/ecosystem, which has the servers and tools that this page is about"
)
"""Pages whose blocks another suite runs."""

FENCE = re.compile(r"(?P<indent> *)```(?P<language>[\w+-]*)(?P<options>.*)")
TITLE = re.compile(r'\btitle="(?P<title>[^"]+)"')
COMMENT = re.compile(r"<!-- test: (?P<condition>.+) -->")

RUN = ("python", "sh", "console")
"""Languages of blocks that are run."""
SHOWN = ("text", "toml", "ini", "json", "html", "cython", "c", "diff", "yaml")
"""Languages of blocks that are only for reading."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """The number of its first line of code."""
    language: str
    title: str | None
    condition: str
    """The text of the comment before it, or an empty string."""
    code: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def why_not_run(self) -> str | None:
        said = re.fullmatch(r"not run, (.+)", self.condition)
        return said[1] if said else RUN_ELSEWHERE.get(self.page.name)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page. ValueError if a fence is not closed or a comment belongs to no block."""
    lines = page.read_text(encoding="utf-8").splitlines()
    condition, number = "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if comment := COMMENT.fullmatch(line.strip()):
            condition = comment["condition"]
        elif fence := FENCE.fullmatch(line):
            end = next((at for at in range(number, len(lines)) if lines[at].strip() == "```"), None)
            if end is None:
                raise ValueError(f"{page}:{number}: this fence is not closed")
            code = "".join(text.removeprefix(fence["indent"]) + "\n" for text in lines[number:end])
            title = TITLE.search(fence["options"])
            yield Block(page, number + 1, fence["language"], title and title["title"], condition, code)
            condition, number = "", end + 1
        elif line.strip() and condition:
            raise ValueError(f"{page}:{number}: a block of code was expected after the comment for it")


def indented_code(page: Path) -> list[int]:
    """The lines that Markdown takes for code because they are indented; blocks() does not find these."""
    found, fenced, after_blank, in_list = [], False, True, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            if not line.startswith(" "):
                in_list = bool(re.match(r"([-*+]|\d+\.) ", line))
            elif line.startswith("    ") and after_blank and not in_list:
                found.append(number)
        after_blank = not line.strip()
    return found
