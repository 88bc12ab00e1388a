"""hotloop and the other event loops side by side: compare.py is the command, and the other scripts use parts of it.

    rows/       what is measured: short functions that do an operation n times on the loop that they are given
    load/       the clients of the network rows, in C, and the bare server with which those rows are compared
    databases/  the Redis and PostgreSQL servers of the rows that measure their clients
    identity    the certificate of the TLS servers
    targets     what it is measured on: the loops, how each is made, the classes that it must have
    worker      one process for each loop, which times rows on request
    timing      one round, and how many operations make a round long enough
    placement   rows whose two sides take turns, on one core
    runner      the parent: starts the workers and goes from one to the next in every round
    results     medians, ratios, geometric means
    machine     the machine and the Python, for the head of the report
    packages    the versions of the libraries that were measured, for the same
    report      the text table and the JSON file
    saved       the JSON file read again
    plot        the picture
    cli         the options

No file of this package imports hotloop: only the workers that measure it do. So a process that measures another loop
has loaded nothing of hotloop.
"""
