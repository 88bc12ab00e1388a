"""The processor time of another thread: how much of a stall its callback has worked, and not waited.

Known on Linux only. time.pthread_getcpuclockid() must not be called for a thread that may end meanwhile, because it
reads that thread's memory. So the number of the clock is made here, as the C libraries do, of the kernel's number of
the thread: the kernel refuses the clock of a thread that has ended.
"""

import sys
import threading
import time

_OF_A_THREAD = 0b110
"""The low bits of such a clock's number (CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED)."""


def cpu_time_of(thread_id: int) -> float | None:
    """For how many seconds a thread of this process has been on a processor, by its threading.get_ident().

    None if it has ended, if the threading module does not know it, or on another system."""
    native_id = _native_id(thread_id)
    if sys.platform != "linux" or native_id is None:
        return None
    try:
        return time.clock_gettime(~native_id << 3 | _OF_A_THREAD)
    except OSError:
        return None


def _native_id(thread_id: int) -> int | None:
    main = threading.main_thread()
    # Mostly the loop is in the main thread, and the watchdog asks often.
    threads = [main] if main.ident == thread_id else threading.enumerate()
    return next((thread.native_id for thread in threads if thread.ident == thread_id), None)
