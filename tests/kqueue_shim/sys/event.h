/* <sys/event.h> of macOS and the BSDs for Linux, as far as hotloop's kqueue backend needs it: see kqueue(2).
 *
 * With this folder on the include path (HOTLOOP_POLLER=kqueue-shim, see setup.py) the backend can be compiled and pass
 * all tests on a system without kqueue. For tests only; unneeded features are refused with EINVAL.
 */
#ifndef KQUEUE_SHIM
#define KQUEUE_SHIM

#include <stdint.h>
#include <time.h>

struct kevent {
    uintptr_t ident; /* a descriptor; of EVFILT_USER any number */
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};

#define EV_SET(event, i, f, a, ff, d, u)                                                       \
    do {                                                                                       \
        struct kevent *kevent_to_set = (event);                                                \
                                                                                               \
        kevent_to_set->ident = (uintptr_t)(i);                                                 \
        kevent_to_set->filter = (int16_t)(f);                                                  \
        kevent_to_set->flags = (uint16_t)(a);                                                  \
        kevent_to_set->fflags = (uint32_t)(ff);                                                \
        kevent_to_set->data = (intptr_t)(d);                                                   \
        kevent_to_set->udata = (u);                                                            \
    } while (0)

#define EVFILT_READ (-1)
#define EVFILT_WRITE (-2)
#define EVFILT_USER (-10)

#define EV_ADD 0x0001
#define EV_DELETE 0x0002
#define EV_CLEAR 0x0020
#define EV_RECEIPT 0x0040
#define EV_OOBAND 0x2000 /* only older kernels report it */
#define EV_ERROR 0x4000
#define EV_EOF 0x8000

#define NOTE_OOB 0x00000002
#define NOTE_TRIGGER 0x01000000

#include "../kqueue_over_epoll.h"

#endif
