/* A descriptor that becomes readable when a process ends: pidfd_open(2), Linux 5.3. The C library and the interpreter may be
 * older than the kernel, so the call is made by its number, which is the same on all architectures but one.
 */
#ifndef HOTLOOP_PROCESS_CALLS_H
#define HOTLOOP_PROCESS_CALLS_H

#include <errno.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#if !defined(SYS_pidfd_open) && !defined(__alpha__)
#define SYS_pidfd_open 434
#endif
#endif

/* A close-on-exec descriptor, or a negative errno: -ENOSYS where there is no such thing. */
static inline int process_open(int pid)
{
#ifdef SYS_pidfd_open
    long fd = syscall(SYS_pidfd_open, pid, 0);

    return fd < 0 ? -errno : (int)fd;
#else
    (void)pid;
    return -ENOSYS;
#endif
}

#endif
