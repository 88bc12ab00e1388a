"""The event loop policy, for programs and frameworks that still install a loop in this way.

Python 3.14 deprecates policies and 3.16 has none. This module uses asyncio's base class under its private name, which
does not warn. So only a program that sets a policy gets asyncio's DeprecationWarning.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from hotloop._asyncio import compiled_layer
from hotloop.loop import EventLoop

_GONE = (
    "Python {}.{} has no event loop policies; use hotloop.run(main()) "
    "or asyncio.run(main(), loop_factory=hotloop.new_event_loop)"
).format(*sys.version_info)


def default_policy_class() -> Any:
    """asyncio's default policy class, or None if this Python has no policies."""
    if sys.version_info < (3, 14):
        return getattr(asyncio, "DefaultEventLoopPolicy", None)
    if sys.platform == "win32":
        return getattr(asyncio.windows_events, "_DefaultEventLoopPolicy", None)
    return getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", None)


if TYPE_CHECKING:
    _Base = asyncio.DefaultEventLoopPolicy
else:
    _Base = default_policy_class()

if _Base is not None:

    class EventLoopPolicy(_Base):
        """asyncio's default policy with hotloop's event loops."""

        _loop_factory = EventLoop


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        raise AttributeError(_GONE)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install(*, compiled_asyncio: bool | None = None) -> None:
    """Have asyncio make hotloop's event loops in this process: asyncio.set_event_loop_policy(EventLoopPolicy()).

    `compiled_asyncio` puts hotloop's compiled queues, locks, timeouts, task groups and streams into asyncio's modules,
    as for hotloop.run(). Python 3.14 and later warn about the policy; asyncio.run(main(),
    loop_factory=hotloop.new_event_loop) and hotloop.run(main(), compiled_asyncio=True) need none. Raises RuntimeError
    on Python 3.16 and later, which have no policies, and changes nothing there.
    """
    if _Base is None:
        raise RuntimeError(_GONE)
    compiled_layer.install_if_asked(compiled_asyncio)
    asyncio.set_event_loop_policy(EventLoopPolicy())
