"""The available suites (suites.toml), and the reasons why one cannot run."""

import dataclasses
import tomllib
from pathlib import Path

FILE = Path(__file__).parent.parent / "suites.toml"


class NotAvailable(Exception):
    """The suite cannot run here; the text gives the reason in one line."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """One table of suites.toml, which documents the fields."""

    name: str
    version: str
    sha256: str
    package: str
    tests: tuple[str, ...]
    passed: int
    minutes: float
    options: tuple[str, ...] = ()
    processes: int = 0
    servers: tuple[str, ...] = ()
    root: bool = True

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def suites(text: str | None = None) -> dict[str, Suite]:
    tables = tomllib.loads(FILE.read_text(encoding="utf-8") if text is None else text)
    return {name: _suite(name, table) for name, table in tables.items()}


def _suite(name: str, table: dict) -> Suite:
    lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
    return Suite(name=name, **table | lists)
