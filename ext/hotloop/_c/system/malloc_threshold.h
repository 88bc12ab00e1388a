/* Makes malloc() keep the blocks that large reads use.
 *
 * glibc returns free memory at the end of the heap to the kernel as soon as it is more than twice the size of the
 * largest block that the program has ever freed (mallopt(3), M_MMAP_THRESHOLD, "dynamic"), and gets it back page by
 * page. A loop that receives 64 KiB at a time then spends half of its time in page faults. So the loop frees one large
 * block in advance. Other allocators are not affected.
 */
#ifndef HOTLOOP_SYSTEM_MALLOC_THRESHOLD_H
#define HOTLOOP_SYSTEM_MALLOC_THRESHOLD_H

#include <stdlib.h>

/* Raise the threshold: from now on malloc() keeps up to twice `size` bytes free. */
static inline void raise_malloc_threshold(size_t size)
{
    void *volatile block = malloc(size); /* volatile: otherwise the compiler drops both calls */

    free(block);
}

#endif
