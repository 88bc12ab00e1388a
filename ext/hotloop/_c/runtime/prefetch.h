/* Fetching objects into the processor's cache before they are used, for loops over many objects.
 *
 * With a hundred thousand timers every object is a cache miss, which costs as much as all the work on it. The loop
 * knows which objects come next, and asks for them some steps ahead.
 */
#ifndef HOTLOOP_RUNTIME_PREFETCH_H
#define HOTLOOP_RUNTIME_PREFETCH_H

#include <Python.h>
#include <stdint.h>

/* How many objects ahead. The time that a few of them take is the time that memory takes. */
#define PREFETCH_DISTANCE 8

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address, 1)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* An object of up to 144 bytes, with the garbage collector's words in front of it. */
static inline void prefetch_object(const PyObject *object)
{
    /* A number, because it may be NULL, from which no pointer may be computed. */
    uintptr_t first = (uintptr_t)object - 2 * sizeof(void *);

    PREFETCH((const void *)first);
    PREFETCH((const void *)(first + 64));
    PREFETCH((const void *)(first + 128));
}

#endif
