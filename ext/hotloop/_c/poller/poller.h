/* What a poller backend supplies. This is the whole contract.
 *
 * A backend translates between the kernel's readiness interface and the few calls below; it decides nothing. Which
 * descriptors are registered, in which order events are handed out and what to do with a stale one is decided once,
 * above it, in selector.pyx. No function here touches a Python object, so poller_wait() may run without the GIL.
 *
 * Every function that can fail returns a negative errno. `events` is a set of POLLER_READ and POLLER_WRITE, the
 * values of selectors.EVENT_READ and EVENT_WRITE, and POLLER_EDGE: report a change once, instead of as long as it lasts.
 * `generation` comes back with every event. The numbers of closed descriptors are used again, and an event may be older
 * than that; who registers the number anew does it with another generation.
 *
 *     int  poller_open(poller *p)                                an empty set, close-on-exec, with its waker
 *     void poller_close(poller *p)                               idempotent
 *     void poller_leave(poller *p)                               in a forked child, instead: let go of the parent's
 *                                                                set, for which it may have no descriptor; idempotent
 *     int  poller_add(poller *p, int fd, int events, unsigned generation)
 *                                                                -EEXIST, -EBADF, -EPERM (a regular file), ...
 *     int  poller_modify(poller *p, int fd, int before, int events, unsigned generation)
 *     int  poller_remove(poller *p, int fd, int before)          the descriptor may be closed already: -EBADF, -ENOENT
 *     poller_batch *poller_batch_new(int capacity)               room for what one wait returns; NULL: no memory; free()
 *     int  poller_wait(poller *p, poller_batch *b, int64_t ns)   number of events; ns < 0: no limit; rounded up to the
 *                                                                backend's resolution; -EINTR is left to the caller
 *     int  poller_event(const poller *p, const poller_batch *b, int i, int *fd, unsigned *generation)
 *                                                                event i: POLLER_READ|POLLER_WRITE, an error or hang-up
 *                                                                is whatever is registered, in one event or in two;
 *                                                                POLLER_MORE: hang-up, error or urgent data, so
 *                                                                that a short read does not mean that nothing is left;
 *                                                                0: the waker, nothing to report
 *     int  poller_wake(poller *p)                                from any thread: ends the wait under way or the next one
 *
 *     POLLER_NAME                                                what the backend is called; "": there is none
 *     POLLER_RESOLUTION                                          nanoseconds; what the standard library's selector for
 *                                                                the same interface rounds a timeout up to
 *     POLLER_LONGEST                                             nanoseconds; what that selector takes at most
 *     POLLER_EVENTS_EACH                                         how many events one descriptor can have in one batch
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
#elif defined(EVFILT_USER) /* which OpenBSD and NetBSD got late */
#include "poller/kqueue.h"
#elif defined(__linux__)
#include "poller/epoll.h"
#else
#include "poller/none.h"
#endif

#endif
