/* What a poller backend supplies. This is the whole contract.
 *
 * A backend translates between the kernel's readiness interface and the few calls below; it decides nothing. Which
 * descriptors are registered, in which order events are handed out and what to do with a stale one is decided once,
 * above it, in poller.pyx. No function here touches a Python object, so poller_wait() may run without the GIL.
 *
 * Every function that can fail returns a negative errno. `events` is a set of POLLER_READ and POLLER_WRITE, the
 * values of selectors.EVENT_READ and EVENT_WRITE, and POLLER_EDGE: report a change once, not for as long as it lasts.
 * `generation` comes back with every event. The kernel reuses the numbers of closed descriptors, and an event may be
 * older than that: so each registration of a number has a generation of its own.
 *
 *     int  poller_open(poller *p)                                an empty set, close-on-exec, with its waker
 *     void poller_close(poller *p)                               idempotent
 *     void poller_close_inherited(poller *p)                     the same in a forked child, which may not have
 *                                                                inherited the parent's set; idempotent
 *     int  poller_add(poller *p, int fd, int events, unsigned generation)
 *                                                                -EEXIST, -EBADF, -EPERM (a regular file), ...
 *     int  poller_modify(poller *p, int fd, int before, int events, unsigned generation)
 *     int  poller_remove(poller *p, int fd, int before)          the descriptor may be closed already: -EBADF, -ENOENT
 *     poller_batch *poller_batch_new(int capacity)               for the events of one wait; NULL: no memory; free()
 *     int  poller_wait(poller *p, poller_batch *b, int64_t ns)   number of events; ns < 0: no limit; rounded up to the
 *                                                                backend's resolution; -EINTR is left to the caller
 *     int  poller_event(const poller *p, const poller_batch *b, int i, int *fd, unsigned *generation)
 *                                                                event i: POLLER_READ and POLLER_WRITE; an error or
 *                                                                hang-up sets all that are registered, in one event or
 *                                                                in two; POLLER_MORE: hang-up, error or urgent data,
 *                                                                so a short read does not mean that nothing is left;
 *                                                                0: the waker, nothing to report
 *     int  poller_wake(poller *p)                                from any thread: ends the current wait, or the next
 *
 *     int  poller_begin_renewal(const poller *p, poller *fresh)  a second, empty set with the same waker, for when the
 *                                                                first reports a file whose descriptor was closed;
 *                                                                -ENOSYS where the kernel never does
 *     void poller_end_renewal(poller *p, poller *fresh, int complete)
 *                                                                put `fresh` in the place of the set, under the same
 *                                                                number, if it is `complete`; close it otherwise
 *
 *     POLLER_NAME                                                the backend's name; "": there is none
 *     POLLER_RESOLUTION                                          nanoseconds; the unit to which the standard library's
 *                                                                selector for this interface rounds a timeout up
 *     POLLER_LONGEST                                             nanoseconds; the longest timeout of that selector
 *     POLLER_EVENTS_EACH                                         the most events of one descriptor in one batch
 */
#ifndef HOTLOOP_POLLER_POLLER_H
#define HOTLOOP_POLLER_POLLER_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#define POLLER_READ 1
#define POLLER_WRITE 2
#define POLLER_EDGE 4
#define POLLER_MORE 8

#if defined(HOTLOOP_POLLER_KQUEUE_SHIM) || defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) \
    || defined(__OpenBSD__) || defined(__DragonFly__)
#include <sys/types.h>
#include <sys/event.h>
#endif

#if defined(HOTLOOP_POLLER_NONE)
#include "poller/none.h"
#elif defined(EVFILT_USER) /* old OpenBSD and NetBSD lack it */
#include "poller/kqueue.h"
#elif defined(__linux__)
#include "poller/epoll.h"
#else
#include "poller/none.h"
#endif

#endif
