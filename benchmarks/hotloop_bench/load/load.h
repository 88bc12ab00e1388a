/* What the files of the load generator share. load.c describes the program. */

#ifndef HOTLOOP_BENCH_LOAD_H
#define HOTLOOP_BENCH_LOAD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>

enum {
    EVENTS = 512,          /* taken from epoll at a time */
    READ_SIZE = 256 << 10, /* bytes: the bare server's and the generator's buffer */
    BLOCK = 256 << 10,     /* bytes: the unit of a download */
    STALLED_SECONDS = 10,  /* without a finished message: the server has stopped answering */
};

/* -- load.c: answers, clocks and addresses ---------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
__attribute__((format(printf, 1, 2))) void answer(const char *format, ...);
int checked(int result, const char *call); /* fails if it is negative */
uint64_t nanoseconds(clockid_t clock);
bool would_block(ssize_t result);

struct place {
    union {
        struct sockaddr any;
        struct sockaddr_in ip;
        struct sockaddr_un path;
    } address;
    socklen_t length;
    int family, type;
};

struct place place_of(const char *network, const char *text);
int connected(const struct place *place, int source); /* `source` > 0: from 127.0.0.1 + source */

/* -- channel.c: a socket with a buffer for what the kernel does not take at once -------------------------------- */

struct channel {
    int fd;
    struct ssl_st *tls;     /* owned; NULL in plain.c */
    bool more;              /* bytes wait in TLS's buffers, which epoll does not see: receive again */
    bool ending;            /* TLS: both sides have sent a close_notify, and the peer has still to close */
    unsigned char *unsent;  /* owned; NULL unless the kernel's send buffer is full */
    size_t length, flushed; /* of `unsent`: bytes there, and bytes of them sent since */
};

/* These return -1 where the connection has failed; channel_problem() says why. */
int channel_push(struct channel *channel, const unsigned char *data, size_t count); /* the bytes as they are */
int channel_flush(struct channel *channel);
int channel_failed(const char *problem);
const char *channel_problem(void);

/* -- plain.c or tls.c, one of which is linked: the bytes on the socket ------------------------------------------ */

/* Both fail in plain.c. `pem` has the certificate, and for the server its key. */
void use_tls_for_client(const char *pem);
void use_tls_for_server(const char *pem);

void channel_open(struct channel *channel, int fd, bool server); /* owns fd; the channel must not move in memory */
int channel_ready(struct channel *channel);                      /* 1: both sides have agreed on keys; 0: not yet */
int channel_send(struct channel *channel, const unsigned char *data, size_t count); /* takes all of it; only when ready */
/* Up to `room` bytes, 0 at the end of the stream, -1 with EAGAIN where nothing has arrived. */
ssize_t channel_receive(struct channel *channel, unsigned char *data, size_t room);
void channel_finish(struct channel *channel); /* tell the peer that no more comes */
void channel_close(struct channel *channel);

/* -- websocket.c: a client's frames and handshake (RFC 6455) --------------------------------------------------- */

enum { FRAME_HEAD = 14 }; /* bytes: the longest head of a frame, with its mask */

extern const char websocket_request[];         /* asks a server for the protocol */
bool websocket_accepted(const char *response); /* whether the head of a response agrees to it */
/* Write the head of a binary frame of this many bytes, and return the head's length. A client's frames are masked. */
size_t websocket_head(unsigned char *head, size_t size, bool masked);
/* Write a client's frame, and return its length: `frame` has room for FRAME_HEAD bytes more than the message. */
size_t websocket_frame(unsigned char *frame, const unsigned char *message, size_t size);

/* -- generator.c ------------------------------------------------------------------------------------------------ */

struct load {
    struct place target;
    size_t connections;
    size_t size;  /* of a message, bytes */
    bool opening; /* each message has a connection of its own */
    bool waves;   /* no connection begins its next message before all have finished the last */
    bool frames;  /* messages and echoes are frames of WebSocket */
};

void generate(const struct load *load);
void download(const struct place *target);
void hold_idle(const struct place *target, int source);

/* -- server.c --------------------------------------------------------------------------------------------------- */

void serve(const char *network, const char *service, const char *path);

#endif
