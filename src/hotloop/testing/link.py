"""The properties of the links between hosts: how long bytes take, and in what pieces they arrive.

Random values come from a seeded generator, which is also passed to functions of the test.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from hotloop.testing.number_checks import check_number, check_seconds, check_size

Latency: TypeAlias = float | tuple[float, float] | Callable[[random.Random], float]
"""Seconds from one host to the other: a number, a range to draw from, or a function that returns it each time."""

Fragment: TypeAlias = int | tuple[int, int] | Callable[[random.Random], int] | None
"""The size in bytes of the pieces that arrive, given in the same three ways; None: as they were written."""

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()
"""The default of keywords that leave a setting as it is."""

FIELDS = ("latency", "bandwidth", "fragment")


def host_key(name: str) -> str:
    """By which a host is known: names differ neither by upper case nor by the dot that ends a complete name."""
    return name.lower().removesuffix(".")


class Name(tuple[str, str]):
    """One side of a connection, for matching settings: the name of its host, and its address."""

    __slots__ = ()

    def is_called(self, name: str | None) -> bool:
        """True if a setting for `name` applies to this side. None applies to every host."""
        return name is None or name in self


class Links:
    """The settings of all links from one host to another. For each field, the latest that applies decides."""

    def __init__(self, **settings: Any) -> None:
        # By sender and receiver.
        self._values: dict[str, dict[tuple[str | None, str | None], Any]] = {field: {} for field in FIELDS}
        self.set(None, None, **settings)

    def set(self, sender: str | None, receiver: str | None, **settings: Any) -> None:
        """Change settings. For an invalid value, raise TypeError or ValueError before anything has changed."""
        checks = {"latency": check_latency, "bandwidth": check_bandwidth, "fragment": check_fragment}
        settings = {field: value for field, value in settings.items() if value is not UNSET}
        for field, value in settings.items():
            checks[field](value)
        for field, value in settings.items():
            # The new one comes last, even if there was one for the same two.
            self._values[field].pop((sender, receiver), None)
            self._values[field][sender, receiver] = value

    def _get(self, field: str, sender: Name, receiver: Name) -> Any:
        for (one, other), value in reversed(self._values[field].items()):
            if sender.is_called(one) and receiver.is_called(other):
                return value
        raise AssertionError("the first settings are for all links")

    def latency(self, sender: Name, receiver: Name, rng: random.Random) -> float:
        """The seconds that the next piece takes."""
        return draw_latency(self._get("latency", sender, receiver), rng)

    def bandwidth(self, sender: Name, receiver: Name) -> float | None:
        """Bytes per second; None: no limit."""
        bandwidth: float | None = self._get("bandwidth", sender, receiver)
        return bandwidth

    def pieces(self, data: bytes, sender: Name, receiver: Name, rng: random.Random) -> Iterator[bytes]:
        """`data`, cut into pieces."""
        fragment = self._get("fragment", sender, receiver)
        start = 0
        while start < len(data):
            end = len(data) if fragment is None else start + draw_fragment(fragment, rng)
            yield data[start:end]
            start = end

    def keeps_pieces_apart(self, sender: Name, receiver: Name) -> bool:
        """True if the receiver must read each piece separately."""
        return self._get("fragment", sender, receiver) is not None


def draw_latency(latency: Latency, rng: random.Random) -> float:
    """A number of seconds. Raises ValueError or TypeError if the test's function returns none."""
    if callable(latency):
        seconds = latency(rng)
        check_seconds("what the latency function returns", seconds)
        return seconds
    return rng.uniform(*latency) if isinstance(latency, tuple) else latency


def draw_fragment(fragment: Any, rng: random.Random) -> int:
    """A number of bytes. Raises ValueError or TypeError if the test's function returns none."""
    if callable(fragment):
        size: int = fragment(rng)
        check_size("what the fragment function returns", size)
        return size
    return rng.randint(*fragment) if isinstance(fragment, tuple) else fragment


def check_latency(latency: Any) -> None:
    if isinstance(latency, tuple):
        _check_range("latency", latency, check_seconds)
    elif not callable(latency):
        check_seconds("latency", latency)


def check_bandwidth(bandwidth: Any) -> None:
    if bandwidth is None:
        return
    check_number("bandwidth", bandwidth, "bytes per second, or None")
    if bandwidth <= 0:
        raise ValueError(f"bandwidth must be positive: {bandwidth!r}")


def check_fragment(fragment: Any) -> None:
    if isinstance(fragment, tuple):
        _check_range("fragment", fragment, check_size)
    elif fragment is not None and not callable(fragment):
        check_size("fragment", fragment)


def _check_range(name: str, limits: tuple[Any, ...], check: Callable[[str, Any], None]) -> None:
    if len(limits) != 2:
        raise ValueError(f"{name} must be a number, (lowest, highest) or a function, not {limits!r}")
    for limit in limits:
        check(name, limit)
    if limits[0] > limits[1]:
        raise ValueError(f"{name} must be (lowest, highest): {limits!r}")
