/* SPDX-License-Identifier: MIT
 * wrap.c - malloc and related functions for objects linked with --wrap: our own. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "count.h"

/* Names given by the linker. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size) { return fails() ? (errno = ENOMEM, NULL) : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __real_calloc(count, size); }
void *__wrap_realloc(void *memory, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __real_realloc(memory, size); }

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? (errno = ENOMEM, NULL) : __real_aligned_alloc(alignment, size);
}
