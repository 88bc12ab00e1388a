/* What a transport has been told to write and the kernel has not taken yet.
 *
 * A queue of slices of bytes objects, kept as the array of iovecs that sendmsg(2) and writev(2) take, so that however many
 * writes go out in one system call and no two of them are ever joined. The owners are exact bytes objects, which can be
 * part of no reference cycle; so the garbage collector need not see them. A few slices have their place in the transport
 * itself, and an idle connection has nothing allocated.
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
#define OUTPUT_INLINE 2

typedef struct {
    size_t bytes;           /* in all slices */
    int head;               /* the oldest slice */
    int count;              /* of slices */
    int capacity;           /* of the arrays below, if they are there */
    struct iovec *slices;   /* NULL: the inline ones */
    PyObject **owners;
    struct iovec inline_slices[OUTPUT_INLINE];
    PyObject *inline_owners[OUTPUT_INLINE];
} write_queue;

static inline struct iovec *output_slices(write_queue *queue)
{
    return queue->slices != NULL ? queue->slices : queue->inline_slices;
}

static inline PyObject **output_owners(write_queue *queue)
{
    return queue->slices != NULL ? queue->owners : queue->inline_owners;
}

/* Room for one more slice at the end: by moving to the front, or to arrays of twice the size. */
static int output_make_room(write_queue *queue)
{
    int capacity = queue->slices != NULL ? queue->capacity : OUTPUT_INLINE, wanted;
    struct iovec *slices;
    PyObject **owners;

    if (queue->head + queue->count < capacity)
        return 0;
    if (queue->head > 0 && queue->count <= capacity / 2) {
        memmove(output_slices(queue), output_slices(queue) + queue->head, (size_t)queue->count * sizeof *slices);
        memmove(output_owners(queue), output_owners(queue) + queue->head, (size_t)queue->count * sizeof *owners);
        queue->head = 0;
        return 0;
    }
    if (capacity > INT_MAX / 2)
        return -ENOMEM;
    wanted = capacity < 8 ? 16 : 2 * capacity;
    slices = malloc((size_t)wanted * sizeof *slices);
    owners = malloc((size_t)wanted * sizeof *owners);
    if (slices == NULL || owners == NULL) {
        free(slices);
        free(owners);
        return -ENOMEM;
    }
    memcpy(slices, output_slices(queue) + queue->head, (size_t)queue->count * sizeof *slices);
    memcpy(owners, output_owners(queue) + queue->head, (size_t)queue->count * sizeof *owners);
    free(queue->slices);
    free(queue->owners);
    queue->slices = slices;
    queue->owners = owners;
    queue->capacity = wanted;
    queue->head = 0;
    return 0;
}

/* Takes a new reference to `owner`, in whose memory the slice lies. */
static inline int write_queue_append(write_queue *queue, PyObject *owner, const char *data, size_t size)
{
    int error = output_make_room(queue), place;

    if (error < 0)
        return error;
    place = queue->head + queue->count;
    output_slices(queue)[place].iov_base = (char *)data;
    output_slices(queue)[place].iov_len = size;
    output_owners(queue)[place] = Py_NewRef(owner);
    queue->count++;
    queue->bytes += size;
    return 0;
}

static inline void output_free_arrays(write_queue *queue)
{
    free(queue->slices);
    free(queue->owners);
    queue->slices = NULL;
    queue->owners = NULL;
    queue->head = 0;
}

/* Freeing an exact bytes object runs no Python code. */
static inline void write_queue_consume(write_queue *queue, size_t size)
{
    struct iovec *slices = output_slices(queue);
    PyObject **owners = output_owners(queue);

    queue->bytes -= size;
    while (queue->count > 0 && size >= slices[queue->head].iov_len) {
        size -= slices[queue->head].iov_len;
        Py_DECREF(owners[queue->head]);
        queue->head++;
        queue->count--;
    }
    if (queue->count == 0) {
        if (queue->slices != NULL)
            output_free_arrays(queue);
        queue->head = 0;
    } else if (size > 0) {
        slices[queue->head].iov_base = (char *)slices[queue->head].iov_base + size;
        slices[queue->head].iov_len -= size;
    }
}

/* Forget the newest slices: `count` stay. */
static inline void write_queue_cut(write_queue *queue, int count)
{
    int place;

    while (queue->count > count) {
        place = queue->head + --queue->count;
        queue->bytes -= output_slices(queue)[place].iov_len;
        Py_DECREF(output_owners(queue)[place]);
    }
}

static inline void write_queue_clear(write_queue *queue) { write_queue_consume(queue, queue->bytes); }

/* The oldest slice, which is there, and the object in whose memory it lies. */
static inline PyObject *write_queue_front(write_queue *queue, const char **data, size_t *size)
{
    struct iovec *slice = output_slices(queue) + queue->head;

    *data = slice->iov_base;
    *size = slice->iov_len;
    return output_owners(queue)[queue->head];
}

/* Copy the oldest bytes without taking them from the queue; how many that are. */
static inline size_t write_queue_peek(write_queue *queue, char *place, size_t room)
{
    struct iovec *slice = output_slices(queue) + queue->head;
    size_t copied = 0, size;

    for (int i = 0; i < queue->count && copied < room; i++, slice++) {
        size = slice->iov_len < room - copied ? slice->iov_len : room - copied;
        memcpy(place + copied, slice->iov_base, size);
        copied += size;
    }
    return copied;
}

/* The system call for one kind of descriptor: how many bytes of the slices the kernel has taken, or a negative errno. */
typedef ssize_t (*write_queue_sender)(int fd, struct iovec *slices, int count);

/* One call of `send_slices`. Returns what it has returned; `full` says that the kernel takes no more: it has taken less than
 * it was offered. */
static inline ssize_t write_queue_send(write_queue *queue, int fd, write_queue_sender send_slices, int *full)
{
    struct iovec *slices = output_slices(queue) + queue->head;
    int count = queue->count < IOV_MAX ? queue->count : IOV_MAX, i;
    ssize_t sent = send_slices(fd, slices, count);
    size_t offered = queue->bytes;

    if (sent < 0) {
        *full = sent == -EAGAIN;
        return sent;
    }
    if (count < queue->count)
        for (offered = 0, i = 0; i < count; i++)
            offered += slices[i].iov_len;
    *full = (size_t)sent < offered;
    write_queue_consume(queue, (size_t)sent);
    return sent;
}

#endif
