/* System calls that fail, or transfer less. See shim.h.
 *
 * A failure must be a possible answer of the kernel, or its consequences would be no defect:
 * - close() closes, whatever it then returns (close(2)), and an interrupted connect() goes on (connect(2));
 * - a descriptor that has answered EAGAIN, or transferred less than there was room or data for, becomes ready again
 *   later: its registration is renewed, which is a new edge for epoll;
 * - a descriptor that epoll_ctl() cannot change because it is closed or not registered is not registered afterwards;
 * - an eventfd that answers EAGAIN is full, so it has been written to; no other error but EINTR comes from one. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT (-1) /* in place of an errno: a transfer of several bytes moves one */
#define DESCRIPTORS 4096
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Each descriptor's registration, for the renewal. */
static struct { int poller; struct epoll_event event; } registered[DESCRIPTORS];
static char is_eventfd[DESCRIPTORS];

static void renew(int fd)
{
    static int (*real)(int, int, int, struct epoll_event *);
    int kept = errno;
    if (!real)
        real = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
    if (fd >= 0 && fd < DESCRIPTORS && registered[fd].poller > 0)
        real(registered[fd].poller - 1, EPOLL_CTL_MOD, fd, &registered[fd].event);
    errno = kept;
}

/* Datagrams are transferred whole. */
static int is_datagram(int fd)
{
    static __typeof__(&getsockopt) real;
    int type = SOCK_STREAM, kept = errno;
    socklen_t size = sizeof type;
    if (!real)
        real = (__typeof__(&getsockopt))dlsym(RTLD_NEXT, "getsockopt");
    real(fd, SOL_SOCKET, SO_TYPE, &type, &size);
    errno = kept;
    return type != SOCK_STREAM;
}

static int is_event(int fd) { return fd >= 0 && fd < DESCRIPTORS && is_eventfd[fd]; }

#define REAL(name)                                                                                                    \
    static __typeof__(&name) real;                                                                                    \
    if (!real)                                                                                                        \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

#define FAIL(name)                                                                                                    \
    {                                                                                                                 \
        int error_ = fails(name);                                                                                     \
        if (error_) {                                                                                                 \
            errno = error_;                                                                                           \
            return -1;                                                                                                \
        }                                                                                                             \
    }

/* A transfer of bytes: it fails, or moves one of them. */
#define TRANSFER(name, fd, size)                                                                                      \
    {                                                                                                                 \
        int error_ = fails(name);                                                                                     \
        if (error_ == SHORT && (size) > 1 && !is_datagram(fd)) {                                             \
            (size) = 1;                                                                                               \
            renew(fd);                                                                                                \
        } else if (error_ > 0) {                                                                                      \
            if (error_ == EAGAIN)                                                                                     \
                renew(fd);                                                                                            \
            errno = error_;                                                                                           \
            return -1;                                                                                                \
        }                                                                                                             \
    }

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    REAL(recv)
    TRANSFER("recv", fd, size)
    return real(fd, data, size, flags);
}

ssize_t recvfrom(int fd, void *restrict data, size_t size, int flags, struct sockaddr *restrict from,
                 socklen_t *restrict length)
{
    REAL(recvfrom)
    TRANSFER("recvfrom", fd, size)
    return real(fd, data, size, flags, from, length);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    size_t ignored = 0;
    REAL(recvmsg)
    TRANSFER("recvmsg", fd, ignored)
    return real(fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    REAL(send)
    TRANSFER("send", fd, size)
    return real(fd, data, size, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length)
{
    REAL(sendto)
    TRANSFER("sendto", fd, size)
    return real(fd, data, size, flags, to, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    size_t size = message->msg_iovlen ? message->msg_iov[0].iov_len + (message->msg_iovlen > 1) : 0, all = size;
    struct iovec first;
    struct msghdr shorter = *message;
    REAL(sendmsg)
    TRANSFER("sendmsg", fd, size)
    if (size == all)
        return real(fd, message, flags);
    first = (struct iovec){message->msg_iov[0].iov_base, 1};
    shorter.msg_iov = &first;
    shorter.msg_iovlen = 1;
    return real(fd, &shorter, flags);
}

ssize_t read(int fd, void *data, size_t size)
{
    REAL(read)
    if (!is_event(fd) || fault.error == EINTR || fault.kind == CENSUS)
        TRANSFER("read", fd, size)
    return real(fd, data, size);
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write)
    if (is_event(fd)) {
        if (fault.error == EINTR || fault.kind == CENSUS)
            FAIL("write")
        if (fault.error == EAGAIN && fails("write")) {
            real(fd, data, size);
            errno = EAGAIN;
            return -1;
        }
    } else {
        TRANSFER("write", fd, size)
    }
    return real(fd, data, size);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    size_t ignored = 0;
    REAL(readv)
    TRANSFER("readv", fd, ignored)
    return real(fd, parts, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    size_t size = count ? parts[0].iov_len + (count > 1) : 0, all = size;
    struct iovec first;
    REAL(writev)
    TRANSFER("writev", fd, size)
    if (size == all)
        return real(fd, parts, count);
    first = (struct iovec){parts[0].iov_base, 1};
    return real(fd, &first, 1);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t size)
{
    REAL(sendfile)
    TRANSFER("sendfile", to, size)
    return real(to, from, offset, size);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t size)
{
    REAL(sendfile64)
    TRANSFER("sendfile", to, size)
    return real(to, from, offset, size);
}

/* Calls of an extension that was compiled with _FORTIFY_SOURCE. */
ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags)
{
    return (void)room, recv(fd, data, size, flags);
}
ssize_t __read_chk(int fd, void *data, size_t size, size_t room) { return (void)room, read(fd, data, size); }
ssize_t __recvfrom_chk(int fd, void *restrict data, size_t size, size_t room, int flags, struct sockaddr *restrict from,
                       socklen_t *restrict length)
{
    return (void)room, recvfrom(fd, data, size, flags, from, length);
}

int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict length, int flags)
{
    REAL(accept4)
    FAIL("accept4")
    return real(fd, from, length, flags);
}

int accept(int fd, struct sockaddr *restrict from, socklen_t *restrict length)
{
    REAL(accept)
    FAIL("accept")
    return real(fd, from, length);
}

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
    int error;
    REAL(connect)
    error = fails("connect");
    if (error == EINTR)
        real(fd, to, length);
    if (error) {
        errno = error;
        return -1;
    }
    return real(fd, to, length);
}

int close(int fd)
{
    int error, result;
    REAL(close)
    error = fails("close");
    if (fd >= 0 && fd < DESCRIPTORS)
        registered[fd].poller = is_eventfd[fd] = 0;
    result = real(fd);
    if (error) {
        errno = error;
        return -1;
    }
    return result;
}

int socket(int family, int type, int protocol)
{
    REAL(socket)
    FAIL("socket")
    return real(family, type, protocol);
}

int socketpair(int family, int type, int protocol, int pair[2])
{
    REAL(socketpair)
    FAIL("socketpair")
    return real(family, type, protocol, pair);
}

int bind(int fd, const struct sockaddr *to, socklen_t length)
{
    REAL(bind)
    FAIL("bind")
    return real(fd, to, length);
}

int listen(int fd, int backlog)
{
    REAL(listen)
    FAIL("listen")
    return real(fd, backlog);
}

int shutdown(int fd, int how)
{
    REAL(shutdown)
    FAIL("shutdown")
    return real(fd, how);
}

int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict length)
{
    REAL(getsockopt)
    FAIL("getsockopt")
    return real(fd, level, option, value, length);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    REAL(setsockopt)
    FAIL("setsockopt")
    return real(fd, level, option, value, length);
}

int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
    REAL(getsockname)
    FAIL("getsockname")
    return real(fd, address, length);
}

int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
    REAL(getpeername)
    FAIL("getpeername")
    return real(fd, address, length);
}

#define FCNTL(name)                                                                                                   \
    int name(int fd, int command, ...)                                                                                \
    {                                                                                                                 \
        va_list rest;                                                                                                 \
        void *argument;                                                                                               \
        REAL(name)                                                                                                    \
        va_start(rest, command);                                                                                      \
        argument = va_arg(rest, void *);                                                                              \
        va_end(rest);                                                                                                 \
        FAIL("fcntl")                                                                                                 \
        return real(fd, command, argument);                                                                           \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

int pipe2(int pair[2], int flags)
{
    REAL(pipe2)
    FAIL("pipe2")
    return real(pair, flags);
}

int eventfd(unsigned value, int flags)
{
    int fd;
    REAL(eventfd)
    FAIL("eventfd")
    fd = real(value, flags);
    if (fd >= 0 && fd < DESCRIPTORS)
        is_eventfd[fd] = 1;
    return fd;
}

int epoll_create1(int flags)
{
    REAL(epoll_create1)
    FAIL("epoll_create1")
    return real(flags);
}

int epoll_ctl(int poller, int operation, int fd, struct epoll_event *event)
{
    int result, error;
    REAL(epoll_ctl)
    error = fails(operation == EPOLL_CTL_ADD   ? "epoll_ctl_add"
                  : operation == EPOLL_CTL_MOD ? "epoll_ctl_mod"
                                               : "epoll_ctl_del");
    if (error) {
        if (operation != EPOLL_CTL_ADD && (error == ENOENT || error == EBADF)) {
            real(poller, EPOLL_CTL_DEL, fd, event);
            if (fd >= 0 && fd < DESCRIPTORS)
                registered[fd].poller = 0;
        }
        errno = error;
        return -1;
    }
    result = real(poller, operation, fd, event);
    if (result == 0 && fd >= 0 && fd < DESCRIPTORS) {
        registered[fd].poller = operation == EPOLL_CTL_DEL ? 0 : poller + 1;
        if (operation != EPOLL_CTL_DEL)
            registered[fd].event = *event;
    }
    return result;
}

int epoll_wait(int poller, struct epoll_event *events, int capacity, int milliseconds)
{
    REAL(epoll_wait)
    atomic_fetch_add(&polls, 1);
    FAIL("epoll_wait")
    return real(poller, events, capacity, milliseconds);
}

int poll(struct pollfd *asked, nfds_t count, int milliseconds)
{
    REAL(poll)
    FAIL("poll")
    return real(asked, count, milliseconds);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    REAL(waitpid)
    FAIL("waitpid")
    return real(pid, status, options);
}

int waitid(idtype_t type, id_t id, siginfo_t *information, int options)
{
    REAL(waitid)
    FAIL("waitid")
    return real(type, id, information, options);
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    va_list rest;
    long given[6];
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_pidfd_open)
        FAIL("pidfd_open")
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int pidfd_open(pid_t pid, unsigned flags)
{
    static int (*real)(pid_t, unsigned);
    FAIL("pidfd_open")
    if (!real)
        real = (int (*)(pid_t, unsigned))dlsym(RTLD_NEXT, "pidfd_open");
    return real ? real(pid, flags) : (int)syscall(SYS_pidfd_open, pid, flags);
}
