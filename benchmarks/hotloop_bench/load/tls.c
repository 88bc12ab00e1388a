/* Channels over TLS by OpenSSL (1.1.1 or newer): TLS 1.3, with one cipher and one group for all measurements.
 *
 * OpenSSL reads several records from the socket at once, and what it writes during one call leaves in one send(). So a
 * message takes as many system calls as without TLS, and a server is not woken for a part of one.
 */

#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_AHEAD = 5 * 16406 + 3, /* bytes: five whole records, aligned; glibc maps 128 KiB anew for each connection */
    SEALED = 300 << 10,         /* bytes: a message of 256 KiB with its record headers and tags */
};

static SSL_CTX *context;
static BIO_METHOD *method;
static bool stream_ended;            /* the last read from a socket found its end */
static unsigned char sealed[SEALED]; /* written by OpenSSL during this call */
static size_t sealed_length;

/* -- between OpenSSL and the socket ----------------------------------------------------------------------------- */

static int push_sealed(struct channel *channel)
{
    size_t count = sealed_length;
    sealed_length = 0;
    return count ? channel_push(channel, sealed, count) : 0;
}

static int write_sealed(BIO *bio, const char *data, int count)
{
    struct channel *channel = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (sealed_length + (size_t)count > SEALED && push_sealed(channel) < 0)
        return -1;
    memcpy(sealed + sealed_length, data, (size_t)count); /* a record at a time */
    sealed_length += (size_t)count;
    return count;
}

static int read_sealed(BIO *bio, char *data, int room)
{
    struct channel *channel = BIO_get_data(bio);
    ssize_t count = recv(channel->fd, data, (size_t)room, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (would_block(count))
        BIO_set_retry_read(bio);
    stream_ended = count == 0;
    return (int)count;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* done by push_sealed(), at the end of the call */
}

/* -- setting up ------------------------------------------------------------------------------------------------- */

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());
    return text ? text : "OpenSSL does not say why";
}

static void make_context(const SSL_METHOD *side)
{
    context = SSL_CTX_new(side);
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (!context || !method)
        fail("TLS: %s", reason());
    BIO_meth_set_write(method, write_sealed);
    BIO_meth_set_read(method, read_sealed);
    BIO_meth_set_ctrl(method, control);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    if (!SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") || !SSL_CTX_set1_groups_list(context, "X25519"))
        fail("TLS: %s", reason());
}

void use_tls_for_client(const char *pem)
{
    make_context(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (!SSL_CTX_load_verify_locations(context, pem, NULL) ||
        !X509_VERIFY_PARAM_set1_ip_asc(SSL_CTX_get0_param(context), "127.0.0.1"))
        fail("%s: %s", pem, reason());
}

void use_tls_for_server(const char *pem)
{
    make_context(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, pem) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, pem, SSL_FILETYPE_PEM) != 1)
        fail("%s: %s", pem, reason());
}

void channel_open(struct channel *channel, int fd, bool server)
{
    if (!context)
        fail("this program knows only tls");
    BIO *bio = BIO_new(method);
    *channel = (struct channel){.fd = fd, .tls = SSL_new(context)};
    if (!bio || !channel->tls)
        fail("out of memory");
    BIO_set_data(bio, channel);
    BIO_set_init(bio, 1);
    SSL_set_bio(channel->tls, bio, bio); /* takes ownership of bio */
    if (server)
        SSL_set_accept_state(channel->tls);
    else
        SSL_set_connect_state(channel->tls);
}

/* -- sending and receiving -------------------------------------------------------------------------------------- */

/* What a failed call means to the caller: -1 with EAGAIN to wait, -1 after channel_failed(), or 0 at the end. */
static ssize_t outcome(struct channel *channel, int result)
{
    int error = errno;
    switch (SSL_get_error(channel->tls, result)) {
    case SSL_ERROR_WANT_READ:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        if (stream_ended)
            return channel_failed("the other side closed the connection without a close_notify");
        return channel_failed(ERR_peek_last_error() ? reason() : strerror(error));
    }
}

int channel_ready(struct channel *channel)
{
    if (SSL_is_init_finished(channel->tls))
        return 1;
    ERR_clear_error();
    int result = SSL_do_handshake(channel->tls);
    ssize_t meaning = result == 1 ? 1 : outcome(channel, result);
    bool wait = would_block(meaning);
    int pushed = push_sealed(channel); /* also the alert of a failure */
    if (meaning == 1 || wait)
        return pushed < 0 ? -1 : result == 1;
    return meaning < 0 ? -1 : channel_failed("the other side ended the handshake");
}

int channel_send(struct channel *channel, const unsigned char *data, size_t count)
{
    size_t written;
    ERR_clear_error();
    if (!SSL_write_ex(channel->tls, data, count, &written))
        return channel_failed(ERR_peek_last_error() ? reason() : channel_problem());
    return push_sealed(channel);
}

/* After both sides have sent a close_notify. The side that closes its socket first keeps its port for a minute
 * (TIME_WAIT): that must be the server. */
static ssize_t receive_end(struct channel *channel)
{
    unsigned char byte;
    ssize_t count = recv(channel->fd, &byte, 1, MSG_DONTWAIT);
    if (count > 0)
        return channel_failed("the other side sent something after its close_notify");
    return would_block(count) ? -1 : 0;
}

ssize_t channel_receive(struct channel *channel, unsigned char *data, size_t room)
{
    size_t received = 0, count;
    int result;
    channel->more = false;
    if (channel->ending)
        return receive_end(channel);
    do {
        ERR_clear_error();
        result = SSL_read_ex(channel->tls, data + received, room - received, &count);
        received += result ? count : 0;
    } while (result && received < room && SSL_has_pending(channel->tls));
    if (sealed_length && push_sealed(channel) < 0) /* OpenSSL's answer to a KeyUpdate */
        return -1;
    ssize_t meaning = result ? 1 : outcome(channel, result);
    if (received) {
        channel->more = result ? SSL_has_pending(channel->tls) : !would_block(meaning);
        return (ssize_t)received;
    }
    if (meaning != 0)
        return meaning;
    channel_finish(channel);
    channel->ending = true;
    return receive_end(channel);
}

void channel_finish(struct channel *channel)
{
    ERR_clear_error();
    SSL_shutdown(channel->tls);
    push_sealed(channel); /* may fail: TLS allows the peer to have closed already */
}

void channel_close(struct channel *channel)
{
    SSL_free(channel->tls);
    close(channel->fd);
    free(channel->unsent);
    *channel = (struct channel){.fd = -1};
}
