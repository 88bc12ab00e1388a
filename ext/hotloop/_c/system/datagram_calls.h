/* The two system calls of a datagram transport, the same on every system. They return a negative errno if they fail.
 * See recvfrom(2), sendto(2).
 */
#ifndef HOTLOOP_SYSTEM_DATAGRAM_CALLS_H
#define HOTLOOP_SYSTEM_DATAGRAM_CALLS_H

#include "system/socket_calls.h"

/* Receive the next datagram: its size and its sender's address. `*length` is 0 if the kernel gives no address. The part
 * of a datagram that does not fit into `size` bytes is lost. */
static inline ssize_t datagram_receive(int fd, void *buffer, size_t size, struct sockaddr_storage *sender,
                                       socklen_t *length)
{
    ssize_t count;

    do {
        *length = sizeof *sender;
        count = recvfrom(fd, buffer, size, 0, (struct sockaddr *)sender, length);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

/* With a `length` of 0, send to the address that the socket is connected to. */
static inline ssize_t datagram_send(int fd, const void *data, size_t size, const struct sockaddr_storage *to,
                                    socklen_t length)
{
    const struct sockaddr *address = length == 0 ? NULL : (const struct sockaddr *)to;
    ssize_t count;

    do {
        count = sendto(fd, data, size, SOCKET_SEND_FLAGS, address, length);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

#endif
