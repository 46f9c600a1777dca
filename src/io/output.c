/* SPDX-License-Identifier: MIT
 *
 * output.c - atomic writing.  The temporary file is created by open with O_EXCL and mode 0666, not by mkstemp, so that umask and
 * the folder's default ACL give it the permissions of any new file.  Its name is short, so that it is legal beside any legal
 * target, and contains the time, so that it is unique: a signal handler may remove it without checking what it is.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_CAPACITY = 80, ATTEMPTS = 1000 };

/* The path to rename to; the caller frees it.  Follows a link; rejects what is not a regular file. */
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
    if (S_ISDIR(description.st_mode)) return attn_io_fail(context, ATTN_ERR_IO, "is a directory");
    if (!S_ISREG(description.st_mode)) return attn_io_fail(context, ATTN_ERR_IO, "exists and is not a file");
    if (!(*target = realpath(context->path, NULL))) return attn_io_fail_errno(context, "follow the link");
    return ATTN_OK;
}

/* Visible to a signal handler, even in another thread: the name is written before `there` is set. */
static void set_there(attn_unfinished *file, int there) { __atomic_store_n(&file->there, there, __ATOMIC_SEQ_CST); }

void attn_unfinished_remove(attn_unfinished *unfinished)
{
    if (!unfinished || !__atomic_load_n(&unfinished->there, __ATOMIC_SEQ_CST)) return;
    unlink(unfinished->path);
    set_there(unfinished, 0);
}

/* `there` is set before the file is created, so that a signal in between cannot leave it behind. */
static void create(attn_io_output *output, size_t folder)
{
    attn_unfinished *file = output->temporary;
    for (int i = 0; i < ATTEMPTS; i++) {
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(file->path + folder, NAME_CAPACITY, ".attn-%ld-%llx%08lx-%d.tmp", (long)getpid(), (unsigned long long)now.tv_sec,
                 (unsigned long)now.tv_nsec, i);
        set_there(file, 1);
        output->descriptor = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (output->descriptor >= 0) return;
        set_there(file, 0);
        if (errno != EEXIST) return;
    }
}

attn_status attn_io_output_open(const attn_io_context *context, attn_io_output *output, attn_unfinished *unfinished)
{
    output->descriptor = -1;
    output->temporary = unfinished ? unfinished : &output->local;
    set_there(output->temporary, 0);
    attn_status status = find_target(context, &output->target);
    if (status) return status;
    const char *slash = strrchr(output->target, '/');
    size_t folder = slash ? (size_t)(slash + 1 - output->target) : 0;
    if (folder <= sizeof output->temporary->path - NAME_CAPACITY) {
        memcpy(output->temporary->path, output->target, folder);
        create(output, folder);
    } else errno = ENAMETOOLONG;
    if (output->descriptor >= 0) return ATTN_OK;
    status = attn_io_fail_errno(context, "create a file beside it");
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
    if (!status && rename(output->temporary->path, output->target)) status = attn_io_fail_errno(context, "write");
    if (status) attn_unfinished_remove(output->temporary);
    set_there(output->temporary, 0);
    free(output->target);
    return status;
}

attn_status attn_file_write(const char *path, const void *bytes, size_t size, attn_error *error)
{
    return attn_file_write_watched(path, bytes, size, NULL, error);
}

attn_status attn_file_write_watched(const char *path, const void *bytes, size_t size, attn_unfinished *unfinished,
                                    attn_error *error)
{
    attn_io_context context = {.error = error, .path = path};
    if (!path) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "path is NULL");
    if (!bytes && size) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "bytes is NULL");
    attn_io_output output;
    attn_status status = attn_io_output_open(&context, &output, unfinished);
    if (status) return status;
    status = attn_io_output_close(&context, &output, attn_io_output_write(&context, &output, bytes, size));
    return status ? status : attn_io_succeed(&context);
}
