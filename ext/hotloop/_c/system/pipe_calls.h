/* The transports' system calls on pipes, FIFOs and character devices. They return a negative errno if they fail. See
 * read(2), write(2), pipe(7). They work on sockets, too.
 */
#ifndef HOTLOOP_SYSTEM_PIPE_CALLS_H
#define HOTLOOP_SYSTEM_PIPE_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* Return how many bytes were read; 0 at the end. */
static inline ssize_t pipe_read(int fd, void *buffer, size_t size)
{
    ssize_t count;

    do {
        count = read(fd, buffer, size);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static inline ssize_t pipe_write(int fd, const void *data, size_t size)
{
    ssize_t count;

    do {
        count = write(fd, data, size);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static inline ssize_t pipe_write_chunks(int fd, struct iovec *chunks, int count)
{
    ssize_t written;

    if (count == 1)
        return pipe_write(fd, chunks->iov_base, chunks->iov_len);
    do {
        written = writev(fd, chunks, count);
    } while (written < 0 && errno == EINTR);
    return written < 0 ? -errno : written;
}

static inline int pipe_is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

#endif
