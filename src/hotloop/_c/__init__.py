"""The compiled implementation, built from ext/hotloop/_c; empty where no extension was built (see hotloop._impl).

All compiled modules are in one shared object, that of the module `runtime.shared_object`. The import system looks for a
file of each module's name, so a finder tells it where the others are.
"""

import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import Any


class _SharedObjectFinder:
    """A meta path finder for the modules of the shared object."""

    def __init__(self, path: str, modules: frozenset[str]) -> None:
        self.path = path
        self.modules = modules

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None
        spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, self.path), origin=self.path)
        spec.has_location = True
        return spec


try:
    import hotloop._c.runtime.shared_object as shared_object
except ModuleNotFoundError as error:
    if error.name != "hotloop._c.runtime.shared_object":
        raise
else:
    # First, because an older build may have left a file for each module.
    sys.meta_path.insert(0, _SharedObjectFinder(shared_object.__file__, shared_object.modules))
