/* Sorting the keys of many timers: a radix sort, least significant digit first.
 *
 * Popping a timer from a heap of a hundred thousand costs seventeen steps, of which the last ones miss the processor's
 * cache. Sorting passes over the keys from one end to the other a few times, since only the bits in which they differ
 * count: 27 for deadlines within a millisecond.
 */
#ifndef HOTLOOP_SCHEDULER_TIMER_SORT_H
#define HOTLOOP_SCHEDULER_TIMER_SORT_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t rank;   /* of the deadline: timer_rank() */
    uint64_t order;  /* sorts equal deadlines; never 0 */
    Py_ssize_t slot; /* the timer's, as long as orders[slot] == order */
} timer_key;

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

#define TIMER_DIGIT_BITS 11
#define TIMER_DIGITS (1 << TIMER_DIGIT_BITS)

/* Sort by the rank, or by the order, and leave equal ones as they are. Returns where the keys are now: `keys` or
 * `scratch`, both of `count` keys. */
static inline timer_key *timer_sort_by(timer_key *keys, timer_key *scratch, Py_ssize_t count, int by_rank)
{
#define TIMER_NUMBER(key) (by_rank ? (key).rank : (key).order)
    Py_ssize_t places[TIMER_DIGITS];
    uint64_t varying = 0;
    Py_ssize_t index;
    int shift;

    for (index = 1; index < count; index++)
        varying |= TIMER_NUMBER(keys[index]) ^ TIMER_NUMBER(keys[0]);
    for (shift = 0; shift < 64 && varying >> shift; shift += TIMER_DIGIT_BITS) {
        Py_ssize_t place = 0;
        timer_key *before = keys;
        int digit;

        while (!(varying >> shift & 1))
            shift++;
        memset(places, 0, sizeof places);
        for (index = 0; index < count; index++)
            places[TIMER_NUMBER(keys[index]) >> shift & (TIMER_DIGITS - 1)]++;
        for (digit = 0; digit < TIMER_DIGITS; digit++) {
            Py_ssize_t these = places[digit];

            places[digit] = place;
            place += these;
        }
        for (index = 0; index < count; index++)
            scratch[places[TIMER_NUMBER(keys[index]) >> shift & (TIMER_DIGITS - 1)]++] = keys[index];
        keys = scratch;
        scratch = before;
    }
    return keys;
#undef TIMER_NUMBER
}

/* Sort the keys; returns where they are now, as timer_sort_by(). */
static inline timer_key *timer_sort(timer_key *keys, timer_key *scratch, Py_ssize_t count)
{
    timer_key *sorted = timer_sort_by(keys, scratch, count, 1);
    Py_ssize_t index;

    for (index = 1; index < count; index++) {
        if (timer_key_before(&sorted[index], &sorted[index - 1])) {
            /* Equal deadlines. */
            scratch = sorted == keys ? scratch : keys;
            keys = timer_sort_by(sorted, scratch, count, 0);
            return timer_sort_by(keys, keys == sorted ? scratch : sorted, count, 1);
        }
    }
    return sorted;
}

#endif
