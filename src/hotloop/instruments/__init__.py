"""Instruments for programs in production. They show what blocks a loop, and what its tasks wait for.

    hotloop.run(main(), stall_after=0.25, dump_tasks_on=signal.SIGUSR1)

They read state that loops and tasks keep anyway, mostly from another thread or a signal handler. A program that does
not ask for them imports none of them and pays nothing.
"""
