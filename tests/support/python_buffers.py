"""Buffers that are Python objects, which CPython has since 3.12 (PEP 688): their methods may do anything."""

import sys
from collections.abc import Callable

import pytest

needs_python_buffers = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before CPython 3.12 a Python object is no buffer"
)


class PythonBuffer:
    """`when_asked` is called before the memory is given, `when_released` after it was given back."""

    def __init__(
        self,
        memory: bytearray,
        *,
        when_asked: Callable[[], object] = lambda: None,
        when_released: Callable[[], object] = lambda: None,
    ) -> None:
        self.memory = memory
        self.when_asked = when_asked
        self.when_released = when_released

    def __len__(self) -> int:
        return len(self.memory)

    def __buffer__(self, flags: int) -> memoryview:
        self.when_asked()
        return memoryview(self.memory)

    def __release_buffer__(self, view: memoryview) -> None:
        view.release()
        self.when_released()


class PythonData(bytes):
    """Data to write, with such methods. Each hook is called the first time only, and may raise."""

    hooks: dict[str, Callable[[], object]]
    memory: bytes

    def __new__(
        cls,
        data: bytes,
        *,
        when_asked: Callable[[], object] = lambda: None,
        when_released: Callable[[], object] = lambda: None,
    ) -> "PythonData":
        made = super().__new__(cls, data)
        made.hooks = {"asked": when_asked, "released": when_released}
        made.memory = data
        return made

    def __buffer__(self, flags: int) -> memoryview:
        self.hooks.pop("asked", lambda: None)()
        return memoryview(self.memory)

    def __release_buffer__(self, view: memoryview) -> None:
        view.release()
        self.hooks.pop("released", lambda: None)()


def fail() -> None:
    raise ZeroDivisionError("the memory cannot be had")
