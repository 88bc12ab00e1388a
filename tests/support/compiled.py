"""Lets tests call the C functions that compiled modules offer each other.

Python code cannot call them, and a test through other compiled code would hide what they do. Cython keeps their
addresses in `__pyx_capi__`, where its modules find each other's functions.
"""

import ctypes
import functools
import importlib
import itertools
import re
import traceback
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "ext" / "hotloop" / "_c"

_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_name_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


def _pointer(capsule):
    name = _name_of(capsule)
    return _pointer_of(capsule, ctypes.c_char_p(name).value if name else None)


def function(module, name, result, *arguments):
    """The C function `name` of hotloop._c.`module`, which may raise exceptions. The types are those of ctypes."""
    capsules = importlib.import_module(f"hotloop._c.{module}").__pyx_capi__
    return ctypes.PYFUNCTYPE(result, *arguments)(_pointer(capsules[name]))


def method(cls, name, result, *arguments):
    """The C method `name` of an extension class or of a base class; its first argument is the instance.

    Without the sources, the test is skipped: only the class's .pxd says at which place of the table the method is."""
    names = next(filter(None, map(_methods, cls.__mro__)))
    table = ctypes.cast(_pointer(cls.__pyx_vtable__), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *arguments)(table[names.index(name)])


@functools.cache
def _methods(cls):
    """The names of a class's C methods, as its .pxd declares them."""
    source = SOURCES.joinpath(*cls.__module__.split(".")[2:]).with_suffix(".pxd")
    if not source.exists():
        pytest.skip(
            f"{source.name}, which has the order of {cls.__name__}'s methods, is not part of an installed package"
        )
    _, _, rest = source.read_text(encoding="utf-8").partition(f"cdef class {cls.__name__}:\n")
    body = itertools.takewhile(lambda line: not line or line.startswith(" "), rest.splitlines())
    found = [re.match(r"    cdef [^#(]*?(\w+)\(", line) for line in body]
    return [match[1] for match in found if match]


def keeps_traceback_entries(loop):
    """Whether this is a debug build, in which exceptions keep the entries of compiled code that they came through."""

    class Delay:
        def __radd__(self, now):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        loop.call_later(Delay(), print)
    return any(entry.filename.endswith(".pyx") for entry in traceback.extract_tb(raised.tb))
