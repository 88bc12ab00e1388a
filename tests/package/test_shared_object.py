"""The one file that holds all compiled modules, and the finder that finds them there."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "ext" / "hotloop" / "_c"

pytestmark = pytest.mark.only("c", reason="tests how the extension is imported")


@pytest.fixture
def shared_object(impl):
    return importlib.import_module("hotloop._c.runtime.shared_object")


def test_it_holds_each_module_that_has_a_source(shared_object):
    sources = {f"hotloop._c.{path.parent.name}.{path.stem}" for path in SOURCES.glob("*/*.pyx")}
    assert shared_object.modules == sources


def test_all_modules_are_imported_from_its_file(shared_object):
    for name in sorted(shared_object.modules):
        module = importlib.import_module(name)
        assert module.__spec__.has_location
        assert module.__file__ == module.__spec__.origin == shared_object.__file__


def test_a_module_that_it_does_not_hold_is_not_found(shared_object):
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module("hotloop._c.runtime.absent")
    assert raised.value.name == "hotloop._c.runtime.absent"
    assert importlib.util.find_spec("hotloop._c.absent") is None


def test_it_asks_for_no_other_module(shared_object):
    (finder,) = (finder for finder in sys.meta_path if type(finder).__module__ == "hotloop._c")
    assert finder.find_spec("json", None) is None
    assert finder.find_spec("hotloop._c.runtime.absent", []) is None
