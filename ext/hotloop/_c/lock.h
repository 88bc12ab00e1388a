/* What other threads may touch of a loop: nothing but its inbox and its `asleep` flag.
 *
 * With the GIL, whoever runs Python code excludes everybody else, so the inbox is not needed: another thread puts its
 * handle on the ready queue itself, in the order that asyncio would. Without the GIL the inbox has a lock of its own. Closing
 * the loop takes it too, so that nobody wakes a poller whose descriptor may be another file's by then.
 *
 * What else other threads look at is a number that only the loop's thread sets (seen_*), or is under a handle's own lock.
 */
#ifndef HOTLOOP_LOCK_H
#define HOTLOOP_LOCK_H

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
