"""check_install.py ROOT IMPLEMENTATION: fail unless this Python imports an installed hotloop that chooses it."""

import sys
from pathlib import Path

import hotloop

root, wanted = sys.argv[1:]
home = Path(hotloop.__file__)
print(f"{sys.version.split()[0]}: {home.parent}, implementation {hotloop.implementation}")
if home.is_relative_to(Path(root, "src").resolve()) or not home.is_relative_to(sys.prefix):
    sys.exit(f"imported from {home.parent}, not from {sys.prefix}")
if hotloop.implementation != wanted:
    sys.exit(f"the implementation should be {wanted}")
