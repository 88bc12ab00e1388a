/* How long a loop that has work queued, or a timer due, puts off its next poll.
 *
 * asyncio polls in every iteration. So does this loop when it begins to run, after a poll that waited or reported
 * something, and after it sent bytes, connected, opened or closed a transport, or began to watch a descriptor: it sees
 * the outcome in the same iteration as asyncio. Only after BACKOFF_PATIENCE polls in vain, in a row, does the loop
 * begin to skip polls: it pauses for a 128th of the time slice, and for twice as long after each further poll in vain,
 * up to the whole slice.
 *
 * So an event that comes during a pause waits no longer than the loop has polled in vain before, give or take one poll,
 * and never longer than the slice and the batch that runs. A busy loop without I/O polls once in a slice. A loop whose
 * events come one at a time makes at most BACKOFF_PATIENCE polls for each.
 */
#ifndef HOTLOOP_LOOP_POLL_BACKOFF_H
#define HOTLOOP_LOOP_POLL_BACKOFF_H

#include <stdint.h>

/* Programs, and above all tests, count on far fewer iterations, and 64 polls take no longer than a few callbacks. */
#define BACKOFF_PATIENCE 64
#define BACKOFF_FIRST_PAUSE 128 /* the slice is divided by this */

/* All times in ticks (clock.h). */
typedef struct {
    uint64_t polled_at; /* a reading: when the last poll ended */
    uint64_t pause;     /* time from then until the next poll; 0: every iteration polls */
    uint64_t slice;     /* the longest pause; 0: the counter is not to be trusted */
    int empty_polls;    /* polls in vain, in a row; up to BACKOFF_PATIENCE */
} poll_backoff;

/* There may be I/O soon: poll in each of the next iterations. */
static inline void backoff_reset(poll_backoff *self)
{
    self->pause = 0;
    self->empty_polls = 0;
}

/* A poll has ended; `empty`: in vain. */
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

/* Whether the pause has passed. So it has if the counter runs backwards: the difference is huge then. */
static inline int backoff_is_over(const poll_backoff *self, uint64_t now)
{
    return now - self->polled_at >= self->pause;
}

#endif
