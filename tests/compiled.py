"""The functions that the compiled modules have for each other, called from tests.

They cannot be reached from Python, and what other compiled code makes of them would hide what they do. Cython keeps
their addresses in `__pyx_capi__`, which is how its modules find each other's.
"""

import ctypes
import importlib

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


def method(cls, index, result, *arguments):
    """The C method of an extension class that its .pxd declares in this place; called with the instance first."""
    table = ctypes.cast(_pointer(cls.__pyx_vtable__), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(result, ctypes.py_object, *arguments)(table[index])
