"""run() and run_seeds(): run coroutines on loops with virtual time, once or under many seeds."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from hotloop.testing.loop import IO_GRACE, MAX_JUMPS, new_event_loop

_T = TypeVar("_T")


def run(
    main: Coroutine[Any, Any, _T],
    *,
    start: float = 0.0,
    shuffle: int | str | None = None,
    relax: Collection[str] = (),
    io_grace: float = IO_GRACE,
    patience: float | None = None,
    max_jumps: int | None = MAX_JUMPS,
    debug: bool | None = None,
) -> _T:
    """hotloop.run() on a loop of new_event_loop(), which explains the other keywords."""
    _check_not_running("run()")
    factory = partial(
        new_event_loop,
        start=start,
        shuffle=shuffle,
        relax=relax,
        io_grace=io_grace,
        patience=patience,
        max_jumps=max_jumps,
    )
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


def run_seeds(
    test: Callable[[], Coroutine[Any, Any, _T]],
    *,
    seeds: int | Iterable[int | str] = 100,
    start: float = 0.0,
    relax: Collection[str] = (),
    io_grace: float = IO_GRACE,
    patience: float | None = None,
    max_jumps: int | None = MAX_JUMPS,
    debug: bool | None = None,
) -> list[_T]:
    """Run the coroutine function `test` once for each seed, each time on a new loop; return what it returned, by seed.

    `seeds` are the seeds, or a number of seeds, counted from 0. The first seed that fails ends it: its exception is
    raised, with a note of the seed and of how many passed before. Raises ValueError if there is no seed, TypeError for
    other `seeds`, such as one string or a bool, and RuntimeError if an event loop is already running in this thread.
    """
    _check_not_running("run_seeds()")
    if isinstance(seeds, (str, bool)) or not isinstance(seeds, (int, Iterable)):
        raise TypeError(f"seeds must be a number or an iterable of seeds, not {seeds!r}")
    options: dict[str, Any] = {"start": start, "relax": relax, "io_grace": io_grace, "patience": patience}
    options |= {"max_jumps": max_jumps, "debug": debug}
    results: list[_T] = []
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        try:
            results.append(run(test(), shuffle=seed, **options))
        except BaseException as error:
            error.add_note(f"hotloop.testing: seed {seed!r} is the first that fails, {len(results)} passed before it")
            raise
    if not results:
        raise ValueError("there must be at least one seed")
    return results


def _check_not_running(name: str) -> None:
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(f"hotloop.testing.{name} cannot be called from a running event loop")
