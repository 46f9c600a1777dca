/* SPDX-License-Identifier: MIT
 *
 * output.c - atomic writing.  The temporary file is made by open with O_EXCL and mode 0666, not by mkstemp, so that umask and the
 * folder's default ACL give it the permissions of any new file; its name is short, so that any legal target will do.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <attn/io.h>

enum { NAME_ROOM = 48, ATTEMPTS = 1000 };

/* The path to rename to, to be freed: follows a link, refuses what is no file. */
static attn_status find_target(const attn_io_context *context, char **target)
{
    struct stat description;
    *target = NULL;
    if (lstat(context->path, &description)) {
        if (errno != ENOENT) return attn_io_fail_errno(context, "write");
        if (!(*target = strdup(context->path))) return attn_io_fail_memory(context);
        return ATTN_OK;
    }
    if (stat(context->path, &description)) return attn_io_fail_errno(context, "follow the link");
    if (S_ISDIR(description.st_mode)) return attn_io_fail(context, ATTN_ERR_IO, "is a folder");
    if (!S_ISREG(description.st_mode)) return attn_io_fail(context, ATTN_ERR_IO, "exists and is not a file");
    if (!(*target = realpath(context->path, NULL))) return attn_io_fail_errno(context, "follow the link");
    return ATTN_OK;
}

attn_status attn_io_output_open(const attn_io_context *context, attn_io_output *output)
{
    *output = (attn_io_output){.descriptor = -1};
    attn_status status = find_target(context, &output->target);
    if (status) return status;
    const char *slash = strrchr(output->target, '/');
    size_t folder = slash ? (size_t)(slash + 1 - output->target) : 0;
    if (!(output->temporary = malloc(folder + NAME_ROOM))) {
        free(output->target);
        return attn_io_fail_memory(context);
    }
    memcpy(output->temporary, output->target, folder);
    for (int i = 0; i < ATTEMPTS && output->descriptor < 0; i++) {
        snprintf(output->temporary + folder, NAME_ROOM, ".attn-%ld-%d.tmp", (long)getpid(), i);
        output->descriptor = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (output->descriptor < 0 && errno != EEXIST) break;
    }
    if (output->descriptor >= 0) return ATTN_OK;
    status = attn_io_fail_errno(context, "create a file beside it");
    free(output->temporary);
    free(output->target);
    return status;
}

attn_status attn_io_output_write(const attn_io_context *context, attn_io_output *output, const void *bytes, size_t size)
{
    const char *rest = bytes;
    while (size > 0) {
        ssize_t written = write(output->descriptor, rest, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return attn_io_fail_errno(context, "write");
        rest += written;
        size -= (size_t)written;
    }
    return ATTN_OK;
}

attn_status attn_io_output_close(const attn_io_context *context, attn_io_output *output, attn_status written)
{
    attn_status status = written;
    if (!status && fsync(output->descriptor)) status = attn_io_fail_errno(context, "write");
    if (close(output->descriptor) && !status) status = attn_io_fail_errno(context, "write");
    if (!status && rename(output->temporary, output->target)) status = attn_io_fail_errno(context, "write");
    if (status) unlink(output->temporary);
    free(output->temporary);
    free(output->target);
    return status;
}

attn_status attn_file_write(const char *path, const void *bytes, size_t size, attn_error *error)
{
    attn_io_context context = {.error = error, .path = path};
    if (!path) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "path is NULL");
    if (!bytes && size) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "bytes is NULL");
    attn_io_output output;
    attn_status status = attn_io_output_open(&context, &output);
    if (status) return status;
    status = attn_io_output_close(&context, &output, attn_io_output_write(&context, &output, bytes, size));
    return status ? status : attn_io_succeed(&context);
}
