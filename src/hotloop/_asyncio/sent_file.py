"""What sock_sendfile() asks of the file it sends: parts that the kernel takes, and the position afterwards.

Source: asyncio/unix_events.py.
"""

import os
import sys
from typing import Any

from hotloop._asyncio.internals import unix_events

# On 32-bit systems os.sendfile() refuses more.
LARGEST_PART = sys.maxsize // 2 + 1

# Since 3.14.6 asyncio sets the file's position even if nothing was sent.
_update_position = unix_events._UnixSelectorEventLoop._sock_sendfile_update_filepos
_always_seeks = "total_sent" not in _update_position.__code__.co_varnames


def next_part(size: int, count: int | None, sent: int) -> int:
    """How many bytes os.sendfile() is asked for, of a file of `size` bytes of which `count` are to be sent."""
    return min(count - sent if count else size, LARGEST_PART)


def move_position(file: Any, offset: int, sent: int) -> None:
    """Set the file's position behind the `sent` bytes from `offset`.

    Does nothing if the program has closed the file meanwhile: its descriptor may be another file's by now."""
    if not sent and not _always_seeks:
        return
    try:
        source = file.fileno()
    except ValueError:
        return
    os.lseek(source, offset + sent, os.SEEK_SET)
