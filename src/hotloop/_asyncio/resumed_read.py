"""asyncio's reads of a StreamReader from the middle on.

The compiled reads leave to asyncio's own what they are not sure of. asyncio's begins anew then, with nothing taken from
the buffer. At its beginning alone it looks whether the reader has an exception, which may have been set since: the data
that came before it is still to be read.
"""

from asyncio import StreamReader
from typing import Any


class BegunReader:
    """A reader as a read sees it that has begun."""

    _exception = None

    # These call each other.
    readuntil: Any = StreamReader.readuntil
    readline: Any = StreamReader.readline

    def __init__(self, reader: Any) -> None:
        object.__setattr__(self, "_reader", reader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._reader, name, value)
