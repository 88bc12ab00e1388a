"""asyncio's own functions inside a function, such as the done callbacks of shield(), made outside of it.

The code of an inner function is among the constants of the outer one, so the inner function can be made with other
cells. It then does what the running Python's asyncio does, to the letter.
"""

from types import CellType, CodeType, FunctionType
from typing import Any


def codes_inside(function: Any) -> dict[str, CodeType]:
    """The code of each named function that `function` makes in a call."""
    return {
        code.co_name: code
        for code in function.__code__.co_consts
        if isinstance(code, CodeType) and not code.co_name.startswith("<")
    }


class NestedFunctions:
    """Makes the functions that `function` makes in each call."""

    def __init__(self, function: Any) -> None:
        self._globals = function.__globals__
        self._codes = codes_inside(function)
        self.names = frozenset(self._codes)
        # What they use of the outer function's variables, apart from each other.
        self.variables = frozenset(name for code in self._codes.values() for name in code.co_freevars) - self.names

    def used_in(self, name: str) -> frozenset[str]:
        """The names that this inner function uses, other than its own variables."""
        code = self._codes[name]
        return frozenset(code.co_names + code.co_freevars)

    def make(self, variables: dict[str, object]) -> dict[str, CellType]:
        """The cells of the variables and of the functions, by name."""
        cells = {name: CellType(value) for name, value in variables.items()}
        cells |= {name: CellType() for name in self._codes}
        for name, code in self._codes.items():
            closure = tuple(cells[variable] for variable in code.co_freevars)
            cells[name].cell_contents = FunctionType(code, self._globals, None, None, closure)
        return cells
