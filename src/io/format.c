/* SPDX-License-Identifier: MIT
 *
 * format.c - reading and writing files: finds the format and dispatches to it.
 */
#include "format.h"

#include <string.h>

#include "text.h"

static const attn_io_format *const formats[] = {&attn_io_safetensors, &attn_io_npz, &attn_io_npy, &attn_io_gguf};

enum { FORMATS = sizeof formats / sizeof formats[0] };

static const attn_io_format *format_of_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    for (int i = 0; dot && i < FORMATS; i++) /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): no entry is NULL */
        if (!strcmp(dot, formats[i]->extension)) return formats[i];
    return NULL;
}

static const attn_io_format *format_of_content(const unsigned char *bytes, size_t size)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->recognize(bytes, size)) return formats[i];
    return NULL;
}

static attn_status read_bytes(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors)
{
    const attn_io_format *format = format_of_content(bytes, size);
    /* A broken file gets its message from the reader that its extension names. */
    if (!format) format = format_of_name(context->path);
    if (!size) return attn_io_fail(context, ATTN_ERR_FORMAT, "the file is empty");
    if (!format) return attn_io_fail(context, ATTN_ERR_FORMAT, "none of .safetensors, .npz, .npy and .gguf");
    attn_status status = format->read(context, bytes, size, tensors);
    return status ? status : attn_io_sort(context, tensors);
}

static attn_status finish_read(const attn_io_context *context, attn_archive **tensors, attn_status status)
{
    if (!status) return attn_io_succeed(context);
    attn_archive_destroy(*tensors);
    *tensors = NULL;
    return status;
}

static attn_status read_path(attn_archive **tensors, const char *path, bool map, attn_archive_wanted *wanted, void *wanted_context,
                             attn_error *error)
{
    attn_io_context context = {.error = error, .path = path};
    attn_status status = attn_archive_create(tensors, error);
    if (status) return status;
    (*tensors)->wanted = wanted;
    (*tensors)->wanted_context = wanted_context;
    if (!path) status = attn_io_fail(&context, ATTN_ERR_ARGUMENT, "path is NULL");
    else if (!(status = attn_io_input_open(&context, map, &(*tensors)->input)))
        status = read_bytes(&context, (*tensors)->input.bytes, (*tensors)->input.size, *tensors);
    return finish_read(&context, tensors, status);
}

attn_status attn_archive_read(attn_archive **tensors, const char *path, attn_error *error)
{
    return read_path(tensors, path, false, NULL, NULL, error);
}

attn_status attn_archive_read_some(attn_archive **tensors, const char *path, attn_archive_wanted *wanted, void *context,
                                   attn_error *error)
{
    attn_io_context about = {.error = error, .path = path};
    if (!tensors) return attn_io_fail(&about, ATTN_ERR_ARGUMENT, "tensors is NULL");
    *tensors = NULL;
    if (!wanted) return attn_io_fail(&about, ATTN_ERR_ARGUMENT, "wanted is NULL");
    return read_path(tensors, path, false, wanted, context, error);
}

attn_status attn_archive_map(attn_archive **tensors, const char *path, attn_error *error)
{
    return read_path(tensors, path, true, NULL, NULL, error);
}

attn_status attn_archive_read_memory(attn_archive **tensors, const char *name, const void *bytes, size_t size, attn_error *error)
{
    attn_io_context context = {.error = error, .path = name};
    attn_status status = attn_archive_create(tensors, error);
    if (status) return status;
    if (!name) status = attn_io_fail(&context, ATTN_ERR_ARGUMENT, "name is NULL");
    else if (!bytes && size) status = attn_io_fail(&context, ATTN_ERR_ARGUMENT, "bytes is NULL");
    else status = read_bytes(&context, bytes, size, *tensors);
    return finish_read(&context, tensors, status);
}

attn_status attn_archive_write(const attn_archive *tensors, const char *path, attn_error *error)
{
    return attn_archive_write_watched(tensors, path, NULL, error);
}

attn_status attn_archive_write_watched(const attn_archive *tensors, const char *path, attn_unfinished *unfinished,
                                       attn_error *error)
{
    attn_io_context context = {.error = error, .path = path};
    attn_io_output output;
    if (!path) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "path is NULL");
    if (!tensors) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "tensors is NULL");
    const attn_io_format *format = format_of_name(path);
    if (!format || !format->write)
        return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "the name must end in .safetensors, .npz or .npy");
    attn_status status = format->check(&context, tensors);
    if (status) return status;
    status = attn_io_output_open(&context, &output, unfinished);
    if (status) return status;
    status = attn_io_output_close(&context, &output, format->write(&context, tensors, &output));
    return status ? status : attn_io_succeed(&context);
}
