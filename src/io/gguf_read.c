/* SPDX-License-Identifier: MIT
 *
 * gguf_read.c - reads .gguf.  Numbers stay where they are unless they are misaligned; blocks of quantised numbers are decoded.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "gguf.h"
#include "gguf_block.h"
#include "memory.h"
#include "text.h"

enum {
    AXES = 4,
    DEFAULT_ALIGNMENT = 32,
    LEAST_ENTRY = 13,
    LEAST_TENSOR = 25
}; /* bytes of an entry and a tensor with a short name */

static const char magic[4] = {'G', 'G', 'U', 'F'};

typedef struct file_tensor {
    attn_archive_tensor tensor; /* data is not set */
    char *name;                 /* owned */
    const attn_io_gguf_type *type;
    uint64_t offset;
    uint64_t bytes; /* in the file */
} file_tensor;

typedef struct gguf_file {
    attn_io_cursor cursor;
    uint64_t tensors, entries; /* as the file says */
    uint64_t alignment;
    uint64_t decoded_left; /* bytes of memory that decoded tensors may still take */
} gguf_file;

static attn_status read_counts(const attn_io_context *context, gguf_file *file)
{
    uint32_t version = 0;
    attn_io_cursor *cursor = &file->cursor;
    if (cursor->size < sizeof magic || memcmp(cursor->bytes, magic, sizeof magic) != 0)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "does not begin like a .gguf file");
    cursor->at = sizeof magic;
    attn_status status = attn_io_take(context, cursor, "the header", &version, sizeof version);
    if (status) return status;
    if (version == UINT32_C(2) << 24 || version == UINT32_C(3) << 24)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "the file is big-endian");
    if (version != 2 && version != 3)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "version %" PRIu32 " of .gguf is not 2 or 3", version);
    status = attn_io_take(context, cursor, "the header", &file->tensors, sizeof file->tensors);
    if (!status) status = attn_io_take(context, cursor, "the header", &file->entries, sizeof file->entries);
    if (status) return status;
    const uint64_t left = cursor->size - cursor->at;
    if (file->tensors > left / LEAST_TENSOR || file->entries > left / LEAST_ENTRY)
        return attn_io_fail(context, ATTN_ERR_FORMAT,
                            "%" PRIu64 " tensors and %" PRIu64 " metadata entries, the file has %" PRIu64 " bytes after the header",
                            file->tensors, file->entries, left);
    return ATTN_OK;
}

/* In the file the contiguous axis is the first. */
static attn_status read_shape(const attn_io_context *context, attn_io_cursor *cursor, attn_archive_tensor *tensor)
{
    uint32_t axes = 0;
    attn_status status = attn_io_take(context, cursor, "a tensor's shape", &axes, sizeof axes);
    if (status) return status;
    if (axes > AXES) return attn_io_fail(context, ATTN_ERR_FORMAT, "%" PRIu32 " axes, at most %d are allowed", axes, AXES);
    tensor->rank = (int)axes;
    for (int i = tensor->rank - 1; i >= 0 && !status; i--) {
        uint64_t size = 0;
        status = attn_io_take(context, cursor, "a tensor's shape", &size, sizeof size);
        if (!status && size > INT64_MAX)
            return attn_io_fail(context, ATTN_ERR_FORMAT, "size %" PRIu64 " of axis %d is too large", size, i);
        tensor->shape[i] = (int64_t)size;
    }
    return status;
}

static attn_status read_type(const attn_io_context *context, attn_io_cursor *cursor, file_tensor *entry)
{
    char text[ATTN_IO_SHAPE_TEXT];
    attn_archive_tensor *tensor = &entry->tensor;
    uint32_t type = 0;
    attn_status status = attn_io_take(context, cursor, "a tensor's type", &type, sizeof type);
    if (status) return status;
    entry->type = attn_io_gguf_type_of(type);
    if (!entry->type) {
        const char *name = attn_io_gguf_type_name(type);
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "type %" PRIu32 "%s%s%s is not one of %s", type, name ? " (" : "",
                            name ? name : "", name ? ")" : "", attn_io_gguf_types);
    }
    tensor->dtype = entry->type->dtype;
    attn_io_shape_text(text, tensor->rank, tensor->shape);
    if (!attn_io_shape_bytes(tensor->dtype, tensor->rank, tensor->shape, &tensor->bytes))
        return attn_io_fail(context, ATTN_ERR_FORMAT, "no tensor of %s can have the shape %s", entry->type->name, text);
    if ((tensor->rank ? tensor->shape[tensor->rank - 1] : 1) % entry->type->numbers)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "rows of shape %s are no blocks of %d numbers (%s)", text,
                            entry->type->numbers, entry->type->name);
    const uint64_t blocks = tensor->bytes / attn_dtype_size(tensor->dtype) / (uint64_t)entry->type->numbers;
    entry->bytes = blocks * (uint64_t)entry->type->bytes; /* at most as many as decoded */
    return ATTN_OK;
}

/* Everything of a tensor but its data. */
static attn_status read_tensor(const attn_io_context *context, attn_io_cursor *cursor, file_tensor *entry)
{
    attn_io_context at = *context;
    attn_status status = attn_io_take_text(context, cursor, "a tensor's name", &entry->name);
    if (!status) status = attn_io_check_name(context, ATTN_ERR_FORMAT, entry->name);
    if (status) return status;
    at.noun = "tensor";
    at.name = entry->tensor.name = entry->name;
    status = read_shape(&at, cursor, &entry->tensor);
    if (!status) status = read_type(&at, cursor, entry);
    return status ? status : attn_io_take(&at, cursor, "a tensor's offset", &entry->offset, sizeof entry->offset);
}

static uint64_t padded(uint64_t bytes, uint64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/* As in ggml, each tensor begins where the one before it ends, padded, and no byte belongs to none but padding. */
static attn_status check_offsets(const attn_io_context *context, const gguf_file *file, const file_tensor *entries, uint64_t size)
{
    uint64_t next = 0, end = 0;
    for (uint64_t i = 0; i < file->tensors; i++) {
        attn_io_context at = *context;
        at.noun = "tensor";
        at.name = entries[i].name;
        if (entries[i].offset != next)
            return attn_io_fail(&at, ATTN_ERR_FORMAT,
                                "data begins at %" PRIu64 ", and not at %" PRIu64 ", where that of the tensor before it ends",
                                entries[i].offset, next);
        if (entries[i].bytes > size || next > size - entries[i].bytes)
            return attn_io_fail(&at, ATTN_ERR_FORMAT,
                                "%" PRIu64 " bytes from %" PRIu64 " on reach past the %" PRIu64 " bytes of data", entries[i].bytes,
                                next, size);
        end = next + entries[i].bytes;
        next = padded(end, file->alignment);
    }
    if (size > next)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "the file has %" PRIu64 " bytes of data, its tensors hold %" PRIu64, size,
                            end);
    return ATTN_OK;
}

static void *decoded(const file_tensor *entry, const unsigned char *data)
{
    const attn_io_gguf_type *type = entry->type;
    float *numbers = malloc(entry->tensor.bytes);
    for (uint64_t block = 0; numbers && block < entry->bytes / (uint64_t)type->bytes; block++)
        type->decode(data + block * (uint64_t)type->bytes, numbers + block * (uint64_t)type->numbers);
    return numbers;
}

static attn_status append_tensor(const attn_io_context *context, gguf_file *file, file_tensor *entry, const unsigned char *data,
                                 attn_archive *tensors)
{
    attn_archive_tensor *tensor = &entry->tensor;
    void *owned = NULL;
    if (!attn_io_wanted(tensors, tensor)) return ATTN_OK;
    tensor->data = data + entry->offset;
    if (tensor->bytes && (entry->type->decode || !attn_io_aligned(tensor->data, tensor->dtype))) {
        attn_io_context at = *context;
        at.noun = "tensor";
        at.name = tensor->name;
        if (tensor->bytes > file->decoded_left)
            return attn_io_fail(&at, ATTN_ERR_MEMORY, "%zu decoded bytes exceed the memory of this machine", tensor->bytes);
        file->decoded_left -= tensor->bytes;
        owned = entry->type->decode ? decoded(entry, tensor->data) : malloc(tensor->bytes);
        if (!owned) return attn_io_fail_memory(context);
        if (!entry->type->decode) memcpy(owned, tensor->data, tensor->bytes);
        tensor->data = owned;
    }
    return attn_io_append(context, tensors, tensor, owned);
}

static attn_status read_tensors(const attn_io_context *context, gguf_file *file, file_tensor *entries, attn_archive *tensors)
{
    attn_io_cursor *cursor = &file->cursor;
    attn_status status = ATTN_OK;
    for (uint64_t i = 0; i < file->tensors && !status; i++) status = read_tensor(context, cursor, &entries[i]);
    if (status) return status;
    /* A file without tensors may end after its metadata. */
    const uint64_t begin = padded(cursor->at, file->alignment);
    if (begin > cursor->size && file->tensors)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "the file ends before its data, at byte %zu", cursor->size);
    const uint64_t size = begin > cursor->size ? 0 : cursor->size - begin;
    status = check_offsets(context, file, entries, size);
    const unsigned char *data = cursor->bytes + (size ? begin : 0);
    for (uint64_t i = 0; i < file->tensors && !status; i++) status = append_tensor(context, file, &entries[i], data, tensors);
    return status;
}

static attn_status read_metadata(const attn_io_context *context, gguf_file *file, attn_archive *tensors)
{
    attn_status status = ATTN_OK;
    for (uint64_t i = 0; i < file->entries && !status; i++) {
        char *key;
        status = attn_io_take_text(context, &file->cursor, "a metadata key", &key);
        if (!status) status = attn_io_gguf_read_value(context, &file->cursor, key, tensors, &file->alignment);
        free(key);
    }
    return status;
}

static attn_status read_file(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors)
{
    gguf_file file = {
        .cursor = {.bytes = bytes, .size = size}, .alignment = DEFAULT_ALIGNMENT, .decoded_left = attn_io_machine_memory()};
    attn_status status = read_counts(context, &file);
    if (!status) status = read_metadata(context, &file, tensors);
    if (status) return status;
    file_tensor *entries = calloc(file.tensors ? (size_t)file.tensors : 1, sizeof *entries);
    if (!entries) return attn_io_fail_memory(context);
    status = read_tensors(context, &file, entries, tensors);
    for (uint64_t i = 0; i < file.tensors; i++) free(entries[i].name);
    free(entries);
    return status;
}

static bool recognize(const unsigned char *bytes, size_t size)
{
    return size >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

const attn_io_format attn_io_gguf = {.extension = ".gguf", .recognize = recognize, .read = read_file};
