/* The load: messages whose echo is compared, connections that are opened, a download, idle connections. */

#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { SHIFTS = 4096 }; /* different messages */

/* -- latencies -------------------------------------------------------------------------------------------------- */

/* Counts of latencies in nanoseconds, in steps of 1/32 of a power of two. */
enum { STEPS = 32, STEP_BITS = 5 };
static uint64_t latencies[64 * STEPS];
static uint64_t done; /* messages since the round began */

static void record(uint64_t elapsed)
{
    int power = 63 - __builtin_clzll(elapsed | STEPS);
    latencies[power * STEPS + ((elapsed >> (power - STEP_BITS)) & (STEPS - 1))]++;
    done++;
}

/* In seconds: the middle of the step that this part of all messages does not exceed. */
static double quantile(double part)
{
    uint64_t seen = 0;
    for (int slot = 0; slot < 64 * STEPS; slot++) {
        seen += latencies[slot];
        if (seen && (double)seen >= part * (double)done)
            return (STEPS + slot % STEPS + 0.5) / STEPS * (double)(1ull << (slot / STEPS)) * 1e-9;
    }
    return 0.0;
}

/* -- messages --------------------------------------------------------------------------------------------------- */

struct connection {
    struct channel channel;
    uint64_t began;     /* nanoseconds: when this message was sent or this connection opened */
    uint64_t number;    /* of the message, from 1 */
    size_t received;    /* bytes of the echo of this message */
    bool unsent;        /* this message has not been passed to the channel yet */
    bool waits_to_send; /* registered for writability, too */
};

static struct load load;
static struct connection *connections;
static int poller;
static uint64_t begun, wanted, deadline; /* messages begun, messages to do, or nanoseconds when no more begin */
static size_t under_way;
static unsigned char *random_bytes; /* a message begins somewhere in the first SHIFTS of them */
static unsigned char incoming[READ_SIZE];
static unsigned char *frame;                /* the message of WebSocket that is being sent */
static unsigned char echo_head[FRAME_HEAD]; /* before the message in each echo */
static size_t echo_head_size;               /* 0 without WebSocket */

static void make_random_bytes(size_t count)
{
    random_bytes = malloc(count);
    if (!random_bytes)
        fail("out of memory");
    uint64_t state = 88172645463325252u; /* xorshift64 (Marsaglia, "Xorshift RNGs", 2003) */
    for (size_t index = 0; index < count; index++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        random_bytes[index] = (unsigned char)(state >> 32);
    }
}

/* The message of a connection. It differs from its last one and from those of other connections. */
static const unsigned char *message(const struct connection *connection)
{
    size_t index = (size_t)(connection - connections);
    return random_bytes + (index * 31 + connection->number * 7) % SHIFTS;
}

static void watch(struct connection *connection, int operation)
{
    bool to_send = connection->channel.unsent != NULL;
    struct epoll_event event = {.events = EPOLLIN | (to_send ? EPOLLOUT : 0), .data.ptr = connection};
    checked(epoll_ctl(poller, operation, connection->channel.fd, &event), "epoll_ctl");
    connection->waits_to_send = to_send;
}

/* Send the message if the handshake is done. */
static void send_message(struct connection *connection)
{
    int ready = channel_ready(&connection->channel);
    if (ready < 0)
        fail("handshake: %s", channel_problem());
    if (ready) {
        const unsigned char *data = message(connection);
        size_t count = load.frames ? websocket_frame(frame, data, load.size) : load.size;
        if (channel_send(&connection->channel, load.frames ? frame : data, count) < 0)
            fail("send: %s", channel_problem());
        connection->unsent = false;
    }
    if (connection->waits_to_send != (connection->channel.unsent != NULL))
        watch(connection, EPOLL_CTL_MOD);
}

static bool time_for_more(uint64_t now)
{
    return begun < wanted && (!deadline || now < deadline);
}

static void begin(struct connection *connection, uint64_t now)
{
    connection->began = now;
    connection->number++;
    connection->received = 0;
    connection->unsent = true;
    begun++;
    if (load.opening) {
        channel_open(&connection->channel, connected(&load.target, 0), false);
        watch(connection, EPOLL_CTL_ADD);
    }
    send_message(connection);
}

/* Begin a message on each connection, or on as many as there are messages left. */
static void begin_all(uint64_t now)
{
    uint64_t left = wanted - begun;
    under_way = left < load.connections ? left : load.connections;
    for (size_t index = 0, first = under_way; index < first; index++)
        begin(&connections[index], now);
}

static void finish(struct connection *connection)
{
    uint64_t now = nanoseconds(CLOCK_MONOTONIC);
    record(now - connection->began);
    if (load.opening)
        channel_close(&connection->channel); /* the server has closed first, so the client's port is not in TIME_WAIT */
    if (!load.waves && time_for_more(now)) {
        begin(connection, now);
        return;
    }
    if (--under_way == 0 && time_for_more(now))
        begin_all(now);
}

/* Whether the incoming bytes are the next ones of the echo. */
static bool echoed(const struct connection *connection, size_t count)
{
    size_t at = connection->received, of_head = 0;
    if (at < echo_head_size) {
        of_head = count < echo_head_size - at ? count : echo_head_size - at;
        if (memcmp(incoming, echo_head + at, of_head) != 0)
            return false;
        at = echo_head_size;
    }
    return memcmp(incoming + of_head, message(connection) + at - echo_head_size, count - of_head) == 0;
}

/* The echo must be the message, and no byte more. */
static void receive(struct connection *connection)
{
    size_t size = echo_head_size + load.size, left = size - connection->received;
    size_t room = left + 1 < READ_SIZE ? left + 1 : READ_SIZE;
    ssize_t count = channel_receive(&connection->channel, incoming, room);
    if (count < 0) {
        if (would_block(count))
            return;
        fail("recv: %s", channel_problem());
    }
    if (count == 0) {
        if (!load.opening || left)
            fail("the server closed the connection after %zu of %zu bytes", connection->received, size);
        finish(connection);
        return;
    }
    if ((size_t)count > left)
        fail("wrong echo: more came back than was sent");
    if (!echoed(connection, (size_t)count))
        fail("wrong echo: message %llu differs from what was sent", (unsigned long long)connection->number);
    if (load.target.type == SOCK_DGRAM && (size_t)count < left)
        fail("wrong echo: a datagram of %zd bytes for one of %zu", count, load.size);
    connection->received += (size_t)count;
    if (connection->received == size && !load.opening)
        finish(connection);
}

static void take_event(struct connection *connection, uint32_t events)
{
    if (events & EPOLLOUT && connection->channel.unsent) {
        if (channel_flush(&connection->channel) < 0)
            fail("send: %s", channel_problem());
        if (!connection->channel.unsent)
            watch(connection, EPOLL_CTL_MOD);
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    if (connection->unsent)
        send_message(connection);
    else
        do
            receive(connection);
        while (connection->channel.more);
}

static void take_events(void)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(poller, events, EVENTS, 1000);
    if (count < 0 && errno != EINTR)
        fail("epoll_wait: %s", strerror(errno));
    for (int index = 0; index < count; index++)
        take_event(events[index].data.ptr, events[index].events);
}

static void run_round(uint64_t messages, double seconds)
{
    memset(latencies, 0, sizeof latencies);
    done = begun = 0;
    uint64_t start = nanoseconds(CLOCK_MONOTONIC), last_progress = start, last_done = 0;
    wanted = messages;
    deadline = seconds > 0 ? start + (uint64_t)(seconds * 1e9) : 0;
    begin_all(start);
    while (under_way) {
        take_events();
        if (done != last_done) {
            last_done = done;
            last_progress = nanoseconds(CLOCK_MONOTONIC);
        } else if (nanoseconds(CLOCK_MONOTONIC) - last_progress > STALLED_SECONDS * 1000000000ull)
            fail("no echo in %d s, after %llu messages", STALLED_SECONDS, (unsigned long long)done);
    }
    double elapsed = (double)(nanoseconds(CLOCK_MONOTONIC) - start) * 1e-9;
    answer("{\"messages\": %llu, \"seconds\": %.9f, \"p50\": %.9f, \"p99\": %.9f}", (unsigned long long)done, elapsed,
           quantile(0.50), quantile(0.99));
}

/* -- before the first round and between rounds ------------------------------------------------------------------ */

/* Wait for an event on a channel that epoll does not watch. */
static void wait_for(const struct channel *channel)
{
    short sending = channel->unsent ? POLLOUT : 0;
    struct pollfd patience = {.fd = channel->fd, .events = POLLIN | sending};
    if (checked(poll(&patience, 1, STALLED_SECONDS * 1000), "poll") == 0)
        fail("nothing from the server in %d s", STALLED_SECONDS);
}

static void flush(struct channel *channel)
{
    if (channel->unsent && channel_flush(channel) < 0)
        fail("send: %s", channel_problem());
}

/* A channel for many messages: its handshake is done before the first. */
static void open_ready(struct channel *channel, const struct place *target)
{
    int ready;
    channel_open(channel, connected(target, 0), false);
    while ((ready = channel_ready(channel)) == 0) {
        wait_for(channel);
        flush(channel);
    }
    if (ready < 0)
        fail("handshake: %s", channel_problem());
}

static void send_all(struct channel *channel, const unsigned char *data, size_t count)
{
    if (channel_send(channel, data, count) < 0)
        fail("send: %s", channel_problem());
    while (channel->unsent) {
        wait_for(channel);
        flush(channel);
    }
}

/* Ask for WebSocket on a connection, and read the response up to its end. */
static void begin_frames(struct channel *channel)
{
    char response[4096] = "";
    size_t length = 0;
    send_all(channel, (const unsigned char *)websocket_request, strlen(websocket_request));
    while (!strstr(response, "\r\n\r\n")) {
        ssize_t count = channel_receive(channel, (unsigned char *)response + length, sizeof response - 1 - length);
        if (would_block(count))
            wait_for(channel);
        else if (count <= 0)
            fail("the server does not accept WebSocket: it closed the connection, or its response is too long");
        else
            response[length += (size_t)count] = '\0';
    }
    if (!websocket_accepted(response))
        fail("the server does not accept WebSocket: %.*s", (int)strcspn(response, "\r\n\""), response);
}

static void prepare_frames(void)
{
    frame = malloc(FRAME_HEAD + load.size);
    if (!frame)
        fail("out of memory");
    echo_head_size = websocket_head(echo_head, load.size, false);
}

/* Read the next request; `seconds` says that it is a time. False at the end of the standard input. */
static bool asked_for(double *amount, bool *seconds)
{
    char line[64], *unit;
    if (!fgets(line, sizeof line, stdin))
        return false;
    *amount = strtod(line, &unit);
    *seconds = *unit == 's';
    if (*amount <= 0)
        fail("not a number of messages or seconds");
    return true;
}

void generate(const struct load *wanted_load)
{
    load = *wanted_load;
    poller = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    connections = calloc(load.connections, sizeof *connections);
    if (!connections)
        fail("out of memory");
    make_random_bytes(load.size + SHIFTS);
    if (load.frames)
        prepare_frames();
    for (size_t index = 0; index < load.connections && !load.opening; index++) {
        open_ready(&connections[index].channel, &load.target);
        if (load.frames)
            begin_frames(&connections[index].channel);
        watch(&connections[index], EPOLL_CTL_ADD);
    }
    answer("{\"ready\": %zu}", load.connections);
    double amount;
    bool seconds;
    while (asked_for(&amount, &seconds))
        run_round(seconds ? UINT64_MAX : (uint64_t)amount, seconds ? amount : 0);
}

void hold_idle(const struct place *target, int source)
{
    size_t held = 0;
    answer("{\"ready\": 0}");
    for (char line[64]; fgets(line, sizeof line, stdin);) {
        for (size_t more = strtoul(line, NULL, 10); more; more--, held++)
            connected(target, source);
        answer("{\"ready\": %zu}", held);
    }
}

/* -- a download ------------------------------------------------------------------------------------------------- */

/* Receive that many blocks, each equal to the one that was sent to the server. */
static void receive_blocks(struct channel *channel, uint64_t blocks)
{
    for (uint64_t left = blocks * BLOCK; left;) {
        size_t offset = (size_t)(-left % BLOCK), room = BLOCK - offset;
        ssize_t count = channel_receive(channel, incoming, room < READ_SIZE ? room : READ_SIZE);
        if (would_block(count))
            wait_for(channel);
        else if (count < 0)
            fail("recv: %s", channel_problem());
        else if (count == 0)
            fail("the server closed the connection %llu bytes too early", (unsigned long long)left);
        else if (memcmp(incoming, random_bytes + offset, (size_t)count) != 0)
            fail("wrong download: a block differs from what it should be");
        else
            left -= (uint64_t)count;
    }
}

static void ask_for_blocks(struct channel *channel, uint64_t blocks)
{
    static const unsigned char requests[1024]; /* of any value */
    for (size_t count; blocks; blocks -= count) {
        count = blocks < sizeof requests ? (size_t)blocks : sizeof requests;
        send_all(channel, requests, count);
    }
}

void download(const struct place *target)
{
    struct channel channel;
    double amount;
    bool seconds;
    make_random_bytes(BLOCK);
    open_ready(&channel, target);
    send_all(&channel, random_bytes, BLOCK);
    answer("{\"ready\": 1}");
    while (asked_for(&amount, &seconds)) {
        if (seconds)
            fail("a download is asked for in MiB");
        uint64_t mebibytes = (uint64_t)amount, blocks = mebibytes * ((1 << 20) / BLOCK);
        uint64_t start = nanoseconds(CLOCK_MONOTONIC);
        ask_for_blocks(&channel, blocks);
        receive_blocks(&channel, blocks);
        answer("{\"messages\": %llu, \"seconds\": %.9f}", (unsigned long long)mebibytes,
               (double)(nanoseconds(CLOCK_MONOTONIC) - start) * 1e-9);
    }
}
