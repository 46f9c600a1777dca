/* SPDX-License-Identifier: MIT
 * interpose.c - malloc and related functions for the whole process, on top of those of glibc. */
#include <errno.h>
#include <stddef.h>

#include "count.h"

/* glibc's implementations, under the names it exports for interposers. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static void *counted(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *malloc(size_t size) { return fails() ? (errno = ENOMEM, NULL) : counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return fails() ? (errno = ENOMEM, NULL) : counted(__libc_calloc(count, size)); }

void *realloc(void *memory, size_t size)
{
    if (fails()) return errno = ENOMEM, NULL;
    void *moved = __libc_realloc(memory, size);
    if (!memory) counted(moved);
    if (memory && size == 0) live--;
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    return fails() ? (errno = ENOMEM, NULL) : counted(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void free(void *memory)
{
    live -= memory != NULL;
    __libc_free(memory);
}
