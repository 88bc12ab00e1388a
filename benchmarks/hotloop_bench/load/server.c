/* The bare server: epoll, and nothing but the service. */

#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    DATAGRAMS = 64,       /* received at a time */
    DATAGRAM_SIZE = 2048, /* bytes, at most */
};

struct peer {
    struct channel channel;
    bool waits_to_send;   /* registered for writability only: nothing is read before all is sent */
    uint64_t counted;     /* bytes received by a sink, of a download's block, or of the end of an HTTP request's head */
    uint64_t wanted;      /* blocks that a download has still to send */
    unsigned char *block; /* of a download; owned */
};

enum service { ECHO, ONCE, SINK, HTTP, DOWNLOAD };
static const char *const service_names[] = {
    [ECHO] = "echo", [ONCE] = "once", [SINK] = "sink", [HTTP] = "http", [DOWNLOAD] = "download"};
static enum service service;
static bool datagrams;
static int poller;
static unsigned char buffer[READ_SIZE];

/* -- the services, which return false to have the connection closed --------------------------------------------- */

static bool send_back(struct peer *peer, size_t count)
{
    if (channel_send(&peer->channel, buffer, count) < 0)
        return false;
    if (service == ONCE)
        channel_finish(&peer->channel);
    return service != ONCE;
}

/* Respond to each request whose head ends here. */
static bool respond(struct peer *peer, size_t count)
{
    static const char response[] = "HTTP/1.1 200 OK\r\n"
                                   "Content-Type: text/plain; charset=utf-8\r\n"
                                   "Content-Length: 12\r\n"
                                   "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
                                   "\r\n"
                                   "Hello, world";
    static const char end[] = "\r\n\r\n";
    for (size_t index = 0; index < count; index++) {
        char byte = (char)buffer[index];
        peer->counted = byte == end[peer->counted] ? peer->counted + 1 : byte == '\r';
        if (peer->counted < sizeof end - 1)
            continue;
        peer->counted = 0;
        if (channel_send(&peer->channel, (const unsigned char *)response, sizeof response - 1) < 0)
            return false;
    }
    return true;
}

static bool send_blocks(struct peer *peer)
{
    for (; peer->wanted && !peer->channel.unsent; peer->wanted--)
        if (channel_send(&peer->channel, peer->block, BLOCK) < 0)
            return false;
    return true;
}

/* The request is the block, then a byte for each time to send it. */
static bool take_request(struct peer *peer, size_t count)
{
    size_t missing = BLOCK - (size_t)peer->counted, of_block = count < missing ? count : missing;
    if (!peer->block && !(peer->block = malloc(BLOCK)))
        fail("out of memory");
    memcpy(peer->block + peer->counted, buffer, of_block);
    peer->counted += of_block;
    peer->wanted += count - of_block;
    return send_blocks(peer);
}

static bool throw_away(struct peer *peer)
{
    /* MSG_TRUNC: the kernel discards a TCP stream's bytes instead of copying them (tcp(7)). */
    ssize_t count = recv(peer->channel.fd, buffer, READ_SIZE, MSG_TRUNC);
    if (count > 0)
        peer->counted += (uint64_t)count;
    if (count != 0)
        return count > 0 || would_block(count);
    char total[32];
    int length = snprintf(total, sizeof total, "%llu\n", (unsigned long long)peer->counted);
    (void)!send(peer->channel.fd, total, (size_t)length, MSG_NOSIGNAL);
    return false;
}

static bool take(struct peer *peer, size_t count)
{
    switch (service) {
    case DOWNLOAD: return take_request(peer, count);
    case HTTP: return respond(peer, count);
    default: return send_back(peer, count);
    }
}

static bool receive(struct peer *peer)
{
    struct channel *channel = &peer->channel;
    int ready = channel_ready(channel);
    if (ready <= 0)
        return ready == 0;
    do {
        ssize_t count = channel_receive(channel, buffer, READ_SIZE);
        if (count <= 0)
            return would_block(count);
        if (!take(peer, (size_t)count))
            return false;
    } while (channel->more && !channel->unsent);
    return true;
}

/* First the unsent bytes, then the blocks that a download has still to send, and only then new requests. */
static bool go_on(struct peer *peer)
{
    if (peer->channel.unsent && channel_flush(&peer->channel) < 0)
        return false;
    if (peer->wanted && !send_blocks(peer))
        return false;
    if (peer->channel.unsent)
        return true;
    return service == SINK ? throw_away(peer) : receive(peer);
}

/* -- connections ------------------------------------------------------------------------------------------------ */

static void serve_peer(struct peer *peer)
{
    if (!go_on(peer)) {
        channel_close(&peer->channel);
        free(peer->block);
        free(peer);
        return;
    }
    bool waits_to_send = peer->channel.unsent != NULL;
    if (waits_to_send != peer->waits_to_send) {
        struct epoll_event event = {.events = waits_to_send ? EPOLLOUT : EPOLLIN, .data.ptr = peer};
        checked(epoll_ctl(poller, EPOLL_CTL_MOD, peer->channel.fd, &event), "epoll_ctl");
        peer->waits_to_send = waits_to_send;
    }
}

static void accept_all(int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer)
            fail("out of memory");
        channel_open(&peer->channel, fd, true);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
        checked(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        fail("accept: %s", strerror(errno));
}

static void echo_datagrams(int fd)
{
    static unsigned char data[DATAGRAMS][DATAGRAM_SIZE];
    static struct sockaddr_in from[DATAGRAMS];
    struct mmsghdr headers[DATAGRAMS];
    struct iovec parts[DATAGRAMS];
    for (int index = 0; index < DATAGRAMS; index++) {
        parts[index] = (struct iovec){data[index], DATAGRAM_SIZE};
        headers[index].msg_hdr = (struct msghdr){.msg_name = &from[index],
                                                 .msg_namelen = sizeof from[index],
                                                 .msg_iov = &parts[index],
                                                 .msg_iovlen = 1};
    }
    int count = recvmmsg(fd, headers, DATAGRAMS, MSG_DONTWAIT, NULL);
    for (int index = 0; index < count; index++)
        parts[index].iov_len = headers[index].msg_len;
    if (count > 0)
        sendmmsg(fd, headers, (unsigned)count, 0);
}

/* -- serving ---------------------------------------------------------------------------------------------------- */

static int listening(const char *network, const char *path)
{
    struct place place = place_of(network, strcmp(network, "unix") == 0 ? path : "127.0.0.1:0");
    int fd = checked(socket(place.family, place.type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
    checked(bind(fd, &place.address.any, place.length), "bind");
    if (place.type == SOCK_STREAM)
        checked(listen(fd, BACKLOG), "listen");
    if (place.family == AF_INET) {
        checked(getsockname(fd, &place.address.any, &place.length), "getsockname");
        answer("{\"address\": \"127.0.0.1:%u\"}", ntohs(place.address.ip.sin_port));
    } else
        answer("{\"address\": \"%s\"}", path);
    datagrams = place.type == SOCK_DGRAM;
    return fd;
}

/* False when the standard input has ended. */
static bool tell_processor_time(void)
{
    char line[64];
    if (read(STDIN_FILENO, line, sizeof line) <= 0)
        return false;
    answer("{\"cpu\": %.9f}", (double)nanoseconds(CLOCK_PROCESS_CPUTIME_ID) * 1e-9);
    return true;
}

static void choose_service(const char *name)
{
    for (service = ECHO; strcmp(service_names[service], name) != 0; service++)
        if (service == DOWNLOAD)
            fail("there is no service %s", name);
}

void serve(const char *network, const char *name, const char *path)
{
    static struct peer requests, newcomers; /* no connections: they mark the events of stdin and of the listener */
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.ptr = &requests};
    choose_service(name);
    if (service == SINK && strncmp(network, "tls:", 4) == 0)
        fail("there is no sink over TLS");
    poller = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    checked(epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event), "epoll_ctl");
    int listener = listening(network, path);
    event.data.ptr = &newcomers;
    checked(epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int index = 0; index < count; index++) {
            struct peer *peer = events[index].data.ptr;
            if (peer == &requests) {
                if (!tell_processor_time())
                    return;
            } else if (peer != &newcomers)
                serve_peer(peer);
            else if (datagrams)
                echo_datagrams(listener);
            else
                accept_all(listener);
        }
    }
}
