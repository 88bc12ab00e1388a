"""The rows of the benchmark, in the order of the table. Each file says which question its rows answer."""

from . import callbacks, polling, sync, tasks, threads, timers
from .registry import Row

ROWS: dict[str, Row] = {
    row.name: row for module in (callbacks, timers, tasks, sync, threads, polling) for row in module.rows.registered
}

__all__ = ["ROWS", "Row"]
