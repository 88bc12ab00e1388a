"""The rows of the benchmark, in the order of the table. Each file says which question its rows answer."""

from . import callbacks, echo, http, network, polling, sync, tasks, threads, timers
from .registry import Row

MODULES = (callbacks, timers, tasks, sync, threads, polling, echo, network, http)
ROWS: dict[str, Row] = {row.name: row for module in MODULES for row in module.rows.registered}

__all__ = ["ROWS", "Row"]
