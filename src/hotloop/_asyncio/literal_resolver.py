"""loop.getaddrinfo() without a thread for address literals.

asyncio calls socket.getaddrinfo() in the default executor whatever the host is. So an address literal waits for a free
thread, behind names that are slow to resolve (python/cpython#112169), although converting it does not block.

Both implementations use this Python code, because awaiting one of the interpreter's coroutines is faster than awaiting
one of Cython's, and because inspect.iscoroutinefunction() and its like recognize it.
"""

from types import ModuleType
from typing import Any

from hotloop._asyncio.mixin import Behind


def make_resolver(address: ModuleType) -> Any:
    """Make a mixin for event loops from `address`, the module system.address of one implementation."""
    getaddrinfo_literal = address.getaddrinfo_literal
    resolves_at_once = address.resolves_at_once

    class LiteralResolver(Behind):  # type: ignore[misc]
        """Part of hotloop.EventLoop, in front of NameResolver. Resolves address literals at once."""

        async def getaddrinfo(
            self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
        ) -> list[Any]:
            """What socket.getaddrinfo() returns or raises. See loop.getaddrinfo().

            An address literal is resolved without a thread."""
            self._check_closed()
            infos: list[Any] | None = None
            if self._run_in_executor_is_replaced():
                pass  # it gets all of them
            elif not self._debug:
                infos = getaddrinfo_literal(host, port, family, type, proto, flags)
            elif resolves_at_once(host, port, flags):
                infos = self._getaddrinfo_debug(host, port, family, type, proto, flags)
            if infos is None:
                infos = await super().getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)
            return infos

    return LiteralResolver
