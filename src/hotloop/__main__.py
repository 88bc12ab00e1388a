"""python -m hotloop"""

import sys

from hotloop.cli.main import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    # A program that ended normally ends as plain python would, without a SystemExit.
    if status:
        sys.exit(status)
