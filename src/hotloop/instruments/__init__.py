"""Instruments for programs in production: what blocks a loop, and what its tasks wait for.

    hotloop.run(main(), stall_after=0.25, dump_tasks_on=signal.SIGUSR1)

They read what loops and tasks have anyway, mostly from another thread or a signal handler; so a program that does not
ask for them pays nothing, and none is imported.
"""
