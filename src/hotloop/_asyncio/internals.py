"""asyncio's modules, untyped, so that code may use their private names.

The type checker knows only some of these names, and different ones for each version of Python.
"""

import asyncio.base_events
import asyncio.base_futures
import asyncio.base_tasks
import asyncio.coroutines
import asyncio.events
import asyncio.format_helpers
import asyncio.futures
import asyncio.selector_events
import asyncio.tasks
import sys
from typing import Any

base_events: Any = asyncio.base_events
base_futures: Any = asyncio.base_futures
base_tasks: Any = asyncio.base_tasks
coroutines: Any = asyncio.coroutines
events: Any = asyncio.events
format_helpers: Any = asyncio.format_helpers
futures: Any = asyncio.futures
selector_events: Any = asyncio.selector_events
tasks: Any = asyncio.tasks

if sys.platform != "win32":
    import asyncio.unix_events

    unix_events: Any = asyncio.unix_events
