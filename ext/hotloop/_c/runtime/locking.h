/* Which parts of a loop other threads may touch, and how.
 *
 * With the GIL, the thread that runs Python code excludes all others, and nothing here costs an instruction. Without the
 * GIL the rules are these:
 *
 * - The ready queue, the timers, futures, tasks and handles are changed in a critical section of the object
 *   (object_section). call_soon_threadsafe() needs that of the ready queue; asyncio's documents forbid most of the other
 *   calls from other threads, but a program that makes them must not crash.
 * - Waking a loop's poller and closing the loop exclude each other (wake_lock): no thread wakes a poller whose
 *   descriptor number may belong to another file by then.
 * - Attributes of a loop or a transport that other threads read, such as the task factory, are replaced and read in a
 *   critical section of the object: the reader's reference must be counted before the object can be freed.
 * - Transports and the poller have no other locks. While the loop runs, a call from another thread is posted to the
 *   loop's thread.
 * - All else that other threads read are numbers, each set by one thread only or in a critical section (load_acquire,
 *   store_release, published).
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

/* `number` points to an int, unsigned int, unsigned long or Py_ssize_t. A thread that reads the new value also sees all
 * stores made before it. */
#define store_release(number, value) __atomic_store_n(number, value, __ATOMIC_RELEASE)
#define load_acquire(number) __atomic_load_n(number, __ATOMIC_ACQUIRE)

#ifdef Py_GIL_DISABLED
#define FREE_THREADED 1

/* As store_release() and load_acquire(), but an ordinary access is enough with the GIL. */
#define publish(number, value) store_release(number, value)
#define published(number) load_acquire(number)

/* Between a store and the load of another variable: the load happens after other threads can see the store. */
static inline void shared_fence(void) { atomic_thread_fence(memory_order_seq_cst); }

typedef PyMutex wake_lock;
static inline void wake_lock_acquire(wake_lock *lock) { PyMutex_Lock(lock); }
static inline void wake_lock_release(wake_lock *lock) { PyMutex_Unlock(lock); }

/* Of one object. Nothing that can run Python code may come between entering and leaving: it would release the lock for
 * that time.
 *
 * Where a block may return or raise, and nothing depends on its speed, `with cython.critical_section(object)` is the
 * same, and shorter. With the GIL that still counts a reference to the object. */
typedef PyCriticalSection object_section;
static inline void section_enter(object_section *section, PyObject *object)
{
    PyCriticalSection_Begin(section, object);
}
static inline void section_leave(object_section *section) { PyCriticalSection_End(section); }

/* One counter for all threads: 1, 2, ... */
typedef atomic_ullong shared_count;
static inline unsigned long long shared_next(shared_count *count)
{
    return atomic_fetch_add_explicit(count, 1, memory_order_relaxed) + 1;
}
#else
#define FREE_THREADED 0

#define publish(number, value) (*(number) = (value))
#define published(number) (*(number))

static inline void shared_fence(void) {}

typedef char wake_lock;
static inline void wake_lock_acquire(wake_lock *lock) { (void)lock; }
static inline void wake_lock_release(wake_lock *lock) { (void)lock; }

typedef char object_section;
#define section_enter(section, object) ((void)(section))
#define section_leave(section) ((void)(section))

typedef unsigned long long shared_count;
static inline unsigned long long shared_next(shared_count *count) { return ++*count; }
#endif

#endif
