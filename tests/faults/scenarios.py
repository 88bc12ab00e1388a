"""All scenarios, by name: every part of a loop."""

import types

from . import connections, descriptors, highlevel, loops
from .scenario import Scenario


def _scenarios(module: types.ModuleType) -> dict[str, type[Scenario]]:
    """The scenarios that the module defines, without the base class Serving."""
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, Scenario)]
    return {
        cls.__name__: cls for cls in classes if cls.__module__ == module.__name__ and cls is not connections.Serving
    }


SCENARIOS = (
    _scenarios(loops) | _scenarios(connections) | _scenarios(descriptors) | {cls.__name__: cls for cls in highlevel.ALL}
)
