"""loop.getaddrinfo() without a thread, where there is nothing to resolve.

asyncio calls socket.getaddrinfo() in the default executor whatever the host is: an address literal waits for a free
thread, behind names that are slow to resolve (python/cpython#112169). What a literal needs does not block.

In Python for both implementations: awaiting a coroutine of the interpreter's own kind is faster than one of Cython's,
and everything that asks whether a function is a coroutine function knows it.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # A mixin, in front of asyncio's loop.
    _Behind = Any
else:
    _Behind = object


def make_resolver(address: ModuleType) -> Any:
    """A mixin for event loops on top of `address`, the module of that name of one implementation."""
    getaddrinfo_literal = address.getaddrinfo_literal
    resolves_at_once = address.resolves_at_once

    class LiteralResolver(_Behind):  # type: ignore[misc]
        """Answers at once for an address literal."""

        async def getaddrinfo(
            self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
        ) -> list[Any]:
            """What socket.getaddrinfo() returns or raises. See loop.getaddrinfo().

            Address literals need no thread, and wait for none."""
            self._check_closed()
            infos: list[Any] | None = None
            if not self._debug:
                infos = getaddrinfo_literal(host, port, family, type, proto, flags)
            elif resolves_at_once(host, port, flags):
                infos = self._getaddrinfo_debug(host, port, family, type, proto, flags)
            if infos is None:
                infos = await super().getaddrinfo(host, port, family=family, type=type, proto=proto, flags=flags)
            return infos

    return LiteralResolver
