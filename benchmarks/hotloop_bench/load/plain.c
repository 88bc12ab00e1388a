/* Channels that send bytes as they are. */

#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noreturn)) static void fail_without_tls(void)
{
    fail("this program has been linked without TLS");
}

void use_tls_for_client(const char *pem)
{
    (void)pem;
    fail_without_tls();
}

void use_tls_for_server(const char *pem)
{
    (void)pem;
    fail_without_tls();
}

void channel_open(struct channel *channel, int fd, bool server)
{
    (void)server;
    *channel = (struct channel){.fd = fd};
}

int channel_ready(struct channel *channel)
{
    (void)channel;
    return 1;
}

int channel_send(struct channel *channel, const unsigned char *data, size_t count)
{
    return channel_push(channel, data, count);
}

ssize_t channel_receive(struct channel *channel, unsigned char *data, size_t room)
{
    ssize_t count = recv(channel->fd, data, room, MSG_DONTWAIT);
    if (count < 0 && !would_block(count))
        return channel_failed(strerror(errno));
    return count;
}

void channel_finish(struct channel *channel)
{
    (void)channel; /* closing the socket tells the peer */
}

void channel_close(struct channel *channel)
{
    close(channel->fd);
    free(channel->unsent);
    *channel = (struct channel){.fd = -1};
}
