/* What other threads may touch of a loop, and how.
 *
 * With the GIL, the thread that runs Python code excludes all others, and nothing here costs an instruction. Another thread puts
 * its handle on the ready queue itself, in the order that asyncio would. Without the GIL the rules are these:
 *
 * - call_soon_threadsafe() goes through the loop's inbox, which has a lock of its own. Closing the loop takes it too, so that
 *   no thread wakes a poller whose descriptor may be another file's by then.
 * - The ready queue, the timers, futures, tasks and handles are changed in a critical section of the object (object_section).
 *   asyncio's documents forbid most of these calls from other threads, but a program that makes them must not crash.
 * - Transports and the poller have no locks. A call from another thread while the loop runs is posted to the loop's thread.
 * - What else other threads look at is a number that one thread sets, or that is set in a section (seen_*, glimpse).
 */
#ifndef HOTLOOP_RUNTIME_LOCKING_H
#define HOTLOOP_RUNTIME_LOCKING_H

#include <Python.h>
#include <stdatomic.h>

typedef atomic_int shared_flag;

static inline void shared_set(shared_flag *flag, int value) { atomic_store(flag, value); }
static inline int shared_get(shared_flag *flag) { return atomic_load(flag); }
static inline int shared_exchange(shared_flag *flag, int value) { return atomic_exchange(flag, value); }
static inline int shared_peek(shared_flag *flag) { return atomic_load_explicit(flag, memory_order_acquire); }

/* Of type int, unsigned int or unsigned long. What was stored before is seen by whoever sees the new value. */
#define seen_set(number, value) __atomic_store_n(number, value, __ATOMIC_RELEASE)
#define seen_get(number) __atomic_load_n(number, __ATOMIC_ACQUIRE)

#ifdef Py_GIL_DISABLED
#define FREE_THREADED 1

/* The same, where with the GIL an ordinary access does. */
#define settle(number, value) seen_set(number, value)
#define glimpse(number) seen_get(number)

typedef PyMutex inbox_lock;
static inline void inbox_acquire(inbox_lock *lock) { PyMutex_Lock(lock); }
static inline void inbox_release(inbox_lock *lock) { PyMutex_Unlock(lock); }

/* Of one object: between the two nothing that can run Python code, which would give the lock away meanwhile. */
typedef PyCriticalSection object_section;
static inline void section_enter(object_section *section, PyObject *object) { PyCriticalSection_Begin(section, object); }
static inline void section_leave(object_section *section) { PyCriticalSection_End(section); }

/* Counts for all threads: 1, 2, ... */
typedef atomic_ullong shared_count;
static inline unsigned long long shared_next(shared_count *count)
{
    return atomic_fetch_add_explicit(count, 1, memory_order_relaxed) + 1;
}
#else
#define FREE_THREADED 0

#define settle(number, value) (*(number) = (value))
#define glimpse(number) (*(number))

typedef char inbox_lock;
static inline void inbox_acquire(inbox_lock *lock) { (void)lock; }
static inline void inbox_release(inbox_lock *lock) { (void)lock; }

typedef char object_section;
#define section_enter(section, object) ((void)(section))
#define section_leave(section) ((void)(section))

typedef unsigned long long shared_count;
static inline unsigned long long shared_next(shared_count *count) { return ++*count; }
#endif

#endif
