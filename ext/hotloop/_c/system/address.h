/* Socket addresses without Python: their parts as text, and back.
 *
 * Nearly every socket has one of the three families handled here: AF_INET, AF_INET6, AF_UNIX. These functions accept
 * and produce the same as CPython's socket module (makesockaddr() and getsockaddrarg() in Modules/socketmodule.c), but
 * only for numeric hosts: nothing here asks a resolver, so nothing here blocks.
 */
#ifndef HOTLOOP_SYSTEM_ADDRESS_H
#define HOTLOOP_SYSTEM_ADDRESS_H

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#if defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#define ADDRESS_HAS_LENGTH 1
#endif

#define ADDRESS_PATH_OFFSET offsetof(struct sockaddr_un, sun_path)
#define ADDRESS_PATH_SIZE sizeof(((struct sockaddr_un *)0)->sun_path)
#define ADDRESS_LARGEST_FLOWINFO 0xfffff

/* Whether these functions handle this family. The socket module handles all others. */
static inline int address_family_is_native(int family)
{
    return family == AF_INET || family == AF_INET6 || family == AF_UNIX;
}

static inline char *address_write_octet(char *text, unsigned int octet)
{
    if (octet >= 100) {
        *text++ = (char)('0' + octet / 100);
        octet %= 100;
        *text++ = (char)('0' + octet / 10);
    }
    else if (octet >= 10)
        *text++ = (char)('0' + octet / 10);
    *text++ = (char)('0' + octet % 10);
    return text;
}

/* Write the text of an IPv4 or IPv6 address, as inet_ntop() does; for IPv4, inet_ntop() would take ten times as long.
 * `text` has INET6_ADDRSTRLEN bytes. Returns the length; the text of an IPv4 address is not zero-terminated. */
static inline size_t address_write_host(const struct sockaddr *address, char *text)
{
    const unsigned char *octets;
    char *end = text;

    if (address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, INET6_ADDRSTRLEN);
        return strlen(text);
    }
    octets = (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
    for (int index = 0; index < 4; index++) {
        if (index)
            *end++ = '.';
        end = address_write_octet(end, octets[index]);
    }
    return (size_t)(end - text);
}

static inline int address_port(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

static inline uint32_t address_flowinfo(const struct sockaddr *address)
{
    return ntohl(((const struct sockaddr_in6 *)address)->sin6_flowinfo);
}

static inline uint32_t address_scope(const struct sockaddr *address)
{
    return ((const struct sockaddr_in6 *)address)->sin6_scope_id;
}

/* The path or abstract name in a Unix address of `length` bytes. Returns whether it is an abstract name, which may
 * contain any byte; a path ends before its first zero, if it has one. */
static inline int address_path(const struct sockaddr *address, socklen_t length, const char **path, size_t *size)
{
    *path = ((const struct sockaddr_un *)address)->sun_path;
    *size = length > ADDRESS_PATH_OFFSET ? length - ADDRESS_PATH_OFFSET : 0;
#ifdef __linux__
    if (*size > 0 && **path == 0)
        return 1;
#endif
    /* If a path fills sun_path, the kernel counts the terminating zero although there was no room to write it. */
    if (*size > ADDRESS_PATH_SIZE)
        *size = ADDRESS_PATH_SIZE;
    *size = strnlen(*path, *size);
    return 0;
}

/* The functions below zero the whole address first, as the socket module does: BSD kernels look at sin_zero. */

/* Fill in an IPv4 address. Returns 0 for a host that is not in the usual numeric form: it has to be resolved. */
static inline int address_set_inet(struct sockaddr_storage *storage, const char *host, int port)
{
    struct sockaddr_in *address = (struct sockaddr_in *)storage;

    memset(address, 0, sizeof(*address));
    if (host[0] == 0)
        address->sin_addr.s_addr = htonl(INADDR_ANY);
    else if (strcmp(host, "<broadcast>") == 0)
        address->sin_addr.s_addr = htonl(INADDR_BROADCAST);
    else if (inet_pton(AF_INET, host, &address->sin_addr) <= 0)
        return 0;
#ifdef ADDRESS_HAS_LENGTH
    address->sin_len = sizeof(*address);
#endif
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)port);
    return 1;
}

/* Fill in an IPv6 address. Returns 0 for a host that is not numeric or that has a zone (fe80::1%eth0): it has to be
 * resolved. */
static inline int address_set_inet6(struct sockaddr_storage *storage, const char *host, int port, uint32_t flowinfo,
                                    uint32_t scope)
{
    struct sockaddr_in6 *address = (struct sockaddr_in6 *)storage;

    memset(address, 0, sizeof(*address));
    if (host[0] != 0 && (strchr(host, '%') != NULL || inet_pton(AF_INET6, host, &address->sin6_addr) <= 0))
        return 0;
#ifdef ADDRESS_HAS_LENGTH
    address->sin6_len = sizeof(*address);
#endif
    address->sin6_family = AF_INET6;
    address->sin6_port = htons((uint16_t)port);
    address->sin6_flowinfo = htonl(flowinfo);
    address->sin6_scope_id = scope;
    return 1;
}

/* Fill in a Unix address. Returns the length of the address, or 0 if the path is too long. */
static inline socklen_t address_set_unix(struct sockaddr_storage *storage, const char *path, size_t size)
{
    struct sockaddr_un *address = (struct sockaddr_un *)storage;
    size_t zero = 1;

    memset(address, 0, sizeof(*address));
#ifdef __linux__
    /* An abstract name; or an empty one, for which bind() chooses an abstract name. */
    if (size == 0 || path[0] == 0)
        zero = 0;
#endif
    if (size + zero > ADDRESS_PATH_SIZE)
        return 0;
    memcpy(address->sun_path, path, size);
    address->sun_family = AF_UNIX;
    return (socklen_t)(ADDRESS_PATH_OFFSET + size + zero);
}

/* Fill in the address that a literal stands for, with port 0. Returns 0 if `host` is no literal in the usual form. A
 * zone (fe80::1%eth0) is left out; `*zone` says whether there is one. */
static inline int address_set_literal(struct sockaddr_storage *storage, const char *host, int *zone)
{
    const char *percent = strchr(host, '%');
    char digits[INET6_ADDRSTRLEN];
    size_t size = percent == NULL ? 0 : (size_t)(percent - host);

    *zone = percent != NULL;
    if (strchr(host, ':') == NULL)
        return host[0] >= '0' && host[0] <= '9' && address_set_inet(storage, host, 0);
    if (percent == NULL)
        return address_set_inet6(storage, host, 0, 0, 0);
    if (size == 0 || size >= sizeof(digits))
        return 0;
    memcpy(digits, host, size);
    digits[size] = 0;
    return address_set_inet6(storage, digits, 0, 0, 0);
}

/* Whether an address may be link-local or multicast: BSD may keep a zone inside of those. */
static inline int address_may_be_scoped(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 && ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr[0] >= 0xfe;
}

/* The size of an address as a key: how many bytes from its beginning identify it. 0: it is larger than `largest`, too
 * large for a key. The end of an IPv4 address is padding. */
static inline size_t address_key_size(const struct sockaddr *address, socklen_t length, size_t largest)
{
    if (address->sa_family == AF_INET)
        return offsetof(struct sockaddr_in, sin_zero);
    return length <= largest ? length : 0;
}

static inline uint64_t address_hash(const unsigned char *key, size_t size)
{
    uint64_t hash = size, word;

    for (; size >= 8; key += 8, size -= 8) {
        memcpy(&word, key, 8);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, key, size);
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

#endif
