"""check_floors.py: fail where a module imports from a floor above its own, or where modules import in a circle.

The folders of ext/hotloop/_c are floors, and so are those of src/hotloop/_pure: a module may import, cimport or include
from its own floor and from those below. FLOORS has their order, the ground first; docs/architecture.md says what lives
on each. Imports for the type checker alone do not count.
"""

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeGuard

FLOORS = ("runtime", "system", "scheduler", "poller", "tasks", "highlevel", "loop", "transports", "tls", "network")
COMPILED = Path("ext", "hotloop", "_c")
PURE = Path("src", "hotloop", "_pure")

CIMPORT = re.compile(r"^\s*(?:from hotloop\._c\.([\w.]+) c?import|c?import hotloop\._c\.([\w.]+))", re.MULTILINE)
INCLUDE = re.compile(r'(?:#include|extern from) "(\w+/\w+)\.h"')


def parts_of_cython(path: Path) -> Iterator[str]:
    """What a .pyx, .pxd or .h uses, each as FLOOR/NAME."""
    text = path.read_text(encoding="utf-8")
    yield from ((first or second).replace(".", "/") for first, second in CIMPORT.findall(text))
    yield from (f"{name}.h" for name in INCLUDE.findall(text))


def for_the_type_checker(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def parts_of_python(path: Path) -> Iterator[str]:
    """What a module of the pure implementation imports of it, each as FLOOR/NAME; also inside functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if for_the_type_checker(node):
            waiting.extend(node.orelse)
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        for name in names:
            if name.startswith("hotloop._pure."):
                yield name.removeprefix("hotloop._pure.").replace(".", "/")
        waiting.extend(ast.iter_child_nodes(node))


def problems(root: Path, uses: dict[str, set[str]]) -> Iterator[str]:
    for name in sorted(uses):
        floor = name.partition("/")[0]
        if floor not in FLOORS:
            yield f"{root}/{name}: {floor} is no floor"
            continue
        for used in sorted(uses[name]):
            if used.partition("/")[0] not in FLOORS:
                yield f"{root}/{name} uses {used}, which is on no floor"
            elif FLOORS.index(used.partition("/")[0]) > FLOORS.index(floor):
                yield f"{root}/{name} uses {used}, which is on a floor above"
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        yield f"{root}: a circle: {' uses '.join(reversed(error.args[1]))}"


def used_by_cython() -> dict[str, set[str]]:
    """A module is its .pyx and its .pxd together; a header stands for itself."""
    uses: dict[str, set[str]] = {}
    for path in sorted(COMPILED.glob("*/*")):
        if path.suffix in (".pyx", ".pxd", ".h") and path.stem != "__init__":
            stem = f"{path.parent.name}/{path.stem}"
            name = f"{stem}.h" if path.suffix == ".h" else stem
            uses.setdefault(name, set()).update(used for used in parts_of_cython(path) if used != name)
    return uses


def used_by_python() -> dict[str, set[str]]:
    return {
        f"{path.parent.name}/{path.stem}": set(parts_of_python(path))
        for path in sorted(PURE.glob("*/*.py"))
        if path.stem != "__init__"
    }


def main() -> int:
    compiled, pure = used_by_cython(), used_by_python()
    found = [*problems(COMPILED, compiled), *problems(PURE, pure)]
    print("".join(f"{problem}\n" for problem in found), end="")
    return int(bool(found) or not compiled or not pure)


if __name__ == "__main__":
    sys.exit(main())
