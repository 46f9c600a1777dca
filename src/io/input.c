/* SPDX-License-Identifier: MIT
 *
 * input.c - opens files for reading.
 */
#define _DEFAULT_SOURCE /* madvise */

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_status map_file(const attn_io_context *context, int descriptor, off_t size, attn_io_input *input)
{
    if (size == 0) return ATTN_OK;
    if ((uintmax_t)size > SIZE_MAX) return attn_io_fail(context, ATTN_ERR_MEMORY, "the file is too large to map");
    void *mapped = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) return attn_io_fail_errno(context, "map");
    *input = (attn_io_input){.bytes = mapped, .size = (size_t)size, .mapped = true};
    return ATTN_OK;
}

/* Advises huge pages, which some systems grant only on request: copying a large file spends most of its time on page faults. */
static void advise(unsigned char *bytes, size_t size)
{
#ifdef MADV_HUGEPAGE
    const size_t page = (size_t)1 << 21, skip = (page - (uintptr_t)bytes % page) % page;
    if (size >= 2 * page) (void)madvise(bytes + skip, (size - skip) / page * page, MADV_HUGEPAGE);
#else
    (void)bytes, (void)size;
#endif
}

/* Reads to the end; the buffer grows from `capacity` bytes. */
static attn_status read_to_end(const attn_io_context *context, int descriptor, size_t capacity, attn_io_input *input)
{
    unsigned char *bytes = malloc(capacity);
    size_t size = 0;
    if (!bytes) return attn_io_fail_memory(context);
    advise(bytes, capacity);
    for (;;) {
        if (size == capacity) {
            unsigned char *grown = capacity > SIZE_MAX / 2 ? NULL : realloc(bytes, capacity + capacity / 2 + 1);
            if (!grown) {
                free(bytes);
                return attn_io_fail_memory(context);
            }
            bytes = grown;
            capacity += capacity / 2 + 1;
        }
        ssize_t got = read(descriptor, bytes + size, capacity - size);
        if (got == 0) break;
        if (got < 0 && errno != EINTR) {
            attn_status status = attn_io_fail_errno(context, "read");
            free(bytes);
            return status;
        }
        if (got > 0) size += (size_t)got;
    }
    *input = (attn_io_input){.bytes = bytes, .size = size};
    return ATTN_OK;
}

/* A mix of old and new bytes must not pass for a file, as far as size and modification time can tell. */
static attn_status read_file(const attn_io_context *context, int descriptor, const struct stat *before, attn_io_input *input)
{
    struct stat after;
    if ((uintmax_t)before->st_size >= SIZE_MAX) return attn_io_fail_memory(context);
    /* One byte more than the file has, so that reading finds the end without growing the buffer. */
    attn_status status = read_to_end(context, descriptor, (size_t)before->st_size + 1, input);
    if (status) return status;
    if (fstat(descriptor, &after)) status = attn_io_fail_errno(context, "stat");
    else if (after.st_size != before->st_size || input->size < (size_t)before->st_size ||
             after.st_mtim.tv_sec != before->st_mtim.tv_sec || after.st_mtim.tv_nsec != before->st_mtim.tv_nsec)
        status = attn_io_fail(context, ATTN_ERR_IO, "was changed while it was being read");
    if (status) attn_io_input_close(input);
    return status;
}

attn_status attn_io_input_open(const attn_io_context *context, bool map, attn_io_input *input)
{
    enum { PIPE_CAPACITY = 1 << 16 };
    *input = (attn_io_input){0};
    int descriptor = open(context->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return attn_io_fail_errno(context, "open");
    struct stat about;
    attn_status status;
    if (fstat(descriptor, &about)) status = attn_io_fail_errno(context, "stat");
    else if (S_ISREG(about.st_mode) && map) status = map_file(context, descriptor, about.st_size, input);
    else if (S_ISREG(about.st_mode)) status = read_file(context, descriptor, &about, input);
    else if (S_ISFIFO(about.st_mode)) status = read_to_end(context, descriptor, PIPE_CAPACITY, input);
    else status = attn_io_fail(context, ATTN_ERR_IO, S_ISDIR(about.st_mode) ? "is a directory" : "is neither a file nor a pipe");
    close(descriptor);
    return status;
}

void attn_io_input_close(attn_io_input *input)
{
    if (input->mapped) munmap((void *)(uintptr_t)input->bytes, input->size);
    else free((void *)(uintptr_t)input->bytes);
    *input = (attn_io_input){0};
}
