/* kqueue() and kevent() over epoll(7).
 *
 * A kqueue consists of an epoll set, whose descriptor is the kqueue's, with the read filters; a second set with the
 * write filters, because the two are registered, triggered and reported apart; and an eventfd, readable as long as a
 * user event is triggered. The first set contains the other two. So it behaves like real kqueues:
 *
 * - Each filter has its own event, flags, udata and trigger. EV_CLEAR corresponds to EPOLLET. An EV_ADD of a filter that
 *   exists changes its udata, not its EV_CLEAR, and evaluates it again.
 * - EV_EOF is set as soon as the other side has ended, while `data` bytes may still be unread.
 * - A closed descriptor has no filters any more. (If a duplicate keeps the file open, epoll would go on.)
 * - The write filter of a pipe without a reader is refused with EPIPE, as by FreeBSD.
 * - A kqueue is not close-on-exec, and a child made by fork() has none: the number is closed there.
 * - It can itself be waited for, also by another kqueue. A wait without room for events returns at once.
 * - Urgent data is reported as by XNU: NOTE_OOB for a read filter that asked for it.
 *
 * Differences: regular files are refused, as by epoll. A wait may end early, without events.
 *
 * All of it is static, for the one module that makes selectors. Closing a kqueue also closes its parts, so the file that
 * includes this one gets another close().
 */
#ifndef KQUEUE_OVER_EPOLL_H
#define KQUEUE_OVER_EPOLL_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct kqueue_filter {
    int added;
    int is_pipe;
    uint16_t flags; /* EV_CLEAR or 0 */
    uint32_t fflags;
    void *udata;
};

struct kqueue_user_event {
    uintptr_t ident;
    int triggered;
    uint16_t flags;
    void *udata;
};

struct kqueue {
    int fd;     /* the epoll set with the read filters and with the next two */
    int writes; /* the epoll set of the write filters */
    int user;   /* the eventfd */
    int size;   /* of `filters` */
    struct kqueue_filter (*filters)[2]; /* by descriptor: for reading, for writing */
    int user_size;
    struct kqueue_user_event *user_events;
    struct kqueue *next;
};

static struct kqueue *kqueue_list;
static pthread_mutex_t kqueue_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void kqueue_free(struct kqueue *kq)
{
    if (kq->writes >= 0)
        close(kq->writes);
    if (kq->user >= 0)
        close(kq->user);
    free(kq->filters);
    free(kq->user_events);
    free(kq);
}

static inline struct kqueue **kqueue_find(int fd)
{
    struct kqueue **place = &kqueue_list;

    while (*place != NULL && (*place)->fd != fd)
        place = &(*place)->next;
    return place;
}

static inline int kqueue_close(int fd)
{
    struct kqueue **place, *found;

    pthread_mutex_lock(&kqueue_lock);
    place = kqueue_find(fd);
    found = *place;
    if (found != NULL)
        *place = found->next;
    pthread_mutex_unlock(&kqueue_lock);
    if (found != NULL)
        kqueue_free(found);
    return close(fd);
}

/* -- fork() ------------------------------------------------------------------------------------------------------- */

static inline void kqueue_before_fork(void) { pthread_mutex_lock(&kqueue_lock); }
static inline void kqueue_after_fork(void) { pthread_mutex_unlock(&kqueue_lock); }

static inline void kqueue_in_child(void)
{
    struct kqueue *kq;

    while ((kq = kqueue_list) != NULL) {
        kqueue_list = kq->next;
        close(kq->fd);
        kqueue_free(kq);
    }
    pthread_mutex_unlock(&kqueue_lock);
}

static inline void kqueue_watch_forks(void)
{
    if (pthread_atfork(kqueue_before_fork, kqueue_after_fork, kqueue_in_child) != 0)
        abort();
}

/* -- kqueue() ----------------------------------------------------------------------------------------------------- */

static inline int kqueue_put_into(int set, int operation, int fd, uint32_t events)
{
    struct epoll_event event;

    memset(&event, 0, sizeof event);
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(set, operation, fd, &event) < 0 ? errno : 0;
}

static inline int kqueue(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct kqueue *kq = calloc(1, sizeof *kq);
    int error;

    pthread_once(&once, kqueue_watch_forks);
    if (kq == NULL) {
        errno = ENOMEM;
        return -1;
    }
    kq->writes = kq->user = -1;
    kq->fd = epoll_create1(0);
    if (kq->fd < 0 || (kq->writes = epoll_create1(EPOLL_CLOEXEC)) < 0
        || (kq->user = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        error = errno;
    else if ((error = kqueue_put_into(kq->fd, EPOLL_CTL_ADD, kq->writes, EPOLLIN)) == 0)
        error = kqueue_put_into(kq->fd, EPOLL_CTL_ADD, kq->user, EPOLLIN);
    if (error != 0) {
        if (kq->fd >= 0)
            close(kq->fd);
        kqueue_free(kq);
        errno = error;
        return -1;
    }
    pthread_mutex_lock(&kqueue_lock);
    kq->next = kqueue_list;
    kqueue_list = kq;
    pthread_mutex_unlock(&kqueue_lock);
    return kq->fd;
}

/* -- changes: each returns an errno, or 0 ------------------------------------------------------------------------- */

static inline int kqueue_is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static inline int kqueue_is_pipe(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

static inline int kqueue_has_no_reader(int fd)
{
    struct pollfd asked = {.fd = fd, .events = POLLOUT};

    return kqueue_is_pipe(fd) && poll(&asked, 1, 0) == 1 && asked.revents & POLLERR;
}

static inline int kqueue_make_room(struct kqueue *kq, int fd)
{
    int size = kq->size;
    void *grown;

    if (fd < size)
        return 0;
    while (size <= fd)
        size = size ? 2 * size : 64;
    grown = realloc(kq->filters, (size_t)size * sizeof kq->filters[0]);
    if (grown == NULL)
        return ENOMEM;
    kq->filters = grown;
    memset(&kq->filters[kq->size], 0, (size_t)(size - kq->size) * sizeof kq->filters[0]);
    kq->size = size;
    return 0;
}

static inline int kqueue_add(struct kqueue *kq, const struct kevent *change, int fd, int writing)
{
    int set = writing ? kq->writes : kq->fd, error;
    struct kqueue_filter *filter;
    uint32_t events;

    if (!kqueue_is_open(fd))
        return EBADF;
    if (writing && kqueue_has_no_reader(fd))
        return EPIPE;
    error = kqueue_make_room(kq, fd);
    if (error != 0)
        return error;
    filter = &kq->filters[fd][writing];
    for (;;) {
        if (!filter->added)
            filter->flags = change->flags & EV_CLEAR;
        events = writing ? EPOLLOUT : EPOLLIN | EPOLLRDHUP | (change->fflags & NOTE_OOB ? EPOLLPRI : 0u);
        events |= filter->flags & EV_CLEAR ? EPOLLET : 0u;
        error = kqueue_put_into(set, filter->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, events);
        if (error != ENOENT || !filter->added)
            break;
        /* The number belongs to another file by now; this is not its filter. */
        filter->added = 0;
    }
    filter->added = error == 0;
    filter->is_pipe = kqueue_is_pipe(fd);
    filter->fflags = change->fflags;
    filter->udata = change->udata;
    return error;
}

static inline int kqueue_delete(struct kqueue *kq, int fd, int writing)
{
    if (!kqueue_is_open(fd))
        return EBADF;
    if (fd >= kq->size || !kq->filters[fd][writing].added)
        return ENOENT;
    kq->filters[fd][writing].added = 0;
    return kqueue_put_into(writing ? kq->writes : kq->fd, EPOLL_CTL_DEL, fd, 0);
}

static inline void kqueue_show_triggered(struct kqueue *kq)
{
    uint64_t count = 0;
    int i;

    for (i = 0; i < kq->user_size; i++)
        count += (uint64_t)kq->user_events[i].triggered;
    if (count == 0)
        (void)!read(kq->user, &count, sizeof count);
    else
        (void)!write(kq->user, &count, sizeof count);
}

static inline int kqueue_change_user_event(struct kqueue *kq, const struct kevent *change)
{
    struct kqueue_user_event *grown;
    int i;

    for (i = 0; i < kq->user_size && kq->user_events[i].ident != change->ident; i++)
        ;
    if (i == kq->user_size) {
        if (!(change->flags & EV_ADD))
            return ENOENT;
        grown = realloc(kq->user_events, (size_t)(i + 1) * sizeof *grown);
        if (grown == NULL)
            return ENOMEM;
        kq->user_events = grown;
        kq->user_size++;
        memset(&grown[i], 0, sizeof *grown);
        grown[i].ident = change->ident;
        grown[i].flags = change->flags & EV_CLEAR;
    }
    if (change->flags & EV_DELETE)
        kq->user_events[i] = kq->user_events[--kq->user_size];
    else {
        kq->user_events[i].udata = change->udata;
        kq->user_events[i].triggered |= (change->fflags & NOTE_TRIGGER) != 0;
    }
    kqueue_show_triggered(kq);
    return 0;
}

static inline int kqueue_change(struct kqueue *kq, const struct kevent *change)
{
    const int known = EV_ADD | EV_DELETE | EV_CLEAR | EV_RECEIPT;
    int writing = change->filter == EVFILT_WRITE;

    if (change->flags & ~known)
        return EINVAL;
    if (change->filter == EVFILT_USER)
        return kqueue_change_user_event(kq, change);
    if (change->filter != EVFILT_READ && !writing)
        return EINVAL;
    if (change->ident > INT32_MAX)
        return EBADF;
    if (change->flags & EV_DELETE)
        return kqueue_delete(kq, (int)change->ident, writing);
    return change->flags & EV_ADD ? kqueue_add(kq, change, (int)change->ident, writing) : EINVAL;
}

/* -- events: each returns how many it has put into `events` ------------------------------------------------------- */

static inline int kqueue_report(struct kqueue *kq, int fd, int writing, uint32_t happened, struct kevent *event)
{
    struct kqueue_filter *filter = &kq->filters[fd][writing];
    const uint32_t ended = EPOLLHUP | (writing ? 0u : EPOLLRDHUP) | (filter->is_pipe ? EPOLLERR : 0u);
    int available = 0;

    if (filter->added && !kqueue_is_open(fd))
        filter->added = 0;
    if (!filter->added)
        return 0;
    if (!writing && ioctl(fd, FIONREAD, &available) < 0)
        available = 0;
    EV_SET(event, fd, writing ? EVFILT_WRITE : EVFILT_READ, filter->flags | (happened & ended ? EV_EOF : 0),
           happened & EPOLLPRI ? NOTE_OOB : 0, available, filter->udata);
    return 1;
}

static inline int kqueue_report_user_events(struct kqueue *kq, struct kevent *events, int room)
{
    struct kqueue_user_event *user;
    int count = 0, i;

    for (i = 0; i < kq->user_size && count < room; i++) {
        user = &kq->user_events[i];
        if (!user->triggered)
            continue;
        EV_SET(&events[count], user->ident, EVFILT_USER, user->flags, 0, 0, user->udata);
        count++;
        if (user->flags & EV_CLEAR)
            user->triggered = 0;
    }
    kqueue_show_triggered(kq);
    return count;
}

static inline int kqueue_collect(struct kqueue *kq, int writing, struct kevent *events, int room)
{
    struct epoll_event *found = room > 0 ? malloc((size_t)room * sizeof *found) : NULL;
    int ready = found == NULL ? 0 : epoll_wait(writing ? kq->writes : kq->fd, found, room, 0);
    int count = 0, written = 0, triggered = 0, i;

    for (i = 0; i < ready; i++) {
        if (!writing && found[i].data.fd == kq->writes)
            written = 1;
        else if (!writing && found[i].data.fd == kq->user)
            triggered = 1;
        else
            count += kqueue_report(kq, found[i].data.fd, writing, found[i].events, &events[count]);
    }
    free(found);
    if (triggered)
        count += kqueue_report_user_events(kq, &events[count], room - count);
    if (written)
        count += kqueue_collect(kq, 1, &events[count], room - count);
    return count;
}

/* -- kevent() ----------------------------------------------------------------------------------------------------- */

static inline int kqueue_apply(
    struct kqueue *kq, const struct kevent *changes, int changed, struct kevent *events, int room
)
{
    struct kevent change;
    int count = 0, error, i;

    for (i = 0; i < changed; i++) {
        /* The two lists may be the same. */
        change = changes[i];
        error = kqueue_change(kq, &change);
        if (error == 0 && !(change.flags & EV_RECEIPT))
            continue;
        if (count == room) {
            if (error == 0)
                continue;
            errno = error;
            return -1;
        }
        change.flags |= EV_ERROR;
        change.data = error;
        events[count++] = change;
    }
    return count;
}

static inline int kevent(
    int fd, const struct kevent *changes, int changed, struct kevent *events, int room, const struct timespec *limit
)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    struct kqueue *kq;
    int count = -1;

    pthread_mutex_lock(&kqueue_lock);
    kq = *kqueue_find(fd);
    if (kq == NULL)
        errno = EBADF;
    else
        count = kqueue_apply(kq, changes, changed, events, room);
    pthread_mutex_unlock(&kqueue_lock);
    if (count != 0 || room == 0)
        return count;
    count = ppoll(&waiting, 1, limit, NULL);
    if (count <= 0)
        return count;
    pthread_mutex_lock(&kqueue_lock);
    kq = *kqueue_find(fd);
    count = kq == NULL ? 0 : kqueue_collect(kq, 0, events, room);
    pthread_mutex_unlock(&kqueue_lock);
    return count;
}

#define close kqueue_close

#endif
