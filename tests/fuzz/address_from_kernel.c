/* Addresses from the kernel: their text is the same as inet_ntop()'s, and no byte beyond their length is read.
 *
 * Input: the family, how much shorter than the largest the address is, then the address. */
#include "fuzz.h"

#include "system/address.h"

static void check_host(const struct sockaddr *address, const void *number)
{
    char text[INET6_ADDRSTRLEN], expected[INET6_ADDRSTRLEN];
    struct sockaddr_storage again;
    size_t size = address_write_host(address, text);

    REQUIRE(inet_ntop(address->sa_family, number, expected, sizeof expected) != NULL);
    REQUIRE(size == strlen(expected) && memcmp(text, expected, size) == 0);
    if (address->sa_family == AF_INET) {
        REQUIRE(address_set_inet(&again, expected, address_port(address)));
        REQUIRE(memcmp(&again, address, offsetof(struct sockaddr_in, sin_zero)) == 0);
    }
    else {
        REQUIRE(address_set_inet6(&again, expected, address_port(address), address_flowinfo(address),
                                  address_scope(address)));
        REQUIRE(memcmp(&again, address, sizeof(struct sockaddr_in6)) == 0);
    }
}

static void check_path(const struct sockaddr *address, socklen_t length)
{
    const char *path;
    size_t size;
    struct sockaddr_storage again;
    int abstract = address_path(address, length, &path, &size);

    REQUIRE(size <= ADDRESS_PATH_SIZE);
    REQUIRE(size == 0 || path + size <= (const char *)address + length);
    if (!abstract)
        REQUIRE(memchr(path, 0, size) == NULL);
    else {
        REQUIRE(size > 0 && path[0] == 0);
        REQUIRE(address_set_unix(&again, path, size) == length);
        REQUIRE(memcmp(((const struct sockaddr_un *)&again)->sun_path, path, size) == 0);
    }
}

static void check_key(const struct sockaddr *address, socklen_t length)
{
    size_t size = address_key_size(address, length, sizeof(struct sockaddr_in6));
    unsigned char *key;

    REQUIRE(size <= sizeof(struct sockaddr_in6));
    if (size == 0)
        return;
    key = malloc(size);
    REQUIRE(key != NULL);
    memcpy(key, address, size);
    REQUIRE(address_hash(key, size) == address_hash((const unsigned char *)address, size));
    free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const sa_family_t families[] = {AF_INET, AF_INET6, AF_UNIX};
    static const socklen_t sizes[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6), sizeof(struct sockaddr_un)};
    fuzz_input input = {data, size};
    unsigned which = fuzz_byte(&input) % 3;
    socklen_t length = sizes[which];
    struct sockaddr *address;
    size_t taken;
    char *bytes;

    /* Internet addresses are complete; Unix ones are as long as their path, and Linux counts one byte more than fits. */
    if (families[which] == AF_UNIX)
        length = (socklen_t)(length + 1 - fuzz_byte(&input) % (ADDRESS_PATH_SIZE + 2));
    bytes = fuzz_bytes(&input, length, &taken);
    address = calloc(1, length);
    REQUIRE(address != NULL);
    memcpy(address, bytes, taken);
    free(bytes);
    if (length > sizes[which] && ((struct sockaddr_un *)address)->sun_path[0] == 0)
        length--; /* abstract names have no zero at the end */
#ifdef ADDRESS_HAS_LENGTH
    address->sa_len = (uint8_t)length;
#endif
    address->sa_family = families[which];
    REQUIRE(address_family_is_native(address->sa_family));
    if (which == 0)
        check_host(address, &((struct sockaddr_in *)address)->sin_addr);
    else if (which == 1)
        check_host(address, &((struct sockaddr_in6 *)address)->sin6_addr);
    else
        check_path(address, length);
    check_key(address, length);
    free(address);
    return 0;
}
