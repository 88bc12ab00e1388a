/* The clocks of the loop.
 *
 * clock_seconds() is time.monotonic() to the bit: timers, loop.time() and everything else that a user sees use it.
 * clock_ticks() is a counter of an unspecified unit; reading it costs a third of reading the clock. The loop asks it
 * once per batch of callbacks whether the time slice between two polls has passed; loop.metrics() takes its times from
 * it, too.
 * clock_ticks_per_slice() converts nanoseconds to ticks.
 * clock_cpu_nanoseconds() is time.thread_time_ns(), for reports of slow callbacks.
 */
#ifndef HOTLOOP_SYSTEM_CLOCK_H
#define HOTLOOP_SYSTEM_CLOCK_H

#include <Python.h>
#include <stdint.h>
#include <time.h>

static inline int64_t clock_nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* time.monotonic() is CLOCK_MONOTONIC everywhere but on macOS, where it is mach_absolute_time(). */
static inline double clock_seconds(void)
{
#if defined(__APPLE__) && PY_VERSION_HEX >= 0x030D0000
    PyTime_t now;

    (void)PyTime_MonotonicRaw(&now);
    return PyTime_AsSecondsDouble(now);
#elif defined(__APPLE__)
    return _PyTime_AsSecondsDouble(_PyTime_GetMonotonicClock());
#else
    int64_t now = clock_nanoseconds();

    /* As CPython does: exact for whole seconds, one rounding otherwise. */
    if (now % 1000000000 == 0)
        return (double)(now / 1000000000);
    return (double)now / 1e9;
#endif
}

static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;

    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return ((uint64_t)high << 32) | low;
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return (uint64_t)clock_nanoseconds();
#endif
}

/* How long the calling thread has been on a processor; -1 where the system does not tell. This is a system call: 0.2
 * us, on some virtual machines 1 us. */
static inline int64_t clock_cpu_nanoseconds(void)
{
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec now;

    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
    return -1;
}

/* Read both clocks at the same moment. The process may be interrupted between two readings, for longer than the whole
 * measurement; so of ten tries the one counts whose readings lie closest together. */
static inline void clock_both(int64_t *nanoseconds, uint64_t *ticks)
{
    uint64_t closest = UINT64_MAX;

    for (int tries = 0; tries < 10; tries++) {
        uint64_t before = clock_ticks();
        int64_t now = clock_nanoseconds();
        uint64_t apart = clock_ticks() - before;

        if (apart < closest) {
            closest = apart;
            *ticks = before + apart / 2;
            *nanoseconds = now;
        }
    }
}

/* Measure the counter against the clock for 20 us. The result is 0 for a counter that stands still or runs backwards;
 * then every batch polls, as in asyncio: slower, never wrong. */
static inline uint64_t clock_ticks_per_slice(int64_t nanoseconds)
{
    int64_t began = 0, ended = 0;
    uint64_t began_ticks = 0, ended_ticks = 0;

    clock_both(&began, &began_ticks);
    while (clock_nanoseconds() - began < 20000) {
    }
    clock_both(&ended, &ended_ticks);
    if (ended_ticks - began_ticks > (uint64_t)1 << 40)
        return 0;
    return (uint64_t)((double)(ended_ticks - began_ticks) / (double)(ended - began) * (double)nanoseconds);
}

#endif
