/* A descriptor that becomes readable when a process ends: pidfd_open(2), Linux 5.3. The C library and the interpreter
 * may be older than the kernel, so the call is made by its number, which is the same on all architectures but Alpha.
 */
#ifndef HOTLOOP_SYSTEM_PROCESS_CALLS_H
#define HOTLOOP_SYSTEM_PROCESS_CALLS_H

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#if !defined(SYS_pidfd_open) && !defined(__alpha__)
#define SYS_pidfd_open 434
#endif
#endif

/* Whether a child has ended; it is not reaped. `*exit_code` is set as in Python: negative for a signal. */
static inline int process_has_exited(int pid, int *exit_code)
{
    siginfo_t info;

    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
        return 0;
    *exit_code = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    return 1;
}

/* A close-on-exec descriptor, or a negative errno: -ENOSYS on systems without pidfds. */
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
