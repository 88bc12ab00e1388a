/* The kqueue backend of poller.h, for macOS and the BSDs. See kqueue(2), and the kernels' sources where it is silent.
 *
 * Reading and writing are two filters, registered and reported separately: a descriptor that is ready for both has two
 * events in a batch. The descriptor's number is the filter's `ident`, the generation is its `udata`. Changes are made
 * with EV_RECEIPT: the kernel returns the outcome of each change, and no events.
 *
 * The kernel refuses a device that has no kqueue support, and the caller gets its error, as from
 * selectors.KqueueSelector. On macOS /dev/tty is one (EINVAL), but the terminal's own device (/dev/ttys000), whose name
 * os.ttyname() returns, is not.
 * See https://github.com/tokio-rs/mio/issues/1377 and https://github.com/crossterm-rs/crossterm/issues/996.
 */
#ifndef HOTLOOP_POLLER_KQUEUE_H
#define HOTLOOP_POLLER_KQUEUE_H

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#ifdef KQUEUE_SHIM
#define POLLER_NAME "kqueue-shim"
#else
#define POLLER_NAME "kqueue"
#endif
#define POLLER_RESOLUTION INT64_C(1)
#define POLLER_LONGEST INT64_MAX
#define POLLER_EVENTS_EACH 2

/* The `ident` of the waker's EVFILT_USER event. That of a stand-in is its descriptor. */
#define POLLER_WAKER UINTPTR_MAX

/* A read stops short at urgent data. XNU's read filter reports it if registered with NOTE_OOB (filt_soread_common() in
 * bsd/kern/uipc_socket.c), in older versions by EV_OOBAND. (Its EVFILT_EXCEPT is the same filter, and reports ordinary
 * data too.) The BSDs' read filters do not report it, so there may be more after every short read. */
#if defined(NOTE_OOB) && defined(EV_OOBAND)
#define POLLER_READ_NOTES NOTE_OOB
#define POLLER_MAY_HAVE_MORE(event) ((event)->flags & (EV_EOF | EV_OOBAND) || (event)->fflags & NOTE_OOB)
#else
#define POLLER_READ_NOTES 0
#define POLLER_MAY_HAVE_MORE(event) 1
#endif

typedef struct {
    int fd;        /* the kqueue, or -1 */
    int stands_in; /* whether it ever had a stand-in, see poller_stand_in() */
} poller;

typedef struct {
    int capacity; /* of events, at least 1: with room for none, kevent() does not wait */
    struct kevent events[];
} poller_batch;

static inline poller_batch *poller_batch_new(int capacity)
{
    poller_batch *batch = malloc(sizeof *batch + (size_t)capacity * sizeof batch->events[0]);

    if (batch != NULL)
        batch->capacity = capacity;
    return batch;
}

/* The outcome of a change: 0 or a negative errno. XNU leaves the other flags as they were. */
static inline int poller_outcome(const struct kevent *change)
{
    return change->flags & EV_ERROR ? -(int)change->data : 0;
}

static inline int poller_apply(poller *p, struct kevent *changes, int count)
{
    if (count == 0 || kevent(p->fd, changes, count, changes, count, NULL) >= 0)
        return 0;
    /* After EINTR all changes have been made, says FreeBSD's kqueue(2). */
    return errno == EINTR ? 0 : -errno;
}

/* Fill in a change with `flags` (EV_ADD or EV_DELETE) for each filter that `events` need; returns their number. */
static inline int poller_changes(struct kevent *changes, int fd, int events, unsigned flags, unsigned generation)
{
    void *udata = (void *)(uintptr_t)generation;
    int count = 0;

    flags |= EV_RECEIPT | (events & POLLER_EDGE ? EV_CLEAR : 0u);
    if (events & POLLER_READ) {
        EV_SET(&changes[count], fd, EVFILT_READ, flags, events & POLLER_EDGE ? POLLER_READ_NOTES : 0, 0, udata);
        count++;
    }
    if (events & POLLER_WRITE) {
        EV_SET(&changes[count], fd, EVFILT_WRITE, flags, 0, 0, udata);
        count++;
    }
    return count;
}

static inline int poller_user_event(poller *p, uintptr_t ident, unsigned flags, unsigned notes, unsigned generation)
{
    struct kevent change;
    int error;

    EV_SET(&change, ident, EVFILT_USER, flags | EV_RECEIPT, notes, 0, (void *)(uintptr_t)generation);
    error = poller_apply(p, &change, 1);
    return error < 0 ? error : poller_outcome(&change);
}

static inline void poller_close(poller *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* A child does not inherit a kqueue (fork(2)): there, its number may be another file's. */
static inline void poller_close_inherited(poller *p) { p->fd = -1; }

static inline int poller_open(poller *p)
{
    int error;

    p->stands_in = 0;
    p->fd = kqueue();
    if (p->fd < 0)
        return -errno;
    if (fcntl(p->fd, F_SETFD, FD_CLOEXEC) < 0)
        error = -errno;
    else
        error = poller_user_event(p, POLLER_WAKER, EV_ADD | EV_CLEAR, 0, 0);
    if (error < 0)
        poller_close(p);
    return error;
}

/* If the read end of a pipe is closed, the kernel refuses the write filter: most with EPIPE, NetBSD with EBADF, old
 * versions of macOS although they register it. See pipe_kqfilter() in the kernels' sys_pipe.c, and
 * https://github.com/tokio-rs/mio/pull/584. */
static inline int poller_is_broken_pipe(int fd, int error)
{
    return error == -EPIPE || (error == -EBADF && fcntl(fd, F_GETFD) >= 0);
}

/* Unlike a filter, a stand-in stays when its descriptor is closed. */
static inline int poller_end_stand_in(poller *p, int fd)
{
    return p->stands_in ? poller_user_event(p, (uintptr_t)fd, EV_DELETE, 0, 0) : -ENOENT;
}

/* A pipe whose read end is closed is ready for writing: a write fails at once. A user event that stays triggered
 * reports that in place of the write filter. */
static inline int poller_stand_in(poller *p, int fd, int events, unsigned generation)
{
    unsigned flags = EV_ADD | (events & POLLER_EDGE ? EV_CLEAR : 0u);
    struct kevent change;

    (void)poller_apply(p, &change, poller_changes(&change, fd, POLLER_WRITE, EV_DELETE, 0));
    (void)poller_end_stand_in(p, fd);
    p->stands_in = 1;
    return poller_user_event(p, (uintptr_t)fd, flags, NOTE_TRIGGER, generation);
}

static inline int poller_remove(poller *p, int fd, int before)
{
    struct kevent changes[2];
    int count = poller_changes(changes, fd, before, EV_DELETE, 0), i;
    int first = poller_apply(p, changes, count), error;

    for (i = 0; i < count; i++) {
        error = poller_outcome(&changes[i]);
        if (error < 0 && changes[i].filter == EVFILT_WRITE)
            error = poller_end_stand_in(p, fd);
        if (first == 0)
            first = error;
    }
    return first;
}

/* A filter that exists takes the new generation, and reports its state again. But it stays edge- or level-triggered as
 * it was made (kqueue_register() in FreeBSD's kern_event.c), so a filter that has to change that is made anew. */
static inline int poller_modify(poller *p, int fd, int before, int events, unsigned generation)
{
    struct kevent changes[2];
    int kept = (before ^ events) & POLLER_EDGE ? 0 : before & events;
    int gone = before & ~kept & (POLLER_READ | POLLER_WRITE);
    int count, error, i;

    if (gone) /* Errors are expected: the file may be closed, or the number another file's, without these filters. */
        (void)poller_remove(p, fd, gone);
    count = poller_changes(changes, fd, events, EV_ADD, generation);
    error = poller_apply(p, changes, count);
    for (i = 0; i < count && error == 0; i++) {
        error = poller_outcome(&changes[i]);
        if (changes[i].filter != EVFILT_WRITE)
            continue;
        if (poller_is_broken_pipe(fd, error))
            error = poller_stand_in(p, fd, events, generation);
        else
            (void)poller_end_stand_in(p, fd);
    }
    if (error < 0)
        (void)poller_remove(p, fd, events);
    return error;
}

/* Never -EEXIST: a filter that exists is changed. */
static inline int poller_add(poller *p, int fd, int events, unsigned generation)
{
    return poller_modify(p, fd, 0, events, generation);
}

static inline int poller_wait(poller *p, poller_batch *batch, int64_t nanoseconds)
{
    struct timespec limit, *wait = NULL; /* no limit */
    int64_t seconds = nanoseconds / 1000000000;
    int count;

    if (nanoseconds >= 0) {
        /* XNU refuses a longer timeout with EINVAL, and truncated it to microseconds (kevent_get_timeout() in
         * bsd/kern/kern_event.c, itimerfix() in kern_time.c). Three years are as good as no limit. */
        if (seconds >= 100000000) {
            limit.tv_sec = 100000000;
            limit.tv_nsec = 0;
        } else {
            nanoseconds = (nanoseconds % 1000000000 + 999) / 1000 * 1000;
            limit.tv_sec = (time_t)(seconds + nanoseconds / 1000000000);
            limit.tv_nsec = (long)(nanoseconds % 1000000000);
        }
        wait = &limit;
    }
    count = kevent(p->fd, NULL, 0, batch->events, batch->capacity, wait);
    return count < 0 ? -errno : count;
}

/* EV_EOF: the other end is closed. There may still be data to read; a write fails. */
static inline int poller_event(const poller *p, const poller_batch *batch, int index, int *fd, unsigned *generation)
{
    const struct kevent *event = &batch->events[index];

    (void)p;
    *fd = (int)event->ident;
    *generation = (unsigned)(uintptr_t)event->udata;
    if (event->filter == EVFILT_READ)
        return POLLER_READ | (POLLER_MAY_HAVE_MORE(event) ? POLLER_MORE : 0);
    if (event->filter == EVFILT_WRITE)
        return POLLER_WRITE | (event->flags & EV_EOF ? POLLER_MORE : 0);
    return event->ident == POLLER_WAKER ? 0 : POLLER_WRITE | POLLER_MORE; /* a stand-in */
}

static inline int poller_wake(poller *p) { return poller_user_event(p, POLLER_WAKER, 0, NOTE_TRIGGER, 0); }

/* A filter is its descriptor's, and goes with it. */
static inline int poller_begin_renewal(const poller *p, poller *fresh)
{
    (void)p, (void)fresh;
    return -ENOSYS;
}

static inline void poller_end_renewal(poller *p, poller *fresh, int complete)
{
    (void)p, (void)fresh, (void)complete;
}

#endif
