"""What the StopIteration is like by which this interpreter ends an `await` that has a result.

Up to 3.13.1 the exception being handled is its context, and a result of None is not in its `args`. Later versions set
no context and always have the result as an argument. Wheels are built once for all of 3.13, so the interpreter that
runs is asked.
"""

from collections.abc import Generator


def _returns_a_result() -> Generator[None, None, int]:
    yield from ()
    return 1


def _has_context() -> bool:
    try:
        raise LookupError
    except LookupError:
        try:
            next(_returns_a_result())
        except StopIteration as stop:
            return stop.__context__ is not None
    return False


stop_iteration_has_context = _has_context()
