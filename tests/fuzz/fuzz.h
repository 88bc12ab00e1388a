/* The interface of a fuzz target: one function that gets any bytes, and returns unless it finds a defect.
 *
 * It is libFuzzer's interface (LLVM documentation, "libFuzzer"). Where the compiler has no libFuzzer, driver.c calls it.
 */
#ifndef HOTLOOP_FUZZ_H
#define HOTLOOP_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* The input, from its front: numbers that steer the target, and memory of exactly the size asked for, so that
 * AddressSanitizer sees the first byte behind it. At the end of the input: zeros, and no memory. */
typedef struct {
    const uint8_t *data;
    size_t size;
} fuzz_input;

static inline unsigned fuzz_byte(fuzz_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static inline uint32_t fuzz_number(fuzz_input *input)
{
    uint32_t number = 0;

    for (int index = 0; index < 4; index++)
        number = number << 8 | fuzz_byte(input);
    return number;
}

/* At most `size` bytes, and how many; the caller frees them. */
static inline char *fuzz_bytes(fuzz_input *input, size_t size, size_t *taken)
{
    char *bytes;

    *taken = size < input->size ? size : input->size;
    bytes = malloc(*taken ? *taken : 1);
    REQUIRE(bytes != NULL);
    if (*taken)
        memcpy(bytes, input->data, *taken);
    input->data += *taken;
    input->size -= *taken;
    return bytes;
}

/* The same as a C string, with a zero behind it; it ends at the first zero. */
static inline char *fuzz_text(fuzz_input *input, size_t size)
{
    size_t taken;
    char *bytes = fuzz_bytes(input, size, &taken), *text = malloc(taken + 1);

    REQUIRE(text != NULL);
    memcpy(text, bytes, taken);
    text[taken] = 0;
    free(bytes);
    return text;
}

#endif
