/* Hosts and paths from any source: the conversion takes a text for a literal exactly if the C library does.
 *
 * Input: a port, flow information and scope, then the host or path. */
#include "fuzz.h"

#include "system/address.h"

#define LONGEST 300

static struct addrinfo *numeric(const char *host)
{
    struct addrinfo hints, *found;

    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    return getaddrinfo(host, NULL, &hints, &found) == 0 ? found : NULL;
}

static void check_literal(const char *host)
{
    struct sockaddr_storage storage;
    struct addrinfo *found;
    int zone = -1, taken = address_set_literal(&storage, host, &zone);

    REQUIRE(zone == (strchr(host, '%') != NULL));
    /* Whether the zone exists depends on the machine. */
    if (!taken || zone)
        return;
    found = numeric(host);
    REQUIRE(found != NULL && found->ai_family == storage.ss_family);
    REQUIRE(found->ai_addrlen <= sizeof storage && memcmp(found->ai_addr, &storage, found->ai_addrlen) == 0);
    freeaddrinfo(found);
}

static void check_internet(const char *host, int port, uint32_t flowinfo, uint32_t scope)
{
    struct sockaddr_storage storage;
    const struct sockaddr *address = (const struct sockaddr *)&storage;
    char text[INET6_ADDRSTRLEN];

    if (address_set_inet(&storage, host, port)) {
        REQUIRE(address->sa_family == AF_INET && address_port(address) == port);
        REQUIRE(address_write_host(address, text) < INET_ADDRSTRLEN);
    }
    if (address_set_inet6(&storage, host, port, flowinfo, scope)) {
        REQUIRE(address->sa_family == AF_INET6 && address_port(address) == port);
        REQUIRE(address_flowinfo(address) == flowinfo && address_scope(address) == scope);
        REQUIRE(strchr(host, '%') == NULL);
        REQUIRE(address_write_host(address, text) < INET6_ADDRSTRLEN);
    }
}

static void check_path(const char *path, size_t size)
{
    struct sockaddr_storage storage;
    const char *again;
    size_t length;
    int abstract;
    socklen_t taken = address_set_unix(&storage, path, size);

    if (taken == 0) {
        REQUIRE(size >= ADDRESS_PATH_SIZE);
        return;
    }
    REQUIRE(taken <= sizeof(struct sockaddr_un) && storage.ss_family == AF_UNIX);
    abstract = address_path((const struct sockaddr *)&storage, taken, &again, &length);
    /* A path ends at its first zero; an abstract name is bytes of any value. */
    REQUIRE(length == (abstract ? size : strnlen(path, size)));
    REQUIRE(memcmp(again, path, length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size}, rest;
    int port = (int)(fuzz_number(&input) & 0xffff);
    uint32_t flowinfo = fuzz_number(&input) & ADDRESS_LARGEST_FLOWINFO, scope = fuzz_number(&input);
    char *host, *path;
    size_t length;

    rest = input;
    host = fuzz_text(&input, LONGEST);
    check_literal(host);
    check_internet(host, port, flowinfo, scope);
    free(host);
    path = fuzz_bytes(&rest, LONGEST, &length);
    check_path(path, length);
    free(path);
    return 0;
}
