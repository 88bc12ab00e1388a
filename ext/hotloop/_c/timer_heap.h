/* A binary heap of deadlines: the earliest first, and among equal ones the first made.
 *
 * The keys lie side by side in one array, so that finding a place touches no timer at all; a timer is told its own place,
 * so that it can be taken out from anywhere. The heap holds no references.
 */
#ifndef HOTLOOP_TIMER_HEAP_H
#define HOTLOOP_TIMER_HEAP_H

#include <Python.h>
#include <stdint.h>

typedef struct {
    Py_ssize_t index; /* in the heap, while it is in one */
    PyObject *timer;  /* borrowed: the object that this is a part of */
} timer_place;

typedef struct {
    double deadline;
    uint64_t order; /* among equal deadlines */
    timer_place *place;
} timer_entry;

typedef struct {
    timer_entry *entries;
    Py_ssize_t count;
    Py_ssize_t capacity;
    uint64_t pushed; /* since the beginning */
} timer_heap;

static inline int timer_entry_before(const timer_entry *one, const timer_entry *other)
{
    return one->deadline < other->deadline || (one->deadline == other->deadline && one->order < other->order);
}

static inline void timer_heap_put(timer_heap *heap, Py_ssize_t index, timer_entry entry)
{
    heap->entries[index] = entry;
    entry.place->index = index;
}

/* Put `entry` where it belongs between the free slot `index` and the root. */
static inline void timer_heap_rise(timer_heap *heap, Py_ssize_t index, timer_entry entry)
{
    while (index > 0) {
        Py_ssize_t above = (index - 1) / 2;

        if (!timer_entry_before(&entry, &heap->entries[above]))
            break;
        timer_heap_put(heap, index, heap->entries[above]);
        index = above;
    }
    timer_heap_put(heap, index, entry);
}

/* Fill the free slot `index` from below, down to a leaf. Returns the slot that is free then. */
static inline Py_ssize_t timer_heap_sink(timer_heap *heap, Py_ssize_t index)
{
    Py_ssize_t below;

    while ((below = 2 * index + 1) < heap->count) {
        if (below + 1 < heap->count && timer_entry_before(&heap->entries[below + 1], &heap->entries[below]))
            below++;
        timer_heap_put(heap, index, heap->entries[below]);
        index = below;
    }
    return index;
}

/* 0, or -1: no memory. */
static inline int timer_heap_push(timer_heap *heap, double deadline, timer_place *place)
{
    timer_entry entry = {deadline, heap->pushed, place};

    if (heap->count == heap->capacity) {
        Py_ssize_t capacity = heap->capacity ? 2 * heap->capacity : 64;
        timer_entry *entries = PyMem_Realloc(heap->entries, (size_t)capacity * sizeof *entries);

        if (entries == NULL)
            return -1;
        heap->entries = entries;
        heap->capacity = capacity;
    }
    heap->pushed++;
    timer_heap_rise(heap, heap->count++, entry);
    return 0;
}

static inline void timer_heap_remove(timer_heap *heap, timer_place *place)
{
    Py_ssize_t index = place->index;
    timer_entry last = heap->entries[--heap->count];

    /* The last one belongs near a leaf, so it is not compared on the way down. */
    if (last.place != place)
        timer_heap_rise(heap, timer_heap_sink(heap, index), last);
}

/* Give back what a burst has taken. */
static inline void timer_heap_free(timer_heap *heap)
{
    PyMem_Free(heap->entries);
    heap->entries = NULL;
    heap->count = heap->capacity = 0;
}

#endif
