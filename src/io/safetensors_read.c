/* SPDX-License-Identifier: MIT
 *
 * safetensors_read.c - reads .safetensors.  Data stays where it is unless it is misaligned for its elements.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "json.h"
#include "safetensors.h"
#include "text.h"

/* Nesting: header, tensor, list of numbers. */
enum { DEPTH = 3 };

typedef struct file_entry {
    attn_archive_tensor tensor; /* data is not set */
    int64_t begin;
    int64_t end;
} file_entry;

static attn_status read_dtype(const attn_io_context *context, const cJSON *node, attn_archive_tensor *tensor)
{
    char excerpt[ATTN_IO_EXCERPT];
    if (!cJSON_IsString(node)) return attn_io_fail(context, ATTN_ERR_FORMAT, "dtype is not a string");
    tensor->dtype = attn_io_safetensors_dtype(node->valuestring);
    if (tensor->dtype) return ATTN_OK;
    return attn_io_fail(context, ATTN_ERR_UNSUPPORTED,
                        "dtype '%s' is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL",
                        attn_io_excerpt(excerpt, node->valuestring));
}

static attn_status read_shape(const attn_io_context *context, const cJSON *node, attn_archive_tensor *tensor)
{
    if (!cJSON_IsArray(node)) return attn_io_fail(context, ATTN_ERR_FORMAT, "shape is not a list");
    int rank = 0;
    for (const cJSON *size = node->child; size; size = size->next) {
        if (rank == ATTN_MAX_RANK)
            return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "shape has %d sizes, at most %d are supported",
                                cJSON_GetArraySize(node), ATTN_MAX_RANK);
        if (!attn_io_json_integer(size, &tensor->shape[rank]))
            return attn_io_fail(context, ATTN_ERR_FORMAT, "size %d of shape is not an integer from 0 to 2^53-1", rank);
        rank++;
    }
    tensor->rank = rank;
    return ATTN_OK;
}

static attn_status read_offsets(const attn_io_context *context, const cJSON *node, file_entry *entry)
{
    if (!cJSON_IsArray(node) || cJSON_GetArraySize(node) != 2 || !attn_io_json_integer(node->child, &entry->begin) ||
        !attn_io_json_integer(node->child->next, &entry->end))
        return attn_io_fail(context, ATTN_ERR_FORMAT, "data_offsets is not a list of two integers from 0 to 2^53-1");
    if (entry->begin > entry->end)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "offsets [%" PRId64 ", %" PRId64 "] run backwards", entry->begin, entry->end);
    return ATTN_OK;
}

/* {"dtype": ..., "shape": ..., "data_offsets": ...}, each exactly once and nothing else. */
static attn_status read_entry(const attn_io_context *context, const cJSON *node, size_t data_size, file_entry *entry)
{
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    const cJSON *values[3] = {0};
    char text[ATTN_IO_SHAPE_TEXT];
    attn_archive_tensor *tensor = &entry->tensor;
    if (!cJSON_IsObject(node)) return attn_io_fail(context, ATTN_ERR_FORMAT, "not a JSON object");
    for (const cJSON *child = node->child; child; child = child->next) {
        int key = 0;
        while (key < 3 && strcmp(child->string, keys[key])) key++;
        if (key == 3)
            return attn_io_fail(context, ATTN_ERR_FORMAT, "key '%s' is not one of dtype, shape, data_offsets",
                                attn_io_excerpt(text, child->string));
        if (values[key]) return attn_io_fail(context, ATTN_ERR_FORMAT, "key '%s' occurs twice", keys[key]);
        values[key] = child;
    }
    for (int key = 0; key < 3; key++)
        if (!values[key]) return attn_io_fail(context, ATTN_ERR_FORMAT, "key '%s' is missing", keys[key]);

    attn_status status = read_dtype(context, values[0], tensor);
    if (!status) status = read_shape(context, values[1], tensor);
    if (!status) status = read_offsets(context, values[2], entry);
    if (status) return status;
    attn_io_shape_text(text, tensor->rank, tensor->shape);
    const char *type = attn_dtype_name(tensor->dtype);
    if (!attn_io_shape_bytes(tensor->dtype, tensor->rank, tensor->shape, &tensor->bytes))
        return attn_io_fail(context, ATTN_ERR_FORMAT, "no tensor of %s can have the shape %s", type, text);
    if ((uint64_t)entry->end > data_size)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "offsets [%" PRId64 ", %" PRId64 "] reach past the %zu bytes of data",
                            entry->begin, entry->end, data_size);
    if ((uint64_t)(entry->end - entry->begin) != tensor->bytes)
        return attn_io_fail(context, ATTN_ERR_FORMAT,
                            "offsets [%" PRId64 ", %" PRId64 "] hold %" PRId64 " bytes, shape %s of %s needs %zu", entry->begin,
                            entry->end, entry->end - entry->begin, text, type, tensor->bytes);
    return ATTN_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const file_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* Every byte of the data belongs to exactly one tensor.  Sorts the entries by offset. */
static attn_status check_coverage(const attn_io_context *context, file_entry *entries, size_t count, size_t data_size)
{
    int64_t covered = 0;
    if (count > 1) qsort(entries, count, sizeof *entries, compare_offsets);
    for (size_t i = 0; i < count; i++) {
        attn_io_context at = *context;
        at.noun = "tensor";
        at.name = entries[i].tensor.name;
        if (entries[i].begin < covered)
            return attn_io_fail(&at, ATTN_ERR_FORMAT,
                                "data begins at %" PRId64 ", inside the tensor before it, which ends at %" PRId64, entries[i].begin,
                                covered);
        if (entries[i].begin > covered)
            return attn_io_fail(&at, ATTN_ERR_FORMAT,
                                "data begins at %" PRId64 ", which leaves a hole: the tensor before it ends at %" PRId64,
                                entries[i].begin, covered);
        covered = entries[i].end;
    }
    if ((uint64_t)covered != data_size)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "the file has %zu bytes of data, its tensors hold %" PRId64, data_size,
                            covered);
    return ATTN_OK;
}

static attn_status append_entry(const attn_io_context *context, file_entry *entry, const unsigned char *data, attn_archive *tensors)
{
    void *copy = NULL;
    if (!attn_io_wanted(tensors, &entry->tensor)) return ATTN_OK;
    entry->tensor.data = data + entry->begin;
    if (entry->tensor.bytes && !attn_io_aligned(entry->tensor.data, entry->tensor.dtype)) {
        if (!(copy = malloc(entry->tensor.bytes))) return attn_io_fail_memory(context);
        entry->tensor.data = memcpy(copy, entry->tensor.data, entry->tensor.bytes);
    }
    return attn_io_append(context, tensors, &entry->tensor, copy);
}

static attn_status read_header(const attn_io_context *context, const cJSON *header, const unsigned char *data, size_t data_size,
                               attn_archive *tensors)
{
    size_t capacity = 0, count = 0;
    attn_status status = ATTN_OK;
    for (const cJSON *node = header->child; node; node = node->next) capacity++;
    file_entry *entries = calloc(capacity ? capacity : 1, sizeof *entries);
    if (!entries) return attn_io_fail_memory(context);
    const cJSON *metadata = NULL;
    for (const cJSON *node = header->child; node && !status; node = node->next) {
        if (!strcmp(node->string, ATTN_IO_METADATA)) {
            status = metadata ? attn_io_fail(context, ATTN_ERR_FORMAT, "the header has %s twice", ATTN_IO_METADATA)
                              : attn_io_json_read_metadata(context, node, tensors);
            metadata = node;
            continue;
        }
        attn_io_context at = *context;
        at.noun = "tensor";
        at.name = entries[count].tensor.name = node->string;
        status = attn_io_check_name(context, ATTN_ERR_FORMAT, node->string);
        if (!status) status = read_entry(&at, node, data_size, &entries[count++]);
    }
    if (!status) status = check_coverage(context, entries, count, data_size);
    for (size_t i = 0; i < count && !status; i++) status = append_entry(context, &entries[i], data, tensors);
    free(entries);
    return status;
}

attn_status attn_io_safetensors_read(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors)
{
    uint64_t length;
    if (size < ATTN_IO_LENGTH_BYTES)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "%zu bytes are too few for a .safetensors file", size);
    memcpy(&length, bytes, sizeof length);
    if (length > ATTN_IO_HEADER_MAX)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "header of %" PRIu64 " bytes, at most %d are allowed", length,
                            ATTN_IO_HEADER_MAX);
    if (length > size - ATTN_IO_LENGTH_BYTES)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "header of %" PRIu64 " bytes, the file has %zu after its length", length,
                            size - ATTN_IO_LENGTH_BYTES);
    const unsigned char *data = bytes + ATTN_IO_LENGTH_BYTES + length;
    cJSON *header;
    attn_status status =
        attn_io_json_parse(context, "header", (const char *)bytes + ATTN_IO_LENGTH_BYTES, (size_t)length, DEPTH, &header);
    if (status) return status;
    status = read_header(context, header, data, size - ATTN_IO_LENGTH_BYTES - (size_t)length, tensors);
    cJSON_Delete(header);
    return status;
}
