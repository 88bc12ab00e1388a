/* tls_records_next() finds the same ends of records in pieces of any size as a plain reading of all bytes.
 *
 * Input: pairs of (size of a piece, how much is enough), then the peer's bytes. */
#include "fuzz.h"

#include "tls/records.h"

#define PIECES 16

/* The state after `size` bytes, read from the first one on, header by header. Returns whether they are records. */
static int read_plainly(const uint8_t *data, size_t size, size_t *unfinished)
{
    size_t at = 0, length;

    while (size - at >= TLS_HEADER_SIZE) {
        length = (size_t)data[at + 3] << 8 | data[at + 4];
        if (data[at] < 20 || data[at] > 24 || data[at + 1] != 3 || length > TLS_MAX_RECORD)
            return 0;
        if (size - at < TLS_HEADER_SIZE + length)
            break;
        at += TLS_HEADER_SIZE + length;
    }
    *unfinished = size - at;
    return 1;
}

static void check(const tls_records *records, const uint8_t *data, size_t passed)
{
    size_t unfinished = 0;

    /* After garbage all further bytes are garbage, without a known end. */
    if (!read_plainly(data, passed, &unfinished)) {
        REQUIRE(records->unrecognized && records->unfinished == 0);
        return;
    }
    REQUIRE(!records->unrecognized);
    REQUIRE(records->unfinished == unfinished);
    REQUIRE(records->header_size >= 0 && records->header_size <= TLS_HEADER_SIZE && records->body_left >= 0);
    REQUIRE(records->header_size < TLS_HEADER_SIZE || records->body_left > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    size_t pieces[PIECES], enough[PIECES], passed = 0, taken, used, step;
    tls_records records;
    const uint8_t *stream;
    char *piece;

    memset(&records, 0, sizeof records);
    for (int index = 0; index < PIECES; index++) {
        pieces[index] = fuzz_byte(&input) * (size_t)fuzz_byte(&input) + 1;
        enough[index] = fuzz_byte(&input) * (size_t)17;
    }
    stream = input.data;
    for (int index = 0; input.size > 0; index = (index + 1) % PIECES) {
        piece = fuzz_bytes(&input, pieces[index], &taken);
        for (used = 0; used < taken; used += step) {
            step = tls_records_next(&records, piece + used, taken - used, enough[index]);
            REQUIRE(step > 0 && step <= taken - used);
            check(&records, stream, passed + used + step);
            /* It stops early only at the end of a record, and not before it has enough. */
            if (step < taken - used)
                REQUIRE(records.unfinished == 0 && !records.unrecognized && step >= enough[index]);
        }
        passed += taken;
        free(piece);
    }
    REQUIRE(tls_records_next(&records, NULL, 0, 0) == 0);
    return 0;
}
