"""What the compiler of the extension gets wrong, and the sources therefore do not contain."""

import re
from pathlib import Path

SOURCES = sorted((Path(__file__).parent.parent / "ext").rglob("*.pyx"))
COMPREHENSION = re.compile(r"\[(?P<element>[^\[\]]+|.+?) for (?P<name>\w+) in (?P<iterable>.+)\]")


def test_no_list_comprehension_makes_its_elements():
    """Where there is no memory for the list, the C code of Cython 3.3.1 releases such an element twice."""
    makes_them = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in COMPREHENSION.finditer(line)
        if found["element"] != found["name"] or found["iterable"].startswith("range(")
    ]
    assert not makes_them
