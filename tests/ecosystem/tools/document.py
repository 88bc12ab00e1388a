"""docs/ecosystem.md as the tests use it: the code blocks of each section."""

import dataclasses
import os
import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "ecosystem.md"
PORT = "8000"  # the page's; a test uses a free one instead
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Section:
    """The page's section about one tool."""

    files: dict[str, str]  # the blocks that have a title, by title
    commands: list[list[str]]  # the lines of shell, split into words

    def write(self, folder: Path, port: int | None = None) -> None:
        """Write the files, with `port` in the place of the page's."""
        for name, text in self.files.items():
            (folder / name).write_text(text if port is None else text.replace(PORT, str(port)), encoding="utf-8")

    def command(self, number: int, port: int | None = None) -> list[str]:
        words = self.commands[number]
        return words if port is None else [word.replace(PORT, str(port)) for word in words]


def sections(text: str) -> dict[str, Section]:
    """The sections by heading. Raises ValueError if a block is neither a file with a title nor a line of shell."""
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        files, commands = {}, []
        for language, title, code in BLOCK.findall(body):
            if language == "sh" and not title:
                commands += [shlex.split(line) for line in code.splitlines()]
            elif title and title not in files:
                files[title] = code
            else:
                raise ValueError(f"{heading}: a block of {language} needs a title of its own")
        if body.count("```") != 2 * len(BLOCK.findall(body)):
            raise ValueError(f"{heading}: a block is not understood")
        found[heading.strip()] = Section(files, commands)
    return found


def section(heading: str) -> Section:
    return sections(PAGE.read_text(encoding="utf-8"))[heading]


def with_programs_of(python: str) -> str:
    """A PATH on which the commands of an interpreter's environment come first, `python` among them."""
    return os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])
