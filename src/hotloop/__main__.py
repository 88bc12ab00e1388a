"""python -m hotloop"""

import sys

from hotloop.cli.main import main

if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Like plain python, a program that ends normally ends without a SystemExit.
    if status:
        sys.exit(status)
