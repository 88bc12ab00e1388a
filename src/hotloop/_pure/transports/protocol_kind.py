"""How a protocol takes what has arrived for it: asked once, when the protocol is set."""

import asyncio
from typing import Any


def takes_buffers(protocol: Any) -> bool:
    """Whether it is an asyncio.BufferedProtocol, or, as uvloop takes it, one by its methods alone. What has
    data_received(), too, is none: under asyncio that is what is called."""
    return isinstance(protocol, asyncio.BufferedProtocol) or (
        not hasattr(protocol, "data_received")
        and hasattr(protocol, "get_buffer")
        and hasattr(protocol, "buffer_updated")
    )
