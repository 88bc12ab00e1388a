"""How a protocol takes received data, determined once, when the protocol is set."""

import asyncio
from typing import Any


def takes_buffers(protocol: Any) -> bool:
    """Whether a protocol is an asyncio.BufferedProtocol, or has its methods, which is uvloop's condition. One that
    also has data_received() does not count: asyncio calls that."""
    return isinstance(protocol, asyncio.BufferedProtocol) or (
        not hasattr(protocol, "data_received")
        and hasattr(protocol, "get_buffer")
        and hasattr(protocol, "buffer_updated")
    )
