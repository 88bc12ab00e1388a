/* A binary heap of deadlines: the earliest first, equal ones in the order in which they were pushed.
 *
 * The keys lie side by side in one array, and sifting touches nothing else: with ten thousand timers pending, moving a
 * key costs a few nanoseconds, and telling the timer its new place would cost a cache miss. So a timer does not know
 * its place in the heap. It has a slot in a table instead, which owns its handle (runtime/slots.h). A cancelled timer
 * gives up its slot at once, but its key stays in the heap, dead: the key's order is no longer the slot's. Dead keys are
 * removed when they reach the top, or all together when they are the majority.
 *
 * No branch predictor can guess which of two keys is earlier. So a deadline is kept as an integer that sorts in the
 * same way, and keys are compared by arithmetic: popping the first of twenty thousand takes two thirds of the time that
 * it takes with branches.
 *
 * Where a great part of many timers is due at once, their keys leave the heap together, are sorted (timer_sort.h), and
 * wait in an array of their own, the run. The first timer is then the first of the run or of the heap.
 */
#ifndef HOTLOOP_SCHEDULER_TIMER_HEAP_H
#define HOTLOOP_SCHEDULER_TIMER_HEAP_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "runtime/prefetch.h"
#include "scheduler/timer_sort.h"

typedef struct {
    double deadline;
    Py_ssize_t slot;
} timer_due;

typedef struct {
    timer_key *keys;
    Py_ssize_t count;     /* of keys, dead ones included */
    Py_ssize_t live;      /* the number of timers: keys that are not dead, here and in the run */
    Py_ssize_t capacity;  /* of `keys`, `orders`, `handles` and `free` */
    uint64_t *orders;     /* by slot; 0: the slot is free */
    PyObject **handles;   /* by slot; NULL: the slot is free */
    Py_ssize_t *free;     /* a stack of the free slots below `slots` */
    Py_ssize_t free_count;
    Py_ssize_t slots;     /* how many were ever in use */
    uint64_t pushed;      /* how many timers were ever pushed */
    timer_key *run;       /* sorted keys; NULL: there are none */
    Py_ssize_t run_start; /* the index of the first that is left */
    Py_ssize_t run_end;
    timer_due first;      /* the result of timer_heap_first() */
    int first_in_run;
} timer_heap;

/* With at most this many keys, dead keys are left in place. */
#define TIMER_HEAP_SMALL 64

/* A run has at least this many keys. */
#define TIMER_RUN_SMALLEST 256

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
    void *handles = orders == NULL ? NULL : PyMem_Realloc(heap->handles, (size_t)capacity * sizeof *heap->handles);
    void *freed = handles == NULL ? NULL : PyMem_Realloc(heap->free, (size_t)capacity * sizeof *heap->free);

    if (keys != NULL)
        heap->keys = keys;
    if (orders != NULL)
        heap->orders = orders;
    if (handles != NULL)
        heap->handles = handles;
    if (freed == NULL)
        return -1;
    heap->free = freed;
    heap->capacity = capacity;
    return 0;
}

/* Returns the slot of the new timer; -1: no memory. */
static inline Py_ssize_t timer_heap_push(timer_heap *heap, double deadline, PyObject *handle)
{
    timer_key key = {timer_rank(deadline), heap->pushed + 1, 0};

    if ((heap->count == heap->capacity || (heap->free_count == 0 && heap->slots == heap->capacity))
        && timer_heap_grow(heap) < 0)
        return -1;
    key.slot = heap->free_count ? heap->free[--heap->free_count] : heap->slots++;
    heap->orders[key.slot] = key.order;
    heap->handles[key.slot] = Py_NewRef(handle);
    heap->pushed++;
    heap->live++;
    timer_heap_sift_up(heap, heap->count++, key);
    return key.slot;
}

/* Returns the handle, and with it the reference. */
static inline PyObject *timer_heap_free_slot(timer_heap *heap, Py_ssize_t slot)
{
    PyObject *handle = heap->handles[slot];

    heap->orders[slot] = 0;
    heap->handles[slot] = NULL;
    heap->free[heap->free_count++] = slot;
    heap->live--;
    return handle;
}

/* Make the keys a heap again, bottom-up; there are `kept` now, in any order. */
static inline void timer_heap_rebuild(timer_heap *heap, Py_ssize_t kept)
{
    Py_ssize_t index;

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

static inline void timer_heap_remove_dead(timer_heap *heap)
{
    Py_ssize_t index, kept = 0;

    for (index = 0; index < heap->count; index++)
        if (timer_key_live(heap, &heap->keys[index]))
            heap->keys[kept++] = heap->keys[index];
    timer_heap_rebuild(heap, kept);
}

/* Returns the handle, and with it the reference. */
static inline PyObject *timer_heap_cancel(timer_heap *heap, Py_ssize_t slot)
{
    PyObject *handle = timer_heap_free_slot(heap, slot);

    /* Most timeouts are cancelled soon after they were set, when their key may still be the last. */
    while (heap->count && !timer_key_live(heap, &heap->keys[heap->count - 1]))
        heap->count--;
    if (heap->count > TIMER_HEAP_SMALL && heap->count > 2 * heap->live)
        timer_heap_remove_dead(heap);
    return handle;
}

/* -- the run -- */

static inline void timer_heap_drop_first_of_run(timer_heap *heap)
{
    if (++heap->run_start == heap->run_end) {
        PyMem_Free(heap->run);
        heap->run = NULL;
    }
}

/* How many keys with at most this rank there are at `index` and below; no more than `most` are counted. */
static inline Py_ssize_t timer_heap_count_due(const timer_heap *heap, Py_ssize_t index, uint64_t rank, Py_ssize_t most)
{
    Py_ssize_t due = 1;

    if (index >= heap->count || heap->keys[index].rank > rank)
        return 0;
    if (due < most)
        due += timer_heap_count_due(heap, 2 * index + 1, rank, most - due);
    if (due < most)
        due += timer_heap_count_due(heap, 2 * index + 2, rank, most - due);
    return due;
}

/* To be called when the first timer is due: if many are, move their keys to the run. Without memory for it they stay
 * where they are. */
static inline void timer_heap_sort_due(timer_heap *heap, double now)
{
    uint64_t rank = timer_rank(now);
    Py_ssize_t many = Py_MAX(heap->count / 8, TIMER_RUN_SMALLEST), due = 0, kept = 0, index;
    timer_key *keys, *scratch, *sorted;

    if (heap->run != NULL || timer_heap_count_due(heap, 0, rank, many) < many)
        return;
    for (index = 0; index < heap->count; index++)
        due += heap->keys[index].rank <= rank;
    keys = PyMem_New(timer_key, due);
    scratch = PyMem_New(timer_key, due);
    if (keys == NULL || scratch == NULL) {
        PyMem_Free(keys);
        PyMem_Free(scratch);
        return;
    }
    due = 0;
    for (index = 0; index < heap->count; index++) {
        timer_key key = heap->keys[index];

        if (!timer_key_live(heap, &key))
            continue;
        if (key.rank <= rank)
            keys[due++] = key;
        else
            heap->keys[kept++] = key;
    }
    timer_heap_rebuild(heap, kept);
    sorted = timer_sort(keys, scratch, due);
    PyMem_Free(sorted == keys ? scratch : keys);
    heap->run = sorted;
    heap->run_start = 0;
    heap->run_end = due;
}

/* Have the processor fetch timers that are soon the first of the run. */
static inline void timer_heap_prefetch(const timer_heap *heap)
{
    Py_ssize_t index = heap->run_start + PREFETCH_DISTANCE;

    if (heap->run == NULL)
        return;
    if (index < heap->run_end)
        prefetch_object(heap->handles[heap->run[index].slot]);
    index += PREFETCH_DISTANCE;
    if (index < heap->run_end) {
        PREFETCH(&heap->handles[heap->run[index].slot]);
        PREFETCH(&heap->orders[heap->run[index].slot]);
    }
}

/* -- the first timer -- */

/* The earliest timer, valid until the next call; NULL: there is none. */
static inline const timer_due *timer_heap_first(timer_heap *heap)
{
    const timer_key *first;

    while (heap->run != NULL && !timer_key_live(heap, &heap->run[heap->run_start]))
        timer_heap_drop_first_of_run(heap);
    while (heap->count && !timer_key_live(heap, &heap->keys[0]))
        timer_heap_drop_first(heap);
    heap->first_in_run = heap->run != NULL
                         && (heap->count == 0 || timer_key_before(&heap->run[heap->run_start], &heap->keys[0]));
    if (!heap->first_in_run && heap->count == 0)
        return NULL;
    first = heap->first_in_run ? &heap->run[heap->run_start] : &heap->keys[0];
    heap->first.deadline = timer_rank_deadline(first->rank);
    heap->first.slot = first->slot;
    return &heap->first;
}

/* Remove the timer that timer_heap_first() has just returned. Returns the handle, and with it the reference. */
static inline PyObject *timer_heap_pop(timer_heap *heap)
{
    PyObject *handle = timer_heap_free_slot(heap, heap->first.slot);

    if (heap->first_in_run)
        timer_heap_drop_first_of_run(heap);
    else
        timer_heap_drop_first(heap);
    return handle;
}

/* -- all timers -- */

/* Drop all handles, and free the memory of a heap that is used no more: dropping a handle may run a finalizer. */
static inline void timer_heap_free(timer_heap *heap)
{
    Py_ssize_t slot;

    for (slot = 0; slot < heap->slots; slot++)
        Py_XDECREF(heap->handles[slot]);
    PyMem_Free(heap->keys);
    PyMem_Free(heap->orders);
    PyMem_Free(heap->handles);
    PyMem_Free(heap->free);
    PyMem_Free(heap->run);
}

/* Move all timers to the first slots and free the memory that this leaves; `move` tells a timer its new slot. Not while
 * there is a run. Without memory for it nothing changes. */
static inline void timer_heap_compact(timer_heap *heap, void (*move)(PyObject *handle, Py_ssize_t slot))
{
    timer_heap compact;
    Py_ssize_t slot;

    if (heap->run != NULL)
        return;
    memset(&compact, 0, sizeof compact);
    timer_heap_remove_dead(heap);
    while (compact.capacity <= heap->count)
        if (timer_heap_grow(&compact) < 0) {
            timer_heap_free(&compact);
            return;
        }
    for (slot = 0; slot < heap->count; slot++) {
        timer_key key = heap->keys[slot];

        compact.orders[slot] = key.order;
        compact.handles[slot] = heap->handles[key.slot];
        move(compact.handles[slot], slot);
        key.slot = slot;
        compact.keys[slot] = key;
    }
    compact.count = compact.live = compact.slots = heap->count;
    compact.pushed = heap->pushed;
    heap->slots = 0; /* of the handles: they have moved */
    timer_heap_free(heap);
    *heap = compact;
}

#endif
