"""The versions of the libraries that rows measure."""

import importlib.metadata
from collections.abc import Iterable

from .rows import Row
from .rows.registry import missing


def versions(rows: Iterable[Row]) -> dict[str, str]:
    """Of the packages of these rows that are installed, for the head of a report; nothing if there are none."""
    names = sorted({name for row in rows for name in row.packages if missing(name) is None})
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return {"libraries": found} if found else {}
