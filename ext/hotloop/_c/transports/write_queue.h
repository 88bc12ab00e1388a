/* A transport's data that was written and that the kernel has not taken yet.
 *
 * A queue of chunks, each a bytes object or a part of one. They are kept as the array of iovecs that sendmsg(2) and
 * writev(2) take, so any number of writes is sent by one system call, and copied only where that costs less. The owners
 * of the memory are exact bytes objects. These cannot be part of a reference cycle, so the garbage collector need not
 * see them. The first few chunks are stored in the transport itself, so an idle connection has nothing allocated.
 */
#ifndef HOTLOOP_TRANSPORTS_WRITE_QUEUE_H
#define HOTLOOP_TRANSPORTS_WRITE_QUEUE_H

#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif
#define WRITE_QUEUE_INLINE 2

typedef struct {
    size_t bytes;           /* in all chunks */
    int head;               /* index of the oldest chunk */
    int count;              /* of chunks */
    int capacity;           /* of the two allocated arrays below */
    struct iovec *chunks;   /* NULL: the inline arrays are used */
    PyObject **owners;      /* a reference for each chunk */
    struct iovec inline_chunks[WRITE_QUEUE_INLINE];
    PyObject *inline_owners[WRITE_QUEUE_INLINE];
} write_queue;

static inline struct iovec *write_queue_chunks(write_queue *queue)
{
    return queue->chunks != NULL ? queue->chunks : queue->inline_chunks;
}

static inline PyObject **write_queue_owners(write_queue *queue)
{
    return queue->chunks != NULL ? queue->owners : queue->inline_owners;
}

/* Make room for one more chunk at the end: move all to the front, or to arrays of twice the size. 0 or -ENOMEM. */
static int write_queue_make_room(write_queue *queue)
{
    int capacity = queue->chunks != NULL ? queue->capacity : WRITE_QUEUE_INLINE, wanted;
    struct iovec *chunks;
    PyObject **owners;

    if (queue->head + queue->count < capacity)
        return 0;
    if (queue->head > 0 && queue->count <= capacity / 2) {
        chunks = write_queue_chunks(queue);
        owners = write_queue_owners(queue);
        memmove(chunks, chunks + queue->head, (size_t)queue->count * sizeof *chunks);
        memmove(owners, owners + queue->head, (size_t)queue->count * sizeof *owners);
        queue->head = 0;
        return 0;
    }
    if (capacity > INT_MAX / 2)
        return -ENOMEM;
    wanted = capacity < 8 ? 16 : 2 * capacity;
    chunks = malloc((size_t)wanted * sizeof *chunks);
    owners = malloc((size_t)wanted * sizeof *owners);
    if (chunks == NULL || owners == NULL) {
        free(chunks);
        free(owners);
        return -ENOMEM;
    }
    memcpy(chunks, write_queue_chunks(queue) + queue->head, (size_t)queue->count * sizeof *chunks);
    memcpy(owners, write_queue_owners(queue) + queue->head, (size_t)queue->count * sizeof *owners);
    free(queue->chunks);
    free(queue->owners);
    queue->chunks = chunks;
    queue->owners = owners;
    queue->capacity = wanted;
    queue->head = 0;
    return 0;
}

/* Append a chunk of the memory of `owner`, to which this takes a new reference. 0 or -ENOMEM. */
static inline int write_queue_append(write_queue *queue, PyObject *owner, const char *data, size_t size)
{
    int error = write_queue_make_room(queue), place;

    if (error < 0)
        return error;
    place = queue->head + queue->count;
    write_queue_chunks(queue)[place].iov_base = (char *)data;
    write_queue_chunks(queue)[place].iov_len = size;
    write_queue_owners(queue)[place] = Py_NewRef(owner);
    queue->count++;
    queue->bytes += size;
    return 0;
}

static inline void write_queue_free_arrays(write_queue *queue)
{
    free(queue->chunks);
    free(queue->owners);
    queue->chunks = NULL;
    queue->owners = NULL;
    queue->head = 0;
}

/* Remove the oldest `size` bytes. No Python code runs, because the owners are exact bytes objects. */
static inline void write_queue_consume(write_queue *queue, size_t size)
{
    struct iovec *chunks = write_queue_chunks(queue);
    PyObject **owners = write_queue_owners(queue);

    queue->bytes -= size;
    while (queue->count > 0 && size >= chunks[queue->head].iov_len) {
        size -= chunks[queue->head].iov_len;
        Py_DECREF(owners[queue->head]);
        queue->head++;
        queue->count--;
    }
    if (queue->count == 0) {
        if (queue->chunks != NULL)
            write_queue_free_arrays(queue);
        queue->head = 0;
    } else if (size > 0) {
        chunks[queue->head].iov_base = (char *)chunks[queue->head].iov_base + size;
        chunks[queue->head].iov_len -= size;
    }
}

/* Remove the newest chunks; the oldest `count` stay. */
static inline void write_queue_truncate(write_queue *queue, int count)
{
    int place;

    while (queue->count > count) {
        place = queue->head + --queue->count;
        queue->bytes -= write_queue_chunks(queue)[place].iov_len;
        Py_DECREF(write_queue_owners(queue)[place]);
    }
}

static inline void write_queue_clear(write_queue *queue) { write_queue_consume(queue, queue->bytes); }

/* The oldest chunk of a queue that is not empty. Returns the owner of its memory, a borrowed reference. */
static inline PyObject *write_queue_front(write_queue *queue, const char **data, size_t *size)
{
    struct iovec *chunk = write_queue_chunks(queue) + queue->head;

    *data = chunk->iov_base;
    *size = chunk->iov_len;
    return write_queue_owners(queue)[queue->head];
}

/* Copy up to `room` of the oldest bytes, which stay in the queue. Returns how many. */
static inline size_t write_queue_peek(write_queue *queue, char *place, size_t room)
{
    struct iovec *chunk = write_queue_chunks(queue) + queue->head;
    size_t copied = 0, size;

    for (int i = 0; i < queue->count && copied < room; i++, chunk++) {
        size = chunk->iov_len < room - copied ? chunk->iov_len : room - copied;
        memcpy(place + copied, chunk->iov_base, size);
        copied += size;
    }
    return copied;
}

/* The system call for one kind of descriptor. Returns how many bytes the kernel has taken, or a negative errno. */
typedef ssize_t (*write_queue_sender)(int fd, struct iovec *chunks, int count);

/* Up to so many bytes cost less to copy into one chunk than the kernel takes for several: two of 65 bytes leave by
 * send() in 3.40 us, by sendmsg() in 3.57; eight of 512 bytes in 3.58 and 3.84 (loopback). From 8 KiB on it is the
 * reverse. */
#define WRITE_QUEUE_JOINED 4096

/* Call `send_chunks` once, remove what the kernel has taken, and return the call's result. `full`: the kernel takes no
 * more now, because it has taken less than it was offered. */
static inline ssize_t write_queue_send(write_queue *queue, int fd, write_queue_sender send_chunks, int *full)
{
    char joined[WRITE_QUEUE_JOINED];
    struct iovec all = {.iov_base = joined, .iov_len = queue->bytes};
    struct iovec *chunks = write_queue_chunks(queue) + queue->head;
    int count = queue->count < IOV_MAX ? queue->count : IOV_MAX, i;
    size_t offered = queue->bytes;
    ssize_t sent;

    if (count > 1 && queue->bytes <= sizeof joined) {
        write_queue_peek(queue, joined, sizeof joined);
        sent = send_chunks(fd, &all, 1);
    } else {
        sent = send_chunks(fd, chunks, count);
        if (count < queue->count)
            for (offered = 0, i = 0; i < count; i++)
                offered += chunks[i].iov_len;
    }
    if (sent < 0) {
        *full = sent == -EAGAIN;
        return sent;
    }
    *full = (size_t)sent < offered;
    write_queue_consume(queue, (size_t)sent);
    return sent;
}

#endif
