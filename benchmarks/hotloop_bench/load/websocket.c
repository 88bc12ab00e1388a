/* What a client of WebSocket sends, and what it expects of the server (RFC 6455): no extensions, no fragments. */

#define _GNU_SOURCE
#include "load.h"

#include <string.h>

/* The key, and the answer that the server computes from it, are the example of the RFC's section 1.3. */
const char websocket_request[] = "GET / HTTP/1.1\r\n"
                                 "Host: 127.0.0.1\r\n"
                                 "Upgrade: websocket\r\n"
                                 "Connection: Upgrade\r\n"
                                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                 "Sec-WebSocket-Version: 13\r\n"
                                 "\r\n";

static const unsigned char mask[4] = {0x37, 0xfa, 0x21, 0x3d}; /* the RFC's example in section 5.7 */

bool websocket_accepted(const char *response)
{
    return strncmp(response, "HTTP/1.1 101 ", 13) == 0 && strstr(response, ": s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
}

size_t websocket_head(unsigned char *head, size_t size, bool masked)
{
    unsigned char mark = masked ? 0x80 : 0;
    size_t extended = size < 126 ? 0 : size < 65536 ? 2 : 8, length = 2;
    head[0] = 0x82; /* the last fragment of a binary message */
    head[1] = mark | (extended == 0 ? (unsigned char)size : extended == 2 ? 126 : 127);
    for (size_t left = extended; left; left--)
        head[length++] = (unsigned char)(size >> (8 * (left - 1)));
    if (masked) {
        memcpy(head + length, mask, sizeof mask);
        length += sizeof mask;
    }
    return length;
}

size_t websocket_frame(unsigned char *frame, const unsigned char *message, size_t size)
{
    size_t length = websocket_head(frame, size, true);
    for (size_t index = 0; index < size; index++)
        frame[length + index] = message[index] ^ mask[index % sizeof mask];
    return length + size;
}
