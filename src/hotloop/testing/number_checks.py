"""Checks of the numbers that a test passes to its loop, its clock and its network."""

import sys
from typing import Any


def check_number(name: str, value: Any, what: str) -> None:
    """Raise TypeError unless the value of `name` is a number, of `what`; ValueError for NaN and infinity."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of {what}, not {value!r}")
    # An int may be greater.
    if not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} must be finite, not {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Raise TypeError unless it is a number of seconds; ValueError if it is negative, infinite or NaN."""
    check_number(name, value, "seconds")
    if value < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")


def check_size(name: str, value: Any) -> None:
    """Raise TypeError unless it is a whole number of bytes; ValueError if it is not positive."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of bytes, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be positive: {value!r}")
