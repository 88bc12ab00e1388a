"""What a connection is like on its way between two hosts: how long bytes take, and in what pieces they arrive.

All of it is chance that a seed decides, or a function of the test's that is given the generator.
"""

import random
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, TypeAlias

Latency: TypeAlias = float | tuple[float, float] | Callable[[random.Random], float]
"""Seconds from one host to the other; between two numbers at random; or what a function gives each time."""

Fragment: TypeAlias = int | tuple[int, int] | Callable[[random.Random], int] | None
"""The size of the pieces that arrive, in bytes, in the same three ways; None: as they were written."""

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()
"""For a keyword that leaves things as they are."""

FIELDS = ("latency", "bandwidth", "fragment")


class Name(tuple[str, str]):
    """One side of a connection, as the settings know it: the name of its host, and its address."""

    __slots__ = ()

    def is_called(self, name: str | None) -> bool:
        """True if a setting for `name` is about this side; None is everybody."""
        return name is None or name in self


class Links:
    """The settings of all ways from one host to another. The latest that applies decides, each field by itself."""

    def __init__(self, **settings: Any) -> None:
        # By who sends and who receives.
        self._values: dict[str, dict[tuple[str | None, str | None], Any]] = {field: {} for field in FIELDS}
        self.set(None, None, **settings)

    def set(self, sender: str | None, receiver: str | None, **settings: Any) -> None:
        """TypeError or ValueError, before anything has changed, for what is no latency, bandwidth or fragment."""
        checks = {"latency": check_latency, "bandwidth": check_bandwidth, "fragment": check_fragment}
        settings = {field: value for field, value in settings.items() if value is not UNSET}
        for field, value in settings.items():
            checks[field](value)
        for field, value in settings.items():
            # Behind all others, even if there was one for the same two.
            self._values[field].pop((sender, receiver), None)
            self._values[field][sender, receiver] = value

    def _get(self, field: str, sender: Name, receiver: Name) -> Any:
        for (one, other), value in reversed(self._values[field].items()):
            if sender.is_called(one) and receiver.is_called(other):
                return value
        raise AssertionError("the first is for everybody")

    def latency(self, sender: Name, receiver: Name, rng: random.Random) -> float:
        """How many seconds the next piece takes."""
        return draw_latency(self._get("latency", sender, receiver), rng)

    def bandwidth(self, sender: Name, receiver: Name) -> float | None:
        """Bytes per second; None: no limit."""
        bandwidth: float | None = self._get("bandwidth", sender, receiver)
        return bandwidth

    def pieces(self, data: bytes, sender: Name, receiver: Name, rng: random.Random) -> Iterator[bytes]:
        """`data`, cut."""
        fragment = self._get("fragment", sender, receiver)
        start = 0
        while start < len(data):
            end = len(data) if fragment is None else start + draw_fragment(fragment, rng)
            yield data[start:end]
            start = end

    def keeps_pieces_apart(self, sender: Name, receiver: Name) -> bool:
        """True if what is cut is also to be received in pieces."""
        return self._get("fragment", sender, receiver) is not None


def draw_latency(latency: Latency, rng: random.Random) -> float:
    """A number of seconds; ValueError or TypeError if a function gives none."""
    if callable(latency):
        seconds = latency(rng)
        _check_seconds("what the latency function returns", seconds)
        return seconds
    return rng.uniform(*latency) if isinstance(latency, tuple) else latency


def draw_fragment(fragment: Any, rng: random.Random) -> int:
    """A number of bytes; ValueError or TypeError if a function gives none."""
    if callable(fragment):
        size: int = fragment(rng)
        _check_size("what the fragment function returns", size)
        return size
    return rng.randint(*fragment) if isinstance(fragment, tuple) else fragment


def check_latency(latency: Any) -> None:
    if isinstance(latency, tuple):
        _check_range("latency", latency, _check_seconds)
    elif not callable(latency):
        _check_seconds("latency", latency)


def check_bandwidth(bandwidth: Any) -> None:
    if bandwidth is None:
        return
    _check_number("bandwidth", bandwidth, "bytes per second, or None")
    if bandwidth <= 0:
        raise ValueError(f"bandwidth must be positive: {bandwidth!r}")


def check_fragment(fragment: Any) -> None:
    if isinstance(fragment, tuple):
        _check_range("fragment", fragment, _check_size)
    elif fragment is not None and not callable(fragment):
        _check_size("fragment", fragment)


def check_buffer(buffer: Any) -> None:
    _check_size("buffer", buffer)


def _check_range(name: str, limits: tuple[Any, ...], check: Callable[[str, Any], None]) -> None:
    if len(limits) != 2:
        raise ValueError(f"{name} must be a number, (lowest, highest) or a function, not {limits!r}")
    for limit in limits:
        check(name, limit)
    if limits[0] > limits[1]:
        raise ValueError(f"{name} must be (lowest, highest): {limits!r}")


def _check_number(name: str, value: Any, what: str) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of {what}, not {value!r}")
    if not isfinite(value):
        raise ValueError(f"{name} must be finite, not {value!r}")


def _check_seconds(name: str, value: Any) -> None:
    _check_number(name, value, "seconds")
    if value < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")


def _check_size(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of bytes, not {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be positive: {value!r}")
