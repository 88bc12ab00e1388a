"""asyncio's own done callback of gather(), for a gather() that is compiled.

It is made as nested_functions.py makes its functions, and for the same reason: it then does what the running Python's
gather() does, to the letter.
"""

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from hotloop._asyncio.nested_functions import codes_inside

# The variables of gather() that its callback uses.
_VARIABLES = {"children", "nfinished", "nfuts", "outer", "return_exceptions"}


class GatherCallback:
    """Makes done callbacks of `gather`, asyncio's function, from their code."""

    def __init__(self, gather: Any, code: CodeType) -> None:
        self.code = code
        self._globals = gather.__globals__
        # Whether it is told which task calls gather(): since Python 3.14.
        self.takes_caller = code.co_argcount == 2
        # Whether gather() itself calls it for a child that is done already: since Python 3.12.
        self.is_called_for_done_children = "done_futs" in gather.__code__.co_varnames

    def make(self, variables: dict[str, object], caller: object) -> tuple[Callable[[Any], None], CellType]:
        """A callback, and the cell with the number of children that are done."""
        cells = {name: CellType(variables[name]) for name in self.code.co_freevars}
        defaults = (caller,) if self.takes_caller else None
        callback = FunctionType(self.code, self._globals, None, defaults, tuple(cells.values()))
        return callback, cells["nfinished"]


def gather_callback(gather: Any) -> GatherCallback | None:
    """None if the running Python's gather() is not as expected: it is not compiled then."""
    code = codes_inside(gather).get("_done_callback")
    return None if code is None or set(code.co_freevars) != _VARIABLES else GatherCallback(gather, code)
