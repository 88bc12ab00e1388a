"""Whose code a file is: asyncio's, hotloop's, the standard library's, an installed package's or the program's."""

import asyncio
import os

_ASYNCIO = asyncio.__file__.removesuffix("__init__.py")
_STDLIB = os.path.join(os.path.dirname(os.path.dirname(_ASYNCIO)), "")
_HOTLOOP = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_PACKAGES = ("site-packages", "dist-packages")
_INSTALLED = tuple(os.path.join(_STDLIB, name) for name in _PACKAGES)


def is_of_asyncio(filename: str) -> bool:
    return filename.startswith(_ASYNCIO)


def is_of_the_loop(filename: str) -> bool:
    """Whether it is asyncio's or hotloop's."""
    return filename.startswith((_ASYNCIO, _HOTLOOP))


def is_of_stdlib(filename: str) -> bool:
    # Frozen modules, such as importlib's, have no path.
    return filename.startswith((_STDLIB, "<frozen ")) and not filename.startswith(_INSTALLED)


def ownership(filename: str) -> int:
    """2: code of the program, 1: of an installed package, 0: of the standard library or hotloop's."""
    if filename.startswith(_HOTLOOP):
        return 0
    # A virtual environment's packages are elsewhere than the standard library.
    if any(f"{os.sep}{name}{os.sep}" in filename for name in _PACKAGES):
        return 1
    return 0 if is_of_stdlib(filename) else 2
