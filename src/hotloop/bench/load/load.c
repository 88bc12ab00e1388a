/* The other side of the network rows: a load generator, which must never be slower than what it measures, and the
 * simplest server that does the same work without Python.
 *
 *     load echo NETWORK ADDRESS CONNECTIONS SIZE [waves]
 *                                                  messages of SIZE bytes, each sent when the echo of its connection's
 *                                                  last is whole; in waves, when the echoes of all connections are
 *     load open NETWORK ADDRESS CONNECTIONS        connections: connect, send a byte, read its echo and the end, close
 *     load idle ADDRESS SOURCE                     connections that only exist, from 127.0.0.1 + SOURCE: each source
 *                                                  address has as many ports as there are ephemeral ones
 *     load serve NETWORK SERVICE [PATH]            a bare epoll server; SERVICE is echo, once (echo once and close) or
 *                                                  sink (throw away what comes, and tell how much it was at its end)
 *
 * NETWORK is tcp, unix or udp; ADDRESS is 127.0.0.1:PORT or a path; PATH is for unix.
 *
 * Everything goes on until the standard input ends. Answers are lines of JSON; {"error": REASON} is the last line of
 * all. The first line says that the connections stand ({"ready": N}) or where the server listens ({"address": A}).
 * Requests are lines:
 *
 *     echo, open   N      N messages or connections; {"messages", "seconds", "p50", "p99"}, times in seconds
 *                  Ts     the same for T seconds
 *     idle         N      N connections more; {"ready": ALL}
 *     serve        (any)  {"cpu": SECONDS}, of processor time so far
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 512,           /* taken from epoll at a time */
    BACKLOG = 4096,         /* of the bare server */
    READ_SIZE = 256 << 10,  /* bytes: the bare server's and the generator's buffer */
    SHIFTS = 4096,          /* different messages */
    DATAGRAMS = 64,         /* the bare server receives at a time */
    DATAGRAM_SIZE = 2048,   /* bytes, at most, of the bare server */
    STALLED_SECONDS = 10,   /* without one message done: the server has stopped answering */
};

/* -- answers ---------------------------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("{\"error\": \"");
    vprintf(format, arguments);
    printf("\"}\n");
    fflush(stdout);
    exit(1);
}

__attribute__((format(printf, 1, 2))) static void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

static int checked(int result, const char *call)
{
    if (result < 0)
        fail("%s: %s", call, strerror(errno));
    return result;
}

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool would_block(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* As many descriptors as this process may have. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* -- addresses -------------------------------------------------------------------------------------------------- */

struct place {
    union {
        struct sockaddr any;
        struct sockaddr_in ip;
        struct sockaddr_un path;
    } address;
    socklen_t length;
    int family, type;
};

static struct place place_of(const char *network, const char *text)
{
    struct place place = {.type = strcmp(network, "udp") == 0 ? SOCK_DGRAM : SOCK_STREAM};
    if (strcmp(network, "unix") == 0) {
        place.family = AF_UNIX;
        place.length = sizeof place.address.path;
        place.address.path.sun_family = AF_UNIX;
        if (strlen(text) >= sizeof place.address.path.sun_path)
            fail("the path of the socket is too long");
        strcpy(place.address.path.sun_path, text);
        return place;
    }
    char host[64] = "";
    unsigned port = 0;
    if (sscanf(text, "%63[0-9.]:%u", host, &port) != 2 || port > 65535)
        fail("not HOST:PORT: %s", text);
    place.family = AF_INET;
    place.length = sizeof place.address.ip;
    place.address.ip.sin_family = AF_INET;
    place.address.ip.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &place.address.ip.sin_addr) != 1)
        fail("not an IPv4 address: %s", host);
    return place;
}

/* A connected socket. Blocking, since on this machine the kernel alone completes a connection; used without. */
static int connected(const struct place *place, int source)
{
    int fd = checked(socket(place->family, place->type | SOCK_CLOEXEC, 0), "socket");
    struct timeval patience = {.tv_sec = STALLED_SECONDS};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (source > 0) {
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)source)};
        /* The port is chosen in connect(), where it need only differ for the same source and destination. */
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        checked(bind(fd, (struct sockaddr *)&from, sizeof from), "bind");
    }
    checked(connect(fd, &place->address.any, place->length), "connect");
    if (place->family == AF_INET && place->type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* -- latencies -------------------------------------------------------------------------------------------------- */

/* Counts by nanoseconds, in steps of 1/32 of a power of two. */
enum { STEPS = 32, STEP_BITS = 5 };
static uint64_t latencies[64 * STEPS];
static uint64_t done; /* messages since the round began */

static void record(uint64_t elapsed)
{
    int power = 63 - __builtin_clzll(elapsed | STEPS);
    latencies[power * STEPS + ((elapsed >> (power - STEP_BITS)) & (STEPS - 1))]++;
    done++;
}

/* In seconds: the middle of the step below which lies that part of all messages. */
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

/* -- the generator ---------------------------------------------------------------------------------------------- */

struct connection {
    uint64_t began;        /* nanoseconds: when this message was sent or this connection opened */
    uint64_t number;       /* of the message, from 1 */
    size_t sent, received; /* bytes of this message */
    int fd;
    bool waits_to_send;    /* registered for writability as well */
};

static struct place target;
static bool opening; /* each message has a connection of its own */
static bool waves;   /* no connection begins its next message before all have finished the last */
static size_t size;  /* of a message */
static struct connection *connections;
static size_t connection_count;
static int poller;
static uint64_t begun, wanted, deadline; /* messages begun, messages to do, or nanoseconds to stop beginning at */
static size_t under_way;
static unsigned char *random_bytes; /* size + SHIFTS of them: a message begins somewhere in the first SHIFTS */
static unsigned char incoming[READ_SIZE];

/* The message a connection is at. It differs from its last one, and from what other connections send. */
static const unsigned char *message(const struct connection *connection)
{
    size_t index = (size_t)(connection - connections);
    return random_bytes + (index * 31 + connection->number * 7) % SHIFTS;
}

static void watch(struct connection *connection, int operation, bool to_send)
{
    struct epoll_event event = {.events = EPOLLIN | (to_send ? EPOLLOUT : 0), .data.ptr = connection};
    checked(epoll_ctl(poller, operation, connection->fd, &event), "epoll_ctl");
    connection->waits_to_send = to_send;
}

static void send_rest(struct connection *connection)
{
    const unsigned char *rest = message(connection) + connection->sent;
    ssize_t sent = send(connection->fd, rest, size - connection->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !would_block(sent))
        fail("send: %s", strerror(errno));
    if (sent > 0)
        connection->sent += (size_t)sent;
    bool more = connection->sent < size;
    if (more != connection->waits_to_send)
        watch(connection, EPOLL_CTL_MOD, more);
}

static bool time_for_more(uint64_t now)
{
    return begun < wanted && (!deadline || now < deadline);
}

static void begin(struct connection *connection, uint64_t now)
{
    connection->began = now;
    connection->number++;
    connection->sent = connection->received = 0;
    begun++;
    if (opening) {
        connection->fd = connected(&target, 0);
        watch(connection, EPOLL_CTL_ADD, false);
    }
    send_rest(connection);
}

/* A message on each connection, of those still to be done. */
static void begin_all(uint64_t now)
{
    uint64_t left = wanted - begun;
    under_way = left < connection_count ? left : connection_count;
    for (size_t index = 0, first = under_way; index < first; index++)
        begin(&connections[index], now);
}

static void finish(struct connection *connection)
{
    uint64_t now = nanoseconds(CLOCK_MONOTONIC);
    record(now - connection->began);
    if (opening) {
        close(connection->fd); /* the server has closed first, so no port of ours is left in TIME_WAIT */
        connection->fd = -1;
    }
    if (!waves && time_for_more(now)) {
        begin(connection, now);
        return;
    }
    if (--under_way == 0 && time_for_more(now))
        begin_all(now);
}

/* What came must be what was sent, no byte more. */
static void receive(struct connection *connection)
{
    size_t left = size - connection->received;
    size_t room = left + 1 < READ_SIZE ? left + 1 : READ_SIZE;
    ssize_t count = recv(connection->fd, incoming, room, MSG_DONTWAIT);
    if (count < 0) {
        if (would_block(count))
            return;
        fail("recv: %s", strerror(errno));
    }
    if (count == 0) {
        if (!opening || left)
            fail("the server closed the connection after %zu of %zu bytes", connection->received, size);
        finish(connection);
        return;
    }
    if ((size_t)count > left)
        fail("wrong echo: more came back than was sent");
    if (memcmp(incoming, message(connection) + connection->received, (size_t)count) != 0)
        fail("wrong echo: message %llu differs from what was sent", (unsigned long long)connection->number);
    if (target.type == SOCK_DGRAM && (size_t)count < left)
        fail("wrong echo: a datagram of %zd bytes for one of %zu", count, size);
    connection->received += (size_t)count;
    if (connection->received == size && !opening)
        finish(connection);
}

static void take_events(void)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(poller, events, EVENTS, 1000);
    if (count < 0 && errno != EINTR)
        fail("epoll_wait: %s", strerror(errno));
    for (int index = 0; index < count; index++) {
        struct connection *connection = events[index].data.ptr;
        if (events[index].events & EPOLLOUT)
            send_rest(connection);
        if (events[index].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(connection);
    }
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

static void generate(void)
{
    poller = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    connections = calloc(connection_count, sizeof *connections);
    random_bytes = malloc(size + SHIFTS);
    if (!connections || !random_bytes)
        fail("out of memory");
    uint64_t state = 88172645463325252u; /* xorshift64 (Marsaglia, "Xorshift RNGs", 2003) */
    for (size_t index = 0; index < size + SHIFTS; index++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        random_bytes[index] = (unsigned char)(state >> 32);
    }
    for (size_t index = 0; index < connection_count && !opening; index++) {
        connections[index].fd = connected(&target, 0);
        watch(&connections[index], EPOLL_CTL_ADD, false);
    }
    answer("{\"ready\": %zu}", connection_count);
    for (char line[64]; fgets(line, sizeof line, stdin);) {
        char *unit;
        double amount = strtod(line, &unit);
        if (amount <= 0)
            fail("not a number of messages or seconds");
        if (*unit == 's')
            run_round(UINT64_MAX, amount);
        else
            run_round((uint64_t)amount, 0);
    }
}

static void hold_idle(int source)
{
    size_t held = 0;
    answer("{\"ready\": 0}");
    for (char line[64]; fgets(line, sizeof line, stdin);) {
        for (size_t more = strtoul(line, NULL, 10); more; more--, held++)
            connected(&target, source);
        answer("{\"ready\": %zu}", held);
    }
}

/* -- the bare server -------------------------------------------------------------------------------------------- */

struct peer {
    int fd;
    uint64_t counted;        /* bytes a sink has received */
    size_t pending, flushed; /* of `unsent`: bytes there, and bytes of them sent since */
    unsigned char *unsent;   /* NULL unless the peer takes no more at the moment; owned */
};

enum service { ECHO, ONCE, SINK };
static enum service service;
static unsigned char buffer[READ_SIZE];

static void drop(struct peer *peer)
{
    close(peer->fd);
    free(peer->unsent);
    free(peer);
}

static void rearm(struct peer *peer, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    checked(epoll_ctl(poller, EPOLL_CTL_MOD, peer->fd, &event), "epoll_ctl");
}

/* Nothing more is read before all of it is sent. */
static void keep_unsent(struct peer *peer, const unsigned char *rest, size_t count)
{
    peer->unsent = malloc(count);
    if (!peer->unsent)
        fail("out of memory");
    memcpy(peer->unsent, rest, count);
    peer->pending = count;
    peer->flushed = 0;
    rearm(peer, EPOLLOUT);
}

static void flush_unsent(struct peer *peer)
{
    ssize_t sent = send(peer->fd, peer->unsent + peer->flushed, peer->pending - peer->flushed, MSG_NOSIGNAL);
    if (sent < 0 && !would_block(sent)) {
        drop(peer);
        return;
    }
    if (sent > 0)
        peer->flushed += (size_t)sent;
    if (peer->flushed == peer->pending) {
        free(peer->unsent);
        peer->unsent = NULL;
        rearm(peer, EPOLLIN);
    }
}

static void end_of_sink(struct peer *peer)
{
    char count[32];
    int length = snprintf(count, sizeof count, "%llu\n", (unsigned long long)peer->counted);
    (void)!send(peer->fd, count, (size_t)length, MSG_NOSIGNAL);
    drop(peer);
}

static void serve_peer(struct peer *peer)
{
    if (peer->unsent) {
        flush_unsent(peer);
        return;
    }
    /* MSG_TRUNC: the kernel throws a TCP stream's bytes away instead of copying them (tcp(7)). */
    ssize_t count = recv(peer->fd, buffer, READ_SIZE, service == SINK ? MSG_TRUNC : 0);
    if (would_block(count))
        return;
    if (count <= 0) {
        if (service == SINK && count == 0)
            end_of_sink(peer);
        else
            drop(peer);
        return;
    }
    if (service == SINK) {
        peer->counted += (uint64_t)count;
        return;
    }
    ssize_t sent = send(peer->fd, buffer, (size_t)count, MSG_NOSIGNAL);
    if ((sent < 0 && !would_block(sent)) || service == ONCE) {
        drop(peer);
        return;
    }
    if (sent < count)
        keep_unsent(peer, buffer + (sent > 0 ? sent : 0), (size_t)(count - (sent > 0 ? sent : 0)));
}

static void accept_all(int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer)
            fail("out of memory");
        peer->fd = fd;
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
    target = place;
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

static void serve(const char *network, const char *path)
{
    static struct peer requests = {.fd = STDIN_FILENO}, newcomers;
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.ptr = &requests};
    poller = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    checked(epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event), "epoll_ctl");
    newcomers.fd = listening(network, path);
    event.data.ptr = &newcomers;
    checked(epoll_ctl(poller, EPOLL_CTL_ADD, newcomers.fd, &event), "epoll_ctl");
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int index = 0; index < count; index++) {
            struct peer *peer = events[index].data.ptr;
            if (peer == &requests) {
                if (!tell_processor_time())
                    return;
            } else if (peer != &newcomers)
                serve_peer(peer);
            else if (target.type == SOCK_DGRAM)
                echo_datagrams(newcomers.fd);
            else
                accept_all(newcomers.fd);
        }
    }
}

/* -- the command line ------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    allow_descriptors();
    if (strcmp(command, "serve") == 0 && argc >= 4) {
        service = strcmp(argv[3], "once") == 0 ? ONCE : strcmp(argv[3], "sink") == 0 ? SINK : ECHO;
        serve(argv[2], argc > 4 ? argv[4] : "");
    } else if (strcmp(command, "idle") == 0 && argc == 4) {
        target = place_of("tcp", argv[2]);
        hold_idle(atoi(argv[3]));
    } else if ((strcmp(command, "open") == 0 && argc == 5) || (strcmp(command, "echo") == 0 && argc >= 6)) {
        waves = argc > 6 && strcmp(argv[6], "waves") == 0;
        opening = argc == 5;
        target = place_of(argv[2], argv[3]);
        connection_count = strtoul(argv[4], NULL, 10);
        size = opening ? 1 : strtoul(argv[5], NULL, 10);
        if (!connection_count || !size)
            fail("connections and bytes must be positive numbers");
        generate();
    } else
        fail("see the top of load.c for how to call it");
    return 0;
}
