/* The other side of the network rows: a load generator, which must not be slower than the servers that it measures,
 * and the simplest server that does the same work without Python.
 *
 *     load echo NETWORK ADDRESS CONNECTIONS SIZE [waves]
 *                                                  messages of SIZE bytes, each sent when the echo of its connection's
 *                                                  last is whole; in waves, when the echoes of all connections are
 *     load websocket NETWORK ADDRESS CONNECTIONS SIZE
 *                                                  the same by WebSocket: a message is a binary frame
 *     load open NETWORK ADDRESS CONNECTIONS        connections: connect, send a byte, read its echo and the end, close
 *     load download NETWORK ADDRESS                one connection: the server receives a block of 256 KiB, and then
 *                                                  sends it once for each further byte that it receives
 *     load idle ADDRESS SOURCE                     idle connections, from 127.0.0.1 + SOURCE: each source address has
 *                                                  the ephemeral ports to itself
 *     load serve NETWORK SERVICE [PATH]            a bare epoll server; SERVICE is echo, once (echo once and close),
 *                                                  download, http (a text of 12 bytes for each request, which has no
 *                                                  body), or sink (discard what comes, and send its length at the end;
 *                                                  not over TLS)
 *
 * NETWORK is tcp, unix, udp or tls:PEM, which is TLS over TCP; PEM is a file with the server's certificate and, for the
 * server, its key. The program that is linked with tls.c knows only tls, and the one with plain.c only the others.
 * ADDRESS is 127.0.0.1:PORT or a path; PATH is for unix.
 *
 * The program runs until its standard input ends. Answers are lines of JSON; after {"error": REASON} it exits. The first
 * line says that the connections are open and over TLS have done their handshakes ({"ready": N}), or where the server
 * listens ({"address": A}). Requests are lines:
 *
 *     echo, websocket, open
 *                  N      N messages or connections; {"messages", "seconds", "p50", "p99"}, times in seconds
 *                  Ts     the same for T seconds
 *     download     N      N MiB; {"messages", "seconds"}
 *     idle         N      N more connections; {"ready": ALL}
 *     serve        (any)  {"cpu": SECONDS}, of processor time so far
 *
 * generator.c is the clients, with websocket.c for their frames, and server.c the server. Both send and receive by
 * channels (channel.c), which plain.c or tls.c makes of sockets.
 */

#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>

/* -- answers ---------------------------------------------------------------------------------------------------- */

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("{\"error\": \"");
    vprintf(format, arguments);
    printf("\"}\n");
    fflush(stdout);
    exit(1);
}

void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

int checked(int result, const char *call)
{
    if (result < 0)
        fail("%s: %s", call, strerror(errno));
    return result;
}

uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool would_block(ssize_t result)
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

struct place place_of(const char *network, const char *text)
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

/* A connected socket. connect() may block, because the kernel of this machine completes it alone; later calls pass
 * MSG_DONTWAIT. */
int connected(const struct place *place, int source)
{
    int fd = checked(socket(place->family, place->type | SOCK_CLOEXEC, 0), "socket");
    struct timeval patience = {.tv_sec = STALLED_SECONDS};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (source > 0) {
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)source)};
        /* connect() chooses the port, which then must only be unique for this source and destination. */
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        checked(bind(fd, (struct sockaddr *)&from, sizeof from), "bind");
    }
    checked(connect(fd, &place->address.any, place->length), "connect");
    if (place->family == AF_INET && place->type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* -- the command line ------------------------------------------------------------------------------------------- */

static void prepare_tls(const char *network, bool server)
{
    if (strncmp(network, "tls:", 4) != 0)
        return;
    if (server)
        use_tls_for_server(network + 4);
    else
        use_tls_for_client(network + 4);
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    bool to_open = strcmp(command, "open") == 0 && argc == 5;
    bool frames = strcmp(command, "websocket") == 0 && argc == 6;
    allow_descriptors();
    if (argc > 2)
        prepare_tls(argv[2], strcmp(command, "serve") == 0);
    if (strcmp(command, "serve") == 0 && argc >= 4)
        serve(argv[2], argv[3], argc > 4 ? argv[4] : "");
    else if (strcmp(command, "idle") == 0 && argc == 4) {
        struct place target = place_of("tcp", argv[2]);
        hold_idle(&target, atoi(argv[3]));
    } else if (strcmp(command, "download") == 0 && argc == 4) {
        struct place target = place_of(argv[2], argv[3]);
        download(&target);
    } else if (to_open || frames || (strcmp(command, "echo") == 0 && argc >= 6)) {
        struct load load = {.target = place_of(argv[2], argv[3]),
                            .connections = strtoul(argv[4], NULL, 10),
                            .size = to_open ? 1 : strtoul(argv[5], NULL, 10),
                            .opening = to_open,
                            .frames = frames,
                            .waves = argc > 6 && strcmp(argv[6], "waves") == 0};
        if (!load.connections || !load.size)
            fail("connections and bytes must be positive numbers");
        generate(&load);
    } else
        fail("see the top of load.c for how to call it");
    return 0;
}
