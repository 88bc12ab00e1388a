/* What a loop counts and times of itself; see loop.metrics().
 *
 * A slice is what runs between two polls. The clock is read where a slice begins and at the end of each batch in it,
 * never for each callback where callbacks are short: what there is to know of the slice is worked out at its end, once for
 * all that ran in it. Each one is timed only in a slice after one whose callbacks were long on average, so that a
 * reading costs nothing beside them, and in the slices after the one that had the longest, if it is not known which that was.
 *
 * Readings are ticks (clock.h), which are cheap; what is kept is nanoseconds, as floating-point numbers, which are exact for a
 * hundred days and do not lose the fraction of each conversion.
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

/* In how many slices each is timed after a batch that took longer than all before. */
#define METRICS_CLOSE_LOOKS 1000

/* Kinds of transports. */
enum { METRICS_TCP = 1, METRICS_STREAM, METRICS_DATAGRAM, METRICS_READ_PIPE, METRICS_WRITE_PIPE, METRICS_KINDS };

typedef struct {
    uint64_t count;
    double total;               /* in nanoseconds, as is the next one */
    double maximum;
    uint64_t buckets[METRICS_BUCKETS];
} metrics_histogram;

/* What is touched most stands together and at the end, where the loop's own state begins: system calls and other processes
 * empty the processor's caches, and each line that has to be fetched again costs more than what is done with it.
 */
typedef struct {
    double longest;
    Py_ssize_t transports[METRICS_KINDS];
    metrics_histogram lateness; /* of timers */
    metrics_histogram delay;    /* of batches, see Metrics.scheduling_delay */

    /* Once in a slice. */
    double busy;                /* nanoseconds */
    double idle;
    double rate;                /* nanoseconds in a tick; 0: the counter is not to be trusted, all durations are 0 */
    uint64_t long_ticks;        /* METRICS_LONG_CALLBACK */
    uint64_t polls;
    uint64_t slice_began;       /* a reading */
    uint64_t slice_items;       /* `items` and `iterations` when the slice began */
    uint64_t slice_iterations;
    uint64_t before_last;       /* ticks from the slice's begin to its last batch's, if that is the one that was `long_batch` */
    int long_batch;
    int timed;                  /* each item of this slice is timed */
    int close_looks;            /* slices to come whose items are timed in any case */
    int running;                /* between the begin and the end of a run of the loop */
    int waiting;                /* in a poll that may block */

    /* Once in a batch. */
    uint64_t slice_ticks;       /* the time slice: a batch that takes less is not looked at for itself */
    uint64_t batch_began;       /* a reading */
    Py_ssize_t batch;           /* items of the batch that runs */
    uint64_t iterations;        /* batches begun */
    uint64_t mark;              /* the last reading of the clock: what runs now began then, or later */
    poll_backoff backoff;       /* here, because what is sent is noted here */

    /* With each item or system call. */
    uint64_t cancelled;         /* handles that did not run, because they were cancelled on the ready queue */
    uint64_t bytes_received;
    uint64_t receives;          /* system calls that have brought something */
    uint64_t bytes_sent;
    uint64_t sends;
    uint64_t items;             /* begun, the cancelled ones included */
} loop_metrics;

/* 0 where the counter has run backwards, as it may where a virtual machine moves. */
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

/* `count` samples that are `total` nanoseconds together: all in the bucket of their mean. */
static inline void metrics_add(metrics_histogram *histogram, uint64_t count, double total)
{
    double each = count == 1 ? total : total / (double)count; /* which is mostly so, and a division is slow */

    histogram->count += count;
    histogram->total += total;
    if (each > histogram->maximum)
        histogram->maximum = each;
    histogram->buckets[metrics_bucket(each)] += count;
}

/* The loop begins to run; time that it has not run does not count. The first slice is timed: nothing is known yet. */
static inline void metrics_begin(loop_metrics *self, uint64_t now)
{
    self->mark = self->slice_began = self->batch_began = now;
    self->slice_items = self->items;
    self->slice_iterations = self->iterations;
    self->long_batch = 0;
    self->timed = 1;
    self->running = 1;
}

/* All that ran since the last poll has ended, at the last reading of the clock. */
static inline void metrics_end_slice(loop_metrics *self)
{
    uint64_t passed = metrics_passed(self->slice_began, self->mark);
    uint64_t batches = self->iterations - self->slice_iterations;
    uint64_t items = self->items - self->slice_items;

    if (batches != 0) {
        if (self->long_batch && batches > 1 && self->before_last <= passed) {
            metrics_add(&self->delay, batches - 1, (double)self->before_last * self->rate);
            metrics_add(&self->delay, 1, (double)(passed - self->before_last) * self->rate);
        } else {
            metrics_add(&self->delay, batches, (double)passed * self->rate);
        }
        self->timed = passed > items * self->long_ticks;
        if (self->close_looks) {
            self->close_looks--;
            self->timed = 1;
        }
    }
    self->busy += (double)passed * self->rate;
    self->long_batch = 0;
    self->slice_began = self->mark;
    self->slice_items = self->items;
    self->slice_iterations = self->iterations;
}

/* A poll has ended; it may have waited. */
static inline void metrics_polled(loop_metrics *self, uint64_t now, int waited)
{
    double passed = (double)metrics_passed(self->mark, now) * self->rate;

    if (waited)
        self->idle += passed;
    else
        self->busy += passed;
    self->polls++;
    self->waiting = 0;
    self->mark = self->slice_began = self->batch_began = now;
}

/* The loop runs no more. */
static inline void metrics_end(loop_metrics *self, uint64_t now)
{
    self->mark = now;
    self->waiting = 0;
    metrics_end_slice(self);
    self->running = 0;
}

static inline void metrics_begin_batch(loop_metrics *self, Py_ssize_t items)
{
    self->batch = items;
    self->batch_began = self->mark;
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
    /* An answer may be on its way. */
    backoff_reset(&self->backoff);
}

#endif
