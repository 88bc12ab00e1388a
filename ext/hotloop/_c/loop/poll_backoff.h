/* How long a loop that has work queued puts off its next poll.
 *
 * asyncio polls in every iteration. So does this loop when it begins to run, after a poll that waited or reported something,
 * and after it sent bytes, connected, opened or closed a transport, or began to watch a descriptor: what comes of that is seen
 * in the iteration in which asyncio sees it. Only after BACKOFF_PATIENCE polls in a row that were all in vain does the loop begin to
 * skip polls: it pauses for a 128th of the time slice, and for twice as long after each further poll in vain, up to the slice.
 *
 * So an event that comes during a pause waits no longer than the loop has polled in vain before it, give or take a poll, and
 * never longer than the slice and the batch that runs. A loop that stays busy without I/O polls once in a slice; one whose
 * events come one at a time pays BACKOFF_PATIENCE polls for each, at most.
 */
#ifndef HOTLOOP_LOOP_POLL_BACKOFF_H
#define HOTLOOP_LOOP_POLL_BACKOFF_H

#include <stdint.h>

/* Programs, and tests most of all, count on far fewer iterations; and 64 polls take no longer than a few callbacks do. */
#define BACKOFF_PATIENCE 64
#define BACKOFF_FIRST_PAUSE 128 /* as a part of the slice */

/* All times in ticks (clock.h). */
typedef struct {
    uint64_t polled_at; /* a reading: when the last poll ended */
    uint64_t pause;     /* what has to pass until the next one; 0: every iteration polls */
    uint64_t slice;     /* the longest pause; 0: the counter is not to be trusted */
    int empty_polls;        /* polls in a row, up to BACKOFF_PATIENCE */
} poll_backoff;

/* There may be I/O soon: poll in each of the next iterations. */
static inline void backoff_reset(poll_backoff *self)
{
    self->pause = 0;
    self->empty_polls = 0;
}

/* A poll has ended. */
static inline void backoff_polled(poll_backoff *self, uint64_t now, int empty)
{
    self->polled_at = now;
    if (!empty)
        backoff_reset(self);
    else if (self->empty_polls < BACKOFF_PATIENCE)
        self->empty_polls++;
    else if (self->pause == 0)
        self->pause = self->slice / BACKOFF_FIRST_PAUSE;
    else
        self->pause = 2 * self->pause < self->slice ? 2 * self->pause : self->slice;
}

/* Whether queued work has kept the loop from polling for long enough. A counter that runs backwards gives a huge difference. */
static inline int backoff_is_over(const poll_backoff *self, uint64_t now) { return now - self->polled_at >= self->pause; }

#endif
