/* Finds where TLS records end in the bytes that arrive.
 *
 * Only an attempt to decrypt shows whether OpenSSL has a whole record, and an attempt without one costs an exception. So
 * this parses the records' headers too: type, version and length in five bytes (RFC 8446, section 5.1; RFC 5246, section
 * 6.2.1). Bytes that do not look like records are passed on, all that follow with them: OpenSSL judges them.
 *
 * The input comes from the peer, so every byte may have any value.
 */
#ifndef HOTLOOP_TLS_RECORDS_H
#define HOTLOOP_TLS_RECORDS_H

#include <stddef.h>

enum {
    TLS_HEAD = 5,
    TLS_MOST_PLAINTEXT = 16384,                 /* of one record */
    TLS_MOST_RECORD = TLS_MOST_PLAINTEXT + 2048 /* the largest valid length, in the version with the largest overhead */
};

typedef struct {
    unsigned char head[TLS_HEAD];
    int have;           /* bytes of the header seen so far */
    int left;           /* bytes of the body still to come */
    size_t unfinished;  /* bytes seen of a record that has not ended; 0: at a boundary */
    int lost;           /* the bytes did not look like records, so boundaries are unknown from there on */
} tls_records;

static inline int tls_head_is_sane(const unsigned char *head)
{
    int length = head[3] << 8 | head[4];

    /* change_cipher_spec, alert, handshake, application_data, heartbeat */
    return head[0] >= 20 && head[0] <= 24 && head[1] == 3 && length <= TLS_MOST_RECORD;
}

/* Advance to the end of the first record that ends at `enough` bytes or later, or to the end of the data. Returns how
 * many bytes that is: the caller gives them to OpenSSL. */
static inline size_t tls_records_next(tls_records *records, const char *data, size_t size, size_t enough)
{
    size_t taken = 0, step;

    while (taken < size) {
        if (records->lost)
            return size;
        if (records->have < TLS_HEAD) {
            records->head[records->have++] = (unsigned char)data[taken++];
            records->unfinished++;
            if (records->have < TLS_HEAD)
                continue;
            if (!tls_head_is_sane(records->head)) {
                records->lost = 1;
                records->unfinished = 0;
                return size;
            }
            records->left = records->head[3] << 8 | records->head[4];
        }
        step = (size_t)records->left < size - taken ? (size_t)records->left : size - taken;
        records->left -= (int)step;
        records->unfinished += step;
        taken += step;
        if (records->left == 0) {
            records->have = 0;
            records->unfinished = 0;
            if (taken >= enough)
                break;
        }
    }
    return taken;
}

#endif
