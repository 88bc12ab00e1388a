/* poller.h where there is no backend: poller_open() fails, and the loop uses the standard library's selector. */
#ifndef HOTLOOP_POLLER_NONE_H
#define HOTLOOP_POLLER_NONE_H

#define POLLER_NAME ""
#define POLLER_RESOLUTION INT64_C(1)
#define POLLER_LONGEST INT64_MAX
#define POLLER_EVENTS_EACH 1

typedef struct {
    int fd;
} poller;

typedef struct {
    int capacity;
} poller_batch;

#define POLLER_MISSING(...) \
    {                       \
        __VA_ARGS__;        \
        return -ENOSYS;     \
    }

static inline int poller_open(poller *p)
{
    p->fd = -1;
    return -ENOSYS;
}

static inline void poller_close(poller *p) { p->fd = -1; }
static inline void poller_close_inherited(poller *p) { poller_close(p); }
static inline int poller_add(poller *p, int fd, int events, unsigned generation)
    POLLER_MISSING((void)p, (void)fd, (void)events, (void)generation)
static inline int poller_modify(poller *p, int fd, int before, int events, unsigned generation)
    POLLER_MISSING((void)p, (void)fd, (void)before, (void)events, (void)generation)
static inline int poller_remove(poller *p, int fd, int before) POLLER_MISSING((void)p, (void)fd, (void)before)
static inline poller_batch *poller_batch_new(int capacity)
{
    (void)capacity;
    return NULL;
}

static inline int poller_wait(poller *p, poller_batch *b, int64_t ns) POLLER_MISSING((void)p, (void)b, (void)ns)
static inline int poller_event(const poller *p, const poller_batch *b, int i, int *fd, unsigned *generation)
    POLLER_MISSING((void)p, (void)b, (void)i, (void)fd, (void)generation)
static inline int poller_wake(poller *p) POLLER_MISSING((void)p)
static inline int poller_begin_renewal(const poller *p, poller *fresh) POLLER_MISSING((void)p, (void)fresh)
static inline void poller_end_renewal(poller *p, poller *fresh, int complete)
{
    (void)p, (void)fresh, (void)complete;
}

#endif
