/* A socket with a buffer: it keeps what the kernel does not take at once. */

#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *last_problem = "";

const char *channel_problem(void)
{
    return last_problem;
}

int channel_failed(const char *problem)
{
    last_problem = problem;
    errno = EPROTO; /* never an error that would_block() takes for a reason to try again */
    return -1;
}

static int keep(struct channel *channel, const unsigned char *data, size_t count)
{
    unsigned char *longer = realloc(channel->unsent, channel->length + count);
    if (!longer)
        fail("out of memory");
    memcpy(longer + channel->length, data, count);
    channel->unsent = longer;
    channel->length += count;
    return 0;
}

int channel_push(struct channel *channel, const unsigned char *data, size_t count)
{
    if (channel->unsent)
        return keep(channel, data, count);
    ssize_t sent = send(channel->fd, data, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !would_block(sent))
        return channel_failed(strerror(errno));
    size_t taken = sent > 0 ? (size_t)sent : 0;
    return taken < count ? keep(channel, data + taken, count - taken) : 0;
}

int channel_flush(struct channel *channel)
{
    const unsigned char *rest = channel->unsent + channel->flushed;
    ssize_t sent = send(channel->fd, rest, channel->length - channel->flushed, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !would_block(sent))
        return channel_failed(strerror(errno));
    if (sent > 0)
        channel->flushed += (size_t)sent;
    if (channel->flushed == channel->length) {
        free(channel->unsent);
        channel->unsent = NULL;
        channel->length = channel->flushed = 0;
    }
    return 0;
}
