"""asyncio, with its own Python code compiled: `from hotloop import asyncio` in place of `import asyncio`.

Every name of the running Python's asyncio is here. Those that hotloop compiles work on any event loop, fastest on
hotloop's; all others are asyncio's own objects, the same ones. Without the compiled extension, all are.
"""

import asyncio as _asyncio
from typing import TYPE_CHECKING, Any

from hotloop._asyncio.compiled_layer import compiled_names

if TYPE_CHECKING:
    from asyncio import *  # noqa: F403

__all__ = _asyncio.__all__

globals().update(
    {
        name: value
        for name, value in vars(_asyncio).items()
        if not (name.startswith("__") and name.endswith("__")) and name != "_asyncio"
    }
)
globals().update(compiled_names())

if not TYPE_CHECKING:  # otherwise type checkers would accept every name

    def __getattr__(name: str) -> Any:
        # Names that asyncio itself makes on demand, and those that a program has added since.
        return getattr(_asyncio, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_asyncio)})
