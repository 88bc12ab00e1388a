/* Allocations that fail. See shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* libc's, only the extension's own: the next part handles the interpreter's. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static int is_refused(void *caller)
{
    Dl_info where;
    int refused = 0;
    if (!armed || fault.kind != LIBC_MEMORY || inside)
        return 0;
    inside++;
    if (dladdr(caller, &where) && where.dli_fname && strstr(where.dli_fname, "hotloop/_c/"))
        refused = falls();
    inside--;
    if (refused)
        errno = ENOMEM;
    return refused;
}

#define UNLESS_REFUSED(answer) (is_refused(__builtin_return_address(0)) ? NULL : (answer))
void *malloc(size_t size) { return UNLESS_REFUSED(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return UNLESS_REFUSED(__libc_calloc(count, size)); }
void *realloc(void *old, size_t size) { return UNLESS_REFUSED(__libc_realloc(old, size)); }

/* Python's: for each domain a PyMemAllocatorEx of the shim around the original one. */
typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator;

static Allocator originals[3];

static int is_out_of_memory(void) { return armed && fault.kind == PYTHON_MEMORY && !inside && falls(); }
static void *python_malloc(void *of, size_t size)
{
    return is_out_of_memory() ? NULL : ((Allocator *)of)->malloc(((Allocator *)of)->context, size);
}
static void *python_calloc(void *of, size_t count, size_t size)
{
    return is_out_of_memory() ? NULL : ((Allocator *)of)->calloc(((Allocator *)of)->context, count, size);
}
static void *python_realloc(void *of, void *old, size_t size)
{
    return is_out_of_memory() ? NULL : ((Allocator *)of)->realloc(((Allocator *)of)->context, old, size);
}
static void python_free(void *of, void *old) { ((Allocator *)of)->free(((Allocator *)of)->context, old); }

void shim_wrap_allocator(int domain, const Allocator *original, Allocator *wrapped)
{
    originals[domain] = *original;
    *wrapped = (Allocator){&originals[domain], python_malloc, python_calloc, python_realloc, python_free};
}
