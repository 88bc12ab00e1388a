"""The limit on open file descriptors, which some rows need raised."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def descriptors_allowed(wanted: int) -> Iterator[None]:
    """Let this process open `wanted` more file descriptors; OSError where the hard limit is lower."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise OSError(f"needs {needed} file descriptors; the hard limit (ulimit -Hn) is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
