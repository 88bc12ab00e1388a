from collections import deque
from typing import Any

# At run time a subclass of ReadyQueue.
class ReadyDeque(deque[Any]): ...

__test__: dict[str, str]
