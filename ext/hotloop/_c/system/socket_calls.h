/* The transports' system calls on sockets, the same on every system. They return a negative errno if they fail. See
 * recv(2), accept(2), getsockname(2), tcp(7).
 */
#ifndef HOTLOOP_SYSTEM_SOCKET_CALLS_H
#define HOTLOOP_SYSTEM_SOCKET_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL /* Python ignores SIGPIPE, but a program may have changed that. */
#define SOCKET_SEND_FLAGS MSG_NOSIGNAL
#else
#define SOCKET_SEND_FLAGS 0
#endif

/* Return how many bytes were read; 0 at the end. */
static inline ssize_t socket_receive(int fd, void *buffer, size_t size)
{
    ssize_t count;

    do {
        count = recv(fd, buffer, size, 0);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static inline ssize_t socket_send(int fd, const void *data, size_t size)
{
    ssize_t count;

    do {
        count = send(fd, data, size, SOCKET_SEND_FLAGS);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static inline ssize_t socket_send_chunks(int fd, struct iovec *chunks, int count)
{
    struct msghdr message;
    ssize_t sent;

    if (count == 1)
        return socket_send(fd, chunks->iov_base, chunks->iov_len);
    memset(&message, 0, sizeof message);
    message.msg_iov = chunks;
    message.msg_iovlen = (size_t)count;
    do {
        sent = sendmsg(fd, &message, SOCKET_SEND_FLAGS);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

/* For the program's own sockets: these two never wait, even if the socket is in blocking mode. `peer`: NULL, or where
 * to store the sender's address. */
static inline ssize_t socket_try_receive(
    int fd, void *buffer, size_t size, struct sockaddr_storage *peer, socklen_t *length)
{
    ssize_t count;

    if (peer != NULL)
        *length = sizeof *peer;
    do {
        count = recvfrom(fd, buffer, size, MSG_DONTWAIT, (struct sockaddr *)peer, length);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static inline ssize_t socket_try_send(
    int fd, const void *data, size_t size, const struct sockaddr_storage *target, socklen_t length)
{
    ssize_t count;

    do {
        count = sendto(fd, data, size, SOCKET_SEND_FLAGS | MSG_DONTWAIT, (const struct sockaddr *)target, length);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

/* Accept the next connection: a non-blocking, close-on-exec descriptor, and the peer's address. */
static inline int socket_accept(int fd, struct sockaddr_storage *peer, socklen_t *length)
{
    int accepted;

    *length = sizeof *peer;
#ifdef SOCK_NONBLOCK
    accepted = accept4(fd, (struct sockaddr *)peer, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted < 0)
        return -errno;
#else
    accepted = accept(fd, (struct sockaddr *)peer, length);
    if (accepted < 0)
        return -errno;
    if (fcntl(accepted, F_SETFD, FD_CLOEXEC) < 0 || fcntl(accepted, F_SETFL, O_NONBLOCK) < 0) {
        int error = -errno;

        close(accepted);
        return error;
    }
#endif
    return accepted;
}

/* Begin to connect a non-blocking socket: usually -EINPROGRESS. */
static inline int socket_connect(int fd, const struct sockaddr_storage *target, socklen_t length)
{
    return connect(fd, (const struct sockaddr *)target, length) < 0 ? -errno : 0;
}

/* Take the socket's pending error, such as that of connecting; 0: there is none. */
static inline int socket_take_error(int fd, int *error)
{
    socklen_t size = sizeof *error;

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &size) < 0 ? -errno : 0;
}

static inline int socket_name(int fd, struct sockaddr_storage *name, socklen_t *length)
{
    *length = sizeof *name;
    return getsockname(fd, (struct sockaddr *)name, length) < 0 ? -errno : 0;
}

static inline int socket_peer(int fd, struct sockaddr_storage *name, socklen_t *length)
{
    *length = sizeof *name;
    return getpeername(fd, (struct sockaddr *)name, length) < 0 ? -errno : 0;
}

/* Whether a send on a TCP socket would take data, so that nothing has happened to the connection that only a send
 * shows. False if that cannot be known. (Unix sockets do not report that the peer reads no more; other kernels than
 * Linux put other meanings into the same bits.) */
static inline int socket_can_send(int fd)
{
#ifdef __linux__
    /* POLLRDHUP: a peer that has closed resets the connection when it gets more. */
    struct pollfd asked = {.fd = fd, .events = POLLOUT | POLLRDHUP};

    return poll(&asked, 1, 0) == 1 && asked.revents == POLLOUT;
#else
    (void)fd;
    return 0;
#endif
}

static inline int socket_finish_writing(int fd) { return shutdown(fd, SHUT_WR) < 0 ? -errno : 0; }

static inline int socket_no_delay(int fd)
{
    int on = 1;

    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ? -errno : 0;
}

/* Of a TCP socket: how many of the bytes that were sent the peer's system has not acknowledged; 0 where that is not
 * known. */
static inline int socket_unacknowledged(int fd)
{
    int count = 0;
#ifdef SO_NWRITE
    socklen_t size = sizeof count;

    return getsockopt(fd, SOL_SOCKET, SO_NWRITE, &count, &size) < 0 ? 0 : count;
#elif defined(FIONWRITE)
    return ioctl(fd, FIONWRITE, &count) < 0 ? 0 : count;
#elif defined(TIOCOUTQ)
    return ioctl(fd, TIOCOUTQ, &count) < 0 ? 0 : count; /* the other name of SIOCOUTQ */
#else
    return count;
#endif
}

/* The descriptor is free afterwards, whatever close() returns. A reset connection is no error of closing. */
static inline int socket_close(int fd)
{
    return close(fd) < 0 && errno != EINTR && errno != ECONNRESET ? -errno : 0;
}

/* `family`: the socket's address family; AF_UNSPEC if only the kernel knows it.
 *
 * On TCP a short read means that nothing is left, so an edge-triggered report is enough (epoll(7), question 9). Unix
 * sockets, for example, also return short at each set of descriptors or credentials that is passed along. */
static inline int socket_is_tcp(int fd, int family)
{
    int protocol = 0;
    socklen_t size = sizeof protocol;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;

#ifdef SO_PROTOCOL
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) < 0 || protocol != IPPROTO_TCP)
        return 0;
#else
    (void)protocol, (void)size;
#endif
    if (family == AF_UNSPEC && getsockname(fd, (struct sockaddr *)&name, &length) == 0)
        family = name.ss_family;
    return family == AF_INET || family == AF_INET6;
}

#endif
