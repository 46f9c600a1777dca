/* SPDX-License-Identifier: MIT
 *
 * input.c - opens files for reading.
 */
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
    if ((uintmax_t)size > SIZE_MAX) return attn_io_fail(context, ATTN_ERR_MEMORY, "the file is too big to be mapped");
    void *mapped = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) return attn_io_fail_errno(context, "map");
    *input = (attn_io_input){.bytes = mapped, .size = (size_t)size, .mapped = true};
    return ATTN_OK;
}

static attn_status read_pipe(const attn_io_context *context, int descriptor, attn_io_input *input)
{
    unsigned char *bytes = NULL;
    size_t size = 0, capacity = 0;
    for (;;) {
        if (size == capacity) {
            capacity = capacity ? capacity + capacity / 2 : 1 << 16;
            unsigned char *grown = realloc(bytes, capacity);
            if (!grown) {
                free(bytes);
                return attn_io_fail_memory(context);
            }
            bytes = grown;
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

attn_status attn_io_input_open(const attn_io_context *context, attn_io_input *input)
{
    *input = (attn_io_input){0};
    int descriptor = open(context->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return attn_io_fail_errno(context, "open");
    struct stat description;
    attn_status status;
    if (fstat(descriptor, &description)) status = attn_io_fail_errno(context, "stat");
    else if (S_ISREG(description.st_mode)) status = map_file(context, descriptor, description.st_size, input);
    else if (S_ISFIFO(description.st_mode)) status = read_pipe(context, descriptor, input);
    else status = attn_io_fail(context, ATTN_ERR_IO, S_ISDIR(description.st_mode) ? "is a folder" : "is neither a file nor a pipe");
    close(descriptor);
    return status;
}

void attn_io_input_close(attn_io_input *input)
{
    if (input->mapped) munmap((void *)(uintptr_t)input->bytes, input->size);
    else free((void *)(uintptr_t)input->bytes);
    *input = (attn_io_input){0};
}
