"""The rows of the benchmark, in the order of the table. Each file begins with the question that its rows answer."""

from . import callbacks, clients, echo, http, network, polling, sync, tasks, threads, timers, tls, websocket
from .registry import NotOffered, Row, Table

MODULES = (callbacks, timers, tasks, sync, threads, polling, echo, network, tls, http, websocket, clients)
ROWS: dict[str, Row] = {row.name: row for module in MODULES for row in module.rows.registered}

__all__ = ["ROWS", "NotOffered", "Row", "Table"]
