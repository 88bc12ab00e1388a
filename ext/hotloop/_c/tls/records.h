/* Finds where TLS records end in the bytes that arrive.
 *
 * Only an attempt to decrypt shows whether OpenSSL has a whole record, and an attempt without one costs an exception.
 * So this parses the records' headers too: type, version and length in five bytes (RFC 8446, section 5.1; RFC 5246,
 * section 6.2.1). Bytes that do not look like records are passed on, all that follow with them: OpenSSL judges them.
 *
 * The input comes from the peer, so every byte may have any value.
 */
#ifndef HOTLOOP_TLS_RECORDS_H
#define HOTLOOP_TLS_RECORDS_H

#include <stddef.h>

enum {
    TLS_HEADER_SIZE = 5,
    TLS_MAX_PLAINTEXT = 16384,                  /* of one record */
    TLS_MAX_RECORD = TLS_MAX_PLAINTEXT + 2048   /* the largest valid length, in the version with the largest overhead */
};

typedef struct {
    unsigned char header[TLS_HEADER_SIZE];
    int header_size;    /* bytes of the header seen so far */
    int body_left;      /* bytes of the body still to come */
    size_t unfinished;  /* bytes seen of a record that has not ended; 0: at a boundary */
    int unrecognized;   /* the bytes did not look like records, so boundaries are unknown from there on */
} tls_records;

static inline int tls_header_is_valid(const unsigned char *header)
{
    int length = header[3] << 8 | header[4];

    /* change_cipher_spec, alert, handshake, application_data, heartbeat */
    return header[0] >= 20 && header[0] <= 24 && header[1] == 3 && length <= TLS_MAX_RECORD;
}

/* Advance to the end of the first record that ends at `enough` bytes or later, or to the end of the data. Returns how
 * many bytes that is: the caller gives them to OpenSSL. */
static inline size_t tls_records_next(tls_records *records, const char *data, size_t size, size_t enough)
{
    size_t taken = 0, step;

    while (taken < size) {
        if (records->unrecognized)
            return size;
        if (records->header_size < TLS_HEADER_SIZE) {
            records->header[records->header_size++] = (unsigned char)data[taken++];
            records->unfinished++;
            if (records->header_size < TLS_HEADER_SIZE)
                continue;
            if (!tls_header_is_valid(records->header)) {
                records->unrecognized = 1;
                records->unfinished = 0;
                return size;
            }
            records->body_left = records->header[3] << 8 | records->header[4];
        }
        step = (size_t)records->body_left < size - taken ? (size_t)records->body_left : size - taken;
        records->body_left -= (int)step;
        records->unfinished += step;
        taken += step;
        if (records->body_left == 0) {
            records->header_size = 0;
            records->unfinished = 0;
            if (taken >= enough)
                break;
        }
    }
    return taken;
}

#endif
