/* The epoll backend of poller.h, for Linux. See epoll(7), eventfd(2). */
#ifndef HOTLOOP_POLLER_EPOLL_H
#define HOTLOOP_POLLER_EPOLL_H

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define POLLER_NAME "epoll"
#define POLLER_RESOLUTION INT64_C(1000000)
#define POLLER_LONGEST (INT_MAX * POLLER_RESOLUTION)
#define POLLER_EVENTS_EACH 1

typedef struct {
    int fd;      /* the epoll set, or -1 */
    int wake_fd; /* an eventfd in the set, or -1 */
} poller;

typedef struct {
    int capacity; /* of events, at least 1 */
    struct epoll_event events[];
} poller_batch;

static inline poller_batch *poller_batch_new(int capacity)
{
    poller_batch *batch = malloc(sizeof *batch + (size_t)capacity * sizeof batch->events[0]);

    if (batch != NULL)
        batch->capacity = capacity;
    return batch;
}

static inline int poller_control(poller *p, int operation, int fd, uint32_t kernel_events, unsigned generation)
{
    struct epoll_event event;

    memset(&event, 0, sizeof event);
    event.events = kernel_events;
    event.data.u64 = (uint64_t)generation << 32 | (uint32_t)fd;
    return epoll_ctl(p->fd, operation, fd, &event) < 0 ? -errno : 0;
}

static inline uint32_t poller_kernel_events(int events)
{
    uint32_t kernel_events = 0;

    if (events & POLLER_READ)
        kernel_events |= EPOLLIN;
    if (events & POLLER_WRITE)
        kernel_events |= EPOLLOUT;
    /* For POLLER_MORE, which only an edge-triggered reader needs: a level-triggered one is simply told again. */
    if (events & POLLER_EDGE)
        kernel_events |= EPOLLET | (events & POLLER_READ ? EPOLLRDHUP | EPOLLPRI : 0u);
    return kernel_events;
}

static inline void poller_close(poller *p)
{
    if (p->wake_fd >= 0)
        close(p->wake_fd);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = p->wake_fd = -1;
}

/* The child's descriptors are its own, for the same set: closing them does not change the set. */
static inline void poller_close_inherited(poller *p) { poller_close(p); }

/* Edge-triggered: each write is one event, so the counter never has to be read. */
static inline int poller_add_waker(poller *p)
{
    return poller_control(p, EPOLL_CTL_ADD, p->wake_fd, EPOLLIN | EPOLLET, 0);
}

static inline int poller_open(poller *p)
{
    int error;

    p->wake_fd = -1;
    p->fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->fd < 0)
        return -errno;
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = p->wake_fd < 0 ? -errno : poller_add_waker(p);
    if (error < 0)
        poller_close(p);
    return error;
}

/* A file that is closed stays in the set as long as another descriptor keeps it open, and without its own descriptor
 * it cannot be removed (epoll(7), question 6). */
static inline int poller_begin_renewal(const poller *p, poller *fresh)
{
    int error;

    fresh->wake_fd = p->wake_fd;
    fresh->fd = epoll_create1(EPOLL_CLOEXEC);
    if (fresh->fd < 0)
        return -errno;
    /* Reports the waker's past events again, as one that is spurious. */
    error = poller_add_waker(fresh);
    if (error < 0)
        close(fresh->fd);
    return error;
}

static inline void poller_end_renewal(poller *p, poller *fresh, int complete)
{
    if (complete)
        (void)dup3(fresh->fd, p->fd, O_CLOEXEC); /* if it fails, the set stays */
    close(fresh->fd);
}

static inline int poller_add(poller *p, int fd, int events, unsigned generation)
{
    return poller_control(p, EPOLL_CTL_ADD, fd, poller_kernel_events(events), generation);
}

static inline int poller_modify(poller *p, int fd, int before, int events, unsigned generation)
{
    (void)before;
    return poller_control(p, EPOLL_CTL_MOD, fd, poller_kernel_events(events), generation);
}

static inline int poller_remove(poller *p, int fd, int before)
{
    (void)before;
    return poller_control(p, EPOLL_CTL_DEL, fd, 0, 0);
}

static inline int poller_wait(poller *p, poller_batch *batch, int64_t nanoseconds)
{
    int64_t milliseconds = -1; /* no limit */
    int count;

    if (nanoseconds >= 0) {
        milliseconds = nanoseconds / 1000000 + (nanoseconds % 1000000 != 0);
        if (milliseconds > INT_MAX)
            milliseconds = INT_MAX;
    }
    count = epoll_wait(p->fd, batch->events, batch->capacity, (int)milliseconds);
    return count < 0 ? -errno : count;
}

static inline int poller_event(const poller *p, const poller_batch *batch, int index, int *fd, unsigned *generation)
{
    const uint32_t broken = EPOLLHUP | EPOLLERR; /* counts as both, as in selectors.EpollSelector */
    const uint32_t more = broken | EPOLLRDHUP | EPOLLPRI;
    uint32_t events = batch->events[index].events;
    uint64_t data = batch->events[index].data.u64;

    *fd = (int)(uint32_t)data;
    *generation = (unsigned)(data >> 32);
    if (*fd == p->wake_fd)
        return 0;
    return (events & (EPOLLIN | more) ? POLLER_READ : 0) | (events & (EPOLLOUT | broken) ? POLLER_WRITE : 0)
           | (events & more ? POLLER_MORE : 0);
}

static inline int poller_wake(poller *p)
{
    uint64_t one = 1;
    ssize_t written;

    do
        written = write(p->wake_fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
    /* EAGAIN: the counter is at its maximum after 2**64 - 2 wake-ups, and the event is pending anyway. */
    return written < 0 && errno != EAGAIN ? -errno : 0;
}

#endif
