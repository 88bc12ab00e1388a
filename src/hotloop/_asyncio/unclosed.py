"""The warning about a transport that was dropped unclosed, given as if by asyncio's own transport.

Filters can name the module that warns, and Python keeps in that module what it has shown already.
"""

import warnings


def warn_unclosed(transport: object, counterpart: type) -> None:
    """Warn about `transport`; `counterpart`: asyncio's class of such transports. Raises if warnings are errors."""
    finalizer = counterpart.__del__  # type: ignore[attr-defined]
    warnings.warn_explicit(
        f"unclosed transport {transport!r}",
        ResourceWarning,
        finalizer.__code__.co_filename,
        finalizer.__code__.co_firstlineno,
        finalizer.__module__,
        finalizer.__globals__.setdefault("__warningregistry__", {}),
        source=transport,
    )
