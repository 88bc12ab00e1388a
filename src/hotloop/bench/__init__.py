"""`python -m hotloop bench`: hotloop and the other event loops side by side, on this machine, in one run.

    rows/       what is measured: short functions that do an operation n times on whatever loop they are given
    load/       the clients of the network rows, in C, and the bare server those rows are held against
    identity    the certificate of the TLS servers
    targets     what it is measured on: the loops, how each is made, what it must turn out to be
    worker      one process for each loop, which times rows on request
    runner      the parent: starts the workers and goes from one to the next in every round
    results     medians, ratios, geometric means
    report      the text table and the JSON file
    saved       the JSON file read again
    plot        the picture
    cli         the options

A rival is measured in a process that nothing of hotloop has touched: no file here imports anything of hotloop but this
package, and hotloop's own __init__ loads nothing before it is asked for a name.
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the benchmark with these command-line arguments (without the program's name); returns the exit code."""
    # Here and not above, because the workers import this package too and must not load what only the parent uses.
    from .cli import run

    return run(argv)
