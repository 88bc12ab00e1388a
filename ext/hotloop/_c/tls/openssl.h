/* OpenSSL's functions, called on the SSL that the ssl module has made.
 *
 * hotloop is built without OpenSSL's headers and linked with none of its libraries: a program must have one OpenSSL,
 * the ssl module's. So the functions are looked up where _ssl, which is a shared object, finds its own: in its
 * dependencies. An interpreter that has OpenSSL built in has no such dependencies; then openssl_find() fails.
 *
 * The SSL behind a Python object is a field of a structure that is private to _ssl. Nothing here relies on its place:
 * OpenSSL itself passes each SSL that it makes to the constructor of an ex_data index, which notes it for its thread.
 * The Python object that was made in the meantime must hold this very pointer.
 *
 * The SSL gets a BIO of hotloop's in place of the memory BIOs with which it was made. It reads from memory that is lent
 * to it for one call, and writes where the caller wants the record: memory BIOs clear and copy every byte once more in
 * each direction. Whatever it uses is lent for a call or its own, because an application may keep its SSLObject and
 * call it long after the connection; and nothing is Python's, because the ssl module releases the GIL.
 *
 * Source: CRYPTO_get_ex_new_index(3), SSL_set_bio(3), BIO_meth_new(3), SSL_read(3), SSL_write(3), dlopen(3).
 */
#ifndef HOTLOOP_TLS_OPENSSL_H
#define HOTLOOP_TLS_OPENSSL_H

#include <Python.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Values of OpenSSL's macros, the same since 1.1.0. */
enum {
    OPENSSL_VERSION_TEXT = 0,         /* OPENSSL_VERSION */
    OPENSSL_SSL_OBJECTS = 0,          /* CRYPTO_EX_INDEX_SSL */
    OPENSSL_WANTS_INPUT = 2 + 1,      /* SSL_READING */
    OPENSSL_SOURCE_AND_SINK = 0x400,  /* BIO_TYPE_SOURCE_SINK */
    OPENSSL_FLUSH = 11,               /* BIO_CTRL_FLUSH */
    OPENSSL_READ_AGAIN = 1 | 8,       /* BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY */
    OPENSSL_RETRY_FLAGS = 1 | 2 | 4 | 8
};

typedef void openssl_noting(void *ssl, void *value, void *data, int index, long argl, void *argp);

typedef struct {
    const char *(*version)(int what);
    int (*new_index)(int objects, long argl, void *argp, openssl_noting *make, void *copy, void *release);
    int (*read)(void *ssl, void *place, size_t room, size_t *count);
    int (*peek)(void *ssl, void *place, size_t room, size_t *count);
    int (*write)(void *ssl, const void *data, size_t size, size_t *taken);
    int (*pending)(const void *ssl);
    int (*want)(const void *ssl);
    void (*set_bio)(void *ssl, void *incoming, void *outgoing);
    int (*new_bio_type)(void);
    void *(*new_bio_kind)(int type, const char *name);
    int (*set_read)(void *kind, int (*)(void *bio, char *place, int room));
    int (*set_write)(void *kind, int (*)(void *bio, const char *data, int size));
    int (*set_ctrl)(void *kind, long (*)(void *bio, int command, long number, void *pointer));
    int (*set_destroy)(void *kind, int (*)(void *bio));
    void *(*new_bio)(void *kind);
    void (*set_init)(void *bio, int value);
    void (*set_data)(void *bio, void *data);
    void *(*data)(void *bio);
    void (*set_flags)(void *bio, int flags);
    void (*clear_flags)(void *bio, int flags);
} openssl_functions;

static openssl_functions openssl;

/* -- the BIO ------------------------------------------------------------------------------------------------------- */

/* What a BIO reads from and writes to. It belongs to the BIO and to the engine, and lives as long as either. */
typedef struct {
    atomic_int owners;
    const char *incoming;   /* lent for one call */
    size_t incoming_size;
    char *record;           /* lent: where the next ciphertext goes, or NULL */
    size_t record_room;
    size_t record_size;     /* how much is there */
    char *more;             /* the BIO's own: ciphertext that came after that, or that had no room there */
    size_t more_size;
    size_t more_room;
    int out_of_memory;      /* there was none for `more`; OpenSSL has no such error for a BIO's own failure */
} tls_exchange;

static void *tls_bio_kind;

static int tls_bio_read(void *bio, char *place, int room)
{
    tls_exchange *exchange = openssl.data(bio);
    size_t size = exchange->incoming_size;

    openssl.clear_flags(bio, OPENSSL_RETRY_FLAGS);
    if (size == 0) {
        openssl.set_flags(bio, OPENSSL_READ_AGAIN);
        return -1;
    }
    if (room <= 0)
        return 0;
    if (size > (size_t)room)
        size = (size_t)room;
    memcpy(place, exchange->incoming, size);
    exchange->incoming += size;
    exchange->incoming_size -= size;
    return (int)size;
}

static int tls_bio_write(void *bio, const char *data, int signed_size)
{
    tls_exchange *exchange = openssl.data(bio);
    size_t size, room;
    char *larger;

    openssl.clear_flags(bio, OPENSSL_RETRY_FLAGS);
    if (signed_size <= 0)
        return 0;
    size = (size_t)signed_size;
    if (exchange->more_size == 0 && size <= exchange->record_room - exchange->record_size) {
        memcpy(exchange->record + exchange->record_size, data, size);
        exchange->record_size += size;
        return signed_size;
    }
    if (size > exchange->more_room - exchange->more_size) {
        room = 2 * exchange->more_room + size;
        larger = realloc(exchange->more, room);
        if (larger == NULL) {
            exchange->out_of_memory = 1;
            return -1;
        }
        exchange->more = larger;
        exchange->more_room = room;
    }
    memcpy(exchange->more + exchange->more_size, data, size);
    exchange->more_size += size;
    return signed_size;
}

static long tls_bio_ctrl(void *bio, int command, long number, void *pointer) { return command == OPENSSL_FLUSH; }

/* Give up one of the two ownerships. */
static void tls_exchange_release(tls_exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->owners, 1) > 1)
        return;
    free(exchange->more);
    free(exchange);
}

static int tls_bio_destroy(void *bio)
{
    tls_exchange *exchange = openssl.data(bio);

    if (exchange != NULL)
        tls_exchange_release(exchange);
    openssl.set_data(bio, NULL);
    return 1;
}

/* Give the SSL a BIO, which it owns. Returns what the BIO reads and writes, for the caller too, or NULL: no memory. */
static tls_exchange *tls_exchange_with(void *ssl)
{
    tls_exchange *exchange = calloc(1, sizeof *exchange);
    void *bio = exchange == NULL ? NULL : openssl.new_bio(tls_bio_kind);

    if (bio == NULL) {
        free(exchange);
        return NULL;
    }
    exchange->owners = 2;
    openssl.set_data(bio, exchange);
    openssl.set_init(bio, 1);
    openssl.set_bio(ssl, bio, bio);
    return exchange;
}

/* Have the next ciphertext written to this place. */
static inline void tls_exchange_lend_record(tls_exchange *exchange, char *record, size_t room)
{
    exchange->record = record;
    exchange->record_room = room;
    exchange->record_size = 0;
}

/* Forget the ciphertext that was written. */
static inline void tls_exchange_forget(tls_exchange *exchange)
{
    tls_exchange_lend_record(exchange, NULL, 0);
    free(exchange->more);
    exchange->more = NULL;
    exchange->more_size = exchange->more_room = 0;
}

/* -- which SSL ----------------------------------------------------------------------------------------------------- */

/* What this thread has made since openssl_expect(). */
static _Thread_local struct {
    void *ssl;
    int count;
} openssl_made;

static void openssl_note(void *ssl, void *value, void *data, int index, long argl, void *argp)
{
    openssl_made.ssl = ssl;
    openssl_made.count++;
}

static inline void openssl_expect(void) { openssl_made.count = 0; }

/* The SSL that `object` holds, if this thread has made no other since openssl_expect(); else NULL. */
static void *openssl_of(PyObject *object)
{
    void **field = (void **)((char *)object + sizeof(PyObject));
    void **end = (void **)((char *)object + Py_TYPE(object)->tp_basicsize);

    if (openssl_made.count != 1)
        return NULL;
    for (; field < end; field++) {
        if (*field == openssl_made.ssl)
            return openssl_made.ssl;
    }
    return NULL;
}

/* -- the functions ------------------------------------------------------------------------------------------------- */

/* Look up the functions in the shared object at `path`, which is loaded already, and in its dependencies, and prepare
 * what connections need. Returns NULL, or what is missing. To be called with the GIL, by several threads if they do not
 * know of each other. */
static const char *openssl_find(const char *path, const char *version)
{
    static const struct {
        const char *name;
        size_t place;
    } functions[] = {
        {"OpenSSL_version", offsetof(openssl_functions, version)},
        {"CRYPTO_get_ex_new_index", offsetof(openssl_functions, new_index)},
        {"SSL_read_ex", offsetof(openssl_functions, read)},
        {"SSL_peek_ex", offsetof(openssl_functions, peek)},
        {"SSL_write_ex", offsetof(openssl_functions, write)},
        {"SSL_pending", offsetof(openssl_functions, pending)},
        {"SSL_want", offsetof(openssl_functions, want)},
        {"SSL_set_bio", offsetof(openssl_functions, set_bio)},
        {"BIO_get_new_index", offsetof(openssl_functions, new_bio_type)},
        {"BIO_meth_new", offsetof(openssl_functions, new_bio_kind)},
        {"BIO_meth_set_read", offsetof(openssl_functions, set_read)},
        {"BIO_meth_set_write", offsetof(openssl_functions, set_write)},
        {"BIO_meth_set_ctrl", offsetof(openssl_functions, set_ctrl)},
        {"BIO_meth_set_destroy", offsetof(openssl_functions, set_destroy)},
        {"BIO_new", offsetof(openssl_functions, new_bio)},
        {"BIO_set_init", offsetof(openssl_functions, set_init)},
        {"BIO_set_data", offsetof(openssl_functions, set_data)},
        {"BIO_get_data", offsetof(openssl_functions, data)},
        {"BIO_set_flags", offsetof(openssl_functions, set_flags)},
        {"BIO_clear_flags", offsetof(openssl_functions, clear_flags)},
    };
    /* With a second index openssl_note() would count each SSL twice. */
    static int is_prepared;
    void *library, *function;
    int type;

    if (is_prepared)
        return NULL;
    library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return "the loaded _ssl";
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        function = dlsym(library, functions[i].name);
        if (function == NULL)
            return functions[i].name;
        memcpy((char *)&openssl + functions[i].place, &function, sizeof function);
    }
    if (strcmp(openssl.version(OPENSSL_VERSION_TEXT), version) != 0)
        return "the ssl module's version of OpenSSL";
    type = openssl.new_bio_type();
    tls_bio_kind = type < 0 ? NULL : openssl.new_bio_kind(type | OPENSSL_SOURCE_AND_SINK, "hotloop");
    if (tls_bio_kind == NULL || !openssl.set_read(tls_bio_kind, tls_bio_read)
        || !openssl.set_write(tls_bio_kind, tls_bio_write) || !openssl.set_ctrl(tls_bio_kind, tls_bio_ctrl)
        || !openssl.set_destroy(tls_bio_kind, tls_bio_destroy))
        return "memory for a kind of BIO";
    if (openssl.new_index(OPENSSL_SSL_OBJECTS, 0, NULL, openssl_note, NULL, NULL) < 0)
        return "memory for an index of SSL objects";
    is_prepared = 1;
    return NULL;
}

#endif
