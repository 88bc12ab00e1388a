"""The suites among CPython's test modules, and the test classes of each suite."""

import importlib
import importlib.util
import pkgutil
import sys
import unittest
from types import ModuleType

# Suites outside test.test_asyncio that use a loop or a selector.
OTHER_MODULES = ("test.test_selectors", "test.test_asyncgen")


class NotAvailable(Exception):
    """There are no suites to run, usually because the interpreter came without CPython's test package."""


def suites(unbound: set[str]) -> dict[str, str]:
    """Short name -> CPython's module, for every module of test.test_asyncio but those in `unbound`.

    The names come from the interpreter, so that modules of later versions run as well.
    """
    found = {}
    for name in (*_asyncio_test_modules(), *OTHER_MODULES):
        short = name.rpartition(".")[2]
        if short not in unbound:
            found[short] = name
    return dict(sorted(found.items()))


def _asyncio_test_modules() -> list[str]:
    if sys.platform == "win32":
        raise NotAvailable("the suites are bound to asyncio's Unix event loop")
    try:
        spec = importlib.util.find_spec("test.test_asyncio")
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise NotAvailable(
            "this interpreter has no test.test_asyncio; some distributions package it apart or not at all"
        )
    names = [module.name for module in pkgutil.iter_modules(spec.submodule_search_locations)]
    return [f"test.test_asyncio.{name}" for name in names if name.startswith("test_")]


def test_classes(module_name: str, unbound: set[str]) -> list[type[unittest.TestCase]]:
    """The classes of the bindings, then CPython's own classes that no binding replaces and `unbound` does not name."""
    cpython = importlib.import_module(module_name)
    binding = _binding_of(module_name)
    bound = [] if binding is None else _classes_defined_in(binding)
    left_out = unbound | getattr(binding, "REPLACES", set())
    classes = bound + [cls for cls in _classes_defined_in(cpython) if cls.__name__ not in left_out]
    names = [cls.__name__ for cls in classes]
    assert len(names) == len(set(names)), f"{module_name}: two classes of one name: {sorted(names)}"
    return classes


def _binding_of(module_name: str) -> ModuleType | None:
    name = f"conformance.bind.{module_name.rpartition('.')[2].removeprefix('test_')}"
    if importlib.util.find_spec(name) is None:
        return None
    binding = importlib.import_module(name)
    cpython = importlib.import_module(module_name)
    for fixture in ("setUpModule", "tearDownModule"):  # unittest looks for these in the module that defines the class
        if hasattr(cpython, fixture):
            setattr(binding, fixture, getattr(cpython, fixture))
    return binding


def _classes_defined_in(module: ModuleType) -> list[type[unittest.TestCase]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == module.__name__
        if unittest.defaultTestLoader.getTestCaseNames(value)
    ]


def is_cpythons_own(cls: type) -> bool:
    """Whether the class runs as CPython wrote it, on the default loop, without a class of the bindings."""
    return not cls.__module__.startswith("conformance.")
