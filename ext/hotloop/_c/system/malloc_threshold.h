/* Has malloc() keep what large reads come in.
 *
 * glibc gives back to the kernel what is freed at the end of the heap, and takes it again page by page, unless less than twice
 * the largest block is free there that the program has ever freed (mallopt(3), M_MMAP_THRESHOLD, "dynamic"). A loop that
 * receives 64 KiB at a time then spends half of its time in page faults. Other allocators take no notice.
 */
#ifndef HOTLOOP_SYSTEM_MALLOC_THRESHOLD_H
#define HOTLOOP_SYSTEM_MALLOC_THRESHOLD_H

#include <stdlib.h>

static inline void keep_freed(size_t size)
{
    void *volatile block = malloc(size); /* volatile: the compiler would leave out the pair */

    free(block);
}

#endif
