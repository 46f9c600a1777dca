/* SPDX-License-Identifier: MIT
 *
 * npz_read.c - reads .npz through libzip, which checks the CRC of every member.  Members are unpacked into memory, stored ones
 * too: they begin at arbitrary offsets, so that mapping them would rarely give aligned data.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "memory.h"
#include "npy.h"
#include "npz.h"
#include "text.h"

/* Deflate's maximum ratio: 258 bytes from two bits. */
enum { DEFLATE_RATIO = 1032 };

typedef struct npz_archive {
    zip_t *zip;
    uint64_t packed_left;   /* bytes of the file not yet claimed by members: overlapping members would claim more than it has */
    uint64_t unpacked_left; /* bytes of memory that members may still take */
} npz_archive;

attn_status attn_io_npz_fail(const attn_io_context *context, attn_status status, const char *what, zip_error_t *error)
{
    switch (zip_error_code_zip(error)) {
    case ZIP_ER_OK: /* libzip 1.7 leaves this when some of its own allocations fail */
    case ZIP_ER_MEMORY:
        return attn_io_fail_memory(context);
    case ZIP_ER_EXISTS:
        return attn_io_fail(context, status, "two members of the archive have the same name");
    default:
        return attn_io_fail(context, status, "%s: %s", what, zip_error_strerror(error));
    }
}

/* Whether the archive's description of a member is plausible and supported. */
static attn_status check_member(const attn_io_context *context, npz_archive *archive, const zip_stat_t *member)
{
    const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if ((member->valid & needed) != needed) return attn_io_fail(context, ATTN_ERR_FORMAT, "the archive does not record its size");
    if ((member->valid & ZIP_STAT_ENCRYPTION_METHOD) && member->encryption_method != ZIP_EM_NONE)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "the member is encrypted");
    if (member->comp_method != ZIP_CM_STORE && member->comp_method != ZIP_CM_DEFLATE)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "compression method %d is neither stored (0) nor deflated (8)",
                            member->comp_method);
    if (member->comp_size > archive->packed_left)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "%" PRIu64 " packed bytes exceed what is left of the file",
                            (uint64_t)member->comp_size);
    if (member->comp_method == ZIP_CM_STORE ? member->size != member->comp_size : member->size / DEFLATE_RATIO > member->comp_size)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "%" PRIu64 " packed bytes cannot unpack to %" PRIu64,
                            (uint64_t)member->comp_size, (uint64_t)member->size);
    if (member->size > archive->unpacked_left || member->size > SIZE_MAX)
        return attn_io_fail(context, ATTN_ERR_MEMORY, "%" PRIu64 " unpacked bytes exceed the memory of this machine",
                            (uint64_t)member->size);
    archive->packed_left -= member->comp_size;
    archive->unpacked_left -= member->size;
    return ATTN_OK;
}

/* Reads exactly `size` bytes and then the end, where libzip compares the CRC. */
static attn_status read_all(const attn_io_context *context, zip_file_t *file, unsigned char *bytes, size_t size)
{
    zip_int64_t got = 0;
    size_t read = 0;
    while (read < size && (got = zip_fread(file, bytes + read, size - read)) > 0) read += (size_t)got;
    unsigned char more;
    if (got >= 0 && read == size && (got = zip_fread(file, &more, 1)) == 0) return ATTN_OK;
    if (got < 0) return attn_io_npz_fail(context, ATTN_ERR_FORMAT, "cannot be unpacked", zip_file_get_error(file));
    return attn_io_fail(context, ATTN_ERR_FORMAT, "unpacks to %s than the %zu bytes that the archive declares",
                        got ? "more" : "less", size);
}

/* The caller frees *bytes. */
static attn_status unpack(const attn_io_context *context, npz_archive *archive, zip_uint64_t index, unsigned char **bytes,
                          size_t *size)
{
    zip_stat_t member;
    if (zip_stat_index(archive->zip, index, 0, &member))
        return attn_io_npz_fail(context, ATTN_ERR_FORMAT, "cannot be read", zip_get_error(archive->zip));
    attn_status status = check_member(context, archive, &member);
    if (status) return status;
    *size = (size_t)member.size;
    if (!(*bytes = malloc(*size ? *size : 1))) return attn_io_fail_memory(context);
    zip_file_t *file = zip_fopen_index(archive->zip, index, 0);
    if (file) status = read_all(context, file, *bytes, *size);
    else status = attn_io_npz_fail(context, ATTN_ERR_FORMAT, "cannot be unpacked", zip_get_error(archive->zip));
    if (file) zip_fclose(file);
    if (status) free(*bytes);
    return status;
}

/* Takes ownership of `bytes`. */
static attn_status read_metadata(const attn_io_context *context, unsigned char *bytes, size_t size, attn_archive *tensors)
{
    attn_archive *holder;
    if (attn_archive_create(&holder, NULL)) {
        free(bytes);
        return attn_io_fail_memory(context);
    }
    cJSON *object = NULL;
    attn_status status = attn_io_npy_append(context, ATTN_IO_METADATA, bytes, size, bytes, holder);
    if (!status) {
        const attn_archive_tensor *text = attn_archive_at(holder, 0);
        if (text->dtype != ATTN_U8 || text->rank != 1)
            status = attn_io_fail(context, ATTN_ERR_FORMAT, "metadata is not a list of u8");
        else status = attn_io_json_parse(context, "metadata", text->data, text->bytes, 1, &object);
    }
    if (!status) status = attn_io_json_read_metadata(context, object, tensors);
    cJSON_Delete(object);
    attn_archive_destroy(holder);
    return status;
}

static attn_status read_member(const attn_io_context *context, npz_archive *archive, zip_uint64_t index, const char *name,
                               attn_archive *tensors)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    attn_status status = ATTN_OK;
    bool metadata = !strcmp(name, ATTN_IO_METADATA);
    if (!metadata) status = attn_io_check_name(context, ATTN_ERR_FORMAT, name);
    if (!status) status = unpack(context, archive, index, &bytes, &size);
    if (status) return status;
    if (metadata) return read_metadata(context, bytes, size, tensors);
    return attn_io_npy_append(context, name, bytes, size, bytes, tensors);
}

/* 1 if the archive is what torch.save writes: NAME/data.pkl and NAME/data/0, 1, ... */
static bool is_pickled(npz_archive *archive)
{
    static const char end[] = "/data.pkl";
    for (zip_int64_t i = 0; i < zip_get_num_entries(archive->zip, 0); i++) {
        const char *member = zip_get_name(archive->zip, (zip_uint64_t)i, 0);
        const size_t length = member ? strlen(member) : 0;
        if (length >= sizeof end - 1 && !strcmp(member + length - (sizeof end - 1), end)) return true;
    }
    return false;
}

static attn_status read_archive(const attn_io_context *context, npz_archive *archive, attn_archive *tensors)
{
    zip_int64_t count = zip_get_num_entries(archive->zip, 0);
    bool arrays = false;
    for (zip_int64_t i = 0; i < count; i++) {
        const size_t suffix = sizeof ATTN_IO_NPZ_SUFFIX - 1;
        const char *member = zip_get_name(archive->zip, (zip_uint64_t)i, 0);
        if (!member) return attn_io_npz_fail(context, ATTN_ERR_FORMAT, "cannot be read", zip_get_error(archive->zip));
        size_t length = strlen(member);
        if (length < suffix || strcmp(member + length - suffix, ATTN_IO_NPZ_SUFFIX)) continue;
        attn_io_context at = *context;
        at.noun = "member";
        at.name = member;
        char *name = malloc(length + 1);
        if (!name) return attn_io_fail_memory(context);
        memcpy(name, member, length + 1);
        name[length - suffix] = '\0';
        arrays = true;
        attn_status status = read_member(&at, archive, (zip_uint64_t)i, name, tensors);
        free(name);
        if (status) return status;
    }
    if (arrays || !count) return ATTN_OK;
    if (is_pickled(archive))
        return attn_io_fail(context, ATTN_ERR_FORMAT,
                            "a file of torch.save, which is a program to run; safetensors.torch.save_file writes its tensors");
    return attn_io_fail(context, ATTN_ERR_FORMAT, "no member of the archive is an .npy file");
}

attn_status attn_io_npz_read(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors)
{
    zip_error_t error;
    zip_error_init(&error);
    npz_archive archive = {.packed_left = size, .unpacked_left = attn_io_machine_memory()};
    attn_status status;
    zip_source_t *source = zip_source_buffer_create(bytes, size, 0, &error);
    if (source) archive.zip = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (archive.zip) {
        status = read_archive(context, &archive, tensors);
        zip_discard(archive.zip);
    } else {
        status = attn_io_npz_fail(context, ATTN_ERR_FORMAT, "not a valid zip archive", &error);
        zip_source_free(source);
    }
    zip_error_fini(&error);
    return status;
}
