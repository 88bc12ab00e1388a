/* Where the records of TLS end in the bytes that arrive.
 *
 * OpenSSL does not tell before it is asked whether it has a whole record to decrypt; asking in vain costs an exception. So
 * their heads are read here too: type, version, length, five bytes (RFC 8446, section 5.1; RFC 5246, section 6.2.1). What
 * does not look like records is for OpenSSL to judge, and from there on nothing is known of their ends.
 *
 * Input is what a peer sends: every byte may be anything.
 */
#ifndef HOTLOOP_TLS_RECORDS_H
#define HOTLOOP_TLS_RECORDS_H

#include <stddef.h>

enum {
    TLS_HEAD = 5,
    TLS_MOST_PLAINTEXT = 16384,                 /* of one record */
    TLS_MOST_RECORD = TLS_MOST_PLAINTEXT + 2048 /* what the length may say, in the version that adds most */
};

typedef struct {
    unsigned char head[TLS_HEAD];
    int have;           /* bytes of the head */
    int left;           /* bytes of the body that are yet to come */
    size_t unfinished;  /* bytes of the record that has begun and not ended; 0: at a boundary */
    int lost;           /* these are no records */
} tls_records;

static inline int tls_head_is_sane(const unsigned char *head)
{
    int length = head[3] << 8 | head[4];

    /* change_cipher_spec, alert, handshake, application_data, heartbeat */
    return head[0] >= 20 && head[0] <= 24 && head[1] == 3 && length <= TLS_MOST_RECORD;
}

/* How many of these bytes to decrypt next: up to the end of the first record that ends at `enough` bytes or later, or
 * all. They count as passed over. */
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
