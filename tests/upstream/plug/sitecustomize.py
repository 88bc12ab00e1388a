"""Makes the loop under test asyncio's default in every Python that starts with this folder on PYTHONPATH.

That includes the workers of pytest-xdist and the programs that tests start, before any code has read asyncio's names.
"""

import os

try:
    from conformance import binding

    binding.choose(os.environ["HOTLOOP_UPSTREAM"])
except Exception as error:
    # site prints any other exception and goes on, with asyncio's own loop.
    raise SystemExit(f"the loop under test does not load: {type(error).__name__}: {error}") from error
