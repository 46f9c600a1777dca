/* SPDX-License-Identifier: MIT
 *
 * npz_write.c - writes .npz through libzip, which streams the tensors from where they are into our temporary file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "element.h"
#include "json.h"
#include "npy.h"
#include "npz.h"

/* 1980-01-01 00:00, the zip epoch: a fixed time, so that the same tensors give the same bytes. */
enum { DOS_DATE = 1 << 5 | 1, NAME_MAX_BYTES = UINT16_MAX };

/* ---- the output as libzip sees it ------------------------------------------------------------------------------ */

typedef struct zip_sink {
    const attn_io_context *context;
    attn_io_output *output;
    zip_uint64_t size;
    zip_uint64_t position;
    attn_status status; /* of the first write that failed; the message is in the context then */
    zip_error_t error;
} zip_sink;

static zip_int64_t fail(zip_sink *sink, attn_status status)
{
    sink->status = status;
    zip_error_set(&sink->error, ZIP_ER_WRITE, errno);
    return -1;
}

static zip_int64_t sink_write(zip_sink *sink, const void *data, zip_uint64_t length)
{
    attn_status status = attn_io_output_write(sink->context, sink->output, data, (size_t)length);
    if (status) return fail(sink, status);
    sink->position += length;
    if (sink->position > sink->size) sink->size = sink->position;
    return (zip_int64_t)length;
}

static zip_int64_t sink_seek(zip_sink *sink, void *data, zip_uint64_t length)
{
    zip_int64_t position = zip_source_seek_compute_offset(sink->position, sink->size, data, length, &sink->error);
    if (position < 0) return -1;
    if (lseek(sink->output->descriptor, (off_t)position, SEEK_SET) < 0)
        return fail(sink, attn_io_fail_errno(sink->context, "write"));
    sink->position = (zip_uint64_t)position;
    return 0;
}

/* Presents an empty writable file to libzip; we open and close it, not libzip. */
static zip_int64_t sink_command(void *userdata, void *data, zip_uint64_t length, zip_source_cmd_t command)
{
    zip_sink *sink = userdata;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
    case ZIP_SOURCE_STAT: {
        zip_stat_t *stat = ZIP_SOURCE_GET_ARGS(zip_stat_t, data, length, &sink->error);
        if (!stat) return -1;
        zip_stat_init(stat);
        stat->valid = ZIP_STAT_SIZE;
        stat->size = 0;
        return sizeof *stat;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&sink->error, data, length);
    case ZIP_SOURCE_WRITE:
        return sink_write(sink, data, length);
    case ZIP_SOURCE_SEEK_WRITE:
        return sink_seek(sink, data, length);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)sink->position;
    case ZIP_SOURCE_OPEN:
    case ZIP_SOURCE_READ:
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_COMMIT_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_REMOVE:
        return 0;
    default:
        zip_error_set(&sink->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- members --------------------------------------------------------------------------------------------------- */

typedef struct npz_member {
    char preamble[ATTN_IO_NPY_PREAMBLE]; /* must live until the archive is closed, when libzip reads it */
} npz_member;

/* On false, the reason is in the archive's error. */
static bool add_member(zip_t *archive, const attn_archive_tensor *tensor, npz_member *member)
{
    size_t length = strlen(tensor->name);
    char *name = malloc(length + sizeof ATTN_IO_NPZ_SUFFIX);
    if (!name) {
        zip_error_set(zip_get_error(archive), ZIP_ER_MEMORY, 0);
        return false;
    }
    memcpy(name, tensor->name, length);
    memcpy(name + length, ATTN_IO_NPZ_SUFFIX, sizeof ATTN_IO_NPZ_SUFFIX);
    zip_buffer_fragment_t fragments[2] = {
        {.data = (zip_uint8_t *)member->preamble, .length = attn_io_npy_print_preamble(member->preamble, tensor)},
        {.data = (zip_uint8_t *)(uintptr_t)tensor->data, .length = tensor->bytes},
    };
    zip_source_t *source = zip_source_buffer_fragment(archive, fragments, tensor->bytes ? 2 : 1, 0);
    zip_int64_t index = source ? zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0) zip_source_free(source);
    free(name);
    return index >= 0 && !zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) &&
           !zip_file_set_dostime(archive, (zip_uint64_t)index, 0, DOS_DATE, 0);
}

/* Also closes the archive. */
static attn_status fill_archive(const attn_io_context *context, zip_t *archive, const attn_archive *tensors,
                                const attn_archive_tensor *metadata, npz_member *members, const zip_sink *sink)
{
    int64_t count = attn_archive_count(tensors);
    bool complete = !metadata || add_member(archive, metadata, &members[count]);
    for (int64_t i = 0; complete && i < count; i++) complete = add_member(archive, attn_archive_at(tensors, i), &members[i]);
    if (complete && !zip_close(archive)) return ATTN_OK;
    attn_status status = sink->status;
    if (!status) status = attn_io_npz_fail(context, ATTN_ERR_IO, "cannot write", zip_get_error(archive));
    zip_discard(archive);
    return status;
}

static attn_status write_members(const attn_io_context *context, const attn_archive *tensors, const attn_archive_tensor *metadata,
                                 attn_io_output *output)
{
    zip_sink sink = {.context = context, .output = output};
    npz_member *members = malloc(((size_t)attn_archive_count(tensors) + 1) * sizeof *members);
    if (!members) return attn_io_fail_memory(context);
    zip_error_init(&sink.error);
    zip_source_t *source = zip_source_function_create(sink_command, &sink, &sink.error);
    zip_t *archive = source ? zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &sink.error) : NULL;
    attn_status status;
    if (archive) status = fill_archive(context, archive, tensors, metadata, members, &sink);
    else {
        zip_source_free(source);
        status = attn_io_fail_memory(context);
    }
    zip_error_fini(&sink.error);
    free(members);
    return status;
}

static attn_status write_file(const attn_io_context *context, const attn_archive *tensors, attn_io_output *output)
{
    /* libzip deletes an empty archive; np.savez writes just the end record. */
    static const char nothing[22] = "PK\x05\x06";
    if (!attn_archive_metadata_count(tensors)) {
        if (!attn_archive_count(tensors)) return attn_io_output_write(context, output, nothing, sizeof nothing);
        return write_members(context, tensors, NULL, output);
    }
    cJSON *object = attn_io_json_from_metadata(tensors);
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    attn_status status;
    if (text) {
        size_t length = strlen(text);
        attn_archive_tensor metadata = {
            .name = ATTN_IO_METADATA, .dtype = ATTN_U8, .rank = 1, .shape = {(int64_t)length}, .data = text, .bytes = length};
        status = write_members(context, tensors, &metadata, output);
    } else status = attn_io_fail_memory(context);
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}

static attn_status check(const attn_io_context *context, const attn_archive *tensors)
{
    for (int64_t i = 0; i < attn_archive_count(tensors); i++) {
        const attn_archive_tensor *tensor = attn_archive_at(tensors, i);
        attn_io_context at = *context;
        at.noun = "tensor";
        at.name = tensor->name;
        size_t length = strlen(tensor->name);
        if (length > NAME_MAX_BYTES - (sizeof ATTN_IO_NPZ_SUFFIX - 1))
            return attn_io_fail(&at, ATTN_ERR_UNSUPPORTED, "a name of %zu bytes is too long for .npz", length);
        /* libzip takes a name with a control character for one in code page 437. */
        for (const char *c = tensor->name; *c; c++)
            if ((unsigned char)*c < 32 && *c != '\t' && *c != '\n' && *c != '\r')
                return attn_io_fail(&at, ATTN_ERR_UNSUPPORTED, "a name with the control character 0x%02x is not possible in .npz",
                                    (unsigned)*c);
        attn_status status = attn_io_npy_check_dtype(context, tensor);
        if (status) return status;
    }
    return ATTN_OK;
}

/* The signature of a member, or of the end record of an archive without members. */
static bool recognize(const unsigned char *bytes, size_t size)
{
    return size >= 4 && (!memcmp(bytes, "PK\x03\x04", 4) || !memcmp(bytes, "PK\x05\x06", 4));
}

const attn_io_format attn_io_npz = {
    .extension = ".npz", .recognize = recognize, .read = attn_io_npz_read, .check = check, .write = write_file};
