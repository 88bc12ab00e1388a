/* A binary heap of deadlines: the earliest first, equal ones in the order in which they were pushed.
 *
 * The keys lie side by side in one array, and sifting touches nothing else: with ten thousand timers pending, moving a
 * key costs a few nanoseconds, and telling the timer its new place would cost a cache miss. So a timer does not know
 * its place in the heap. It has a slot in a table instead. A cancelled timer gives up its slot at once, but its key
 * stays in the heap, dead: the key's order is no longer the slot's. Dead keys are removed when they reach the top, or
 * all together when they are the majority.
 *
 * No branch predictor can guess which of two keys is earlier. So a deadline is kept as an integer that sorts in the
 * same way, and keys are compared by arithmetic: popping the first of twenty thousand takes two thirds of the time that
 * it takes with branches.
 */
#ifndef HOTLOOP_SCHEDULER_TIMER_HEAP_H
#define HOTLOOP_SCHEDULER_TIMER_HEAP_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t rank;   /* of the deadline: timer_rank() */
    uint64_t order;  /* sorts equal deadlines; never 0 */
    Py_ssize_t slot; /* the timer's, as long as orders[slot] == order */
} timer_key;

typedef struct {
    double deadline;
    Py_ssize_t slot;
} timer_due;

typedef struct {
    timer_key *keys;
    Py_ssize_t count;     /* of keys, dead ones included */
    Py_ssize_t live;      /* keys that are not dead: the number of timers */
    Py_ssize_t capacity;  /* of each array; there are never more slots than keys */
    uint64_t *orders;     /* by slot; 0: the slot is free */
    Py_ssize_t *free;     /* a stack of the free slots below `slots` */
    Py_ssize_t free_count;
    Py_ssize_t slots;     /* how many were ever in use */
    uint64_t pushed;      /* how many timers were ever pushed */
    timer_due first;      /* the result of timer_heap_first() */
} timer_heap;

/* With at most this many keys, dead keys are left in place. */
#define TIMER_HEAP_SMALL 64

#define TIMER_SIGN ((uint64_t)1 << 63)

/* An integer that sorts as the deadline does; equal deadlines have equal ranks. The deadline must not be a NaN.
 *
 * IEEE 754 numbers of the same sign sort as their bits do, negative ones in reverse. */
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

/* 1 if `one` is the earlier key, else 0; without a branch. */
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
static inline void timer_heap_sift_up(timer_heap *heap, Py_ssize_t index, timer_key key)
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

/* Fill the free place `index` again. `key` comes from the end of the heap and belongs near a leaf, so the free place
 * first moves down to a leaf, without comparisons with the key, which then rises from there. */
static inline void timer_heap_sift_down(timer_heap *heap, Py_ssize_t index, timer_key key)
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
    timer_heap_sift_up(heap, index, key);
}

static inline void timer_heap_drop_first(timer_heap *heap)
{
    timer_key last = heap->keys[--heap->count];

    if (heap->count)
        timer_heap_sift_down(heap, 0, last);
}

/* Returns 0; -1: no memory. */
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

/* Returns the slot of the new timer; -1: no memory. */
static inline Py_ssize_t timer_heap_push(timer_heap *heap, double deadline)
{
    timer_key key = {timer_rank(deadline), heap->pushed + 1, 0};

    if (heap->count == heap->capacity && timer_heap_grow(heap) < 0)
        return -1;
    key.slot = heap->free_count ? heap->free[--heap->free_count] : heap->slots++;
    heap->orders[key.slot] = key.order;
    heap->pushed++;
    heap->live++;
    timer_heap_sift_up(heap, heap->count++, key);
    return key.slot;
}

static inline void timer_heap_free_slot(timer_heap *heap, Py_ssize_t slot)
{
    heap->orders[slot] = 0;
    heap->free[heap->free_count++] = slot;
    heap->live--;
}

/* Remove the dead keys: move the live ones together, then make them a heap again, bottom-up. */
static inline void timer_heap_remove_dead(timer_heap *heap)
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
    timer_heap_free_slot(heap, slot);
    /* Most timeouts are cancelled soon after they were set, when their key may still be the last. */
    while (heap->count && !timer_key_live(heap, &heap->keys[heap->count - 1]))
        heap->count--;
    if (heap->count > TIMER_HEAP_SMALL && heap->count > 2 * heap->live)
        timer_heap_remove_dead(heap);
}

/* The earliest timer, valid until the next call; NULL: there is none. */
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

/* Remove the timer that timer_heap_first() has just returned. */
static inline void timer_heap_pop(timer_heap *heap)
{
    timer_heap_free_slot(heap, heap->keys[0].slot);
    timer_heap_drop_first(heap);
}

/* Remove all timers, and free the memory. */
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
