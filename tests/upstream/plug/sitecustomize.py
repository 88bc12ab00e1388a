"""Makes the loop under test asyncio's default in every Python that starts with this folder on PYTHONPATH.

That includes the workers of pytest-xdist and the programs that tests start, before any code has read asyncio's names.
Subinterpreters, which tests of anyio make from Python 3.13 on, keep asyncio's loop: the extension is for the main one.
"""

import os


def in_subinterpreter() -> bool:
    try:
        import _interpreters
    except ImportError:
        return False
    return bool(_interpreters.get_current() != _interpreters.get_main())


try:
    if not in_subinterpreter():
        from conformance import binding

        binding.choose(os.environ["HOTLOOP_UPSTREAM"])
except Exception as error:
    # site prints any other exception and goes on, with asyncio's own loop.
    raise SystemExit(f"the loop under test does not load: {type(error).__name__}: {error}") from error
