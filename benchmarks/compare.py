"""How fast is hotloop beside the other event loops, on this machine, in one run?

    python benchmarks/compare.py                                      # everything that is installed
    python benchmarks/compare.py --rows sleep,call_soon --rounds 15   # fewer rows, more rounds

hotloop_bench beside this file is the tool. README.md says how to measure well.
"""

import sys

from hotloop_bench.cli import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
