"""output.h: what transports have been told to write and the kernel has not taken yet."""


cdef extern from "sys/uio.h":
    struct iovec:
        pass


cdef extern from "output.h":
    ctypedef struct output_queue:
        size_t bytes
        int count

    ctypedef Py_ssize_t (*output_sender)(int fd, iovec *slices, int count) noexcept

    int output_append(output_queue *, object owner, const char *, size_t)
    void output_clear(output_queue *)
    Py_ssize_t output_send(output_queue *, int fd, output_sender, int *full)
