/* Tells a forked child from its parent without a system call per question.
 *
 * An epoll set is shared across fork(2): a child that changed it would take descriptors away from its parent. A kqueue
 * is not inherited, and in the child its descriptor number may belong to another file. So a selector remembers the
 * count at which it was made and rebuilds its set in a child. The handler below adds one to an integer and takes no
 * lock, not even the GIL, so it cannot deadlock a fork in a threaded program.
 */
#ifndef HOTLOOP_SYSTEM_FORK_H
#define HOTLOOP_SYSTEM_FORK_H

#include <pthread.h>

static volatile unsigned int forks = 0;

static void fork_in_child(void) { forks++; }
static inline int fork_watch(void) { return pthread_atfork(NULL, NULL, fork_in_child); }
static inline unsigned int fork_count(void) { return forks; }

#endif
