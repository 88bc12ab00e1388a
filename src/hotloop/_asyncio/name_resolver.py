"""loop.getaddrinfo() and loop.getnameinfo() in threads of their own.

asyncio calls the socket module's functions in the default executor, so a name waits there behind the program's own
work. Here names have an executor of their own beside it. asyncio's code still runs, and the default executor gets the
names, where a program could tell the difference: if it has chosen the default executor, or has replaced
run_in_executor().
"""

import asyncio
import concurrent.futures
import os
from collections.abc import Callable
from typing import Any, TypeVar

from hotloop._asyncio.mixin import Behind

_T = TypeVar("_T")


def check_size(name_threads: int | None) -> None:
    """Raise TypeError or ValueError unless this is a value of the option `name_threads`."""
    if name_threads is None:
        return
    if not isinstance(name_threads, int) or isinstance(name_threads, bool):
        raise TypeError(f"name_threads must be a number of threads or None, not {name_threads!r}")
    if name_threads < 0:
        raise ValueError(f"name_threads must not be negative: {name_threads!r}")


class NameThreads:
    """The threads in which one loop resolves names: an executor, as far as loop.run_in_executor() needs one.

    Each thread starts when there is a name for it. Used by the loop's thread only, except metrics() and shutdown()."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        """The largest number of threads. None: as many as a default executor has. 0: no names come here."""
        self._executor: concurrent.futures.ThreadPoolExecutor | None = None
        self._process = 0  # the process in which the executor was made: its threads do not survive a fork
        self._pending: set[concurrent.futures.Future[Any]] = set()
        self._begun = 0

    def submit(self, function: Callable[..., _T], *arguments: Any) -> concurrent.futures.Future[_T]:
        """See concurrent.futures.Executor.submit()."""
        executor = self._living_executor()
        if executor is None:
            # Test suites that look for left threads excuse asyncio's: names that begin with "asyncio_".
            executor = concurrent.futures.ThreadPoolExecutor(self.size, thread_name_prefix="asyncio_names")
            self._executor = executor
            self._process = os.getpid()
            self._pending = set()
        future = executor.submit(function, *arguments)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        self._begun += 1
        return future

    def shutdown(self, *, wait: bool) -> None:
        """End the threads as soon as they have nothing to do. With `wait`, return when they have ended."""
        executor = self._living_executor()
        if executor is not None:
            executor.shutdown(wait=wait)

    def metrics(self) -> dict[str, int]:
        """The fields of hotloop.Metrics on names."""
        # A copy, because the threads change the set.
        pending = [] if self._living_executor() is None else list(self._pending.copy())
        return {
            "names": self._begun,
            "names_resolving": sum(future.running() for future in pending),
            "names_waiting": sum(not future.running() and not future.done() for future in pending),
        }

    def _living_executor(self) -> "concurrent.futures.ThreadPoolExecutor | None":
        executor = self._executor
        return executor if executor is not None and self._process == os.getpid() else None


class NameResolver(Behind):  # type: ignore[misc]
    """Part of hotloop.EventLoop, in front of asyncio's loop."""

    _name_threads: NameThreads
    _default_executor: Any
    _own_run_in_executor = asyncio.BaseEventLoop.run_in_executor
    """What the loop's run_in_executor() is unless a program has replaced it."""

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """What socket.getaddrinfo() returns or raises. See loop.getaddrinfo()."""
        if not self._resolves_in_name_threads():
            return await super().getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)  # type: ignore[no-any-return]
        function = self._getaddrinfo_debug if self._debug else _socket_module().getaddrinfo
        asked = (host, port, family, type, proto, flags)
        return await self.run_in_executor(self._name_threads, function, *asked)  # type: ignore[no-any-return]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """What socket.getnameinfo() returns or raises. See loop.getnameinfo()."""
        if not self._resolves_in_name_threads():
            return await super().getnameinfo(sockaddr, flags)  # type: ignore[no-any-return]
        function = _socket_module().getnameinfo
        return await self.run_in_executor(self._name_threads, function, sockaddr, flags)  # type: ignore[no-any-return]

    def set_default_executor(self, executor: Any) -> None:
        """See loop.set_default_executor(). From now on this executor resolves names, too."""
        super().set_default_executor(executor)
        self._name_threads.size = 0

    def close(self) -> None:
        """See loop.close(). The threads that resolve names end as those of the default executor do."""
        super().close()
        self._name_threads.shutdown(wait=False)

    def _do_shutdown(self, future: Any) -> None:
        # The part of shutdown_default_executor() that waits for the default executor's threads, in a thread of its own.
        self._name_threads.shutdown(wait=True)
        super()._do_shutdown(future)

    def _run_in_executor_is_replaced(self) -> bool:
        return getattr(self.run_in_executor, "__func__", None) is not type(self)._own_run_in_executor

    def _resolves_in_name_threads(self) -> bool:
        """False if names must take asyncio's way, into the default executor, or to the error that it raises."""
        if self._run_in_executor_is_replaced():
            return False
        if self._name_threads.size == 0 or self._executor_shutdown_called:
            return False
        if self._default_executor is None:
            # asyncio makes it for the first name, too. Without it, shutdown_default_executor() would end nothing.
            self._default_executor = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="asyncio")
        # The one that asyncio makes has this prefix. Programs also set the attribute, for an executor of another kind.
        return getattr(self._default_executor, "_thread_name_prefix", None) == "asyncio"


def _socket_module() -> Any:
    """asyncio's `socket`, which tests replace."""
    return asyncio.base_events.socket  # type: ignore[attr-defined]
