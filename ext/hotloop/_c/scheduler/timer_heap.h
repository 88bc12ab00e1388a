/* A binary heap of deadlines: the earliest first, and among equal ones the first made.
 *
 * The keys lie side by side in one array, and nothing else is touched to find a place in it: with ten thousand timers
 * pending, moving a key costs a few nanoseconds, and telling a timer where it is now would cost a cache miss. So a timer
 * does not know its place. It has a slot in a table, and a cancelled one leaves the slot at once, but not the heap: its key
 * is dead, which shows by its order not being the slot's any more. Dead keys go when they come to the top, or all at once
 * when they are the majority.
 *
 * Which of two keys is earlier is a coin toss that no branch predictor wins. So a deadline is kept as an integer of the same
 * order, and the comparison is arithmetic: taking the first of twenty thousand out costs two thirds of what it costs with
 * branches.
 */
#ifndef HOTLOOP_SCHEDULER_TIMER_HEAP_H
#define HOTLOOP_SCHEDULER_TIMER_HEAP_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t rank;   /* of the deadline: timer_rank() */
    uint64_t order;  /* among equal deadlines; never 0 */
    Py_ssize_t slot; /* of the timer, while the slot has the same order */
} timer_key;

typedef struct {
    double deadline;
    Py_ssize_t slot;
} timer_due;

typedef struct {
    timer_key *keys;
    Py_ssize_t count;     /* of keys, dead ones included */
    Py_ssize_t live;      /* of timers */
    Py_ssize_t capacity;  /* of each array; there are never more slots than keys */
    uint64_t *orders;     /* by slot; 0: the slot is free */
    Py_ssize_t *free;     /* slots that have been given back, the last one first */
    Py_ssize_t free_count;
    Py_ssize_t slots;     /* that were ever in use */
    uint64_t pushed;      /* since the beginning */
    timer_due first;      /* what timer_heap_first() has found */
} timer_heap;

/* Below so many keys dead ones are left alone. */
#define TIMER_HEAP_TIDY 64

#define TIMER_SIGN ((uint64_t)1 << 63)

/* An integer that is less than another's if the deadline is, and equal if it is. The deadline is not a NaN.
 *
 * IEEE 754 numbers of the same sign are ordered as their bits are, negative ones the other way round. */
static inline uint64_t timer_rank(double deadline)
{
    uint64_t bits;

    deadline += 0.0; /* makes -0.0 positive */
    memcpy(&bits, &deadline, sizeof bits);
    return bits & TIMER_SIGN ? ~bits : bits | TIMER_SIGN;
}

static inline double timer_rank_deadline(uint64_t rank)
{
    uint64_t bits = rank & TIMER_SIGN ? rank & ~TIMER_SIGN : ~rank;
    double deadline;

    memcpy(&deadline, &bits, sizeof deadline);
    return deadline;
}

/* 1 or 0, without a branch. */
static inline int timer_key_before(const timer_key *one, const timer_key *other)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 timer_place;

    return ((timer_place)one->rank << 64 | one->order) < ((timer_place)other->rank << 64 | other->order);
#else
    return (one->rank < other->rank) | ((one->rank == other->rank) & (one->order < other->order));
#endif
}

static inline int timer_key_live(const timer_heap *heap, const timer_key *key)
{
    return heap->orders[key->slot] == key->order;
}

/* Put `key` where it belongs between the free place `index` and the root. */
static inline void timer_heap_rise(timer_heap *heap, Py_ssize_t index, timer_key key)
{
    while (index > 0) {
        Py_ssize_t above = (index - 1) / 2;

        if (!timer_key_before(&key, &heap->keys[above]))
            break;
        heap->keys[index] = heap->keys[above];
        index = above;
    }
    heap->keys[index] = key;
}

/* Put `key` into the free place `index`. It came from the end of the heap and belongs near a leaf, so the place is first
 * filled from below all the way down, without looking at the key. */
static inline void timer_heap_sink(timer_heap *heap, Py_ssize_t index, timer_key key)
{
    Py_ssize_t below;

    while ((below = 2 * index + 2) < heap->count) {
        below -= timer_key_before(&heap->keys[below - 1], &heap->keys[below]);
        heap->keys[index] = heap->keys[below];
        index = below;
    }
    if (below == heap->count) {
        heap->keys[index] = heap->keys[below - 1];
        index = below - 1;
    }
    timer_heap_rise(heap, index, key);
}

static inline void timer_heap_drop_first(timer_heap *heap)
{
    timer_key last = heap->keys[--heap->count];

    if (heap->count)
        timer_heap_sink(heap, 0, last);
}

/* 0, or -1: no memory. */
static inline int timer_heap_grow(timer_heap *heap)
{
    Py_ssize_t capacity = heap->capacity ? 2 * heap->capacity : 64;
    void *keys = PyMem_Realloc(heap->keys, (size_t)capacity * sizeof *heap->keys);
    void *orders = keys == NULL ? NULL : PyMem_Realloc(heap->orders, (size_t)capacity * sizeof *heap->orders);
    void *freed = orders == NULL ? NULL : PyMem_Realloc(heap->free, (size_t)capacity * sizeof *heap->free);

    if (keys != NULL)
        heap->keys = keys;
    if (orders != NULL)
        heap->orders = orders;
    if (freed == NULL)
        return -1;
    heap->free = freed;
    heap->capacity = capacity;
    return 0;
}

/* The slot of the new timer, or -1: no memory. */
static inline Py_ssize_t timer_heap_push(timer_heap *heap, double deadline)
{
    timer_key key = {timer_rank(deadline), heap->pushed + 1, 0};

    if (heap->count == heap->capacity && timer_heap_grow(heap) < 0)
        return -1;
    key.slot = heap->free_count ? heap->free[--heap->free_count] : heap->slots++;
    heap->orders[key.slot] = key.order;
    heap->pushed++;
    heap->live++;
    timer_heap_rise(heap, heap->count++, key);
    return key.slot;
}

static inline void timer_heap_release(timer_heap *heap, Py_ssize_t slot)
{
    heap->orders[slot] = 0;
    heap->free[heap->free_count++] = slot;
    heap->live--;
}

/* Take the dead keys out: sort the rest together, then make them a heap again from below. */
static inline void timer_heap_tidy(timer_heap *heap)
{
    Py_ssize_t index, kept = 0;

    for (index = 0; index < heap->count; index++)
        if (timer_key_live(heap, &heap->keys[index]))
            heap->keys[kept++] = heap->keys[index];
    heap->count = kept;
    for (index = kept / 2 - 1; index >= 0; index--) {
        timer_key key = heap->keys[index];
        Py_ssize_t hole = index, below;

        while ((below = 2 * hole + 1) < kept) {
            if (below + 1 < kept && timer_key_before(&heap->keys[below + 1], &heap->keys[below]))
                below++;
            if (!timer_key_before(&heap->keys[below], &key))
                break;
            heap->keys[hole] = heap->keys[below];
            hole = below;
        }
        heap->keys[hole] = key;
    }
}

static inline void timer_heap_cancel(timer_heap *heap, Py_ssize_t slot)
{
    timer_heap_release(heap, slot);
    /* The usual timeout is cancelled soon after it was set, when it may still be the last. */
    while (heap->count && !timer_key_live(heap, &heap->keys[heap->count - 1]))
        heap->count--;
    if (heap->count > TIMER_HEAP_TIDY && heap->count > 2 * heap->live)
        timer_heap_tidy(heap);
}

/* The earliest timer, until the next call; NULL: there is none. */
static inline const timer_due *timer_heap_first(timer_heap *heap)
{
    while (heap->count && !timer_key_live(heap, &heap->keys[0]))
        timer_heap_drop_first(heap);
    if (heap->count == 0)
        return NULL;
    heap->first.deadline = timer_rank_deadline(heap->keys[0].rank);
    heap->first.slot = heap->keys[0].slot;
    return &heap->first;
}

/* Take out the timer that timer_heap_first() has found. */
static inline void timer_heap_pop(timer_heap *heap)
{
    timer_heap_release(heap, heap->keys[0].slot);
    timer_heap_drop_first(heap);
}

/* Forget everything, and give the memory back. */
static inline void timer_heap_clear(timer_heap *heap)
{
    PyMem_Free(heap->keys);
    PyMem_Free(heap->orders);
    PyMem_Free(heap->free);
    heap->keys = NULL;
    heap->orders = NULL;
    heap->free = NULL;
    heap->count = heap->live = heap->capacity = heap->free_count = heap->slots = 0;
}

#endif
