/* The numbers behind loop.metrics(): what a loop counts and times while it runs.
 *
 * A slice is everything between two polls. The clock is read where a slice begins and at the end of each batch in it,
 * not for each callback: at the end of the slice its numbers are worked out once for all callbacks that ran in it.
 * Callbacks are timed one by one only in the first slice of a run, in a slice after one whose callbacks were long on
 * average, because a reading costs nothing beside them, and in some slices after a batch that took longer than all
 * before, to find out which of its callbacks was the long one. (Debug mode and the slow-callback hook time them, too.)
 *
 * Readings are ticks (clock.h), because they are cheap. Sums are nanoseconds, as floating-point numbers: these are
 * exact for a hundred days and keep the fraction of each conversion.
 */
#ifndef HOTLOOP_LOOP_METRICS_H
#define HOTLOOP_LOOP_METRICS_H

#include <stdint.h>

#include "loop/poll_backoff.h"

/* The first bucket of a histogram ends at 2**10 ns, each further one at twice that, the last but one at 2**34 ns. */
#define METRICS_FIRST_BUCKET 10
#define METRICS_BUCKETS 26

/* Callbacks that take this many nanoseconds on average are timed one by one: a reading is less than a 400th of it. */
#define METRICS_LONG_CALLBACK 5000

/* In this many slices after a batch that took longer than all before, each callback is timed. */
#define METRICS_SLICES_TO_TIME 1000

/* Kinds of transports. */
enum { METRICS_TCP = 1, METRICS_STREAM, METRICS_DATAGRAM, METRICS_READ_PIPE, METRICS_WRITE_PIPE, METRICS_KINDS };

typedef struct {
    uint64_t count;
    double total;               /* nanoseconds */
    double maximum;             /* nanoseconds */
    uint64_t buckets[METRICS_BUCKETS];
} metrics_histogram;

/* The fields that are used most stand together at the end, next to the loop's own state: system calls and other
 * processes empty the processor's caches, and to fetch a cache line again costs more than the work on its fields.
 */
typedef struct {
    double longest;
    int64_t cpu_reading;        /* of the thread's CPU clock, in nanoseconds; -1: none in this run, or no such clock */
    uint64_t cpu_read_at;       /* the reading of the counter at that moment */
    Py_ssize_t transports[METRICS_KINDS];
    metrics_histogram lateness; /* of timers */
    metrics_histogram delay;    /* of batches, see Metrics.scheduling_delay */

    /* Once in a slice. */
    double busy;                /* nanoseconds */
    double idle;
    double nanoseconds_per_tick; /* 0: the counter is not to be trusted, and all durations are 0 */
    uint64_t long_ticks;        /* METRICS_LONG_CALLBACK in ticks */
    uint64_t polls;
    uint64_t slice_began;       /* a reading */
    uint64_t slice_items;       /* `items` when the slice began */
    uint64_t slice_iterations;  /* `iterations` when the slice began */
    uint64_t before_last_batch; /* ticks of the slice before its last batch began; if `knows_last_batch` */
    int knows_last_batch;       /* `before_last_batch` is known */
    int time_items;             /* time each item of this slice */
    int slices_to_time;         /* further slices whose items are timed in any case */
    int running;                /* the loop runs */
    int waiting;                /* in a poll that may block */

    /* Once in a batch. */
    uint64_t slice_ticks;       /* the time slice: only a batch that takes longer may become the longest callback */
    uint64_t batch_began;       /* a reading */
    Py_ssize_t batch_items;     /* items in the current batch */
    uint64_t iterations;        /* batches begun */
    uint64_t last_reading;      /* the last reading of the clock; the current item began then, or later */
    poll_backoff backoff;       /* here, because metrics_sent() resets it */

    /* With each item or system call. */
    uint64_t cancelled;         /* items that did not run: cancelled while they were queued */
    uint64_t bytes_received;
    uint64_t receives;          /* system calls that received data */
    uint64_t bytes_sent;
    uint64_t sends;
    uint64_t items;             /* begun, including cancelled ones */
} loop_metrics;

/* 0 if the counter has run backwards, as it may when a virtual machine migrates. */
static inline uint64_t metrics_passed(uint64_t from, uint64_t to)
{
    return (int64_t)(to - from) > 0 ? to - from : 0;
}

static inline int metrics_bucket(double nanoseconds)
{
    uint64_t value = nanoseconds < 1e18 ? (uint64_t)nanoseconds : (uint64_t)1 << 60;
    int bits = value < 2 ? 0 : 64 - __builtin_clzll(value - 1);

    if (bits <= METRICS_FIRST_BUCKET)
        return 0;
    bits -= METRICS_FIRST_BUCKET;
    return bits < METRICS_BUCKETS ? bits : METRICS_BUCKETS - 1;
}

/* Add `count` samples that are `total` nanoseconds together: all to the bucket of their mean. */
static inline void metrics_add(metrics_histogram *histogram, uint64_t count, double total)
{
    double each = count == 1 ? total : total / (double)count; /* count is mostly 1, and a division slow */

    histogram->count += count;
    histogram->total += total;
    if (each > histogram->maximum)
        histogram->maximum = each;
    histogram->buckets[metrics_bucket(each)] += count;
}

/* The loop begins to run: time before this does not count. The first slice is timed, because nothing is known yet. */
static inline void metrics_begin(loop_metrics *self, uint64_t now)
{
    self->last_reading = self->slice_began = self->batch_began = now;
    self->slice_items = self->items;
    self->slice_iterations = self->iterations;
    self->knows_last_batch = 0;
    self->time_items = 1;
    self->running = 1;
    self->cpu_reading = -1; /* the last run may have been in another thread */
}

/* The batch that ended at the last reading of the clock was the last of its slice. Returns the ticks that it took. */
static inline uint64_t metrics_end_last_batch(loop_metrics *self)
{
    uint64_t passed = metrics_passed(self->batch_began, self->last_reading);

    self->knows_last_batch = 1;
    self->before_last_batch = metrics_passed(self->slice_began, self->batch_began);
    return passed;
}

/* The slice since the last poll ended at the last reading of the clock. */
static inline void metrics_end_slice(loop_metrics *self)
{
    uint64_t passed = metrics_passed(self->slice_began, self->last_reading);
    uint64_t batches = self->iterations - self->slice_iterations;
    uint64_t items = self->items - self->slice_items;

    if (batches != 0) {
        if (self->knows_last_batch && batches > 1 && self->before_last_batch <= passed) {
            metrics_add(&self->delay, batches - 1, (double)self->before_last_batch * self->nanoseconds_per_tick);
            metrics_add(&self->delay, 1, (double)(passed - self->before_last_batch) * self->nanoseconds_per_tick);
        } else {
            metrics_add(&self->delay, batches, (double)passed * self->nanoseconds_per_tick);
        }
        self->time_items = passed > items * self->long_ticks;
        if (self->slices_to_time) {
            self->slices_to_time--;
            self->time_items = 1;
        }
    }
    self->busy += (double)passed * self->nanoseconds_per_tick;
    self->knows_last_batch = 0;
    self->slice_began = self->last_reading;
    self->slice_items = self->items;
    self->slice_iterations = self->iterations;
}

/* A poll has ended; `waited`: it was one that could block. */
static inline void metrics_polled(loop_metrics *self, uint64_t now, int waited)
{
    double passed = (double)metrics_passed(self->last_reading, now) * self->nanoseconds_per_tick;

    if (waited)
        self->idle += passed;
    else
        self->busy += passed;
    self->polls++;
    self->waiting = 0;
    self->last_reading = self->slice_began = self->batch_began = now;
}

/* The loop stops running. */
static inline void metrics_end(loop_metrics *self, uint64_t now)
{
    self->last_reading = now;
    self->waiting = 0;
    metrics_end_slice(self);
    self->running = 0;
}

static inline void metrics_begin_batch(loop_metrics *self, Py_ssize_t items)
{
    self->batch_items = items;
    self->batch_began = self->last_reading;
    self->iterations++;
}

static inline void metrics_received(loop_metrics *self, Py_ssize_t count)
{
    self->bytes_received += (uint64_t)count;
    self->receives++;
}

static inline void metrics_sent(loop_metrics *self, Py_ssize_t count)
{
    self->bytes_sent += (uint64_t)count;
    self->sends++;
    /* An answer may arrive soon. */
    backoff_reset(&self->backoff);
}

#endif
